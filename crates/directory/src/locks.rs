//! Locks of sessions that are over, or that nobody hears of: they go as soon as somebody minds, and
//! not before those who saw them know.

use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, InTheWay, Lease, SessionId};
use std::collections::BTreeSet;

/// Files of a session that is not heard of that are looked at to find out whether anybody minds.
const LOOKED_AT_MAX: usize = 256;

impl Transaction<'_> {
    /// Whoever sees the locks of `session` on `file`, and so has to let go before they can go.
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

    /// `session` is about to be told what others have locked, and may wait for them: without asking
    /// again, so they must be watched.
    pub fn watch_lockers(&mut self, session: SessionId, needs: &[Lease]) {
        let lockers = self.lockers(session, needs);
        self.state.lockers.extend(lockers);
    }

    /// A session that nobody hears of keeps its locks until somebody else looks at them: that may
    /// have been long ago, and he waits.
    pub fn fence_lapsed_lockers(&mut self) {
        let lapsed: Vec<SessionId> =
            self.state.lockers.iter().copied().filter(|session| self.is_lapsed(*session)).collect();
        for session in lapsed {
            self.state.lockers.remove(&session);
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
