//! Byte-range locks of one object as Windows has them (MS-FSA §2.1.4.10, §2.1.5.8, §2.1.5.9): each
//! lock is one of its own, and is unlocked by exactly its range.

use crate::{ByteRange, StoreError};
use lease::caching::OpenId;

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteLock {
    pub(crate) open: OpenId,
    pub(crate) range: ByteRange,
    pub(crate) exclusive: bool,
}

/// The locks of an object, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteLocks(Vec<ByteLock>);

/// Locks of one object, at most.
const LOCKS_MAX: usize = 4096;

impl ByteRange {
    /// The last byte; none if the range is empty.
    pub(crate) fn last(self) -> Option<u64> {
        self.length.checked_sub(1).map(|more| self.offset.saturating_add(more))
    }

    /// Whether it ends within 2^64.
    pub(crate) fn is_valid(self) -> bool {
        self.length == 0 || self.offset.checked_add(self.length - 1).is_some()
    }

    /// Whether two ranges are in each other's way. An empty range is a point between two bytes: it
    /// is in the way of what has bytes on both sides (MS-FSA §2.1.4.10).
    fn meets(self, other: ByteRange) -> bool {
        let inside = |point: u64, range: ByteRange, last: u64| range.offset < point && point <= last;
        match (self.last(), other.last()) {
            (Some(last), Some(others)) => self.offset <= others && other.offset <= last,
            (None, Some(others)) => inside(self.offset, other, others),
            (Some(last), None) => inside(other.offset, self, last),
            (None, None) => false,
        }
    }
}

impl ByteLocks {
    /// Whether a lock begins below `size`.
    pub(crate) fn begins_below(&self, size: u64) -> bool {
        self.0.iter().any(|lock| lock.range.offset < size)
    }

    /// Locks. A shared lock goes beside other shared ones, and on exclusive ones of its own open.
    /// An exclusive one goes beside none, not even of its own open.
    pub(crate) fn lock(&mut self, lock: ByteLock) -> Result<(), StoreError> {
        if self.0.len() >= LOCKS_MAX {
            return Err(StoreError::TooMany);
        }
        let bars = |other: &ByteLock| lock.exclusive || other.exclusive && other.open != lock.open;
        let conflicts = |other: &ByteLock| bars(other) && lock.range.meets(other.range);
        if self.0.iter().any(conflicts) {
            return Err(StoreError::LockNotGranted);
        }
        self.0.push(lock);
        Ok(())
    }

    /// Unlocks the newest lock of the open that has exactly this range, an exclusive one first.
    pub(crate) fn unlock(&mut self, open: OpenId, range: ByteRange) -> Result<ByteLock, StoreError> {
        let is_it = |lock: &ByteLock| lock.open == open && lock.range == range;
        let at = self.0.iter().position(|lock| is_it(lock) && lock.exclusive);
        let at = at.or_else(|| self.0.iter().rposition(is_it)).ok_or(StoreError::RangeNotLocked)?;
        Ok(self.0.remove(at))
    }

    /// The locks of an open, oldest first.
    pub(crate) fn of(&self, open: OpenId) -> impl Iterator<Item = &ByteLock> {
        self.0.iter().filter(move |lock| lock.open == open)
    }

    /// Unlocks everything of an open. Returns whether there was anything.
    pub(crate) fn unlock_all(&mut self, open: OpenId) -> bool {
        let before = self.0.len();
        self.0.retain(|lock| lock.open != open);
        self.0.len() < before
    }

    /// Whether the open may read the range, or write it: no exclusive lock of another is on it, and
    /// for a write no shared one either, whoever has it (MS-FSA §2.1.4.10).
    pub(crate) fn admits(&self, open: OpenId, range: ByteRange, write: bool) -> bool {
        !self.0.iter().any(|lock| {
            let bars = if lock.exclusive { lock.open != open } else { write };
            bars && range.length > 0 && lock.range.meets(range)
        })
    }

    /// The parts of `range` that no lock of the open covers, in order: what may be unlocked for
    /// other machines after a lock on the range has gone.
    pub(crate) fn uncovered(&self, open: OpenId, range: ByteRange) -> Vec<(u64, u64)> {
        gaps(range, self.0.iter().filter(|lock| lock.open == open))
    }

    /// The parts of `range` that no exclusive lock of the open covers, in order.
    pub(crate) fn not_exclusive(&self, open: OpenId, range: ByteRange) -> Vec<(u64, u64)> {
        gaps(range, self.0.iter().filter(|lock| lock.open == open && lock.exclusive))
    }
}

/// The parts of `range` that none of the locks covers.
fn gaps<'a>(range: ByteRange, locks: impl Iterator<Item = &'a ByteLock>) -> Vec<(u64, u64)> {
    let Some(last) = range.last() else { return Vec::new() };
    let covered = locks.filter_map(|lock| Some((lock.range.offset, lock.range.last()?)));
    let mut covered: Vec<(u64, u64)> = covered.collect();
    covered.sort_unstable();
    let (mut from, mut parts) = (Some(range.offset), Vec::new());
    for (first, end) in covered {
        let Some(at) = from else { break };
        if end < at || first > last {
            continue;
        }
        if first > at {
            parts.push((at, first - 1));
        }
        from = end.checked_add(1);
    }
    if let Some(at) = from.filter(|at| *at <= last) {
        parts.push((at, last));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lock(open: u64, offset: u64, length: u64, exclusive: bool) -> ByteLock {
        ByteLock { open: OpenId(open), range: ByteRange { offset, length }, exclusive }
    }

    #[test]
    fn exclusive_locks_of_ones_own_conflict_too() {
        let mut locks = ByteLocks::default();
        locks.lock(lock(1, 0, 10, true)).unwrap();
        assert_eq!(locks.lock(lock(1, 5, 1, true)), Err(StoreError::LockNotGranted));
        assert_eq!(locks.lock(lock(2, 5, 1, false)), Err(StoreError::LockNotGranted));
        assert_eq!(locks.lock(lock(2, 9, 1, true)), Err(StoreError::LockNotGranted));
        locks.lock(lock(2, 10, 5, true)).unwrap();
        assert_eq!(
            locks.unlock(OpenId(1), ByteRange { offset: 0, length: 9 }),
            Err(StoreError::RangeNotLocked)
        );
        locks.unlock(OpenId(1), ByteRange { offset: 0, length: 10 }).unwrap();
        locks.lock(lock(1, 0, 10, false)).unwrap();
        locks.lock(lock(1, 0, 10, false)).unwrap();
        assert!(!locks.admits(OpenId(1), ByteRange { offset: 3, length: 1 }, true), "not even one's own");
        assert!(locks.admits(OpenId(3), ByteRange { offset: 3, length: 1 }, false));
    }

    #[test]
    fn a_shared_lock_goes_on_an_exclusive_one_of_its_own_open() {
        let mut locks = ByteLocks::default();
        let range = ByteRange { offset: 5, length: 10 };
        locks.lock(lock(1, 0, 10, true)).unwrap();
        locks.lock(lock(1, 5, 10, false)).unwrap();
        assert_eq!(locks.not_exclusive(OpenId(1), range), [(10, 14)]);
        // The exclusive one goes first, and the shared one covers still.
        assert!(locks.unlock(OpenId(1), ByteRange { offset: 0, length: 10 }).unwrap().exclusive);
        assert_eq!(locks.uncovered(OpenId(1), ByteRange { offset: 0, length: 10 }), [(0, 4)]);
        assert_eq!(locks.lock(lock(2, 5, 1, true)), Err(StoreError::LockNotGranted));
        locks.lock(lock(2, 5, 1, false)).unwrap();
    }

    #[test]
    fn an_empty_lock_is_a_point() {
        let mut locks = ByteLocks::default();
        locks.lock(lock(1, 10, 0, true)).unwrap();
        locks.lock(lock(2, 10, 0, true)).unwrap();
        locks.lock(lock(2, 10, 5, true)).unwrap();
        assert_eq!(locks.lock(lock(3, 9, 2, true)), Err(StoreError::LockNotGranted));
        locks.lock(lock(3, 0, 10, true)).unwrap();
        assert_eq!(locks.lock(lock(3, u64::MAX, 1, true)), Ok(()));
        assert!(!ByteRange { offset: u64::MAX, length: 2 }.is_valid());
    }

    proptest! {
        #[test]
        fn as_a_map_of_bytes_has_it(
            steps in prop::collection::vec((1u64..4, 0u64..12, 1u64..6, any::<bool>(), any::<bool>()), 0..40)
        ) {
            let (mut locks, mut model): (ByteLocks, Vec<ByteLock>) = Default::default();
            for (open, offset, length, exclusive, locking) in steps {
                let new = lock(open, offset, length, exclusive);
                let bytes = |l: &ByteLock| l.range.offset..l.range.offset + l.range.length;
                if locking {
                    let free = model.iter().all(|l| {
                        let bars = exclusive || l.exclusive && l.open != new.open;
                        !bars || bytes(l).all(|b| !bytes(&new).contains(&b))
                    });
                    prop_assert_eq!(locks.lock(new).is_ok(), free);
                    if free { model.push(new) }
                } else {
                    let had = model.iter().any(|l| l.open == new.open && l.range == new.range);
                    let gone = locks.unlock(new.open, new.range);
                    prop_assert_eq!(gone.is_ok(), had);
                    if let Ok(gone) = gone {
                        let at = model.iter().position(|l| *l == gone).unwrap();
                        model.remove(at);
                        let left = |b: u64| model.iter().any(|l| l.open == new.open && bytes(l).contains(&b));
                        let parts = locks.uncovered(new.open, new.range);
                        for b in bytes(&new) {
                            let free = parts.iter().any(|(a, z)| (*a..=*z).contains(&b));
                            prop_assert_eq!(free, !left(b));
                        }
                    }
                }
                for b in 0..18 {
                    for open in 1..4 {
                        let at = ByteRange { offset: b, length: 1 };
                        let on = |l: &&ByteLock| bytes(l).contains(&b);
                        let reads = !model.iter().filter(on).any(|l| l.exclusive && l.open.0 != open);
                        let writes = reads && !model.iter().filter(on).any(|l| !l.exclusive);
                        prop_assert_eq!(locks.admits(OpenId(open), at, false), reads);
                        prop_assert_eq!(locks.admits(OpenId(open), at, true), writes);
                    }
                }
            }
        }
    }
}
