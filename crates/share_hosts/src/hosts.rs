//! The hosts of shares that this machine knows. The list comes from the group.

use content::COPIES;
use namespace::{ShareId, Spread};
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::MachineId;

/// A machine that has a share server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedHost {
    /// Its number.
    pub machine: MachineId,
    /// The addresses at which it listens.
    pub addresses: Vec<String>,
    /// The portion of shares that it is to keep, relative to the other hosts: the size of its disk.
    /// 0 if it is drained, or gone for too long.
    pub weight: u32,
}

impl ListedHost {
    /// Whether it is to keep shares.
    pub fn keeps(&self) -> bool {
        self.weight > 0
    }
}

/// All hosts, as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList {
    hosts: Vec<ListedHost>,
    needed: usize,
    /// The number of changes of the list on this machine.
    change: u64,
}

/// The current list of hosts. A reader waits at most for a change of the list.
#[derive(Debug, Default)]
pub struct Hosts(RwLock<Arc<HostList>>);

impl Hosts {
    /// Sets the list of hosts. A share counts as stored once `needed` hosts have it, if the others
    /// cannot be reached.
    pub fn set(&self, mut hosts: Vec<ListedHost>, needed: usize) {
        hosts.sort_by_key(|host| host.machine);
        hosts.dedup_by_key(|host| host.machine);
        let mut list = self.0.write();
        let new = HostList { hosts, needed: needed.max(1), change: list.change };
        if **list != new {
            *list = Arc::new(HostList { change: new.change + 1, ..new });
        }
    }

    /// The current list.
    pub fn now(&self) -> Arc<HostList> {
        self.0.read().clone()
    }
}

impl HostList {
    /// A number that differs for each list that this machine was given. Of two equal lists one may
    /// be older: shares placed by a list in between are elsewhere.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// All hosts, in the order of their numbers.
    pub fn all(&self) -> &[ListedHost] {
        &self.hosts
    }

    /// The number of hosts that must have a copy of `share` for it to count as stored. See
    /// [`Hosts::set`].
    pub fn needed(&self, share: &ShareId) -> usize {
        self.needed_of(share.spread())
    }

    /// The same for all shares with this spread.
    pub fn needed_of(&self, spread: Spread) -> usize {
        self.needed.min(self.copies_of(spread)).max(1)
    }

    /// The number of hosts that may be lost at once with all their shares: as many as the directory
    /// survives, within the policy's parity.
    fn losses(&self, parity: u8) -> usize {
        let keepers = self.hosts.iter().filter(|host| host.keeps()).count();
        self.needed.min(keepers).saturating_sub(1).min(parity.into())
    }

    /// Whether a share survives every allowed loss of hosts (`losses`). `kept` lists the hosts of
    /// each fragment.
    pub fn survives(&self, (data, parity): (u8, u8), kept: &[&[MachineId]]) -> bool {
        let hosts: BTreeSet<MachineId> = kept.iter().flat_map(|kept| kept.iter().copied()).collect();
        let hosts: Vec<MachineId> = hosts.into_iter().collect();
        survives(data.into(), kept, &hosts, self.losses(parity), &mut Vec::new())
    }

    /// Whether `machine` is the only host.
    pub fn is_only(&self, machine: MachineId) -> bool {
        matches!(self.hosts.as_slice(), [only] if only.machine == machine)
    }

    /// The number of hosts that are to have the share or fragment `share`.
    ///
    /// A fragment has one host. It has more where few hosts keep several fragments each, so that
    /// the allowed losses could take too many fragments.
    pub fn copies(&self, share: &ShareId) -> usize {
        self.copies_of(share.spread())
    }

    /// The same for all shares with this spread.
    pub fn copies_of(&self, spread: Spread) -> usize {
        let keepers = self.hosts.iter().filter(|host| host.keeps()).count();
        let wanted = match spread {
            Spread::Usual => COPIES,
            Spread::Copies(copies) => copies.into(),
            Spread::Code { data, parity } => {
                let together = usize::from(data + parity).div_ceil(keepers.max(1));
                let losses = self.losses(parity);
                if together * losses <= parity.into() { 1 } else { losses + 1 }
            }
        };
        keepers.min(wanted)
    }

    /// The hosts that may keep `share`, in order: the first [`HostList::copies`] are to, the next
    /// are their substitutes. Hosts of other fragments of the same share come last.
    pub fn keeping(&self, share: &ShareId) -> Vec<MachineId> {
        let mut keeping = self.order(share, |host| host.keeps());
        if let Some(number) = share.number() {
            let placed = self.placed_fragments(&share.whole());
            let of_others = |machine: &MachineId| placed.contains(machine);
            keeping.sort_by_key(|machine| {
                (placed.get(usize::from(number)) != Some(machine), of_others(machine))
            });
        }
        keeping
    }

    /// The hosts that are to keep `share`.
    pub fn placed(&self, share: &ShareId) -> Vec<MachineId> {
        let mut placed = self.keeping(share);
        placed.truncate(self.copies(share));
        placed
    }

    fn placed_fragments(&self, whole: &ShareId) -> Vec<MachineId> {
        let hosts = self.hosts.iter().filter(|host| host.keeps());
        let hosts: Vec<(u64, u32)> = hosts.map(|host| (host.machine.0, host.weight)).collect();
        let count = whole.kept_as().count() as u8;
        content::place_fragments(whole, count, &hosts).into_iter().map(MachineId).collect()
    }

    /// The hosts that may have `share`: those that are to keep it, their substitutes, and former
    /// ones.
    pub fn having(&self, share: &ShareId) -> Vec<MachineId> {
        let mut having = self.keeping(share);
        having.extend(self.order(share, |host| !host.keeps()));
        having
    }

    /// The addresses at which `machine` listens.
    pub fn addresses(&self, machine: MachineId) -> Option<&[String]> {
        let at = self.hosts.binary_search_by_key(&machine, |host| host.machine).ok()?;
        self.hosts.get(at).map(|host| host.addresses.as_slice())
    }

    /// A hash of the list, never 0. Lists that place shares alike have equal hashes, on every
    /// machine.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = crypto::Hasher::new();
        hasher.update(&self.needed.to_le_bytes());
        for host in &self.hosts {
            hasher.update(&host.machine.0.to_le_bytes());
            hasher.update(&host.weight.to_le_bytes());
        }
        let mut fingerprint = [0; 8];
        hasher.finalize_xof().fill(&mut fingerprint);
        u64::from_le_bytes(fingerprint).max(1)
    }

    fn order(&self, share: &ShareId, which: impl Fn(&ListedHost) -> bool) -> Vec<MachineId> {
        let hosts = self.hosts.iter().filter(|host| which(host));
        let mut hosts: Vec<&ListedHost> = hosts.collect();
        content::place(share, &mut hosts, |host| (host.machine.0, host.weight));
        hosts.into_iter().map(|host| host.machine).collect()
    }
}

/// Whether enough fragments are left without the hosts `lost` and any further `losses` of `hosts`.
fn survives(
    data: usize,
    kept: &[&[MachineId]],
    hosts: &[MachineId],
    losses: usize,
    lost: &mut Vec<MachineId>,
) -> bool {
    if losses == 0 || hosts.is_empty() {
        let left = kept.iter().filter(|kept| kept.iter().any(|machine| !lost.contains(machine)));
        return left.count() >= data;
    }
    (0..hosts.len()).all(|at| {
        lost.push(hosts[at]);
        let survives = survives(data, kept, &hosts[at + 1..], losses - 1, lost);
        lost.pop();
        survives
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(machines: &[(u64, bool)]) -> Arc<HostList> {
        let hosts = Hosts::default();
        let host = |&(machine, keeps)| ListedHost {
            machine: MachineId(machine),
            addresses: Vec::new(),
            weight: u32::from(keeps),
        };
        hosts.set(machines.iter().map(host).collect(), 2);
        hosts.now()
    }

    #[test]
    fn a_host_that_is_drained_keeps_nothing_new_and_is_asked_last() {
        let share = ShareId([7; 16]);
        let all = hosts(&[(1, true), (2, true), (3, true), (4, true)]);
        let first = all.placed(&share)[0];
        let drained: Vec<_> = (1..=4).map(|machine| (machine, MachineId(machine) != first)).collect();
        let drained = hosts(&drained);
        assert_eq!(drained.placed(&share), all.keeping(&share)[1..]);
        assert_eq!(drained.having(&share).last(), Some(&first));
        let copies = [&all, &drained, &hosts(&[(1, true), (2, false)])].map(|hosts| hosts.copies(&share));
        assert_eq!(copies, [3, 3, 1]);
        let two = share.spread_as(Spread::Copies(2));
        assert_eq!((all.copies(&two), all.placed(&two)), (2, all.keeping(&two)[..2].to_vec()));
        assert_ne!(all.fingerprint(), drained.fingerprint());
    }

    #[test]
    fn a_larger_host_keeps_more() {
        let list = |weights: [u32; 4]| {
            let hosts = Hosts::default();
            let host = |(at, weight)| ListedHost { machine: MachineId(at), addresses: Vec::new(), weight };
            hosts.set((0..).zip(weights).map(host).collect(), 2);
            hosts.now()
        };
        let (equal, larger) = (list([1, 1, 1, 1]), list([1, 1, 1, 5]));
        let kept = |hosts: &HostList, spread: Spread| {
            let shares = (0..100).map(|n| ShareId([n; 16]).spread_as(spread));
            let kept = shares.flat_map(|share| share.kept_as().collect::<Vec<_>>());
            kept.filter(|kept| hosts.placed(kept).contains(&MachineId(3))).count()
        };
        for spread in
            [Spread::Copies(2), Spread::Code { data: 2, parity: 0 }, Spread::Code { data: 1, parity: 1 }]
        {
            let (before, after) = (kept(&equal, spread), kept(&larger, spread));
            assert!(before < 65 && after > 80, "{spread:?}: {before}, {after}");
        }
        assert_ne!(equal.fingerprint(), larger.fingerprint());
    }

    #[test]
    fn no_more_copies_are_needed_than_there_are_hosts() {
        let share = ShareId([7; 16]);
        assert_eq!(hosts(&[(1, true), (2, false), (3, false)]).needed(&share), 1);
        assert_eq!(hosts(&[(1, true), (2, true), (3, true)]).needed(&share), 2);
        assert_eq!(hosts(&[(1, true), (2, true), (3, true)]).needed(&share.spread_as(Spread::Copies(1))), 1);
        assert!(hosts(&[(1, true)]).is_only(MachineId(1)));
        assert!(!hosts(&[(1, true), (2, false)]).is_only(MachineId(1)));
    }

    #[test]
    fn each_fragment_has_a_host_of_its_own_and_others_that_may_take_its_place() {
        let share = ShareId([7; 16]).spread_as(Spread::Code { data: 2, parity: 1 });
        let all = hosts(&[(1, true), (2, true), (3, true), (4, true), (5, true)]);
        let placed: Vec<MachineId> = share.kept_as().flat_map(|fragment| all.placed(&fragment)).collect();
        assert_eq!(placed.iter().collect::<BTreeSet<_>>().len(), 3);
        for (fragment, host) in share.kept_as().zip(&placed) {
            let keeping = all.keeping(&fragment);
            assert_eq!((keeping.len(), keeping.first()), (5, Some(host)));
            assert!(keeping[1..3].iter().all(|machine| !placed.contains(machine)));
        }
        // With fewer hosts than fragments some hosts keep several. Each fragment is kept twice
        // where the loss of one host would take too many.
        let wide = share.spread_as(Spread::Code { data: 4, parity: 2 });
        let copies =
            |hosts: &HostList, share: &ShareId| share.kept_as().map(|kept| hosts.placed(&kept).len()).max();
        let few = [hosts(&[(1, true), (2, true)]), hosts(&[(1, true), (2, true), (3, true)])];
        assert_eq!(few.each_ref().map(|few| copies(few, &share)), [Some(2), Some(1)]);
        assert_eq!(few.each_ref().map(|few| copies(few, &wide)), [Some(2), Some(1)]);
    }

    #[test]
    fn a_share_survives_if_enough_fragments_are_left_whoever_is_lost() {
        let (all, [a, b, c]) = (hosts(&[(1, true), (2, true), (3, true)]), [1, 2, 3].map(MachineId));
        assert!(all.survives((2, 1), &[&[a], &[b], &[c]]));
        assert!(!all.survives((2, 1), &[&[a], &[b], &[a]]));
        assert!(!all.survives((2, 1), &[&[a], &[b], &[]]));
        assert!(all.survives((2, 1), &[&[a, b], &[a, b], &[]]));
        assert!(!all.survives((2, 1), &[]));
        let lone = Hosts::default();
        lone.set(vec![ListedHost { machine: a, addresses: Vec::new(), weight: 1 }], 1);
        assert!(lone.now().survives((2, 1), &[&[a], &[a], &[a]]));
        assert!(!lone.now().survives((2, 1), &[&[a], &[], &[]]));
    }

    /// A comparison of places alone would miss a share that an earlier list has put elsewhere in
    /// the meantime.
    #[test]
    fn a_list_that_comes_again_is_a_change_and_one_that_stays_is_none() {
        let (hosts, host) =
            (Hosts::default(), |weight| ListedHost { machine: MachineId(1), addresses: Vec::new(), weight });
        let set = |weight| {
            hosts.set(vec![host(weight)], 1);
            (hosts.now().fingerprint(), hosts.now().change())
        };
        let (first, other, again) = (set(1), set(0), set(1));
        assert_eq!((first.0, set(1)), (again.0, again));
        assert!(first.1 < other.1 && other.1 < again.1);
    }
}
