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
/// Files with unanswered recalls that are many.
const RECALLS_MANY: usize = 1024;
/// The time between two looks at many of them, ms.
const LOOK_MS: u64 = 200;
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
    /// Whether it is time to look for sessions whose time to answer is up. The look goes through
    /// all unanswered recalls. If these are many, it is made only now and then: a region that is
    /// handed over takes back a hundred thousand leases, in as many steps as its rows need.
    pub fn may_look_for_the_late(&mut self) -> bool {
        let are_many = self.state.region.pending.queue.recalls.files() > RECALLS_MANY;
        let looked = &mut self.state.server.looked;
        if are_many && self.now.ms_since(*looked) < LOOK_MS {
            return false;
        }
        *looked = self.now;
        true
    }

    /// Fences the sessions that requests wait for and that were not heard of for their term.
    pub fn fence_the_lapsed(&mut self) {
        let awaited = self.state.region.pending.awaited().into_iter();
        let lapsed: Vec<SessionId> = awaited.filter(|session| self.is_lapsed(*session)).collect();
        lapsed.into_iter().for_each(|session| self.fence(session, None));
    }

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
