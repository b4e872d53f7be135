//! Locks of ranges: local under the lease on them, and of interest to the server only when that
//! lease goes (docs/internals/leases.md, "Locks of ranges").
//!
//! What is locked and unlocked under the write lease nobody else can see, and a session's locks go
//! with it, so none of it is worth an entry in the log. When the lease is let go, what has changed
//! since it came is written down before the release. A call that waits holds nothing: it keeps what
//! it knows under a lease to read, and is tried again when that is recalled, since then somebody
//! changes what is locked, or when something is unlocked here.

use crate::client::Client;
use crate::waiting::{Need, Stop};
use crate::{Now, Reply};
use ident::FileId;
use lease::{Field, Kind};
use namespace::{
    Error, Holder, Knowledge, Known, LockChange, LockKind, LockSpace, Locks, Operation, Verdict, decide,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is known of a file's locks, if it has any or had when the lease came.
#[derive(Debug, Default)]
pub(crate) struct KnownLocks {
    /// As they are.
    pub now: Arc<Locks>,
    /// As the server has them, if that is otherwise.
    pub written: Option<Arc<Locks>>,
}

impl KnownLocks {
    /// As a grant tells them.
    pub fn told(locks: Locks) -> Option<Box<KnownLocks>> {
        (!locks.is_empty()).then(|| Box::new(KnownLocks { now: Arc::new(locks), written: None }))
    }

    /// A change that was decided here is news to the server.
    pub fn change(known: &mut Option<Box<KnownLocks>>, change: &LockChange, decided_here: bool) {
        let locks = known.get_or_insert_default();
        if decided_here {
            locks.written.get_or_insert_with(|| Arc::clone(&locks.now));
        } else if let Some(written) = &mut locks.written {
            Arc::make_mut(written).change(change);
        }
        Arc::make_mut(&mut locks.now).change(change);
        // Mostly what was locked is unlocked again, and it never happened.
        locks.written.take_if(|written| *written == locks.now);
        known.take_if(|locks| locks.now.is_empty() && locks.written.is_none());
    }
}

impl Client {
    /// Locks or unlocks, at once or, with `wait`, when nobody is in the way any more.
    pub(crate) fn lock(&mut self, file: FileId, change: LockChange, wait: bool) -> Result<Reply, Stop> {
        self.used(&file);
        match self.change_lock(&file, change) {
            Err(Stop::Error(Error::WouldBlock)) if wait => {}
            decided => return decided.map(|()| Reply::Nothing),
        }
        if change.space == LockSpace::Flock {
            // Who waits to raise a lock lets go of what it has first, or two of them would wait for
            // each other (flock(2): "not guaranteed to be atomic").
            self.change_lock(&file, LockChange { kind: None, ..change })?;
        } else if self.closes_a_circle(&file, &change) {
            return Err(Stop::Error(Error::Deadlock));
        }
        Err(Stop::Need(Need::Unlocked { file, change }))
    }

    fn change_lock(&mut self, file: &FileId, change: LockChange) -> Result<(), Stop> {
        let operation = Operation::Lock { file: file.clone(), change };
        match decide(self.rules, &operation, &self.files) {
            Verdict::Done { effects, .. } => {
                self.unlocked |= !effects.is_empty() && change.kind != Some(LockKind::Write);
                effects.iter().for_each(|effect| self.files.apply(effect, true));
                Ok(())
            }
            Verdict::Refused { error, .. } => Err(Stop::Error(error)),
            Verdict::Unknown { wants } => {
                Err(Stop::Need(Need::Leases { operation: Box::new(operation), wants }))
            }
        }
    }

    /// Whether nothing is known to be in the way of the change any more.
    pub(crate) fn is_unlocked(&self, file: &FileId, change: &LockChange) -> bool {
        match self.files.locks(file, Kind::Read) {
            Known::Used(locks) => locks.in_the_way(change).next().is_none(),
            Known::Unused | Known::Unknown => true,
        }
    }

    /// Whether those in the way wait themselves, in the end, for who asks: as far as owners on this
    /// machine go. Across machines nobody looks.
    fn closes_a_circle(&self, file: &FileId, change: &LockChange) -> bool {
        let here = |file: &FileId, change: &LockChange| -> Vec<u64> {
            let Known::Used(locks) = self.files.locks(file, Kind::Read) else { return Vec::new() };
            let owner = |holder| match holder {
                Holder::Here(owner) => Some(owner),
                Holder::Elsewhere => None,
            };
            locks.in_the_way(change).filter_map(owner).collect()
        };
        let (mut found, mut seen) = (here(file, change), BTreeSet::new());
        while let Some(owner) = found.pop() {
            if owner == change.owner {
                return true;
            }
            if seen.insert(owner) {
                let its = self.lock_waits().filter(|(_, change)| change.owner == owner);
                found.extend(its.flat_map(|(file, change)| here(file, change)));
            }
        }
        false
    }

    /// The lease on locks is about to go: what the server does not have yet goes into the log
    /// before.
    pub(crate) fn write_down_locks(&mut self, now: Now, file: &FileId) {
        let Some(locks) = self.files.get_mut(file).and_then(|known| known.locks.as_mut()) else { return };
        let Some(written) = locks.written.take() else { return };
        for change in locks.now.changes_since(&written) {
            self.push_update(now.time, Operation::Lock { file: file.clone(), change });
        }
    }

    /// What this client knows of the locks of `file`, if it does. For tests and tools.
    pub fn locks(&self, file: &FileId) -> Option<Arc<Locks>> {
        match self.files.locks(file, Kind::Read) {
            Known::Used(locks) => Some(locks),
            Known::Unused | Known::Unknown => None,
        }
    }

    /// Whether this client may lock without asking. For tests and tools.
    pub fn locks_here(&self, file: &FileId) -> bool {
        self.files.holds(file, &Field::Locks, Kind::Write)
    }
}
