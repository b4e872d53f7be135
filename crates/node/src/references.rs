//! The reference index of share hosts, in this server's replica of the state.

use crate::server::Server;
use directory::{Input, ShareWork};
use lease::SessionId;
use namespace::ShareId;
use share_hosts::ReferenceIndex;
use wire::MachineId;

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
