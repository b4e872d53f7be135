//! How recent a state this machine's share server has acted on.
//!
//! An empty state refers to nothing, and an older state does not refer to shares stored since.
//! Neither is authority to release any share.
//!
//! ```text
//! shares/acted-for    the number of the latest session that had begun in a state by which a
//!                     share was released
//! ```

use crate::references::ReferenceIndex;
use data_dir::replace_plain;
use lease::SessionId;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const FILE: &str = "acted-for";

/// The record of the latest state by which this share server released shares.
pub struct Acted {
    dir: PathBuf,
    /// The session; none if no share was ever released.
    latest: Mutex<Option<SessionId>>,
    /// The current state was found to be no older.
    trusts: AtomicBool,
    /// The state was reported to be older.
    said: AtomicBool,
}

impl Acted {
    /// Reads the record of the share server in `dir`.
    pub fn of(dir: &Path) -> Acted {
        let latest = std::fs::read_to_string(dir.join(FILE)).ok();
        let latest = latest.and_then(|text| text.trim().parse().ok()).map(SessionId);
        Acted {
            dir: dir.to_owned(),
            latest: Mutex::new(latest),
            trusts: AtomicBool::default(),
            said: AtomicBool::default(),
        }
    }

    /// Whether the state was found to be no older than the one acted on. Without that finding no
    /// share is released.
    pub fn trusts(&self) -> bool {
        self.trusts.load(SeqCst)
    }

    /// Checks the state, unless it was already found to be recent enough.
    pub fn look(&self, references: &dyn ReferenceIndex) {
        if self.trusts() || references.arrangement().is_none() {
            return;
        }
        let latest = *self.latest.lock();
        if latest.is_none_or(|session| references.has_begun(session)) {
            self.trusts.store(true, SeqCst);
        } else if !self.said.swap(true, SeqCst) {
            tracing::error!(
                shares = %self.dir.display(),
                "the server's state is older than what its shares were kept for, or another file system's: no share is let go. Put the server's state back, or, if this is the one to go on with, \
                 remove the file {FILE} there and start again"
            );
        }
    }

    /// Notes that `session` has begun in the state.
    pub fn note(&self, session: SessionId) {
        let mut latest = self.latest.lock();
        if !self.trusts() || latest.is_some_and(|latest| latest >= session) {
            return;
        }
        match replace_plain(&self.dir, FILE, format!("{}\n", session.0).as_bytes()) {
            Ok(()) => *latest = Some(session),
            // The earlier session stays in the file, and is as true.
            Err(error) => tracing::warn!(%error, "for which state shares are kept could not be noted"),
        }
    }
}
