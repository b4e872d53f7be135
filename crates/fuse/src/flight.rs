//! Which nodes have requests under way: what they are answered may still be on its way into the kernel's caches.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Counters that nodes share: fewer than nodes, so that they stay in the processor's cache.
const SLOTS: usize = 64;

/// Requests begun and answered, by node.
#[derive(Debug)]
pub(crate) struct Flight([Slot; SLOTS]);

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    begun: AtomicU64,
    answered: AtomicU64,
}

/// Whose requests are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    /// Those on this node (and on others that share its slot).
    Node(u64),
    /// All.
    Anyone,
}

impl Flight {
    pub(crate) fn new() -> Flight {
        Flight(std::array::from_fn(|_| Slot::default()))
    }

    /// A request on `node` begins. Before its first question to the door, so that what it may be told is known to be on its way.
    pub(crate) fn begin(&self, node: u64) {
        self.slot(node).begun.fetch_add(1, SeqCst);
    }

    /// Its answer has been handed to the kernel.
    pub(crate) fn end(&self, node: u64) {
        self.slot(node).answered.fetch_add(1, SeqCst);
    }

    /// How many have begun so far: to see whether more have.
    pub(crate) fn begun(&self, whose: Whose) -> u64 {
        self.slots(whose).iter().fold(0, |sum, slot| sum.wrapping_add(slot.begun.load(SeqCst)))
    }

    /// Whether none is under way.
    pub(crate) fn idle(&self, whose: Whose) -> bool {
        // `answered` first: a request that begins and ends between the two loads then looks busy, never the other way round.
        self.slots(whose).iter().all(|slot| {
            let answered = slot.answered.load(SeqCst);
            answered == slot.begun.load(SeqCst)
        })
    }

    /// Waits until all that are under way now have been answered, or `deadline`. Whether they were.
    pub(crate) fn settle(&self, whose: Whose, deadline: Instant) -> bool {
        for slot in self.slots(whose) {
            loop {
                let answered = slot.answered.load(SeqCst);
                if answered == slot.begun.load(SeqCst) {
                    break;
                }
                if Instant::now() >= deadline {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        true
    }

    fn slot(&self, node: u64) -> &Slot {
        &self.0[node as usize % SLOTS]
    }

    fn slots(&self, whose: Whose) -> &[Slot] {
        match whose {
            Whose::Node(node) => std::slice::from_ref(self.slot(node)),
            Whose::Anyone => &self.0,
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
