//! Locks of byte ranges: POSIX' (`fcntl`) and BSD's (`flock`). Equal sets of locks have equal
//! tables.
//!
//! The server's table names each lock's session. A machine sees its own owners, and all other
//! machines as one. `fcntl(F_GETLK)` needs to know that a range is locked elsewhere, and how. It
//! does not need the holder (Farsite §6: a lease conveys knowledge, and no more of it than was
//! asked for).

use serde::{Deserialize, Serialize};

/// Locks of one file, at most. Its record is read and written whole. Further locks are refused with
/// [`crate::Error::TooManyLocks`].
pub const LOCKS_MAX: usize = 4096;

/// The two sorts of locks, which do not interact (Linux, flock(2): "flock() and fcntl() locks do
/// not interact").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockSpace {
    /// Locks of ranges. A process owns them, or an open file (F_OFD_SETLK).
    Posix,
    /// Locks of whole files. An open file owns them.
    Flock,
}

/// The kind of a lock, by what it keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// From locking to write (F_RDLCK, LOCK_SH).
    Read,
    /// From locking at all (F_WRLCK, LOCK_EX).
    Write,
}

/// Bytes `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockRange {
    /// The first byte.
    pub first: u64,
    /// The last byte, which is included.
    pub last: u64,
}

impl LockRange {
    /// The whole file, whatever its size.
    pub const WHOLE: LockRange = LockRange { first: 0, last: u64::MAX };

    /// Whether the range has a byte.
    pub fn makes_sense(self) -> bool {
        self.first <= self.last
    }

    fn overlaps(self, other: LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    fn covers(self, other: LockRange) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether the two ranges together are one range.
    fn touches(self, other: LockRange) -> bool {
        let follows = |a: LockRange, b: LockRange| a.last.checked_add(1) == Some(b.first);
        self.overlaps(other) || follows(self, other) || follows(other, self)
    }

    fn and(self, other: LockRange) -> LockRange {
        LockRange { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// The rest of the range without `other`.
    fn but(self, other: LockRange) -> impl Iterator<Item = LockRange> {
        let before = other.first.checked_sub(1).map(|last| LockRange { last: last.min(self.last), ..self });
        let after = other.last.checked_add(1).map(|first| LockRange { first: first.max(self.first), ..self });
        before.into_iter().chain(after).filter(|range| range.makes_sense())
    }
}

/// A lock. The kind of table determines the type of its holder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lock<H> {
    /// The sort of lock.
    pub space: LockSpace,
    /// The holder.
    pub holder: H,
    /// The locked range.
    pub range: LockRange,
    /// The kind of lock.
    pub kind: LockKind,
    /// The process that asked for it, numbered as on its own machine.
    pub pid: u32,
}

/// A change of one owner's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockChange {
    /// The owner, by a number of the asking machine.
    pub owner: u64,
    /// The process that asks.
    pub pid: u32,
    /// The sort of lock.
    pub space: LockSpace,
    /// The range to lock or unlock.
    pub range: LockRange,
    /// The new kind of lock, or `None` to unlock.
    pub kind: Option<LockKind>,
}

/// All locks of a file, by holders `H`. The table is sorted, without overlap between locks of one
/// holder, and has as few pieces as possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Lock<H>>", bound(deserialize = "H: Ord + Deserialize<'de>"))]
pub struct LockTable<H>(Vec<Lock<H>>);

/// A table that is not in its one form, or that has conflicting locks of two holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("locks not in their one form, or in conflict")]
pub struct NotATable;

impl<H> Default for LockTable<H> {
    fn default() -> LockTable<H> {
        LockTable(Vec::new())
    }
}

impl<H: Ord> TryFrom<Vec<Lock<H>>> for LockTable<H> {
    type Error = NotATable;

    fn try_from(locks: Vec<Lock<H>>) -> Result<LockTable<H>, NotATable> {
        let in_order = |a: &Lock<H>, b: &Lock<H>| {
            let same = (a.space, &a.holder) == (b.space, &b.holder);
            let apart = a.range.last < b.range.first && (a.kind != b.kind || !a.range.touches(b.range));
            if same { apart } else { (a.space, &a.holder) < (b.space, &b.holder) }
        };
        let sound = locks.iter().all(|lock| lock.range.makes_sense()) && locks.is_sorted_by(in_order);
        let table = LockTable(locks);
        if sound && !table.conflicts_within() { Ok(table) } else { Err(NotATable) }
    }
}

impl<H: Ord> LockTable<H> {
    /// Whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of locked pieces.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All locks, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Lock<H>> {
        self.0.iter()
    }

    /// The locks of `holder`, in order.
    pub fn of(&self, space: LockSpace, holder: &H) -> &[Lock<H>] {
        let (from, to) = self.place(space, holder);
        self.0.get(from..to).unwrap_or_default()
    }

    /// The first lock of another holder that keeps `holder` from locking `range` so.
    pub fn conflict(
        &self,
        space: LockSpace,
        holder: &H,
        range: LockRange,
        kind: LockKind,
    ) -> Option<&Lock<H>> {
        let conflicts = |lock: &&Lock<H>| {
            lock.space == space
                && lock.holder != *holder
                && lock.range.overlaps(range)
                && (lock.kind == LockKind::Write || kind == LockKind::Write)
        };
        self.0.iter().filter(conflicts).min_by_key(|lock| lock.range.first)
    }

    /// Whether [`LockTable::set`] would change nothing: `holder` has all of `range` locked exactly
    /// so, or nothing of it to unlock.
    pub fn has(&self, space: LockSpace, holder: &H, range: LockRange, kind: Option<LockKind>) -> bool {
        let its = self.of(space, holder);
        match kind {
            Some(kind) => its.iter().any(|lock| lock.kind == kind && lock.range.covers(range)),
            None => !its.iter().any(|lock| lock.range.overlaps(range)),
        }
    }

    /// Gives `holder` this lock on `range`, or none, in place of its earlier locks there (POSIX
    /// fcntl: locks are split, merged, raised and lowered).
    pub fn set(&mut self, space: LockSpace, holder: &H, range: LockRange, kind: Option<LockKind>, pid: u32)
    where
        H: Clone,
    {
        let (from, to) = self.place(space, holder);
        let mut pieces: Vec<Lock<H>> = Vec::with_capacity(to - from + 2);
        for lock in self.0.get(from..to).unwrap_or_default() {
            pieces.extend(lock.range.but(range).map(|range| Lock { range, ..lock.clone() }));
        }
        if let Some(kind) = kind {
            let mut new = Lock { space, holder: holder.clone(), range, kind, pid };
            pieces.retain(|piece| {
                let joins = piece.kind == kind && piece.range.touches(new.range);
                if joins {
                    new.range = new.range.and(piece.range);
                }
                !joins
            });
            pieces.push(new);
            pieces.sort_unstable_by_key(|piece| piece.range.first);
        }
        self.0.splice(from..to, pieces);
    }

    /// Keeps only the locks of these holders.
    pub fn retain(&mut self, mut stays: impl FnMut(&H) -> bool) {
        self.0.retain(|lock| stays(&lock.holder));
    }

    /// The place of the locks of `holder` in the table, even if there are none.
    fn place(&self, space: LockSpace, holder: &H) -> (usize, usize) {
        let from = self.0.partition_point(|lock| (lock.space, &lock.holder) < (space, holder));
        let to = self.0.partition_point(|lock| (lock.space, &lock.holder) <= (space, holder));
        (from, to)
    }

    /// Whether two holders have conflicting locks. The locks are sorted by ranges, so each is only
    /// compared with those that reach into it.
    fn conflicts_within(&self) -> bool {
        let mut sorted: Vec<&Lock<H>> = self.0.iter().collect();
        sorted.sort_unstable_by_key(|lock| (lock.space, lock.range));
        let mut open: Vec<&Lock<H>> = Vec::new();
        for lock in sorted {
            open.retain(|other| other.space == lock.space && other.range.last >= lock.range.first);
            let writes = |a: &Lock<H>, b: &Lock<H>| a.kind == LockKind::Write || b.kind == LockKind::Write;
            if open.iter().any(|other| other.holder != lock.holder && writes(other, lock)) {
                return true;
            }
            open.push(lock);
        }
        false
    }
}

impl<S: Ord + Clone> LockTable<(S, u64)> {
    /// The part of the table that `session` may know.
    pub fn seen_by(&self, session: &S) -> Locks {
        let mut locks = Locks::default();
        for Lock { space, holder: (whose, owner), range, kind, pid } in &self.0 {
            if whose == session {
                locks.table.set(*space, &Holder::Here(*owner), *range, Some(*kind), *pid);
            } else {
                let before = locks.table.len();
                locks.table.set(*space, &Holder::Elsewhere, *range, Some(*kind), 0);
                locks.merged += (before + 1).saturating_sub(locks.table.len()) as u32;
            }
        }
        locks
    }

    /// Carries out a change that `session` has decided.
    pub fn change(&mut self, session: &S, change: &LockChange) {
        let LockChange { owner, pid, space, range, kind } = *change;
        self.set(space, &(session.clone(), owner), range, kind, pid);
    }
}

/// The holder of a lock, as a machine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Holder {
    /// An owner on this machine.
    Here(u64),
    /// An owner on another machine.
    Elsewhere,
}

/// A conflicting lock, as `fcntl(F_GETLK)` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The locked range.
    pub range: LockRange,
    /// The kind of lock.
    pub kind: LockKind,
    /// The process, if it is on this machine.
    pub pid: Option<u32>,
}

/// [`lease::Field::Locks`] as one machine knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    table: LockTable<Holder>,
    /// The number of others' locks that do not show, because they are merged with adjacent ones of
    /// others. All of them count towards [`LOCKS_MAX`].
    merged: u32,
}

impl Locks {
    /// Whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The number of the file's locks.
    pub fn len(&self) -> usize {
        self.table.len() + self.merged as usize
    }

    /// Whether `owner` has locked anything.
    pub fn has_any(&self, space: LockSpace, owner: u64) -> bool {
        !self.table.of(space, &Holder::Here(owner)).is_empty()
    }

    /// Whether the change would have no effect.
    pub fn has(&self, change: &LockChange) -> bool {
        self.table.has(change.space, &Holder::Here(change.owner), change.range, change.kind)
    }

    /// Carries out a change by this machine.
    pub fn change(&mut self, change: &LockChange) {
        let LockChange { owner, pid, space, range, kind } = *change;
        self.table.set(space, &Holder::Here(owner), range, kind, pid);
    }

    /// The first lock that keeps `owner` from locking `range` so.
    pub fn conflict(
        &self,
        space: LockSpace,
        owner: u64,
        range: LockRange,
        kind: LockKind,
    ) -> Option<Conflict> {
        let lock = self.table.conflict(space, &Holder::Here(owner), range, kind)?;
        let pid = matches!(lock.holder, Holder::Here(_)).then_some(lock.pid);
        Some(Conflict { range: lock.range, kind: lock.kind, pid })
    }

    /// The holders that the change has to wait for: owners on this machine, and all others as one.
    pub fn in_the_way(&self, change: &LockChange) -> impl Iterator<Item = Holder> + use<'_> {
        let LockChange { owner, space, range, kind, .. } = *change;
        let conflicts = move |lock: &&Lock<Holder>| {
            let writes = lock.kind == LockKind::Write || kind == Some(LockKind::Write);
            kind.is_some()
                && lock.space == space
                && lock.holder != Holder::Here(owner)
                && lock.range.overlaps(range)
                && writes
        };
        self.table.iter().filter(conflicts).map(|lock| lock.holder)
    }

    /// The changes of this machine since `before`, in an order in which each can be decided.
    ///
    /// An owner with other locks than before first loses all that it had. So in between nothing is
    /// locked that is not locked at the beginning or the end. There are never more locks than at
    /// one of these.
    pub fn changes_since(&self, before: &Locks) -> Vec<LockChange> {
        let owner = |lock: &Lock<Holder>| match lock.holder {
            Holder::Here(owner) => Some((lock.space, owner)),
            Holder::Elsewhere => None,
        };
        let mut owners: Vec<_> = self.table.iter().chain(before.table.iter()).filter_map(owner).collect();
        owners.sort_unstable();
        owners.dedup();
        let (mut unlock, mut lock) = (Vec::new(), Vec::new());
        for (space, owner) in owners {
            let of = |locks: &Locks| locks.table.of(space, &Holder::Here(owner)).to_vec();
            let (had, has) = (of(before), of(self));
            if had == has {
                continue;
            }
            if !had.is_empty() {
                unlock.push(LockChange { owner, pid: 0, space, range: LockRange::WHOLE, kind: None });
            }
            let again = has.into_iter().map(|Lock { range, kind, pid, .. }| LockChange {
                owner,
                pid,
                space,
                range,
                kind: Some(kind),
            });
            lock.extend(again);
        }
        unlock.append(&mut lock);
        unlock
    }
}
