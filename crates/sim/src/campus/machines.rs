//! The machines: a client each, and its connections to servers.

use super::events::Event;
use super::{Campus, SPACE};
use crate::host::Violation;
use crate::host::connection::Connection;
use client::{Call, Client, Input, Now, Outcome, Output, Settings};
use directory::Input as ServerInput;
use ident::ServerId;
use lease::Time;
use namespace::{Cred, Timestamp};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use std::collections::BTreeSet;
use wire::{GreetingNumber, MachineId, ToClient, Version};

/// A machine.
pub(super) struct Machine {
    pub id: MachineId,
    client: Client,
    /// By server.
    pub wires: Vec<Wire>,
    /// When the client is to be told the time, µs, as far as that is on its way.
    tick_at: Option<u64>,
}

/// The traffic between a machine and a server.
#[derive(Default)]
pub(super) struct Wire {
    pub connection: Connection,
    /// Number of connections so far.
    pub connections: u64,
    /// When the last message to the server arrives, and the last one to the machine, µs.
    to_server_at: u64,
    pub to_client_at: u64,
}

impl Machine {
    /// A machine without a connection.
    pub fn new(id: MachineId, servers: usize, rng: &mut ChaCha12Rng) -> Machine {
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let wires = (0..servers).map(|_| Wire::default()).collect();
        Machine { id, client: Client::new(Settings::new(seed)), wires, tick_at: None }
    }
}

fn clocks(now: Time) -> Now {
    let secs = 1_700_000_000 + (now.0 / 1_000).cast_signed();
    Now { time: now, wall: Timestamp { secs, nanos: (now.0 % 1_000) as u32 * 1_000_000 } }
}

impl Campus {
    /// Begins a call.
    pub(super) fn call(&mut self, at: usize, cred: &Cred, call: Call) -> Result<Outcome, Violation> {
        let (now, mut out) = (clocks(self.now()), Vec::new());
        let outcome = self.machines[at].client.call(now, cred, call, &mut out);
        self.carry_out(at, out)?;
        Ok(outcome)
    }

    fn input(&mut self, at: usize, input: Input) -> Result<(), Violation> {
        let (now, mut out) = (clocks(self.now()), Vec::new());
        self.machines[at].client.handle(now, input, &mut out);
        self.carry_out(at, out)
    }

    /// The machine connects to this server.
    pub(super) fn connect(&mut self, at: usize, server: ServerId) -> Result<(), Violation> {
        let machine = self.machines[at].id;
        let wire = &mut self.machines[at].wires[usize::from(server.0)];
        wire.connections += 1;
        wire.connection.dial(wire.connections);
        self.input(at, Input::Greeting(server))?;
        let Wire { ref connection, connections, .. } = self.machines[at].wires[usize::from(server.0)];
        let greeting = GreetingNumber { drawn: 1, count: connections };
        let open = ServerInput::Open {
            machine,
            incarnation: 1,
            greeting,
            session: connection.session,
            connection: connections,
            version: Version::NEWEST,
        };
        self.sends_to_server(at, server, ServerInput::Space(SPACE));
        self.sends_to_server(at, server, open);
        Ok(())
    }

    fn sends_to_server(&mut self, at: usize, server: ServerId, input: ServerInput) {
        let arrives = self.events.now() + self.latency();
        let server = usize::from(server.0);
        let wire = &mut self.machines[at].wires[server];
        wire.to_server_at = wire.to_server_at.max(arrives);
        let (time, from) = (wire.to_server_at, Some((at, wire.connections)));
        self.events.at(time, Event::Arrives { server, from, input });
    }

    /// A message of a server arrives.
    pub(super) fn reaches(
        &mut self,
        at: usize,
        server: usize,
        connection: u64,
        message: ToClient,
    ) -> Result<(), Violation> {
        let wire = &mut self.machines[at].wires[server];
        if wire.connections != connection {
            return Ok(());
        }
        if matches!(message, ToClient::Opened { .. }) {
            wire.connection.begin();
        }
        self.input(at, Input::Message(ServerId(server as u16), message))
    }

    /// The client's deadline has come.
    pub(super) fn client_tick(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        // An earlier deadline has taken the place of this one.
        if machine.tick_at.is_none_or(|due| due > self.events.now()) {
            return Ok(());
        }
        machine.tick_at = None;
        let now = self.now();
        if self.machines[at].client.deadline().is_some_and(|deadline| deadline <= now) {
            return self.input(at, Input::Tick);
        }
        self.sets_deadline(at);
        Ok(())
    }

    fn sets_deadline(&mut self, at: usize) {
        let Some(deadline) = self.machines[at].client.deadline() else { return };
        // A client that is told the time now has no reason to be told it again within it.
        let due = (deadline.0 * 1_000).max(self.events.now() / 1_000 * 1_000 + 1_000);
        if self.machines[at].tick_at.is_none_or(|before| due < before) {
            self.machines[at].tick_at = Some(due);
            self.events.at(due, Event::ClientTick { machine: at });
        }
    }

    fn carry_out(&mut self, at: usize, out: Vec<Output>) -> Result<(), Violation> {
        let mut next = Vec::new();
        for output in out {
            match output {
                Output::Send(server, message) => {
                    self.counts.goes_to_server(&message);
                    let session = self.machines[at].wires[usize::from(server.0)].connection.opened();
                    if let Some(session) = session {
                        self.sends_to_server(at, server, ServerInput::Message { session, message });
                    }
                }
                Output::Connect(server) => self.connect(at, server)?,
                Output::Answer { ticket, result } => {
                    let answer = self.told(result)?;
                    self.answered.push((at, ticket, answer));
                }
                Output::Store(upload) => {
                    let pieces = upload.pieces.iter().map(|(nonce, plain)| (*nonce, plain));
                    let (bytes, hashes) = content::seal_share(&upload.key, pieces);
                    self.shares.insert(upload.share, bytes);
                    next.push(Input::Stored { upload: upload.upload, result: Ok(hashes) });
                }
                Output::Salvage(salvage) => return Err(format!("machine {at} has lost {salvage:?}")),
                // No front door has anything cached.
                Output::Revoke { number, .. } => next.push(Input::Revoked { number, kept: BTreeSet::new() }),
                Output::Unneeded(_) | Output::Settled(_) | Output::RevokeUncovered(_) => {}
            }
        }
        next.into_iter().try_for_each(|input| self.input(at, input))?;
        self.sets_deadline(at);
        Ok(())
    }
}
