//! The reference index of share hosts, in this machine's replicas of the states of all servers of
//! the directory. Each machine that serves is a member of every server's group.

use crate::hosted::HostedServer;
use crate::server::Server;
use directory::{Directory, Input, RegionReport, RegionStanding, ShareWork, Store};
use ident::ServerId;
use lease::SessionId;
use namespace::ShareId;
use share_hosts::{Arrangement, ReferenceIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use wire::MachineId;

impl Server {
    /// Asks each replica the same about the shares that `shares` are or are fragments of.
    fn of_all<T>(&self, shares: &[ShareId], ask: impl Fn(&dyn Store, &ShareId) -> T) -> Vec<Vec<T>> {
        let of_one = |hosted: &Arc<HostedServer>| {
            let whole = shares.iter().copied().map(ShareId::whole);
            hosted.group().query(|_, store| whole.map(|share| ask(store, &share)).collect())
        };
        self.all_hosted().iter().map(of_one).collect()
    }

    /// Asks the replica of the server that gave out the number of `session`.
    fn of_session<T>(&self, session: SessionId, ask: impl FnOnce(&Directory) -> T) -> Option<T> {
        let (server, _) = ServerId::of(session.0);
        Some(self.hosted(server)?.group().query(|directory, _| ask(directory)))
    }

    /// Whether uploads of a session at the root server are of no use any more. A process may go on
    /// with sessions at other servers when that session is over, and publish there. So with several
    /// servers its machine must have started anew since, or be expelled everywhere.
    pub(crate) fn is_over(&self, machine: MachineId, session: SessionId) -> bool {
        let root = self.group().query(|directory, store| {
            let latest = directory.latest_start(machine, store).unwrap_or_default();
            (directory.is_over(machine, session), latest)
        });
        let (is_over, latest) = root;
        let seen = *self.uploads_of().lock().entry((machine, session)).or_insert(latest);
        if !is_over || self.is_one() {
            return is_over;
        }
        let is_expelled = |hosted: &Arc<HostedServer>| {
            hosted.group().query(|directory, store| directory.admits(machine, store).is_err())
        };
        latest > seen || self.all_hosted().iter().all(is_expelled)
    }
}

impl ReferenceIndex for Server {
    fn shares_after(&self, after: Option<&ShareId>, limit: usize) -> (Vec<ShareId>, Option<ShareId>) {
        let pages = self.all_hosted();
        let pages = pages
            .iter()
            .map(|hosted| hosted.group().query(|_, store| directory::shares_after(store, after, limit)));
        merged(pages.collect())
    }

    fn refers_to(&self, shares: &[ShareId]) -> Vec<bool> {
        let all = self.of_all(shares, directory::refers_to);
        (0..shares.len()).map(|at| all.iter().any(|of_one| of_one[at])).collect()
    }

    fn publishers(&self, shares: &[ShareId]) -> Vec<Option<MachineId>> {
        let all = self.of_all(shares, directory::publisher);
        (0..shares.len()).map(|at| all.iter().find_map(|of_one| of_one[at])).collect()
    }

    fn are_over(&self, sessions: &[(MachineId, SessionId)]) -> Vec<bool> {
        let known: BTreeSet<_> = sessions.iter().copied().collect();
        self.uploads_of().lock().retain(|of, _| known.contains(of));
        sessions.iter().map(|(machine, session)| self.is_over(*machine, *session)).collect()
    }

    fn has_begun(&self, session: SessionId) -> bool {
        self.of_session(session, |directory| directory.has_begun(session)).unwrap_or(false)
    }

    fn may_upload(&self, machine: MachineId) -> bool {
        let admitted = self.group().query(|directory, store| directory.admits(machine, store));
        admitted.is_ok_and(|rights| !rights.read_only)
    }

    fn arrangement(&self) -> Option<Arrangement> {
        let all = self.all_hosted();
        let servers = self.group().query(|directory, store| directory.servers(store).len() + 1);
        if servers != all.len() || !all.iter().all(|hosted| hosted.group().is_current()) {
            return None;
        }
        let known = |hosted: &Arc<HostedServer>| {
            (hosted.id(), hosted.group().query(|directory, _| directory.regions()))
        };
        arranged(&all.iter().map(known).collect())
    }

    fn settled(&self, server: ServerId, work: Vec<ShareWork>) {
        if let Some(hosted) = self.hosted(server) {
            hosted.group().propose(Input::SharesSettled(work));
        }
    }
}

/// One page of several: the shares up to the end of the page that ends first.
fn merged(pages: Vec<(Vec<ShareId>, Option<ShareId>)>) -> (Vec<ShareId>, Option<ShareId>) {
    let last = pages.iter().filter_map(|(_, last)| *last).min();
    let shares: BTreeSet<ShareId> = pages.into_iter().flat_map(|(shares, _)| shares).collect();
    let within = shares.into_iter().filter(|share| last.is_none_or(|last| *share <= last));
    (within.flat_map(|share| share.kept_as()).collect(), last)
}

/// The arrangement, if no region is on its way, and each server that a region went to has it by
/// the state here, or has passed it on.
fn arranged(all: &BTreeMap<ServerId, Vec<RegionReport>>) -> Option<Arrangement> {
    let has_arrived = |report: &RegionReport| match report.standing {
        RegionStanding::Owned => true,
        RegionStanding::Leaving(_) | RegionStanding::Coming(_) => false,
        // The regions with which servers begin never moved.
        RegionStanding::Away { settled, .. } if report.epoch == 0 => settled,
        RegionStanding::Away { to, settled } => {
            let there = all.get(&to).map(Vec::as_slice).unwrap_or_default();
            let within = there.iter().rfind(|it| it.region.is_prefix_of(&report.region));
            settled && within.is_some_and(|it| it.epoch >= report.epoch)
        }
    };
    let number = |reports: &Vec<RegionReport>| {
        let mut hasher = DefaultHasher::new();
        reports.hash(&mut hasher);
        hasher.finish()
    };
    let arrived = all.values().flatten().all(has_arrived);
    arrived.then(|| Arrangement(all.iter().map(|(server, reports)| (*server, number(reports))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ident::FileId;

    fn share(number: u8) -> ShareId {
        ShareId([number; 16])
    }

    #[test]
    fn a_page_of_several_servers_leaves_nothing_out() {
        let page = |shares: &[u8], last: Option<u8>| {
            (shares.iter().copied().map(share).collect::<Vec<_>>(), last.map(share))
        };
        let kept = |shares: &[u8]| -> Vec<ShareId> {
            shares.iter().flat_map(|number| share(*number).kept_as()).collect()
        };
        // The second server may have more between 4 and 9.
        let (shares, last) = merged(vec![page(&[1, 9], Some(9)), page(&[2, 4], Some(4))]);
        assert_eq!((shares, last), (kept(&[1, 2, 4]), Some(share(4))));
        let (shares, last) = merged(vec![page(&[9], None), page(&[2, 4], Some(4))]);
        assert_eq!((shares, last), (kept(&[2, 4]), Some(share(4))));
        let (shares, last) = merged(vec![page(&[9], None), page(&[2, 9], None)]);
        assert_eq!((shares, last), (kept(&[2, 9]), None));
    }

    #[test]
    fn references_count_only_when_every_region_has_arrived() {
        let (root, away) = (FileId::root(), FileId::root().child(7));
        let report =
            |region: &FileId, standing, epoch| RegionReport { region: region.clone(), standing, epoch };
        let one = ServerId(1);
        let of = |there: RegionReport, here: Vec<RegionReport>| {
            let first = report(&root, RegionStanding::Owned, 0);
            let beside = report(&root, RegionStanding::Away { to: ServerId::ROOT, settled: true }, 0);
            let all =
                BTreeMap::from([(ServerId::ROOT, vec![first, there]), (one, [vec![beside], here].concat())]);
            arranged(&all)
        };
        let gone = |settled| report(&away, RegionStanding::Away { to: one, settled }, 3);
        let has = |epoch| vec![report(&away, RegionStanding::Owned, epoch)];
        assert!(of(gone(true), has(3)).is_some());
        assert_eq!(of(gone(false), has(3)), None, "rows are left, or the other has not confirmed");
        assert_eq!(of(gone(true), vec![]), None, "the replica of the other is behind");
        assert_eq!(of(gone(true), has(2)), None, "so is this one, after an earlier stay there");
        assert_eq!(of(gone(true), vec![report(&away, RegionStanding::Coming(ServerId::ROOT), 3)]), None);
        assert_eq!(of(report(&away, RegionStanding::Leaving(one), 3), vec![]), None);
        assert_ne!(of(gone(true), has(3)), of(gone(true), has(5)), "the region was elsewhere in between");
    }
}
