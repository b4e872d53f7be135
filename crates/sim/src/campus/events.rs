//! Events to come, in order of time.

use directory::Input;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use wire::ToClient;

/// A connection of a machine: its place, and the connection's number.
pub(super) type Sender = Option<(usize, u64)>;

/// A thing that happens.
#[allow(clippy::large_enum_variant, reason = "the long ones are the most frequent")]
pub(super) enum Event {
    /// A message arrives at a server, of a machine or of another server.
    Arrives { server: usize, from: Sender, input: Input },
    /// A server has handled a message.
    Serves { server: usize, from: Sender, input: Input },
    /// A server looks for what is to be said again.
    ServerTick { server: usize },
    /// A server goes on with work in the background.
    GoesOn { server: usize },
    /// A message arrives at a machine.
    Reaches { machine: usize, server: usize, connection: u64, message: ToClient },
    /// A client's deadline.
    ClientTick { machine: usize },
    /// A program has paused for long enough.
    Wake { task: usize },
    /// A server compares its load with another one's.
    Exchange { server: usize },
    /// The loads are noted.
    Sample,
}

/// The events to come.
pub(super) struct Events {
    now: Rc<Cell<u64>>,
    count: u64,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
}

impl Events {
    /// No events, at this time, µs.
    pub fn from(now: u64) -> Events {
        let (count, order, events) = Default::default();
        Events { now: Rc::new(Cell::new(now)), count, order, events }
    }

    /// The time, µs.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// The time, for programs.
    pub fn clock(&self) -> Rc<Cell<u64>> {
        self.now.clone()
    }

    /// The event is to happen at this time, or now if that is past. Events of one time happen in
    /// the order in which they came.
    pub fn at(&mut self, time: u64, event: Event) {
        self.order.push(Reverse((time.max(self.now()), self.count)));
        self.events.insert(self.count, event);
        self.count += 1;
    }

    /// The event is to happen after this time, µs.
    pub fn after(&mut self, us: u64, event: Event) {
        self.at(self.now() + us, event);
    }

    /// When the next event happens. There always is one: servers tick.
    pub fn next_at(&self) -> u64 {
        self.order.peek().map_or(u64::MAX, |Reverse((time, _))| *time)
    }

    /// The next event, at whose time it is now.
    ///
    /// # Panics
    /// If there is none, which a caller of [`Events::next_at`] knows.
    pub fn take_next(&mut self) -> Event {
        #[expect(clippy::expect_used, reason = "servers tick for ever")]
        let Reverse((time, number)) = self.order.pop().expect("an event");
        self.now.set(time);
        #[expect(clippy::expect_used, reason = "every number in the order has its event")]
        self.events.remove(&number).expect("the event of the number")
    }
}
