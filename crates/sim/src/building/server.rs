//! The host of the server: a log whose entries are applied when they come and durable when something rests on them, connections, and the share server's work. A crash
//! loses what was not durable.

use super::events::Event;
use super::net::{Packet, Way};
use super::{Building, Lie, Violation};
use crate::cluster::root;
use directory::{Directory, Input, MemoryStore, Output, ShareWork};
use lease::{SessionId, Time};
use std::collections::{BTreeMap, VecDeque};
use wire::{AskMode, LogEntry, MachineId, Rights, Space, ToClient, ToServer};

/// Applied entries after which a checkpoint is made.
const CHECKPOINT_EVERY: usize = 400;
/// How often the server looks at its clock, ms.
const TICK_MS: u64 = 500;
/// Numbers of requests by a client are below this.
const NUMBERS: u64 = 1 << 40;

/// See the module.
pub(super) struct Server {
    pub directory: Directory,
    pub store: MemoryStore,
    /// Counts its starts; events of earlier ones come to nothing.
    start: u64,
    up: bool,
    /// Entries that are not applied yet.
    pending: VecDeque<(Time, Input)>,
    /// When the last of them will be.
    applied_at: u64,
    /// Entries that are applied and not durable, with what came of them: nothing rests on any that lasts.
    unsaid: Vec<(Time, Input, Vec<Output>)>,
    /// Whether any of them lasts.
    lasting: bool,
    /// Durable entries since the checkpoint, and what it has.
    log: Vec<(Time, Input)>,
    /// What the state came to after the last of them.
    digest: u64,
    checkpoint: MemoryStore,
    /// By machine: the connection that greeted last.
    listens: BTreeMap<usize, u64>,
    /// By connection.
    sessions: BTreeMap<u64, SessionId>,
    /// Which connection a session's messages go over, and of which machine it is.
    routes: BTreeMap<SessionId, (usize, u64)>,
}

impl Server {
    /// A new cluster with so many machines in it.
    pub fn new(machines: u64) -> Result<Server, Violation> {
        let mut store = MemoryStore::default();
        let mut directory = Directory::create(&mut store, root());
        for id in (1..=machines).map(MachineId).filter(|id| *id != directory::FOUNDER) {
            let (mut token, until) = ([0; 32], Time(2));
            token[..8].copy_from_slice(&id.0.to_be_bytes());
            let (rights, name, connection) = (Rights::FULL, format!("machine-{}", id.0), 0);
            let enrol = Input::Enrol { token, name, key: [0; 32], connection };
            for input in [Input::Invite { token, rights, until }, enrol] {
                directory.handle(Time(1), input, &mut store, &mut Vec::new()).map_err(|e| e.to_string())?;
            }
        }
        directory.checkpoint(&mut store);
        Ok(Server {
            digest: directory.digest(),
            directory,
            checkpoint: store.clone(),
            store,
            start: 0,
            up: true,
            pending: VecDeque::new(),
            applied_at: 0,
            unsaid: Vec::new(),
            lasting: false,
            log: Vec::new(),
            listens: BTreeMap::new(),
            sessions: BTreeMap::new(),
            routes: BTreeMap::new(),
        })
    }

    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Nothing is on its way to or from the disk.
    pub fn is_idle(&self) -> bool {
        self.up && self.pending.is_empty()
    }

    /// The machine has greeted over this connection: its earlier ones are not listened to any more. Not if it has greeted over a later one.
    pub fn listens_to(&mut self, at: usize, connection: u64) -> bool {
        let before = self.listens.get(&at).copied();
        if before.is_some_and(|before| before > connection) {
            return false;
        }
        self.listens.insert(at, connection);
        before.map(|before| self.sessions.remove(&before));
        true
    }
}

impl Building {
    pub(super) fn server_leads(&mut self) -> Result<(), Violation> {
        self.propose(Input::Lead);
        self.propose(Input::Space(Space { total: 1 << 40, free: 1 << 40, files: 0 }));
        self.later(TICK_MS, Event::ServerTicks);
        Ok(())
    }

    /// Puts an input into the log.
    pub(super) fn propose(&mut self, input: Input) {
        if !self.server.up {
            return;
        }
        let disk = self.below(6);
        let (now, server) = (self.now, &mut self.server);
        server.pending.push_back((Time(now), input));
        server.applied_at = server.applied_at.max(now + disk);
        let (time, start) = (server.applied_at, server.start);
        self.events.add(time, Event::Applies(start));
    }

    pub(super) fn server_ticks(&mut self) -> Result<(), Violation> {
        self.later(TICK_MS, Event::ServerTicks);
        self.propose(Input::Tick);
        Ok(())
    }

    /// A machine says something over a connection.
    pub(super) fn server_hears(
        &mut self,
        at: usize,
        connection: u64,
        message: ToServer,
    ) -> Result<(), Violation> {
        let Some(session) = self.server.sessions.get(&connection).copied().filter(|_| self.server.up) else {
            return Ok(());
        };
        if let ToServer::Extents { .. } = message {
            let answer = self.server.directory.query(session, &message, &self.server.store);
            if let Some(answer) = answer {
                self.send(at, Way::Down, connection, Packet::Tells(answer));
            }
            return Ok(());
        }
        let message = match message {
            // A server that does not know that it was asked before: each connection's requests have numbers of their own.
            ToServer::Ask { number, operation, wants, mode: mode @ AskMode::Ship }
                if self.weather.lie == Some(Lie::ShipsForgotten) =>
            {
                ToServer::Ask { number: number + connection * NUMBERS, operation, wants, mode }
            }
            message => message,
        };
        self.propose(Input::Message { session, message });
        Ok(())
    }

    /// The earliest entry of the log is applied.
    pub(super) fn applies(&mut self, start: u64) -> Result<(), Violation> {
        if start != self.server.start || !self.server.up {
            return Ok(());
        }
        let Some((time, input)) = self.server.pending.pop_front() else { return Ok(()) };
        let forgets = self.weather.lie == Some(Lie::ShipsForgotten) && matches!(input, Input::Open { .. });
        let server = &mut self.server;
        let mut out = Vec::new();
        server
            .directory
            .handle(time, input.clone(), &mut server.store, &mut out)
            .map_err(|e| e.to_string())?;
        if let Some((session, misdeed)) = server.directory.misdeeds().first() {
            return Err(format!("{session:?}: {misdeed}"));
        }
        // It has nothing to tell of what it did over an earlier connection.
        out.retain(|output| {
            !(forgets && matches!(output, Output::Send { message: ToClient::Shipped { .. }, .. }))
        });
        self.notes(|| format!("the server: {input:?}, so {out:?}"));
        let server = &mut self.server;
        server.lasting |= server.directory.lasts();
        let rests = out.iter().any(Output::rests_on_the_log);
        server.unsaid.push((time, input, out.clone()));
        if rests && server.lasting {
            self.sync()?;
        }
        for output in out {
            self.server_puts_out(output)?;
        }
        Ok(())
    }

    /// All that was applied is durable.
    fn sync(&mut self) -> Result<(), Violation> {
        for (time, input, out) in std::mem::take(&mut self.server.unsaid) {
            self.note_applied(&input, &out)?;
            self.server.log.push((time, input));
        }
        let server = &mut self.server;
        server.lasting = false;
        server.digest = server.directory.digest();
        if server.log.len() >= CHECKPOINT_EVERY {
            server.directory.checkpoint(&mut server.store);
            server.checkpoint = server.store.clone();
            server.log.clear();
        }
        Ok(())
    }

    /// What the server did with updates is written down.
    fn note_applied(&mut self, input: &Input, out: &[Output]) -> Result<(), Violation> {
        if let Input::Message {
            session,
            message: ToServer::Ask { number, operation, mode: AskMode::Ship, .. },
        } = input
        {
            self.history.asked(*session, *number, operation.clone());
        }
        self.note_log(input, out)?;
        // What waited for that was done after it.
        for output in out {
            if let Output::Send { session, message: ToClient::Shipped { number, result: Ok((_, effects)) } } =
                output
            {
                self.history.shipped(*session, *number, effects)?;
            }
        }
        Ok(())
    }

    fn note_log(&mut self, input: &Input, out: &[Output]) -> Result<(), Violation> {
        let Input::Message { session, message: ToServer::Log { first, entries, .. } } = input else {
            return Ok(());
        };
        let refused = out.iter().find_map(|output| match output {
            Output::Send { session: to, message: ToClient::Applied { rejected, .. } } if to == session => {
                Some(rejected.as_slice())
            }
            _ => None,
        });
        // Of a session that is over nothing is applied; if an entry was refused its client is told at once.
        let over = |output: &Output| matches!(output, Output::Send { session: to, message: ToClient::Fenced } if to == session);
        let (rejected, through) = (refused.unwrap_or_default(), first + entries.len() as u64 - 1);
        if entries.is_empty() || out.iter().any(over) {
            return Ok(());
        }
        // What was sent again was applied before.
        let fresh = self.history.fresh(*session, through);
        let updates = (*first..=through).zip(entries).filter(|(number, _)| {
            fresh.contains(number) && !rejected.iter().any(|(refused, _)| refused == number)
        });
        for (_, entry) in updates {
            if let LogEntry::Update { operation, .. } = entry {
                self.history.applied(*session, operation)?;
            }
        }
        Ok(())
    }

    fn server_puts_out(&mut self, output: Output) -> Result<(), Violation> {
        match output {
            Output::Opened { session, connection, machine, .. } => {
                let at = machine.0 as usize - 1;
                if self.server.listens.get(&at) == Some(&connection) {
                    self.server.sessions.insert(connection, session);
                    self.server.routes.insert(session, (at, connection));
                    self.send(at, Way::Down, connection, Packet::Opened(session));
                }
            }
            Output::Send { session, message } => {
                let message = match message {
                    ToClient::Shipped { number, result } => {
                        ToClient::Shipped { number: number % NUMBERS, result }
                    }
                    message => message,
                };
                if let Some((at, connection)) = self.server.routes.get(&session).copied() {
                    self.send(at, Way::Down, connection, Packet::Tells(message));
                }
            }
            Output::Shares(work) => {
                let (wait, start) = (1 + self.below(50), self.server.start);
                self.later(wait, Event::Settles(start, work));
            }
            Output::Again => self.propose(Input::Tick),
            Output::Refused { why, .. } => return Err(why.to_string()),
            Output::Invited { .. } | Output::Enrolled { .. } | Output::Expelled { .. } => {}
        }
        Ok(())
    }

    pub(super) fn settles(&mut self, start: u64, work: Vec<ShareWork>) -> Result<(), Violation> {
        if start == self.server.start {
            self.propose(Input::SharesSettled(work));
        }
        Ok(())
    }

    /// The server's process ends; all connections with it. It starts again after `pause`.
    pub(super) fn server_crashes(&mut self, pause: u64) {
        if !self.server.up {
            return;
        }
        self.happened.restarts += 1;
        let server = &mut self.server;
        server.up = false;
        server.start += 1;
        server.pending.clear();
        server.unsaid.clear();
        server.lasting = false;
        server.listens.clear();
        server.sessions.clear();
        server.routes.clear();
        for at in 0..self.machines.len() {
            self.breaks(at);
        }
        self.later(pause, Event::ServerStarts);
    }

    /// It starts again from what was durable, and comes to the same.
    pub(super) fn server_starts(&mut self) -> Result<(), Violation> {
        let server = &mut self.server;
        if server.up {
            return Ok(());
        }
        let before = server.digest;
        server.store = server.checkpoint.clone();
        server.directory = Directory::open(&server.store).map_err(|e| e.to_string())?;
        for (time, input) in server.log.clone() {
            // What these tell was told before, or nobody is left to hear it.
            let unheard = &mut Vec::new();
            server.directory.handle(time, input, &mut server.store, unheard).map_err(|e| e.to_string())?;
        }
        if server.directory.digest() != before {
            return Err("the server came to something else when it did the same again".into());
        }
        server.up = true;
        self.propose(Input::Lead);
        self.propose(Input::Space(Space { total: 1 << 40, free: 1 << 40, files: 0 }));
        Ok(())
    }
}
