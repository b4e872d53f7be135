//! Links between machines and the server. A connection keeps the order of what it carries; it may break, and then all that is under way is lost, or swallow
//! what is sent in one direction until somebody gives it up.

use super::events::Event;
use super::{Building, Violation};
use client::Input as ClientInput;
use directory::Input;
use lease::SessionId;
use wire::{ToClient, ToServer};

/// A client gives a connection up over which it has been owed an answer for so long, ms on its own clock.
const SILENCE_MS: u64 = 5_000;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

/// What connections carry.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    /// The greeting: which start of the machine it is, and the session that it had.
    Greets { incarnation: u64, session: Option<SessionId> },
    /// In the connection's session.
    Says(ToServer),
    /// The connection's session.
    Opened(SessionId),
    /// In it.
    Tells(ToClient),
}

/// The way from a machine to the server and back.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Delays as they are now: at least, and how much more at most.
    pub delay: (u64, u64),
    /// How many troubles swallow what is sent that way.
    pub cut: [u64; 2],
    /// Connections that have swallowed something that way, and carry nothing any more.
    swallowed: [Option<u64>; 2],
    /// When the last packet that way arrives.
    last: [u64; 2],
    /// The connection that works, if there is one; what is under way on another is lost.
    pub alive: Option<u64>,
}

impl Link {
    /// One on which everything takes so long at least, ms, and twice that at most.
    pub fn new(delay: u64) -> Link {
        Link { delay: (delay, delay), ..Link::default() }
    }
}

impl Building {
    /// Sends a packet over a connection.
    pub(super) fn send(&mut self, at: usize, way: Way, connection: u64, packet: Packet) {
        let (least, more) = self.links[at].delay;
        let delay = least + self.below(more + 1);
        let (now, index) = (self.now, way as usize);
        let link = &mut self.links[at];
        if link.alive != Some(connection) {
            return;
        }
        if link.cut[index] > 0 || link.swallowed[index] == Some(connection) {
            // Whoever misses a packet takes none that comes after it.
            link.swallowed[index] = Some(connection);
            return;
        }
        link.last[index] = link.last[index].max(now + delay);
        let time = link.last[index];
        self.events.add(time, Event::Arrives { at, way, connection, packet });
    }

    /// A packet arrives, if its connection is still there.
    pub(super) fn arrives(
        &mut self,
        at: usize,
        way: Way,
        connection: u64,
        packet: Packet,
    ) -> Result<(), Violation> {
        if way == Way::Down
            && self.waits_frozen(at, || Event::Arrives { at, way, connection, packet: packet.clone() })
        {
            return Ok(());
        }
        if self.links[at].alive != Some(connection) {
            return Ok(());
        }
        self.happened.messages += 1;
        match packet {
            Packet::Greets { incarnation, session } => {
                let machine = self.machines[at].id;
                // From here on no other connection of this machine is listened to.
                self.server.listens_to(at, connection);
                self.propose(Input::Open { machine, incarnation, session, connection });
                Ok(())
            }
            Packet::Says(message) => self.server_hears(at, connection, message),
            Packet::Opened(session) => {
                self.machines[at].opened(connection, session);
                Ok(())
            }
            Packet::Tells(message) => self.machine_hears(at, connection, message),
        }
    }

    /// A machine that has no connection tries to get one.
    pub(super) fn dials(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].connection.is_some() || self.waits_frozen(at, || Event::Dials(at)) {
            return Ok(());
        }
        if !self.server.is_up() {
            self.later(500, Event::Dials(at));
            return Ok(());
        }
        self.connections += 1;
        let connection = self.connections;
        self.links[at].alive = Some(connection);
        let machine = &mut self.machines[at];
        machine.connection = Some(connection);
        let (incarnation, session) = (machine.incarnation, machine.begun);
        self.input(at, ClientInput::Greeting)?;
        self.send(at, Way::Up, connection, Packet::Greets { incarnation, session });
        Ok(())
    }

    /// The connection of a machine breaks. All that is under way is lost, and the machine hears of it.
    pub(super) fn breaks(&mut self, at: usize) {
        self.links[at].alive = None;
        if self.machines[at].connection.take().is_some() {
            let pause = self.below(2_000);
            self.later(pause, Event::Dials(at));
        }
    }

    /// Nothing has come for long: the machine gives the connection up.
    pub(super) fn gives_up_silence(&mut self, at: usize) {
        let now = self.clock(at);
        let owed = self.machines[at].client.owed_since();
        if self.machines[at].connection.is_some()
            && owed.is_some_and(|since| now.ms_since(since) > SILENCE_MS)
        {
            self.breaks(at);
        }
    }
}
