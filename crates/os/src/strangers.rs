//! Connections of unknown callers.
//!
//! Any peer can open such connections, so no new one waits: each is accepted, and if there are too
//! many, one of the others is closed. Silent connections go first. Then go those from addresses
//! where nobody is known, then the oldest one of the address that has most. So neither silent
//! connections nor those from elsewhere keep anybody out. Each connection also holds little memory,
//! and only for a short time.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// How many addresses of known callers are remembered.
const KNOWN_MAX: usize = 4096;

/// How many connections of strangers there may be.
#[derive(Clone, Copy, Debug)]
pub struct StrangerBounds {
    /// From everywhere together.
    pub all: usize,
    /// From one address, unless somebody is known to be there.
    pub of_address: usize,
}

/// The table of all strangers.
#[derive(Clone)]
pub struct Strangers(Arc<Mutex<StrangerTable>>);

struct StrangerTable {
    bounds: StrangerBounds,
    /// The connections in the order in which they came.
    all: BTreeMap<u64, Connected>,
    came: u64,
    /// How many there are from each address.
    crowds: BTreeMap<IpAddr, usize>,
    /// The addresses where callers have proven their identity, the latest last.
    known: VecDeque<IpAddr>,
}

struct Connected {
    address: IpAddr,
    has_spoken: bool,
    notice: Arc<Notice>,
}

/// The word that a connection has to make way.
#[derive(Default)]
struct Notice(Mutex<Noticed>);

#[derive(Default)]
struct Noticed {
    has_to_leave: bool,
    waits: Option<Waker>,
}

/// A place in the table, until dropped.
pub struct Stranger {
    of: Strangers,
    number: u64,
    address: IpAddr,
    notice: Arc<Notice>,
}

/// Waits for a stranger's turn to make way, also when the stranger is known by then.
pub struct Leaving(Arc<Notice>);

impl Strangers {
    /// An empty table.
    pub fn new(bounds: StrangerBounds) -> Strangers {
        let (all, crowds, known) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Strangers(Arc::new(Mutex::new(StrangerTable { bounds, all, came: 0, crowds, known })))
    }

    /// Adds a connection from `address`; others may have to go.
    pub fn enter(&self, address: IpAddr) -> Stranger {
        let (address, notice) = (place(address), Arc::<Notice>::default());
        let mut table = self.0.lock();
        table.came += 1;
        let number = table.came;
        table.all.insert(number, Connected { address, has_spoken: false, notice: notice.clone() });
        *table.crowds.entry(address).or_default() += 1;
        let leave = table.make_way(address);
        drop(table);
        leave.iter().for_each(|notice| notice.give());
        Stranger { of: self.clone(), number, address, notice }
    }
}

/// The address that counts: whoever has one of IPv6 has 64 bits to choose from.
fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits((address.to_bits() >> 64) << 64).into(),
        address => address,
    }
}

impl StrangerTable {
    /// Keeps both limits; the latest connection never goes.
    fn make_way(&mut self, address: IpAddr) -> Vec<Arc<Notice>> {
        let mut leave = Vec::new();
        let crowd = self.crowds.get(&address).copied().unwrap_or_default();
        if crowd > self.bounds.of_address && !self.known.contains(&address) {
            leave.extend(self.dismiss(|connected| connected.address == address));
        }
        if self.all.len() > self.bounds.all {
            leave.extend(self.dismiss(|_| true));
        }
        leave
    }

    fn dismiss(&mut self, among: impl Fn(&Connected) -> bool) -> Option<Arc<Notice>> {
        let worth = |connected: &Connected| {
            let crowd = self.crowds.get(&connected.address).copied().unwrap_or_default();
            (connected.has_spoken, self.known.contains(&connected.address), Reverse(crowd))
        };
        let others = self.all.iter().filter(|(number, connected)| **number != self.came && among(connected));
        // Among equals the oldest goes.
        let least = others.min_by_key(|(number, connected)| (worth(connected), **number));
        let number = least.map(|(number, _)| *number)?;
        self.remove(number).map(|connected| connected.notice)
    }

    fn remove(&mut self, number: u64) -> Option<Connected> {
        let connected = self.all.remove(&number)?;
        if let Some(crowd) = self.crowds.get_mut(&connected.address) {
            *crowd -= 1;
            if *crowd == 0 {
                self.crowds.remove(&connected.address);
            }
        }
        Some(connected)
    }
}

impl Notice {
    fn give(&self) {
        let mut noticed = self.0.lock();
        noticed.has_to_leave = true;
        let waits = noticed.waits.take();
        drop(noticed);
        if let Some(waits) = waits {
            waits.wake();
        }
    }
}

impl Stranger {
    /// Notes that the caller has sent something.
    pub fn speaks(&self) {
        if let Some(connected) = self.of.0.lock().all.get_mut(&self.number) {
            connected.has_spoken = true;
        }
    }

    /// Notes that the caller has proven who it is, and so that it may call again from its address.
    pub fn is_known(&self) {
        let known = &mut self.of.0.lock().known;
        known.retain(|address| *address != self.address);
        known.push_back(self.address);
        if known.len() > KNOWN_MAX {
            known.pop_front();
        }
    }

    /// A wait for this connection's turn to make way.
    pub fn leaving(&self) -> Leaving {
        Leaving(self.notice.clone())
    }
}

impl Leaving {
    /// Returns once the connection must be closed. One task waits for that.
    pub async fn has_to_leave(&self) {
        poll_fn(|context| {
            let mut noticed = self.0.0.lock();
            if noticed.has_to_leave {
                return Poll::Ready(());
            }
            noticed.waits = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.of.0.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: StrangerBounds = StrangerBounds { all: 256, of_address: 64 };

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn has_left(stranger: &Stranger) -> bool {
        stranger.notice.0.lock().has_to_leave
    }

    fn left(all: &[Stranger]) -> usize {
        all.iter().filter(|stranger| !has_left(stranger)).count()
    }

    #[test]
    fn the_silent_make_way_for_those_who_speak_whenever_each_came() {
        let strangers = Strangers::new(BOUNDS);
        let speaks = strangers.enter(address(1));
        speaks.speaks();
        let silent: Vec<Stranger> = (0..1024).map(|n| strangers.enter(address(n / 8))).collect();
        assert!(!has_left(&speaks));
        assert_eq!(left(&silent), BOUNDS.all - 1);
        assert!(has_left(&silent[0]) && !has_left(silent.last().unwrap()), "the oldest go first");
    }

    #[test]
    fn an_address_has_no_more_than_its_part() {
        let of_v6: fn(u32) -> IpAddr = |_| "2001:db8::1".parse().unwrap();
        for of in [address, of_v6] {
            let strangers = Strangers::new(BOUNDS);
            let elsewhere = strangers.enter(address(1));
            let crowd: Vec<Stranger> = (0..1000).map(|_| strangers.enter(of(2))).collect();
            crowd.iter().for_each(Stranger::speaks);
            let more: Vec<Stranger> = (0..1000).map(|_| strangers.enter(of(2))).collect();
            assert_eq!((has_left(&elsewhere), left(&crowd) + left(&more)), (false, BOUNDS.of_address));
        }
    }

    #[test]
    fn the_addresses_of_one_network_are_one_address() {
        let strangers = Strangers::new(BOUNDS);
        let in_network = |n: u64| IpAddr::from(Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | u128::from(n)));
        let crowd: Vec<Stranger> = (0..1000).map(|n| strangers.enter(in_network(n))).collect();
        assert_eq!(left(&crowd), BOUNDS.of_address);
        let mapped: Vec<Stranger> =
            (0..100).map(|_| strangers.enter("::ffff:1.2.3.4".parse().unwrap())).collect();
        let plain = strangers.enter("1.2.3.4".parse().unwrap());
        assert_eq!((left(&mapped), has_left(&plain)), (BOUNDS.of_address - 1, false));
    }

    /// Four addresses fill the table with connections that speak, again and again.
    #[test]
    fn the_address_that_has_most_makes_way_for_a_single_stranger() {
        let strangers = Strangers::new(BOUNDS);
        let crowd = |round: u32| (0..BOUNDS.all as u32).map(move |n| address(100 + (n + round) % 4));
        let speaks = |address| {
            let stranger = strangers.enter(address);
            stranger.speaks();
            stranger
        };
        let mut crowds: Vec<Stranger> = crowd(0).map(speaks).collect();
        let single = speaks(address(1));
        for round in 0..20 {
            crowds.extend(crowd(round).map(speaks));
        }
        assert!(!has_left(&single));
        assert_eq!(left(&crowds), BOUNDS.all - 1);
    }

    #[test]
    fn the_known_come_in_however_many_strangers_speak() {
        let strangers = Strangers::new(BOUNDS);
        strangers.enter(address(1)).is_known();
        let known: Vec<Stranger> = (0..BOUNDS.all / 2).map(|_| strangers.enter(address(1))).collect();
        known.iter().for_each(Stranger::speaks);
        let crowd: Vec<Stranger> =
            (2..5000).map(|n| strangers.enter(address(n))).inspect(Stranger::speaks).collect();
        assert!(!known.iter().any(has_left));
        assert_eq!(left(&crowd), BOUNDS.all / 2);
        drop((known, crowd));
        let table = strangers.0.lock();
        assert!(table.all.is_empty() && table.crowds.is_empty());
    }

    #[test]
    fn the_one_that_waits_for_its_turn_is_woken() {
        struct Woken(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let strangers = Strangers::new(StrangerBounds { all: 1, of_address: 1 });
        let first = strangers.enter(address(1));
        let (leaving, woken) = (first.leaving(), Arc::new(Woken(Default::default())));
        let waker = Waker::from(woken.clone());
        let mut context = std::task::Context::from_waker(&waker);
        let mut waits = std::pin::pin!(leaving.has_to_leave());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        let second = strangers.enter(address(2));
        assert!(woken.0.load(std::sync::atomic::Ordering::SeqCst));
        assert!(waits.as_mut().poll(&mut context).is_ready());
        assert!(!has_left(&second));
    }
}
