//! The machines: a client each, with a kernel below it, and its wires to servers.

use super::wires::Wire;
use super::{ManyServers, SPACE};
use crate::host::Violation;
use crate::kernel::Kernel;
use client::{Call, Client, Input, Invalidation, Lost, LostWhat, Now, Output, Salvage, Settings, Ticket};
use directory::Input as ServerInput;
use ident::{FileId, ServerId};
use lease::Time;
use namespace::{Operation, Timestamp};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use std::collections::BTreeMap;
use wire::{MachineId, ToClient, Version};

/// A machine: a client, the kernel that asks it, and its wires to servers.
pub(super) struct Machine {
    pub id: MachineId,
    /// Counts its starts.
    pub start: u64,
    pub is_expelled: bool,
    pub client: Client,
    /// By server.
    pub wires: Vec<Wire>,
    pub kernel: Kernel,
    /// Counts the beginnings of calls and the ends of what was kept.
    pub tick: u64,
    /// Revocations that the kernel has not done yet: number, what must go, and what may.
    pub revoked: Vec<(u64, Vec<Invalidation>, Vec<Invalidation>)>,
    /// Lingering files that the kernel has not forgotten yet.
    pub forgets: Vec<FileId>,
    /// Calls that wait, and when each began.
    pub calls: BTreeMap<Ticket, (Call, u64)>,
}

impl Machine {
    /// A machine without a connection.
    pub fn new(id: MachineId, servers: usize, rng: &mut ChaCha12Rng) -> Machine {
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        // Small bounds, so that every limit is met.
        let settings =
            Settings { dirty_bytes_max: 256 << 10, files_max: 40, names_max: 4, ..Settings::new(seed) };
        let mut client = Client::new(settings);
        client.has_below();
        Machine {
            id,
            start: 1,
            is_expelled: false,
            client,
            wires: (0..servers).map(|_| Wire::default()).collect(),
            kernel: Kernel::default(),
            tick: 0,
            revoked: Vec::new(),
            forgets: Vec::new(),
            calls: BTreeMap::new(),
        }
    }
}

pub(super) fn clocks(now: Time) -> Now {
    let secs = 1_700_000_000 + (now.0 / 1_000).cast_signed();
    Now { time: now, wall: Timestamp { secs, nanos: (now.0 % 1_000) as u32 * 1_000_000 } }
}

impl ManyServers {
    pub(super) fn input(&mut self, at: usize, input: Input) -> Result<(), Violation> {
        let mut out = Vec::new();
        self.machines[at].client.handle(clocks(self.now), input, &mut out);
        self.carry_out(at, out)
    }

    /// The machine connects to this server, or once more.
    pub(super) fn connect(&mut self, at: usize, server: ServerId) -> Result<(), Violation> {
        let Machine { id, start, ref mut wires, .. } = self.machines[at];
        let number = wires[usize::from(server.0)].dial(id);
        self.input(at, Input::Greeting(server))?;
        let wire = &mut self.machines[at].wires[usize::from(server.0)];
        let open = ServerInput::Open {
            machine: id,
            incarnation: start,
            greeting: wire::GreetingNumber { drawn: start, count: number },
            session: wire.connection.session,
            connection: number,
            version: Version::NEWEST,
        };
        wire.to_server.extend([ServerInput::Space(SPACE), open]);
        Ok(())
    }

    /// The connection breaks, if there is one, and the machine connects again.
    pub(super) fn reconnect(&mut self, at: usize, server: ServerId) -> Result<(), Violation> {
        if !self.machines[at].wires[usize::from(server.0)].is_in_use {
            return Ok(());
        }
        // Of the messages on their way only a beginning arrives.
        let wire = &self.machines[at].wires[usize::from(server.0)];
        let length = wire.to_server.len() as u64 + 1;
        let arrives = self.below(length) as usize;
        self.machines[at].wires[usize::from(server.0)].to_server.truncate(arrives);
        self.connect(at, server)
    }

    /// The earliest message of the machine arrives at the server.
    pub(super) fn server_receives(&mut self, at: usize, server: usize) -> Result<(), Violation> {
        match self.machines[at].wires[server].to_server.pop_front() {
            Some(input) => self.serve(server, input),
            None => Ok(()),
        }
    }

    /// The earliest message of the server arrives at the machine.
    pub(super) fn client_receives(&mut self, at: usize, server: usize) -> Result<(), Violation> {
        let Some(message) = self.machines[at].wires[server].to_client.pop_front() else { return Ok(()) };
        self.notes(|| format!("machine {at} <- {message:?}"));
        if matches!(message, ToClient::Opened { .. }) {
            self.machines[at].wires[server].connection.begin();
        }
        let is_over = message == ToClient::Fenced;
        self.input(at, Input::Message(ServerId(server as u16), message))?;
        if is_over { self.connect(at, ServerId(server as u16)) } else { Ok(()) }
    }

    /// Time passes for machines and servers.
    pub(super) fn pass_time(&mut self, ms_max: u64) -> Result<(), Violation> {
        self.now = self.now.after_ms(1 + self.below(ms_max));
        for at in 0..self.machines.len() {
            if self.machines[at].client.deadline().is_some_and(|deadline| deadline <= self.now) {
                self.input(at, Input::Tick)?;
            }
        }
        (0..self.servers.len()).try_for_each(|server| self.serve(server, ServerInput::Tick))
    }

    /// A server goes on with work in the background.
    pub(super) fn background(&mut self, server: usize) -> Result<(), Violation> {
        if self.servers[server].again { self.serve(server, ServerInput::Tick) } else { Ok(()) }
    }

    /// A server's output for a machine.
    pub(super) fn told(&mut self, server: usize, output: directory::Output) -> Result<(), Violation> {
        match output {
            directory::Output::Opened { machine, incarnation, session, connection } => {
                self.begun.insert((server, session), (machine, incarnation));
                self.machines[machine.0 as usize - 1].wires[server].connection.open(connection, session);
            }
            directory::Output::Refused { connection, why } => self.turned_away(server, connection, why)?,
            directory::Output::Send { session, message } => {
                // A session whose beginning never reached the machine has nothing to lose.
                let has_begun = |machine: &Machine| {
                    !machine.is_expelled && machine.wires[server].connection.session == Some(session)
                };
                if matches!(message, ToClient::Fenced) && self.machines.iter().any(has_begun) {
                    return Err(format!("server {server} fences {session:?}"));
                }
                let wires = self.machines.iter_mut().map(|machine| &mut machine.wires[server]);
                if let Some(wire) = wires.into_iter().find(|wire| wire.connection.is_of(session))
                    && wire.connection.opened().is_some()
                {
                    wire.to_client.push_back(message);
                }
            }
            directory::Output::Shares(work) => self.serve(server, ServerInput::SharesSettled(work))?,
            _ => {}
        }
        Ok(())
    }

    /// Carries out the client's outputs.
    pub(super) fn carry_out(&mut self, at: usize, out: Vec<Output>) -> Result<(), Violation> {
        let mut next = Vec::new();
        for output in out {
            self.notes(|| format!("machine {at} -> {output:?}"));
            match output {
                Output::Send(server, message) => {
                    let wire = &mut self.machines[at].wires[usize::from(server.0)];
                    let session = wire.connection.opened();
                    wire.to_server.extend(session.map(|session| ServerInput::Message { session, message }));
                }
                Output::Connect(server) => self.connect(at, server)?,
                Output::Answer { ticket, result } => self.answers(at, ticket, result)?,
                Output::Store(upload) => {
                    let pieces = upload.pieces.iter().map(|(nonce, plain)| (*nonce, plain));
                    let (bytes, hashes) = content::seal_share(&upload.key, pieces);
                    self.shares.insert(upload.share, bytes);
                    next.push(Input::Stored { upload: upload.upload, result: Ok(hashes) });
                }
                Output::Salvage(salvage) if self.machines[at].is_expelled && salvage.items.is_empty() => {}
                // The server disposes of a file when its last session is over.
                Output::Salvage(salvage) if self.machines[at].is_expelled && disposes(&salvage) => {}
                Output::Salvage(salvage) => return Err(format!("machine {at} has lost {salvage:?}")),
                Output::Revoke { number, what, offered } => {
                    self.machines[at].revoked.push((number, what, offered));
                }
                Output::RevokeUncovered(what) => {
                    let Machine { kernel, tick, .. } = &mut self.machines[at];
                    kernel.bar(*tick, std::slice::from_ref(&what));
                    kernel.takes_back(&[what]);
                }
                Output::Unneeded(_) | Output::Settled(_) => {}
            }
        }
        next.into_iter().try_for_each(|input| self.input(at, input))
    }
}

/// Whether nothing was to be done but to dispose of files.
fn disposes(salvage: &Salvage) -> bool {
    let is_disposal = |lost: &Lost| match &lost.what {
        LostWhat::Operation { operation, .. } => matches!(**operation, Operation::Dispose(_)),
        _ => false,
    };
    salvage.items.iter().all(is_disposal)
}
