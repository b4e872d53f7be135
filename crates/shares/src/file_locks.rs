//! Locks on shares' files. An operation takes the lock to write a share's file, to delete it, or to
//! conclude from the file for the database. So the database's thread never waits for a file, and a
//! finding still holds when it is noted (leasedb, fault 5).
//!
//! A lock covers all shares of a batch at once. A holder never takes a second lock, so there is no
//! deadlock.

use namespace::ShareId;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;

/// The shares that are locked.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    taken: Mutex<FxHashSet<ShareId>>,
    freed: Condvar,
}

/// A lock on shares, until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock<'a> {
    file_locks: &'a FileLocks,
    ids: FxHashSet<ShareId>,
}

impl FileLocks {
    /// Waits until none of these shares is locked, then locks them.
    pub fn take(&self, ids: &[ShareId]) -> FileLock<'_> {
        let ids: FxHashSet<ShareId> = ids.iter().copied().collect();
        let mut taken = self.taken.lock();
        while ids.iter().any(|id| taken.contains(id)) {
            self.freed.wait(&mut taken);
        }
        taken.extend(&ids);
        FileLock { file_locks: self, ids }
    }
}

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        let mut taken = self.file_locks.taken.lock();
        for id in &self.ids {
            taken.remove(id);
        }
        drop(taken);
        self.file_locks.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn one_at_a_time_for_each_share_and_nobody_stands_in_each_others_way() {
        let file_locks = FileLocks::default();
        let at: [AtomicU32; 5] = Default::default();
        let id = |n: usize| ShareId([u8::try_from(n).unwrap(); 16]);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (file_locks, at) = (&file_locks, &at);
                scope.spawn(move || {
                    for round in 0..500 {
                        let mine = [(thread + round) % 5, (thread * 3 + round * 2) % 5];
                        let _turn = file_locks.take(&mine.map(id));
                        let mut each = mine.to_vec();
                        each.dedup();
                        for n in &each {
                            assert_eq!(at[*n].fetch_add(1, Ordering::SeqCst), 0);
                        }
                        thread::yield_now();
                        for n in &each {
                            at[*n].fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert!(file_locks.taken.lock().is_empty());
    }
}
