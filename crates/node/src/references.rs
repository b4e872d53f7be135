//! What hosts of shares ask the directory's state.

use crate::server::Server;
use directory::{Input, ShareWork};
use lease::SessionId;
use namespace::ShareId;
use wire::MachineId;

/// See the module: this machine's replica of the state.
pub(crate) trait ReferenceIndex: Send + Sync {
    /// Of the first `limit` shares after `after` those that something refers to, by the names under
    /// which hosts keep them; and the last one looked at, unless that was all.
    fn shares_after(&self, after: Option<&ShareId>, limit: usize) -> (Vec<ShareId>, Option<ShareId>);

    /// Whether something refers to each of these, or to what it is a fragment of.
    fn refers_to(&self, shares: &[ShareId]) -> Vec<bool>;

    /// Which machine was the first to refer to each of these, or to what it is a fragment of, as
    /// far as that is known: nobody else has uploaded it.
    fn publishers(&self, shares: &[ShareId]) -> Vec<Option<MachineId>>;

    /// Whether each of these sessions, which is to be that machine's, is over: nothing more is
    /// published by it, and what was stays in the state.
    fn are_over(&self, sessions: &[(MachineId, SessionId)]) -> Vec<bool>;

    /// Whether that session has begun, as far as the state here is: a replica may be behind.
    fn has_begun(&self, session: SessionId) -> bool;

    /// Whether that machine may store anything: it belongs to the cluster, and its rights are not
    /// only to read.
    fn may_upload(&self, machine: MachineId) -> bool;

    /// Whether the state is at least as new as it ever was when this machine acted on it, before a
    /// restart too. A replica that has just started may have applied less of its log than before,
    /// until it has heard what is committed: by such a state nothing may be let go.
    fn is_current(&self) -> bool;

    /// This machine's share server has durably done this work.
    fn settled(&self, work: Vec<ShareWork>);
}

impl ReferenceIndex for Server {
    fn shares_after(&self, after: Option<&ShareId>, limit: usize) -> (Vec<ShareId>, Option<ShareId>) {
        let (shares, last) = self.group().query(|_, store| directory::shares_after(store, after, limit));
        (shares.iter().flat_map(ShareId::kept_as).collect(), last)
    }

    fn refers_to(&self, shares: &[ShareId]) -> Vec<bool> {
        let whole = shares.iter().copied().map(ShareId::whole);
        self.group().query(|_, store| whole.map(|share| directory::refers_to(store, &share)).collect())
    }

    fn publishers(&self, shares: &[ShareId]) -> Vec<Option<MachineId>> {
        let whole = shares.iter().copied().map(ShareId::whole);
        self.group().query(|_, store| whole.map(|share| directory::publisher(store, &share)).collect())
    }

    fn are_over(&self, sessions: &[(MachineId, SessionId)]) -> Vec<bool> {
        let sessions = sessions.iter();
        self.group().query(|directory, _| {
            sessions.map(|(machine, session)| directory.is_over(*machine, *session)).collect()
        })
    }

    fn has_begun(&self, session: SessionId) -> bool {
        self.group().query(|directory, _| directory.has_begun(session))
    }

    fn may_upload(&self, machine: MachineId) -> bool {
        let admitted = self.group().query(|directory, store| directory.admits(machine, store));
        admitted.is_ok_and(|rights| !rights.read_only)
    }

    fn is_current(&self) -> bool {
        self.group().is_current()
    }

    fn settled(&self, work: Vec<ShareWork>) {
        self.group().propose(Input::SharesSettled(work));
    }
}
