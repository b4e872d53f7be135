//! The true state, and the server's knowledge of it.

use super::Fault;
use lease::blackbox::{Own, SubLease};
use smallvec::SmallVec;
use std::hash::Hash;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Down<V> {
    GrantSelfWrite,
    GrantOtherRead(V),
    Recall(SubLease),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Up<V> {
    ReturnSelfWrite(V),
    ReturnOtherRead,
    End,
}

/// The life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Life {
    Alive,
    /// The client has sent the end, and the server may not know yet.
    Ended,
    /// The server knows. Views of others may still rest on its value.
    Leaving,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client<V> {
    /// The server's knowledge.
    pub own: Own<V>,
    pub reads: bool,
    /// The leases that were recalled and not returned.
    pub recalled: [bool; 2],
    pub life: Life,
    /// The true state.
    pub value: V,
    pub writes: bool,
    pub sees: Option<V>,
    pub down: SmallVec<[Down<V>; 4]>,
    pub up: SmallVec<[Up<V>; 4]>,
}

/// A fault that a step shows, and no state by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// A recall where the grant would have been right, or where it does not help.
    NeedlessRecall,
    /// A step brought the first request no nearer to its grant, or took it further away.
    NotNearer,
    /// The server did not expect this.
    Unexpected,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<V> {
    pub clients: SmallVec<[Client<V>; 4]>,
    pub queue: SmallVec<[(u8, SubLease); 8]>,
    pub round: u8,
    pub wrong: Option<Wrong>,
}

pub const LEASES: [SubLease; 2] = [SubLease::SelfWrite, SubLease::OtherRead];

impl<V> Down<V> {
    fn grants(&self) -> Option<SubLease> {
        match self {
            Down::GrantSelfWrite => Some(SubLease::SelfWrite),
            Down::GrantOtherRead(_) => Some(SubLease::OtherRead),
            Down::Recall(_) => None,
        }
    }
}

impl<V> Up<V> {
    fn returns(&self, lease: SubLease) -> bool {
        match self {
            Up::ReturnSelfWrite(_) => lease == SubLease::SelfWrite,
            Up::ReturnOtherRead => lease == SubLease::OtherRead,
            Up::End => true,
        }
    }
}

impl<V: Copy + Ord + Hash> Client<V> {
    pub fn new(identity: V) -> Client<V> {
        Client {
            own: Own::Stuck(identity),
            reads: false,
            recalled: [false; 2],
            life: Life::Alive,
            value: identity,
            writes: false,
            sees: None,
            down: SmallVec::new(),
            up: SmallVec::new(),
        }
    }

    pub fn holds(&self, lease: SubLease) -> bool {
        match lease {
            SubLease::SelfWrite => self.writes,
            SubLease::OtherRead => self.sees.is_some(),
        }
    }

    pub fn released(&mut self, lease: SubLease, fault: Fault) {
        match lease {
            SubLease::SelfWrite => {
                self.writes = fault == Fault::ClientWritesOn;
                self.up.push(Up::ReturnSelfWrite(self.value));
            }
            SubLease::OtherRead => {
                self.sees = None;
                self.up.push(Up::ReturnOtherRead);
            }
        }
    }

    pub fn end(&mut self, life: Life) {
        self.life = life;
        (self.writes, self.sees) = (false, None);
        self.down.clear();
    }

    pub fn granted(&self, lease: SubLease) -> bool {
        match lease {
            SubLease::SelfWrite => self.own == Own::Writing,
            SubLease::OtherRead => self.reads,
        }
    }

    /// The distance of the server from having `lease` back. It is 0 when the server has it, 1 when
    /// the return is on the way, 2 when the recall is, and 3 when neither is.
    pub fn distance(&self, lease: SubLease) -> u32 {
        // A recall before the grant is about an earlier lease. The client has ignored it, or will.
        let since = self.down.iter().rposition(|down| down.grants() == Some(lease)).map_or(0, |at| at + 1);
        if !self.granted(lease) {
            0
        } else if self.up.iter().any(|up| up.returns(lease)) {
            1
        } else if self.down[since..].contains(&Down::Recall(lease)) {
            2
        } else {
            3
        }
    }
}

impl<V: Copy + Ord + Hash> State<V> {
    pub fn asks(&self, client: usize, lease: SubLease) -> bool {
        let granted = self.clients[client].down.iter().any(|down| down.grants() == Some(lease));
        granted || self.queue.contains(&(client as u8, lease))
    }

    pub fn distances(&self) -> impl Iterator<Item = u32> + '_ {
        self.clients.iter().flat_map(|client| LEASES.map(|lease| client.distance(lease)))
    }

    pub fn waits(&self) -> bool {
        !self.queue.is_empty() || self.clients.iter().any(|client| client.life == Life::Leaving)
    }

    /// Sorts the clients in an order that does not depend on their names.
    pub fn sort(&mut self) {
        let place = |client: usize| self.queue.iter().position(|(it, _)| *it as usize == client);
        let mut order: SmallVec<[usize; 4]> = (0..self.clients.len()).collect();
        order.sort_by(|a, b| (&self.clients[*a], place(*a)).cmp(&(&self.clients[*b], place(*b))));
        if !order.is_sorted() {
            self.clients = order.iter().map(|old| self.clients[*old].clone()).collect();
            for (client, _) in &mut self.queue {
                let now = order.iter().position(|old| *old == *client as usize);
                *client = now.map_or(u8::MAX, |now| now as u8);
            }
        }
    }
}
