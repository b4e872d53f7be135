//! Routes: the connection that each session's messages go over.

use ident::ServerId;
use lease::SessionId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use wire::{MachineId, ToClient};

/// The number of the connection from the server's own machine: a call within the process.
pub(crate) const HERE: u64 = 0;

/// Messages that may wait for a connection. A client that is slower should ask again over a new
/// connection.
const QUEUE_MAX: usize = 100_000;

/// A message to a connection.
#[derive(Debug)]
pub(crate) enum Down {
    /// The connection is this session's from here on.
    Opened(SessionId),
    /// In that session.
    Message(ToClient),
    /// There is no session for this machine.
    Refused(String),
    /// The machine has joined, and has this number.
    Enrolled(MachineId),
}

/// The client of the server's own machine. The machine's client host is the one: it calls the
/// server, and the server calls back.
pub(crate) trait LocalClient: Send + Sync {
    /// Whether it calls the leader over the network, as any other client.
    fn is_remote(&self) -> bool;
    /// Its session at that server of the directory.
    fn session(&self, server: ServerId) -> Option<SessionId>;
    /// Takes messages of that server.
    fn deliver(&self, server: ServerId, told: Vec<Down>);
    /// Opens another session at that server.
    fn open_again(&self, server: ServerId);
}

/// The connections of one server, and the sessions that go over them.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    last: u64,
    /// Connections that have asked for a session, or to join.
    asked: BTreeMap<u64, RoutedWire>,
    sessions: FxHashMap<SessionId, RoutedWire>,
}

#[derive(Debug)]
struct RoutedWire {
    machine: Option<MachineId>,
    /// The number that the machine drew at its start.
    start: u64,
    down: Sender<Down>,
}

impl Routes {
    /// Adds a connection, of `machine` in that start if it is one already. Returns its number, and
    /// the receiver of its messages.
    pub(crate) fn connect(&mut self, of: Option<(MachineId, u64)>) -> (u64, Receiver<Down>) {
        self.last += 1;
        let (down, told) = channel(QUEUE_MAX);
        let (machine, start) = of.map_or((None, 0), |(machine, start)| (Some(machine), start));
        self.asked.insert(self.last, RoutedWire { machine, start, down });
        (self.last, told)
    }

    /// Returns the start in which the machine has a connection for its session now.
    pub(crate) fn is_up(&self, machine: MachineId) -> Option<u64> {
        let mut of = self.sessions.values().filter(|wire| wire.machine == Some(machine));
        of.find(|wire| !wire.down.is_closed()).map(|wire| wire.start)
    }

    /// Moves `session` to `connection`, and off any earlier one.
    pub(crate) fn open(&mut self, session: SessionId, connection: u64) {
        self.sessions.remove(&session);
        if let Some(wire) = self.asked.remove(&connection)
            && wire.down.try_send(Down::Opened(session)).is_ok()
        {
            self.sessions.insert(session, wire);
        }
    }

    /// Sends to a session. The message is lost if the session has no connection.
    pub(crate) fn send(&mut self, session: SessionId, message: ToClient) {
        let over = matches!(message, ToClient::Fenced);
        if let Some(wire) = self.sessions.get(&session) {
            // Without its sender a connection ends once its queue is sent.
            if wire.down.try_send(Down::Message(message)).is_err() || over {
                self.sessions.remove(&session);
            }
        }
    }

    /// Answers a connection that has no session.
    pub(crate) fn answer(&mut self, connection: u64, down: Down) {
        if let Some(wire) = self.asked.remove(&connection) {
            // The asker may have disconnected.
            let _ = wire.down.try_send(down);
        }
    }

    /// Ends all connections. Their clients call again, and learn who leads and which servers there
    /// are.
    pub(crate) fn hang_up(&mut self) {
        self.asked.clear();
        self.sessions.clear();
    }

    /// Ends the connections of a machine.
    pub(crate) fn disconnect(&mut self, machine: MachineId) {
        self.asked.retain(|_, wire| wire.machine != Some(machine));
        self.sessions.retain(|_, wire| wire.machine != Some(machine));
    }
}
