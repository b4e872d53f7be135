//! Files whose leases are going or have gone. An answer that was decided under such a lease, and is
//! given to the kernel once the lease is being revoked, may be kept for no time.

use ident::FileId;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::hash::hash;

/// The number of counters, which files share. Two files that are in use at a time seldom share one.
const SLOTS: usize = 4096;

/// The number of the last time that the leases of a file, or of all files, went. The times of all
/// files are counted together.
#[derive(Debug)]
pub(crate) struct Barred {
    events: AtomicU64,
    everything: AtomicU64,
    files: Box<[AtomicU64]>,
    /// How many revocations of a file's leases are under way.
    revoking: Box<[AtomicU32]>,
}

/// A revocation of a file's leases, until it is dropped.
#[derive(Debug)]
pub(crate) struct RevocationGuard<'a>(&'a AtomicU32);

impl Drop for RevocationGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Default for Barred {
    fn default() -> Barred {
        let files = (0..SLOTS).map(|_| AtomicU64::default()).collect();
        let revoking = (0..SLOTS).map(|_| AtomicU32::default()).collect();
        Barred { events: AtomicU64::default(), everything: AtomicU64::default(), files, revoking }
    }
}

impl Barred {
    /// The number of times so far. A request notes the number before it asks.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(SeqCst)
    }

    /// The leases of `file` go.
    pub(crate) fn bar(&self, file: &FileId) {
        self.add(self.slot(file));
    }

    /// All leases go.
    pub(crate) fn bar_everything(&self) {
        self.add(&self.everything);
    }

    /// The leases of `file` are about to go.
    pub(crate) fn revoke(&self, file: &FileId) -> RevocationGuard<'_> {
        let count = &self.revoking[slot(file)];
        count.fetch_add(1, SeqCst);
        RevocationGuard(count)
    }

    /// Whether the leases of `file` are going, or have gone since there were so many `events`. It
    /// may also say so of a file that shares its counter.
    pub(crate) fn is_barred(&self, file: &FileId, events: u64) -> bool {
        self.revoking[slot(file)].load(SeqCst) > 0
            || self.slot(file).load(SeqCst).max(self.everything.load(SeqCst)) > events
    }

    fn slot(&self, file: &FileId) -> &AtomicU64 {
        &self.files[slot(file)]
    }

    fn add(&self, last: &AtomicU64) {
        last.fetch_max(self.events.fetch_add(1, SeqCst) + 1, SeqCst);
    }
}

fn slot(file: &FileId) -> usize {
    hash(file) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_began_before_is_barred() {
        let (barred, [one, other]) = (Barred::default(), [2, 3].map(|n| FileId::root().child(n)));
        let before = barred.events();
        barred.bar(&one);
        assert!(barred.is_barred(&one, before) && !barred.is_barred(&other, before));
        assert!(!barred.is_barred(&one, barred.events()));
        let before = barred.events();
        barred.bar_everything();
        assert!(barred.is_barred(&one, before) && barred.is_barred(&other, before));
        assert!(!barred.is_barred(&other, barred.events()));
    }

    #[test]
    fn what_is_being_revoked_is_barred() {
        let (barred, file) = (Barred::default(), FileId::root().child(2));
        let (first, second) = (barred.revoke(&file), barred.revoke(&file));
        assert!(barred.is_barred(&file, barred.events()));
        drop(first);
        assert!(barred.is_barred(&file, barred.events()));
        drop(second);
        assert!(!barred.is_barred(&file, barred.events()));
    }
}
