//! The locks of a file: those that hold now, and those that the server knows.

use namespace::{LockChange, Locks};
use std::sync::Arc;

/// Knowledge of a file's locks, if it has any or had when the lease came.
#[derive(Debug, Default)]
pub(crate) struct KnownLocks {
    /// The locks now.
    pub now: Arc<Locks>,
    /// The locks as the server has them, if they differ.
    pub written: Option<Arc<Locks>>,
}

impl KnownLocks {
    /// The locks as granted.
    pub fn told(locks: Locks) -> Option<Box<KnownLocks>> {
        (!locks.is_empty()).then(|| Box::new(KnownLocks { now: Arc::new(locks), written: None }))
    }

    /// Changes a lock. If the change was decided here, the server does not know it yet.
    pub fn change(known: &mut Option<Box<KnownLocks>>, change: &LockChange, decided_here: bool) {
        let locks = known.get_or_insert_default();
        if decided_here {
            locks.written.get_or_insert_with(|| Arc::clone(&locks.now));
        } else if let Some(written) = &mut locks.written {
            Arc::make_mut(written).change(change);
        }
        Arc::make_mut(&mut locks.now).change(change);
        // Mostly a lock is soon released. Then nothing is left to log.
        locks.written.take_if(|written| *written == locks.now);
        known.take_if(|locks| locks.now.is_empty() && locks.written.is_none());
    }
}
