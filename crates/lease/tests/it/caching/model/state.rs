//! The states of the model.

use super::{Kind, System};
use lease::Time;
use lease::caching::{
    ACKNOWLEDGE_WITHIN_MS, CachingState as Flags, ClientGuid, Grant, LeaseHolder, LeaseId, LeaseKey, Object,
    OpenId,
};
use smallvec::SmallVec;

/// A message to a client. It is stale if the lease ended after it was sent, by its time or by its
/// last close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Down {
    Granted {
        grant: Grant,
        stale: bool,
    },
    Break {
        to: Flags,
        acknowledge: bool,
        stale: bool,
    },
    /// An acknowledgment was refused: it came too late.
    TooLate {
        stale: bool,
    },
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Up {
    pub keeps: Flags,
    pub stale: bool,
}

/// An act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deed {
    Open(Kind),
    Read,
    Write,
    Rename,
    /// Another machine wants what is above this.
    Recall(Flags),
}

/// The one who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    Client(usize),
    /// A call of the machine's own, by path.
    Local,
    /// The server above.
    Server,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    pub object: Object,
    /// The state that the machine's own leases allow.
    pub cover: Flags,
    /// The acts that wait, in the order of arrival.
    pub queue: SmallVec<[(Who, Deed); 4]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub opens: [Option<Kind>; 2],
    /// The state that the client takes for its own.
    pub believes: Flags,
    /// Whether its lease ended by time, and the client does not know.
    pub is_lost: bool,
    pub down: SmallVec<[Down; 4]>,
    pub up: SmallVec<[Up; 2]>,
}

/// A fault that a step shows, and no state by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// An act went on although somebody has what it had to wait for.
    WentOn,
    /// An open was refused although cached handles were in the way, or none.
    Refused,
    /// An act broke its own key.
    BrokeItsOwn,
    /// While the first act waits, a step gave somebody more, or an answer took nothing.
    NotNearer,
    /// A message was not judged as its sender may expect.
    Unexpected,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub machines: SmallVec<[Machine; 2]>,
    pub clients: SmallVec<[Client; 3]>,
    pub wrong: Option<Wrong>,
}

impl Machine {
    /// A time at which a new break has another deadline than the one that is under way.
    pub fn now(&self) -> Time {
        let first = Time(ACKNOWLEDGE_WITHIN_MS);
        Time(u64::from(self.object.next_deadline() == Some(first)))
    }
}

impl Client {
    pub fn new() -> Client {
        let (down, up) = (SmallVec::new(), SmallVec::new());
        Client { opens: [None; 2], believes: Flags::NONE, is_lost: false, down, up }
    }

    pub fn is_open(&self) -> bool {
        self.opens != [None; 2]
    }

    /// Whether the client can know that its lease is what the server says.
    pub fn believes(&self, flags: Flags) -> bool {
        !self.is_lost && self.believes.meets(flags)
    }

    /// Whether a break is on its way that leaves none of the flags.
    pub fn is_told_to_drop(&self, flags: Flags) -> bool {
        self.down.iter().any(|down| matches!(down, Down::Break { to, .. } if !to.meets(flags)))
    }

    /// The lease has ended, so what is under way is about an earlier one.
    pub fn make_stale(&mut self) {
        for down in &mut self.down {
            let (Down::Granted { stale, .. } | Down::Break { stale, .. } | Down::TooLate { stale }) = down;
            *stale = true;
        }
        self.up.iter_mut().for_each(|up| up.stale = true);
    }

    /// The number of breaks that the server may expect an acknowledgment of.
    pub fn unanswered(&self) -> usize {
        let fresh = |down: &&Down| matches!(down, Down::Break { acknowledge: true, stale: false, .. });
        self.down.iter().filter(fresh).count() + self.up.iter().filter(|up| !up.stale).count()
    }
}

impl State {
    pub fn held(&self, system: &System, client: usize) -> Option<Grant> {
        self.machines[system.machine_of(client)].object.held(holder(system, client))
    }

    pub fn waits(&self, machine: usize, who: Who) -> bool {
        self.machines[machine].queue.iter().any(|(it, _)| *it == who)
    }

    /// The number of flags that the clients of a machine have.
    pub fn flags_at(&self, system: &System, machine: usize) -> u32 {
        let held = system.clients_at(machine).filter_map(|client| self.held(system, client));
        held.map(|it| it.state.bits().count_ones()).sum()
    }
}

pub fn lease_id(system: &System, client: usize) -> LeaseId {
    let key = LeaseKey::new([system.clients[client].1; 16]).expect("not zero");
    LeaseId { client: ClientGuid([client as u8; 16]), key }
}

pub fn holder(system: &System, client: usize) -> LeaseHolder {
    LeaseHolder::Lease(lease_id(system, client))
}

pub fn open_id(client: usize, slot: usize) -> OpenId {
    OpenId((2 * client + slot) as u64)
}
