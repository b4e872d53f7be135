//! Locks of byte ranges: POSIX' (`fcntl`) and BSD's (`flock`), in tables that have one form for
//! each thing they can say.
//!
//! The server's table names each lock's session. A machine is shown its own owners, and all other
//! machines as one: that a range is locked elsewhere and how is what `fcntl(F_GETLK)` needs, and by
//! whom is nobody's business (Farsite §6: a lease conveys knowledge, and no more of it than was
//! asked for).

use serde::{Deserialize, Serialize};

/// Locks of one file, at most: its record is read and written whole. What is beyond that is refused
/// with [`crate::Error::TooManyLocks`].
pub const LOCKS_MAX: usize = 4096;

/// The two sorts of locks, which know nothing of each other (Linux, flock(2): "flock() and fcntl()
/// locks do not interact").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockSpace {
    /// By ranges; a process owns them, or an open file (F_OFD_SETLK).
    Posix,
    /// Of whole files; an open file owns them.
    Flock,
}

/// What a lock keeps others from.
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
    /// The last, itself included.
    pub last: u64,
}

impl LockRange {
    /// The whole file, whatever its size.
    pub const WHOLE: LockRange = LockRange { first: 0, last: u64::MAX };

    /// Whether there is a byte in it.
    pub fn makes_sense(self) -> bool {
        self.first <= self.last
    }

    fn overlaps(self, other: LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    fn covers(self, other: LockRange) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether the two are one range together.
    fn touches(self, other: LockRange) -> bool {
        let follows = |a: LockRange, b: LockRange| a.last.checked_add(1) == Some(b.first);
        self.overlaps(other) || follows(self, other) || follows(other, self)
    }

    fn and(self, other: LockRange) -> LockRange {
        LockRange { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// What is left of it without `other`.
    fn but(self, other: LockRange) -> impl Iterator<Item = LockRange> {
        let before = other.first.checked_sub(1).map(|last| LockRange { last: last.min(self.last), ..self });
        let after = other.last.checked_add(1).map(|first| LockRange { first: first.max(self.first), ..self });
        before.into_iter().chain(after).filter(|range| range.makes_sense())
    }
}

/// A lock. Who holds it is said by table: see the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lock<H> {
    /// Of which sort.
    pub space: LockSpace,
    /// Whose.
    pub holder: H,
    /// What is locked.
    pub range: LockRange,
    /// How.
    pub kind: LockKind,
    /// The process that asked for it, as its own machine counts processes.
    pub pid: u32,
}

/// A change of what one owner has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockChange {
    /// Whose: a number that means something on the machine that asks.
    pub owner: u64,
    /// The process that asks.
    pub pid: u32,
    /// Of which sort.
    pub space: LockSpace,
    /// What is to be locked, or unlocked.
    pub range: LockRange,
    /// How it is to be locked from now on; nothing unlocks.
    pub kind: Option<LockKind>,
}

/// All locks of a file, by holders `H`: sorted, of one holder without overlap, and in as few pieces
/// as they can be said in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Lock<H>>", bound(deserialize = "H: Ord + Deserialize<'de>"))]
pub struct LockTable<H>(Vec<Lock<H>>);

/// A table as its one form has it not, or one in which two holders have what only one can have.
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

    /// How many pieces are locked.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All locks, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Lock<H>> {
        self.0.iter()
    }

    /// What `holder` has locked, in order.
    pub fn of(&self, space: LockSpace, holder: &H) -> &[Lock<H>] {
        let (from, to) = self.place(space, holder);
        self.0.get(from..to).unwrap_or_default()
    }

    /// The first lock of somebody else that keeps `holder` from locking `range` so.
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

    /// Whether `holder` has all of `range` locked exactly so (or nothing of it locked): then
    /// [`LockTable::set`] changes nothing.
    pub fn has(&self, space: LockSpace, holder: &H, range: LockRange, kind: Option<LockKind>) -> bool {
        let its = self.of(space, holder);
        match kind {
            Some(kind) => its.iter().any(|lock| lock.kind == kind && lock.range.covers(range)),
            None => !its.iter().any(|lock| lock.range.overlaps(range)),
        }
    }

    /// `holder` has `range` locked so from now on, or not at all, whatever it had locked of it
    /// before (POSIX fcntl: locks are split, merged, raised and lowered).
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

    /// Only the locks of these holders stay.
    pub fn retain(&mut self, mut stays: impl FnMut(&H) -> bool) {
        self.0.retain(|lock| stays(&lock.holder));
    }

    /// Where in the table the locks of `holder` stand, or would.
    fn place(&self, space: LockSpace, holder: &H) -> (usize, usize) {
        let from = self.0.partition_point(|lock| (lock.space, &lock.holder) < (space, holder));
        let to = self.0.partition_point(|lock| (lock.space, &lock.holder) <= (space, holder));
        (from, to)
    }

    /// Whether two holders have what only one can have. Sorted by ranges, each lock need only be
    /// compared with what reaches into it.
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
    /// What `session` may know of it.
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

    /// Carries out what `session` has decided.
    pub fn change(&mut self, session: &S, change: &LockChange) {
        let LockChange { owner, pid, space, range, kind } = *change;
        self.set(space, &(session.clone(), owner), range, kind, pid);
    }
}

/// Who holds a lock, as a machine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Holder {
    /// An owner on this machine.
    Here(u64),
    /// Somebody on another.
    Elsewhere,
}

/// A lock that is in somebody's way, as `fcntl(F_GETLK)` tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// What is locked.
    pub range: LockRange,
    /// How.
    pub kind: LockKind,
    /// By which process, if it is one of this machine.
    pub pid: Option<u32>,
}

/// [`lease::Field::Locks`] as one machine knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    table: LockTable<Holder>,
    /// How many locks of others do not show, as they are one with others' beside them: all count
    /// towards [`LOCKS_MAX`].
    merged: u32,
}

impl Locks {
    /// Whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many locks the file has.
    pub fn len(&self) -> usize {
        self.table.len() + self.merged as usize
    }

    /// Whether `owner` has locked anything.
    pub fn has_any(&self, space: LockSpace, owner: u64) -> bool {
        !self.table.of(space, &Holder::Here(owner)).is_empty()
    }

    /// Whether everything is already as the change has it.
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

    /// The owners on this machine that the change has to wait for, and whether there are others.
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

    /// What this machine has changed since `before`, as changes that each may be decided after the
    /// others: whoever has other locks now first loses all that it had, so on the way nothing is
    /// locked that is not locked at either end, and there are never more locks than at one of them.
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
