//! The link between a machine and the servers, and its packets.

use lease::SessionId;
use std::collections::BTreeMap;
use wire::{ToClient, ToServer};

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

/// A packet's content.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    /// The greeting: the machine's incarnation, and its last session.
    Greets { incarnation: u64, session: Option<SessionId> },
    /// A message of the connection's session to the server.
    Says(ToServer),
    /// The connection's session.
    Opened(SessionId),
    /// A message of the connection's session to the client.
    Tells(ToClient),
    /// This server does not lead; that one may. The connection ends.
    Away { leader: Option<usize> },
}

/// A packet with its number on the connection.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub number: u64,
    pub packet: Packet,
    /// Times that it was lost.
    pub lost: u32,
}

/// The link between a machine and the servers.
#[derive(Debug, Default)]
pub(crate) struct WireLink {
    /// Present delay, ms: at least, and how much more at most.
    pub delay: (u64, u64),
    /// Number of faults that cut the link, by direction.
    pub cut: [u64; 2],
    /// The same, by server.
    pub cut_of: Vec<[u64; 2]>,
    /// The working connection, if there is one. Packets under way on others are lost.
    pub alive: Option<u64>,
    /// A connection that the machine gave up. The machine's packets on it still arrive.
    pub left: Option<u64>,
    /// The connections of these two fields.
    pub connections: BTreeMap<u64, Connection>,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    pub server: usize,
    /// Whether the server has ended the connection, and takes nothing more from it.
    pub closed: bool,
    /// The state of the packets, by direction.
    pub carried: [Carried; 2],
}

/// A connection's packets in one direction.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// Number of packets sent.
    pub sent: u64,
    /// Number of packets taken, in order.
    pub taken: u64,
    /// Packets that came before their turn.
    pub early: BTreeMap<u64, Packet>,
}

impl WireLink {
    /// A link with this least delay, ms; the most is twice that.
    pub fn new(delay: u64, servers: usize) -> WireLink {
        WireLink { delay: (delay, delay), cut_of: vec![[0; 2]; servers], ..WireLink::default() }
    }

    /// Starts a new connection.
    pub fn connects(&mut self, connection: u64, server: usize) {
        self.alive = Some(connection);
        let new = Connection { server, closed: false, carried: Default::default() };
        self.connections.insert(connection, new);
        self.forget();
    }

    /// The server ends the connection. Its packets may still arrive.
    pub fn is_closed(&mut self, connection: u64) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.closed = true;
        }
    }

    /// The server at the other end is gone.
    pub fn loses_server(&mut self, server: usize) {
        let to_it = |connection: &u64| self.connections.get(connection).is_some_and(|it| it.server == server);
        (self.alive, self.left) = (self.alive.filter(|it| !to_it(it)), self.left.filter(|it| !to_it(it)));
        self.forget();
    }

    /// The connection's server.
    pub fn server_of(&self, connection: u64) -> Option<usize> {
        self.connections.get(&connection).map(|connection| connection.server)
    }

    /// Number of faults that cut the connection in that direction.
    pub fn cuts(&self, way: Way, connection: u64) -> u64 {
        let of_server = self.server_of(connection).and_then(|server| self.cut_of.get(server));
        self.cut[way as usize] + of_server.map_or(0, |cut| cut[way as usize])
    }

    /// The machine gives up its connection.
    pub fn leaves(&mut self) {
        self.left = self.alive.take();
        self.forget();
    }

    /// The connection is gone at both ends.
    pub fn loses(&mut self) {
        (self.alive, self.left) = (None, None);
        self.forget();
    }

    pub fn forget(&mut self) {
        let (alive, left) = (self.alive, self.left);
        self.connections.retain(|connection, _| [alive, left].contains(&Some(*connection)));
    }

    pub fn carries(&self, way: Way, connection: u64) -> bool {
        self.alive == Some(connection) || (way == Way::Up && self.left == Some(connection))
    }
}
