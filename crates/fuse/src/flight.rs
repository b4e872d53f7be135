//! The nodes with requests under way: their answers may still be on the way into the kernel's
//! caches.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The number of counters, which nodes share. Two nodes in use seldom share one, so a request on
/// one is seldom taken for the other's.
const SLOTS: usize = 4096;

/// The number under which renames count. It is no node.
pub(crate) const RENAMES: u64 = u64::MAX;

/// Requests begun and answered, by node and in all.
#[derive(Debug)]
pub(crate) struct Flight {
    all: FlightSlot,
    by_node: Box<[FlightSlot]>,
}

#[derive(Debug, Default)]
#[repr(align(16))]
struct FlightSlot {
    begun: AtomicU64,
    answered: AtomicU64,
}

/// The requests that a question is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    /// Those on this node (and on others that share its slot).
    Node(u64),
    /// All requests.
    Anyone,
}

impl Flight {
    pub(crate) fn new() -> Flight {
        Flight { all: FlightSlot::default(), by_node: (0..SLOTS).map(|_| FlightSlot::default()).collect() }
    }

    /// A request on `node` begins. This comes before its first call to the client, so that any
    /// answer counts as on its way.
    pub(crate) fn begin(&self, node: u64) {
        for slot in [&self.all, self.slot(node)] {
            slot.begun.fetch_add(1, SeqCst);
        }
    }

    /// Its answer has been handed to the kernel.
    pub(crate) fn end(&self, node: u64) {
        for slot in [&self.all, self.slot(node)] {
            slot.answered.fetch_add(1, SeqCst);
        }
    }

    /// The number of requests begun so far.
    pub(crate) fn begun(&self, whose: Whose) -> u64 {
        self.slot_of(whose).begun.load(SeqCst)
    }

    /// Whether none is under way.
    pub(crate) fn idle(&self, whose: Whose) -> bool {
        // `answered` first: a request that begins and ends between the two loads then looks busy,
        // never the other way round.
        let slot = self.slot_of(whose);
        let answered = slot.answered.load(SeqCst);
        answered == slot.begun.load(SeqCst)
    }

    /// Waits until no request is under way, or until `deadline`. Whether none is.
    pub(crate) fn settle(&self, whose: Whose, deadline: Instant) -> bool {
        while !self.idle(whose) {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }

    /// The number of requests begun so far, if none is under way. If the number is the same later,
    /// there was no request in between.
    pub(crate) fn quiet_since(&self, whose: Whose) -> Option<u64> {
        let begun = self.begun(whose);
        (self.idle(whose) && self.begun(whose) == begun).then_some(begun)
    }

    fn slot(&self, node: u64) -> &FlightSlot {
        &self.by_node[node as usize % SLOTS]
    }

    fn slot_of(&self, whose: Whose) -> &FlightSlot {
        match whose {
            Whose::Node(node) => self.slot(node),
            Whose::Anyone => &self.all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settles_only_when_answered() {
        let flight = Flight::new();
        let soon = || Instant::now() + Duration::from_millis(3);
        assert!(flight.settle(Whose::Anyone, soon()));
        flight.begin(7);
        assert!(!flight.idle(Whose::Node(7)) && !flight.idle(Whose::Anyone));
        assert!(flight.idle(Whose::Node(8)));
        assert!(!flight.settle(Whose::Node(7), soon()));
        flight.end(7);
        assert!(flight.settle(Whose::Node(7), soon()) && flight.idle(Whose::Anyone));
        assert_eq!(flight.begun(Whose::Node(7)), 1);
    }
}
