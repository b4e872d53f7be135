//! The time for which a live machine that does not answer may keep others waiting.
//!
//! A client that is to release or to flush may have much to publish first, and its log shows that
//! it is working. A client that renews its session and does nothing else gets less time. A client
//! that was fenced for that before gets hardly any. A session that is not renewed is another
//! matter: see [`crate::TERM_MS`].

use crate::sessions::session::Misdeed;
use crate::state::DirectoryState;
use crate::transaction::Transaction;
use lease::{SessionId, Time};
use std::collections::BTreeSet;

/// The wait for a machine whose log does not grow, ms. Less than calls wait.
pub const SILENT_MS_MAX: u64 = 90_000;
/// The wait for any machine at most, ms.
pub const RECALL_MS_MAX: u64 = 5 * 60_000;
/// [`SILENT_MS_MAX`] for a machine that was fenced for it before, ms.
const SILENT_AGAIN_MS_MAX: u64 = 5_000;
/// [`RECALL_MS_MAX`] for a machine that was fenced for it before, ms.
const RECALL_AGAIN_MS_MAX: u64 = 30_000;
/// The time for which such a fence is remembered, ms.
const FORGIVEN_MS: u64 = 60 * 60_000;

impl DirectoryState {
    /// Sessions that owe an answer, and whose time is up.
    fn overdue(&self, now: Time) -> BTreeSet<SessionId> {
        let queue = &self.region.pending.queue;
        let flushes = queue.flushes.owed().map(|(session, asked)| (session, asked.max(self.server.led)));
        let owed = queue.recalls.owed().chain(flushes);
        owed.filter(|(session, since)| self.is_overdue(now, *session, *since))
            .map(|(session, _)| session)
            .collect()
    }

    fn is_overdue(&self, now: Time, session: SessionId, since: Time) -> bool {
        let Some(known) = self.server.sessions.all.get(&session) else { return false };
        let forgiven = |deaf: &Time| now.ms_since(*deaf) >= FORGIVEN_MS;
        let again = self.server.deaf.get(&known.machine).is_some_and(|deaf| !forgiven(deaf));
        let (silent_ms, most_ms) = match again {
            true => (SILENT_AGAIN_MS_MAX, RECALL_AGAIN_MS_MAX),
            false => (SILENT_MS_MAX, RECALL_MS_MAX),
        };
        now.ms_since(since.max(known.worked)) > silent_ms || now.ms_since(since) > most_ms
    }
}

impl Transaction<'_> {
    /// Fences the sessions whose time is up.
    pub fn fence_the_deaf(&mut self) {
        for session in self.state.overdue(self.now) {
            if let Some(known) = self.state.server.sessions.all.get(&session) {
                self.state.server.deaf.retain(|_, deaf| self.now.ms_since(*deaf) < FORGIVEN_MS);
                self.state.server.deaf.insert(known.machine, self.now);
            }
            self.fence(session, Some(Misdeed::RecallIgnored));
        }
    }
}
