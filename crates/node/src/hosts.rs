//! The hosts of shares that this machine knows of: whoever feeds it has them from the group.

use content::COPIES;
use namespace::ShareId;
use parking_lot::RwLock;
use std::sync::Arc;
use wire::MachineId;

/// A machine that has a share server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub machine: MachineId,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// It is to keep shares: it is neither drained nor gone for too long.
    pub keeps: bool,
}

/// All of them, as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostList {
    hosts: Vec<Host>,
    needed: usize,
}

/// See the module. Read without waiting for more than a change of the list.
#[derive(Debug, Default)]
pub(crate) struct Hosts(RwLock<Arc<HostList>>);

impl Hosts {
    /// From now on there are these. A share counts as stored that as many as `needed` have, if the others cannot be reached.
    pub(crate) fn set(&self, mut hosts: Vec<Host>, needed: usize) {
        hosts.sort_by_key(|host| host.machine);
        hosts.dedup_by_key(|host| host.machine);
        *self.0.write() = Arc::new(HostList { hosts, needed: needed.max(1) });
    }

    /// As of now.
    pub(crate) fn now(&self) -> Arc<HostList> {
        self.0.read().clone()
    }
}

impl HostList {
    /// In the order of their numbers.
    pub(crate) fn all(&self) -> &[Host] {
        &self.hosts
    }

    /// See [`Hosts::set`].
    pub(crate) fn needed(&self) -> usize {
        self.needed.min(self.copies()).max(1)
    }

    /// Whether `machine` is all there is.
    pub(crate) fn is_only(&self, machine: MachineId) -> bool {
        matches!(self.hosts.as_slice(), [only] if only.machine == machine)
    }

    /// How many hosts are to have each share.
    pub(crate) fn copies(&self) -> usize {
        self.hosts.iter().filter(|host| host.keeps).count().min(COPIES)
    }

    /// The hosts that may keep `share`, in order: the first [`HostList::copies`] are to, the next take their places.
    pub(crate) fn keeping(&self, share: &ShareId) -> Vec<MachineId> {
        self.order(share, |host| host.keeps)
    }

    /// Those that are to keep `share`.
    pub(crate) fn placed(&self, share: &ShareId) -> Vec<MachineId> {
        let mut placed = self.keeping(share);
        placed.truncate(COPIES);
        placed
    }

    /// The hosts at which `share` may be: where it is to be, where it may have gone instead, and where it may still be.
    pub(crate) fn having(&self, share: &ShareId) -> Vec<MachineId> {
        let mut having = self.keeping(share);
        having.extend(self.order(share, |host| !host.keeps));
        having
    }

    /// Where `machine` listens.
    pub(crate) fn addresses(&self, machine: MachineId) -> Option<&[String]> {
        let at = self.hosts.binary_search_by_key(&machine, |host| host.machine).ok()?;
        self.hosts.get(at).map(|host| host.addresses.as_slice())
    }

    /// Equal for lists that place shares alike, on whatever machine; never 0.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        for host in &self.hosts {
            hasher.update(&host.machine.0.to_le_bytes());
            hasher.update(&[host.keeps.into()]);
        }
        let mut fingerprint = [0; 8];
        hasher.finalize_xof().fill(&mut fingerprint);
        u64::from_le_bytes(fingerprint).max(1)
    }

    fn order(&self, share: &ShareId, which: impl Fn(&Host) -> bool) -> Vec<MachineId> {
        let hosts = self.hosts.iter().filter(|host| which(host));
        let mut machines: Vec<MachineId> = hosts.map(|host| host.machine).collect();
        content::place(share, &mut machines, |machine| machine.0);
        machines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(machines: &[(u64, bool)]) -> Arc<HostList> {
        let hosts = Hosts::default();
        let host = |&(machine, keeps)| Host { machine: MachineId(machine), addresses: Vec::new(), keeps };
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
        assert_eq!((all.copies(), drained.copies(), hosts(&[(1, true), (2, false)]).copies()), (3, 3, 1));
        assert_ne!(all.fingerprint(), drained.fingerprint());
    }

    #[test]
    fn no_more_copies_are_needed_than_there_are_hosts() {
        assert_eq!(hosts(&[(1, true), (2, false), (3, false)]).needed(), 1);
        assert_eq!(hosts(&[(1, true), (2, true), (3, true)]).needed(), 2);
        assert!(hosts(&[(1, true)]).is_only(MachineId(1)));
        assert!(!hosts(&[(1, true), (2, false)]).is_only(MachineId(1)));
    }
}
