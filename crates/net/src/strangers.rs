//! Connections of unknown callers.
//!
//! Any peer can open such connections, so no new one waits: each is accepted, and if there are too
//! many, one of the others is closed. Silent connections go first. Then go those from addresses
//! without a known machine, then the oldest. So neither silent connections nor those from elsewhere
//! keep a machine out. Each connection also holds little memory, and only for a short time.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How many connections of strangers there may be.
const STRANGERS_MAX: usize = 256;
/// How many may come from one address, unless machines are known to be there.
const OF_ADDRESS_MAX: usize = 64;
/// How many addresses of machines are remembered.
const MACHINES_MAX: usize = 4096;

/// The table of all strangers.
#[derive(Clone, Default)]
pub(crate) struct Strangers(Arc<Mutex<StrangerTable>>);

#[derive(Default)]
struct StrangerTable {
    /// The connections in the order in which they came.
    all: BTreeMap<u64, KnownPeer>,
    came: u64,
    /// The addresses where machines have proven their identity, the latest last.
    machines: VecDeque<IpAddr>,
}

struct KnownPeer {
    address: IpAddr,
    has_spoken: bool,
    leave: CancellationToken,
}

/// A place in the table, until dropped.
pub(crate) struct Stranger {
    of: Strangers,
    number: u64,
    address: IpAddr,
    leave: CancellationToken,
}

impl Strangers {
    /// Adds a connection from `address`; others may have to go.
    pub(crate) fn enter(&self, address: IpAddr) -> Stranger {
        let leave = CancellationToken::new();
        let mut table = self.0.lock();
        table.came += 1;
        let number = table.came;
        table.all.insert(number, KnownPeer { address, has_spoken: false, leave: leave.clone() });
        table.make_way(address);
        Stranger { of: self.clone(), number, address, leave }
    }
}

impl StrangerTable {
    /// Keeps both limits; the latest connection never goes.
    fn make_way(&mut self, address: IpAddr) {
        let crowds = |known: &&KnownPeer| known.address == address;
        if !self.machines.contains(&address) && self.all.values().filter(crowds).count() > OF_ADDRESS_MAX {
            self.dismiss(|known| known.address == address);
        }
        if self.all.len() > STRANGERS_MAX {
            self.dismiss(|_| true);
        }
    }

    fn dismiss(&mut self, among: impl Fn(&KnownPeer) -> bool) {
        let machines = &self.machines;
        let worth = |known: &KnownPeer| (known.has_spoken, machines.contains(&known.address));
        let others = self.all.iter().filter(|(number, known)| **number != self.came && among(known));
        // Among equals the oldest goes.
        let least = others.min_by_key(|(number, known)| (worth(known), **number));
        if let Some(known) = least.map(|(number, _)| *number).and_then(|number| self.all.remove(&number)) {
            known.leave.cancel();
        }
    }
}

impl Stranger {
    /// Notes that the caller has sent something.
    pub(crate) fn speaks(&self) {
        if let Some(known) = self.of.0.lock().all.get_mut(&self.number) {
            known.has_spoken = true;
        }
    }

    /// Notes that the caller is a machine of the cluster, and so that machines are at its address.
    pub(crate) fn is_a_machine(&self) {
        let machines = &mut self.of.0.lock().machines;
        machines.retain(|address| *address != self.address);
        machines.push_back(self.address);
        if machines.len() > MACHINES_MAX {
            machines.pop_front();
        }
    }

    /// Returns once the connection must be closed.
    pub(crate) async fn has_to_leave(&self) {
        self.leave.cancelled().await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.of.0.lock().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn has_left(stranger: &Stranger) -> bool {
        stranger.leave.is_cancelled()
    }

    #[test]
    fn who_is_silent_makes_way_for_who_speaks_whenever_each_came() {
        let strangers = Strangers::default();
        let speaks = strangers.enter(address(1));
        speaks.speaks();
        let silent: Vec<Stranger> =
            (0..4 * STRANGERS_MAX as u32).map(|n| strangers.enter(address(n / 8))).collect();
        assert!(!has_left(&speaks));
        assert_eq!(silent.iter().filter(|it| !has_left(it)).count(), STRANGERS_MAX - 1);
        assert!(has_left(&silent[0]) && !has_left(silent.last().unwrap()), "the oldest go first");
    }

    #[test]
    fn an_address_has_no_more_than_its_part() {
        let strangers = Strangers::default();
        let elsewhere = strangers.enter(address(1));
        let crowd: Vec<Stranger> = (0..1000).map(|_| strangers.enter(address(2))).collect();
        crowd.iter().for_each(Stranger::speaks);
        let more: Vec<Stranger> = (0..1000).map(|_| strangers.enter(address(2))).collect();
        let left = |all: &[Stranger]| all.iter().filter(|it| !has_left(it)).count();
        assert_eq!((has_left(&elsewhere), left(&crowd) + left(&more)), (false, OF_ADDRESS_MAX));
    }

    #[test]
    fn machines_come_in_however_many_strangers_speak() {
        let strangers = Strangers::default();
        strangers.enter(address(1)).is_a_machine();
        let machines: Vec<Stranger> = (0..STRANGERS_MAX / 2).map(|_| strangers.enter(address(1))).collect();
        machines.iter().for_each(Stranger::speaks);
        let crowd: Vec<Stranger> =
            (2..5000).map(|n| strangers.enter(address(n))).inspect(Stranger::speaks).collect();
        assert!(!machines.iter().any(has_left));
        assert_eq!(crowd.iter().filter(|it| !has_left(it)).count(), STRANGERS_MAX / 2);
        drop((machines, crowd));
        assert!(strangers.0.lock().all.is_empty());
    }
}
