//! A model of all that can happen between a server and a few clients, with messages in flight.
//!
//! The server decides with the shipped [`BlackBox`]. Around it is as little as possible: a queue,
//! first come first served, and channels that keep the order. A client may at any time ask, write
//! (if it may), return a lease unasked, end its session or be given up.
//!
//! Three rules keep the space small, and leave nothing out:
//! * A client that joins changes nothing at the server, so a slot whose session is gone is a new
//!   client at once.
//! * A request is sent when no message of its client is in flight before it, and arrives at once. A
//!   request sent earlier would only wait in the channel, where it has no effect.
//! * Clients are alike, so states that differ in names only are one state (not under
//!   `SelfWrites::Growing`, which chooses by name).

mod server;
mod shown;
mod state;

pub use shown::{IS_BEING_SERVED, MAXIMAL, NEARER, SEES_WHAT_IS_SO, WRITES_WITH_LEASE};

use crate::blackbox::definition::Enumerable;
use lease::blackbox::{Aggregate, GrantPolicy, SelfWrites, SubLease};
use server::Server;
use smallvec::SmallVec;
use state::{Client, Down, LEASES, Life, State, Up, Wrong};
use stateright::{Model, Property};
use std::marker::PhantomData;

/// A deliberate fault in the server or the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// C-2 although some clients write.
    TakesWritersForStuck,
    /// C-1 by a client that writes.
    TakesAWriterForAShield,
    /// F-6 left out: `SelfWrite` is granted although all see X and there is no shield.
    ForgetsReaders,
    /// F-7 left out: a shield is taken to shield itself.
    TakesAShieldToShieldItself,
    /// A departure does not wait for views that rest on it.
    LetsLeaveAtOnce,
    /// Recalls in C-1.
    RecallsWritersInC1,
    /// Recalls in D-1.
    RecallsReadersInD1,
    /// Serves any request that can be served.
    ServesTheLast,
    /// Recalls once and never looks again.
    ForgetsTheFirst,
    /// Departures stand behind requests, which may wait for the departing session.
    LetsTheDepartingWait,
    /// A client writes on after it has returned its lease.
    ClientWritesOn,
}

/// A small system.
pub struct System<A> {
    pub clients: usize,
    pub policy: GrantPolicy,
    /// Whether clients return leases that were not recalled.
    pub unasked: bool,
    /// Whether a client may ask for one lease while it waits for the other.
    pub both: bool,
    /// Whether returns can be in flight. Otherwise they arrive when the recall does.
    pub slow_returns: bool,
    pub fault: Fault,
    pub aggregate: PhantomData<A>,
}

type Value<A> = <A as Aggregate>::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<V> {
    Ask(usize, SubLease),
    Write(usize, V),
    LetGo(usize, SubLease),
    End(usize),
    GiveUp(usize),
    DeliverDown(usize),
    DeliverUp(usize),
}

impl<A: Enumerable> System<A> {
    fn step(&self, state: &mut State<Value<A>>, action: Action<Value<A>>) -> bool {
        match action {
            Action::Write(x, value) => state.clients[x].value = value,
            Action::LetGo(x, lease) => {
                state.clients[x].released(lease, self.fault);
                return self.arrive_at_once(state, x);
            }
            Action::End(x) => {
                state.clients[x].end(Life::Ended);
                state.clients[x].up.push(Up::End);
                return self.arrive_at_once(state, x);
            }
            Action::DeliverDown(x) => {
                let client = &mut state.clients[x];
                match client.down.remove(0) {
                    _ if client.life != Life::Alive => {}
                    Down::GrantSelfWrite => client.writes = true,
                    Down::GrantOtherRead(value) => client.sees = Some(value),
                    Down::Recall(lease) if client.holds(lease) => client.released(lease, self.fault),
                    Down::Recall(_) => {}
                }
                return self.arrive_at_once(state, x);
            }
            Action::DeliverUp(x) => {
                let up = state.clients[x].up.remove(0);
                let mut server = Server::new(self, state);
                server.handle(x, up);
                return server.finish();
            }
            Action::Ask(x, lease) => {
                state.queue.push((x as u8, lease));
                return Server::new(self, state).finish();
            }
            Action::GiveUp(x) => {
                let mut server = Server::new(self, state);
                server.begin_to_leave(x);
                return server.finish();
            }
        }
        false
    }

    fn arrive_at_once(&self, state: &mut State<Value<A>>, x: usize) -> bool {
        !self.slow_returns && !state.clients[x].up.is_empty() && self.step(state, Action::DeliverUp(x))
    }

    /// Returns whether the step is one that the system owes to waiting clients.
    fn is_owed(&self, state: &State<Value<A>>, action: Action<Value<A>>) -> bool {
        match action {
            // The end of a session that holds nothing brings no request nearer.
            Action::DeliverUp(x) => LEASES.iter().any(|lease| state.clients[x].distance(*lease) == 1),
            Action::DeliverDown(x) => {
                let client = &state.clients[x];
                matches!(client.down.first(), Some(Down::Recall(lease)) if client.holds(*lease))
            }
            _ => false,
        }
    }
}

impl<A: Enumerable> Model for System<A> {
    type State = State<Value<A>>;
    type Action = Action<Value<A>>;

    fn init_states(&self) -> Vec<Self::State> {
        let clients = (0..self.clients).map(|_| Client::new(A::IDENTITY)).collect();
        vec![State { clients, queue: SmallVec::new(), round: 0, wrong: None }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        for (x, client) in state.clients.iter().enumerate() {
            if !client.down.is_empty() {
                actions.push(Action::DeliverDown(x));
            }
            if !client.up.is_empty() {
                actions.push(Action::DeliverUp(x));
            }
            if client.life != Life::Leaving {
                actions.push(Action::GiveUp(x));
            }
            if client.life != Life::Alive {
                continue;
            }
            actions.push(Action::End(x));
            for (lease, other) in [(LEASES[0], LEASES[1]), (LEASES[1], LEASES[0])] {
                let asks = state.asks(x, lease) || (!self.both && state.asks(x, other));
                if !asks && !client.holds(lease) && client.up.is_empty() {
                    actions.push(Action::Ask(x, lease));
                }
                if self.unasked && client.holds(lease) {
                    actions.push(Action::LetGo(x, lease));
                }
            }
            if client.writes {
                let others = A::values().into_iter().filter(|value| *value != client.value);
                actions.extend(others.map(|value| Action::Write(x, value)));
            }
        }
    }

    fn next_state(&self, before: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = before.clone();
        let first_is_done = self.step(&mut state, action);
        if before.waits() && !first_is_done && !before.queue.is_empty() {
            let (was, is): (u32, u32) = (before.distances().sum(), state.distances().sum());
            if is > was || (is == was && self.is_owed(before, action)) {
                state.wrong.get_or_insert(Wrong::NotNearer);
            }
        }
        if self.policy.self_writes == SelfWrites::All {
            state.sort();
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        shown::properties()
    }
}
