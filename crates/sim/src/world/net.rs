//! Links between machines and servers. A link delays, loses, doubles and reorders packets. A
//! connection over it does what TCP does: a lost packet is sent again, an early one waits, a double
//! one is taken once. A connection may break, and packets under way are lost. One kind of packet
//! survives: a machine's own packets on a connection that it gave up, which may arrive while it has
//! another.

use super::events::Event;
use super::state::link::{Carried, Numbered, Packet, Way};
use super::{Violation, World};
use client::Input as ClientInput;
use ident::ServerId;

/// A client gives up a connection on which an answer has been due for so long, ms on its own clock.
const SILENCE_MS: u64 = 5_000;
/// Time after which a lost packet is sent again, ms. It doubles each time, so many times.
const RESEND_MS: u64 = 200;
const RESEND_DOUBLINGS: u32 = 4;

impl World {
    /// Sends a packet over a connection.
    pub(super) fn send(&mut self, at: usize, way: Way, connection: u64, packet: Packet) {
        let link = &mut self.links[at];
        if link.alive == Some(connection)
            && let Some(known) = link.connections.get_mut(&connection)
        {
            let carried = &mut known.carried[way as usize];
            let number = carried.sent;
            carried.sent += 1;
            self.transmits(at, way, connection, Numbered { number, packet, lost: 0 });
        }
    }

    /// Puts a packet on the wire. Each takes its own time.
    pub(super) fn transmits(&mut self, at: usize, way: Way, connection: u64, packet: Numbered) {
        if !self.links[at].carries(way, connection) {
            return;
        }
        if self.links[at].cuts(way, connection) > 0 || self.happens(self.weather.loses) {
            let wait = RESEND_MS << packet.lost.min(RESEND_DOUBLINGS);
            let packet = Numbered { lost: packet.lost + 1, ..packet };
            return self.later(wait, Event::Resends { at, way, connection, packet });
        }
        let copies = 1 + u64::from(self.happens(self.weather.doubles));
        for _ in 0..copies {
            let (least, more) = self.links[at].delay;
            let delay = least + self.below(more + 1);
            self.later(delay, Event::Arrives { at, way, connection, packet: packet.clone() });
        }
    }

    /// Whether an event with these odds happens now; never if they are zero.
    pub(super) fn happens(&mut self, odds: u64) -> bool {
        odds > 0 && !self.healed && self.one_in(odds)
    }

    /// A packet arrives, if its connection is still there. All packets that are in order now are
    /// taken.
    pub(super) fn arrives(
        &mut self,
        at: usize,
        way: Way,
        connection: u64,
        packet: Numbered,
    ) -> Result<(), Violation> {
        if way == Way::Down
            && self.waits_frozen(at, || Event::Arrives { at, way, connection, packet: packet.clone() })
        {
            return Ok(());
        }
        let Numbered { number, packet, .. } = packet;
        if let Some(carried) = self.carried(at, way, connection).filter(|carried| number >= carried.taken) {
            carried.early.insert(number, packet);
        }
        while let Some(carried) = self.carried(at, way, connection)
            && let Some(packet) = carried.early.remove(&carried.taken)
        {
            carried.taken += 1;
            self.takes(at, connection, packet)?;
        }
        Ok(())
    }

    fn carried(&mut self, at: usize, way: Way, connection: u64) -> Option<&mut Carried> {
        let link = &mut self.links[at];
        if !link.carries(way, connection) {
            return None;
        }
        let known = link.connections.get_mut(&connection)?;
        (way == Way::Down || !known.closed).then_some(&mut known.carried[way as usize])
    }

    fn takes(&mut self, at: usize, connection: u64, packet: Packet) -> Result<(), Violation> {
        self.happened.messages += 1;
        let server = self.links[at].server_of(connection).unwrap_or_default();
        match packet {
            Packet::Greets { incarnation, session } => {
                self.server_is_greeted(server, at, connection, incarnation, session);
                Ok(())
            }
            Packet::Says(message) => {
                fits_a_frame(&message)?;
                self.server_hears(server, at, connection, message)
            }
            Packet::Away { leader } => {
                if self.machines[at].connection.number == Some(connection) {
                    self.machines[at].server = leader.unwrap_or(self.group.next_after(server));
                    self.breaks(at);
                }
                Ok(())
            }
            Packet::Opened(session) => {
                self.machines[at].connection.open(connection, session);
                Ok(())
            }
            Packet::Tells(message) => {
                fits_a_frame(&message)?;
                self.machine_hears(at, connection, message)
            }
        }
    }

    /// A machine without a connection tries to get one.
    pub(super) fn dials(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].connection.number.is_some() || self.waits_frozen(at, || Event::Dials(at)) {
            return Ok(());
        }
        let server = self.machines[at].server;
        if !self.group.replicas[server].up {
            self.machines[at].server = self.group.next_after(server);
            self.later(500, Event::Dials(at));
            return Ok(());
        }
        self.connections += 1;
        let connection = self.connections;
        self.links[at].connects(connection, server);
        let machine = &mut self.machines[at];
        machine.connection.dial(connection);
        let may_go_on = machine.left.is_some() || machine.client.has_session(ServerId::ROOT);
        let (incarnation, session) = (machine.incarnation, machine.connection.session.filter(|_| may_go_on));
        self.input(at, ClientInput::Greeting(ServerId::ROOT))?;
        self.send(at, Way::Up, connection, Packet::Greets { incarnation, session });
        Ok(())
    }

    /// A machine's connection breaks, and the machine knows at once.
    pub(super) fn breaks(&mut self, at: usize) {
        self.links[at].loses();
        self.hangs_up(at);
    }

    /// A server's process is gone; the machines with connections to it know at once.
    pub(super) fn loses_server(&mut self, server: usize) {
        for at in 0..self.machines.len() {
            self.links[at].loses_server(server);
            if self.machines[at].server == server {
                self.breaks(at);
            }
        }
    }

    /// The machine gives up its connection. Its packets may still arrive.
    pub(super) fn leaves(&mut self, at: usize) {
        self.links[at].leaves();
        self.hangs_up(at);
    }

    fn hangs_up(&mut self, at: usize) {
        self.machines[at].steady = None;
        if self.machines[at].connection.number.take().is_some() {
            let pause = self.below(2_000);
            self.later(pause, Event::Dials(at));
        }
    }

    /// The machine gives up a connection on which an answer has been due for long.
    pub(super) fn gives_up_silence(&mut self, at: usize) {
        let now = self.clock(at);
        let owed = self.machines[at].client.owed_since(ServerId::ROOT);
        if self.machines[at].connection.number.is_some()
            && owed.is_some_and(|since| now.ms_since(since) > SILENCE_MS)
        {
            // The next server may be the leader.
            self.machines[at].server = self.group.next_after(self.machines[at].server);
            self.leaves(at);
        }
    }
}

/// Checks that a message fits a frame.
fn fits_a_frame(message: &impl serde::Serialize) -> Result<(), Violation> {
    match wire::encode(message).len() {
        0..=wire::FRAME_BYTES_MAX => Ok(()),
        bytes => Err(format!("a message of {bytes} bytes")),
    }
}
