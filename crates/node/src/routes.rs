//! Which connection a session's messages go over.

use lease::SessionId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use wire::{MachineId, ToClient};

/// The connection of the machine that the server runs on: a call within the process.
pub(crate) const HERE: u64 = 0;

/// Messages that may wait for a connection to take them. Whoever is that slow is better off asking
/// again over a new one.
const QUEUE_MAX: usize = 100_000;

/// What a connection is told.
#[derive(Debug)]
pub(crate) enum Down {
    /// It is this session's from here on.
    Opened(SessionId),
    /// In that session.
    Message(ToClient),
    /// There is no session for this machine.
    Refused(String),
    /// The machine has joined, as this one.
    Enrolled(MachineId),
}

/// See the module.
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
    /// What the machine's start has drawn.
    start: u64,
    down: Sender<Down>,
}

impl Routes {
    /// A new connection, of `machine` in that start if it is one already: its number, and what it
    /// is told.
    pub(crate) fn connect(&mut self, of: Option<(MachineId, u64)>) -> (u64, Receiver<Down>) {
        self.last += 1;
        let (down, told) = channel(QUEUE_MAX);
        let (machine, start) = of.map_or((None, 0), |(machine, start)| (Some(machine), start));
        self.asked.insert(self.last, RoutedWire { machine, start, down });
        (self.last, told)
    }

    /// The start in which the machine has a connection for its session now.
    pub(crate) fn is_up(&self, machine: MachineId) -> Option<u64> {
        let mut of = self.sessions.values().filter(|wire| wire.machine == Some(machine));
        of.find(|wire| !wire.down.is_closed()).map(|wire| wire.start)
    }

    /// `session` goes over `connection`, and over no earlier one.
    pub(crate) fn open(&mut self, session: SessionId, connection: u64) {
        self.sessions.remove(&session);
        if let Some(wire) = self.asked.remove(&connection)
            && wire.down.try_send(Down::Opened(session)).is_ok()
        {
            self.sessions.insert(session, wire);
        }
    }

    /// To a session; lost if it has no connection.
    pub(crate) fn send(&mut self, session: SessionId, message: ToClient) {
        let over = matches!(message, ToClient::Fenced);
        if let Some(wire) = self.sessions.get(&session) {
            // Without its sender a connection ends once it has said what was queued.
            if wire.down.try_send(Down::Message(message)).is_err() || over {
                self.sessions.remove(&session);
            }
        }
    }

    /// Answers a connection that has no session.
    pub(crate) fn answer(&mut self, connection: u64, down: Down) {
        if let Some(wire) = self.asked.remove(&connection) {
            // Whoever asked may have gone away.
            let _ = wire.down.try_send(down);
        }
    }

    /// Ends all connections: whoever they are of calls again, and is told who leads, and which
    /// servers there are.
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
