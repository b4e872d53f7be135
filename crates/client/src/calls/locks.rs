//! Locks of ranges. They are local under the lease on them, and the server learns them only when
//! that lease goes (docs/internals/leases.md, "Locks of ranges").
//!
//! Under the write lease no other client can see a change of locks, and a session's locks end with
//! it. So such a change needs no entry in the log. Before the client releases the lease, it logs
//! the changes since the lease came.
//!
//! A call that waits holds nothing. It keeps the conflicting locks under a lease to read. It is
//! tried again when that lease is recalled, since another client is then changing the locks, or
//! when a lock is released here.

use super::{Need, Stop, WaitingFor};
use crate::client::Client;
use crate::{Now, Reply};
use ident::FileId;
use lease::{Field, Kind};
use namespace::{
    Error, Holder, Knowledge, Known, LockChange, LockKind, LockSpace, Locks, Operation, Verdict, decide,
    operation,
};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Client {
    /// Locks or unlocks, at once or, with `wait`, when no conflicting lock is left.
    pub(crate) fn lock(&mut self, file: FileId, change: LockChange, wait: bool) -> Result<Reply, Stop> {
        self.used(&file);
        match self.change_lock(&file, change) {
            Err(Stop::Error(Error::WouldBlock)) if wait => {}
            decided => return decided.map(|()| Reply::Nothing),
        }
        if change.space == LockSpace::Flock {
            // A process that waits to raise a flock drops its own first. Otherwise two such
            // processes would wait for each other (flock(2): "not guaranteed to be atomic").
            self.change_lock(&file, LockChange { kind: None, ..change })?;
        } else if self.closes_a_circle(&file, &change) {
            return Err(Stop::Error(Error::Deadlock));
        }
        Err(Stop::until(WaitingFor::Unlocked { file, change }))
    }

    fn change_lock(&mut self, file: &FileId, change: LockChange) -> Result<(), Stop> {
        let operation = Operation::Lock(operation::Lock { file: file.clone(), change });
        match decide(&operation, &self.files) {
            Verdict::Done { effects, .. } => {
                self.calls.unlocked |= !effects.is_empty() && change.kind != Some(LockKind::Write);
                effects.iter().for_each(|effect| self.files.apply(effect, true));
                Ok(())
            }
            Verdict::Refused { error, .. } => Err(Stop::Error(error)),
            Verdict::Unknown { wants } => {
                Err(Stop::Need(Need::Leases { operation: Box::new(operation), wants }))
            }
        }
    }

    /// Whether no conflicting lock is known any more.
    pub(crate) fn is_unlocked(&self, file: &FileId, change: &LockChange) -> bool {
        match self.files.locks(file, Kind::Read) {
            Known::Used(locks) => locks.in_the_way(change).next().is_none(),
            Known::Unused | Known::Unknown => true,
        }
    }

    /// Whether the holders of conflicting locks wait in turn for the caller. This covers owners on
    /// this machine only. Across machines no server looks for circles.
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
                let its = self.calls.lock_waits().filter(|(_, change)| change.owner == owner);
                found.extend(its.flat_map(|(file, change)| here(file, change)));
            }
        }
        false
    }

    /// Logs the lock changes that the server does not have yet, before the lease on locks goes.
    pub(crate) fn write_down_locks(&mut self, now: Now, file: &FileId) {
        let server = self.server_of(file);
        let Some(locks) = self.files.get_mut(file).and_then(|known| known.locks.as_mut()) else { return };
        let Some(written) = locks.written.take() else { return };
        let server = self.servers.get_mut(server);
        for change in locks.now.changes_since(&written) {
            server.push_update(now.time, operation::Lock { file: file.clone(), change }.into());
        }
    }

    /// The locks of `file`, if this client knows them. For tests and tools.
    pub fn locks(&self, file: &FileId) -> Option<Arc<Locks>> {
        match self.files.locks(file, Kind::Read) {
            Known::Used(locks) => Some(locks),
            Known::Unused | Known::Unknown => None,
        }
    }

    /// Whether this client may lock without a request. For tests and tools.
    pub fn locks_here(&self, file: &FileId) -> bool {
        self.files.holds(file, &Field::Locks, Kind::Write)
    }
}
