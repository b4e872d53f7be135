//! Locks of sessions that are over or silent. They go as soon as another session needs them gone,
//! and not before the sessions that saw them know.

use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, InTheWay, Lease, SessionId};
use std::collections::BTreeSet;

/// Files of a silent session that are examined to find out whether its locks are in the way.
const LOOKED_AT_MAX: usize = 256;

impl Transaction<'_> {
    /// The sessions that see the locks of `session` on `file`, and so have to release before the
    /// locks can go.
    pub fn seers_of_locks(&self, file: &FileId, session: SessionId) -> Vec<InTheWay> {
        let holdings = self.files.holdings(file);
        let sees =
            holdings.iter().filter(|(other, held)| *other != session && held.kind(&Field::Locks).is_some());
        sees.map(|(session, _)| InTheWay { session, field: Field::Locks, keep: None }).collect()
    }

    /// Whether `session` has locked anything of `file`.
    pub fn has_locks(&self, file: &FileId, session: SessionId) -> bool {
        self.files.record(file).is_some_and(|record| record.locks.iter().any(|lock| lock.holder.0 == session))
    }

    /// Sessions other than `session` that are not over and have locks on files whose locks are
    /// needed.
    pub fn lockers(&self, session: SessionId, needs: &[Lease]) -> BTreeSet<SessionId> {
        let records = needs.iter().filter(|need| need.field == Field::Locks);
        let records = records.filter_map(|need| self.files.record(&need.file));
        let lockers =
            records.flat_map(|record| record.locks.iter().map(|lock| lock.holder.0).collect::<BTreeSet<_>>());
        lockers.filter(|locker| *locker != session && self.files.live.contains(locker)).collect()
    }

    /// Watches the sessions whose locks are about to be reported to `session`. It may wait for them
    /// without asking again.
    pub fn watch_lockers(&mut self, session: SessionId, needs: &[Lease]) {
        let lockers = self.lockers(session, needs);
        self.state.server.lockers.extend(lockers);
    }

    /// Fences silent sessions whose locks are seen by others. A session keeps its locks until
    /// another one looks at them; that may have been long ago, and that other session waits.
    pub fn fence_lapsed_lockers(&mut self) {
        let lapsed: Vec<SessionId> =
            self.state.server.lockers.iter().copied().filter(|session| self.is_lapsed(*session)).collect();
        for session in lapsed {
            self.state.server.lockers.remove(&session);
            if self.locks_are_seen(session) {
                self.fence(session, None);
            }
        }
    }

    fn locks_are_seen(&self, session: SessionId) -> bool {
        let files = self.files.shields(session, None, LOOKED_AT_MAX);
        let seen =
            |file: &FileId| self.has_locks(file, session) && !self.seers_of_locks(file, session).is_empty();
        files.len() == LOOKED_AT_MAX || files.iter().any(|(_, file)| seen(file))
    }
}
