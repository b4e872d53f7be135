//! Machines, a server, and ordered connections between them. Connections break. Machines stop,
//! freeze and start again, and so does the server.

use super::oracle::Oracle;
use crate::cluster::{Violation, root};
use client::{Call, Client, Now, Outcome, Output, Reply, Settings, Ticket, call};
use directory::{Directory, Input, MemoryStore};
use ident::FileId;
use lease::{Label, SessionId, Time};
use namespace::{Cred, Error, FileKind, FileSpec, Timestamp};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;
use wire::{MachineId, Rights, Space, ToClient};

/// Number of files that are locked.
pub(super) const FILES: usize = 2;

struct LockingMachine {
    incarnation: u64,
    client: Client,
    session: Option<SessionId>,
    /// The session whose beginning the client has received.
    begun: Option<SessionId>,
    /// The latest connection, and whether the server has answered on it.
    connection: u64,
    connected: bool,
    /// The server has ended the session; the machine may not know yet.
    over: bool,
    frozen: bool,
    to_server: VecDeque<Input>,
    to_client: VecDeque<ToClient>,
}

/// The world of the lock tests and of the ping-pong tests.
pub(crate) struct Machines {
    rng: ChaCha12Rng,
    now: Time,
    directory: Directory,
    store: MemoryStore,
    machines: Vec<LockingMachine>,
    files: Vec<FileId>,
    again: bool,
    pub(super) oracle: Oracle,
    /// Answers to calls that waited.
    pub answers: VecDeque<(usize, Ticket, Result<Reply, Error>)>,
    pub faults: bool,
    pub ends: u64,
    pub restarts: u64,
    pub breaks: u64,
    /// Messages in both directions.
    pub messages: u64,
    /// Times that the server's log had to become durable before a message left.
    pub flushes: u64,
    /// Whether a lasting change was applied since the last flush.
    lasting: bool,
}

impl Machines {
    /// Makes so many machines, and the files. The first machine holds every lease of the files.
    pub fn new(seed: u64, count: u64) -> Result<Machines, Violation> {
        let mut store = MemoryStore::default();
        let directory = Directory::create(&mut store, root(), "machine-1", wire::Versions::KNOWN);
        let mut all = Machines {
            rng: ChaCha12Rng::seed_from_u64(seed),
            now: Time(1_000),
            directory,
            store,
            machines: Vec::new(),
            files: Vec::new(),
            again: false,
            oracle: Oracle::default(),
            answers: VecDeque::new(),
            faults: false,
            ends: 0,
            restarts: 0,
            breaks: 0,
            messages: 0,
            flushes: 0,
            lasting: false,
        };
        for at in 0..count as usize {
            let client = all.new_client();
            let (session, begun, connection, connected, frozen, to_server, to_client) = Default::default();
            let machine = LockingMachine {
                incarnation: 1,
                client,
                session,
                begun,
                connection,
                connected,
                over: true,
                frozen,
                to_server,
                to_client,
            };
            all.machines.push(machine);
            all.enrol(MachineId(at as u64 + 1))?;
            all.connect(at)?;
        }
        all.deliver()?;
        for name in [b"a", b"b"] {
            let label = Label::new(name).map_err(|e| e.to_string())?;
            let (dir, spec) = (FileId::root(), FileSpec::new(FileKind::Regular, 0o644, 0));
            let call = Call::Create(call::Create { dir, label, spec, open: None });
            let made = all.answer(0, call)?;
            let Reply::Node(entry, _) = made else { return Err(format!("{made:?}")) };
            all.files.push(entry.file);
        }
        all.answer(0, Call::SyncAll)?;
        Ok(all)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    pub fn len(&self) -> u64 {
        self.machines.len() as u64
    }

    pub fn file(&self, file: usize) -> FileId {
        self.files[file].clone()
    }

    pub fn client_of(&self, at: usize) -> &Client {
        &self.machines[at].client
    }

    pub fn is_frozen(&self, at: usize) -> bool {
        self.machines[at].frozen
    }

    pub fn thaw(&mut self) {
        self.machines.iter_mut().for_each(|machine| machine.frozen = false);
    }

    pub fn is_idle(&self) -> bool {
        let idle = |machine: &LockingMachine| {
            let quiet = machine.to_server.is_empty() && machine.to_client.is_empty();
            quiet && machine.connected && !machine.over
        };
        !self.again && self.machines.iter().all(idle)
    }

    fn now(&self) -> Now {
        Now {
            time: self.now,
            wall: Timestamp { secs: 1_700_000_000 + (self.now.0 / 1000).cast_signed(), nanos: 0 },
        }
    }

    fn new_client(&mut self) -> Client {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        Client::new(Settings::new(seed))
    }

    pub fn call(&mut self, at: usize, cred: &Cred, call: Call) -> Result<Outcome, Violation> {
        let (now, mut out) = (self.now(), Vec::new());
        let outcome = self.machines[at].client.call(now, cred, call, &mut out);
        self.carry_out(at, out)?;
        Ok(outcome)
    }

    /// Makes a call, and delivers messages until it is answered.
    pub fn answer(&mut self, at: usize, call: Call) -> Result<Reply, Violation> {
        let result = match self.call(at, &Cred::default(), call)? {
            Outcome::Done(result) => result,
            Outcome::Waiting(ticket) => {
                self.deliver()?;
                let found =
                    self.answers.iter().position(|(machine, its, _)| (*machine, *its) == (at, ticket));
                let found = found.and_then(|found| self.answers.remove(found));
                found.ok_or_else(|| "not answered".to_owned())?.2
            }
        };
        result.map_err(|error| error.to_string())
    }

    pub fn cancel(&mut self, at: usize, ticket: Ticket) -> Result<(), Violation> {
        let mut out = Vec::new();
        self.machines[at].client.cancel(ticket, &mut out);
        self.carry_out(at, out)
    }

    /// Delivers all messages under way; no time passes.
    pub fn deliver(&mut self) -> Result<(), Violation> {
        while !self.is_idle() {
            for at in 0..self.machines.len() {
                self.server_receives(at)?;
                self.client_receives(at)?;
            }
            self.background()?;
        }
        Ok(())
    }

    pub fn pass_time(&mut self, ms_max: u64) -> Result<(), Violation> {
        self.now = self.now.after_ms(1 + self.below(ms_max));
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            if !machine.frozen && machine.client.deadline().is_some_and(|deadline| deadline <= self.now) {
                self.client(at, client::Input::Tick)?;
            }
        }
        self.server(Input::Tick)
    }

    /// The cost of `does`: messages in both directions, and flushes of the log.
    pub fn cost(&mut self, does: impl FnOnce(&mut Machines)) -> Result<(u64, u64), Violation> {
        let before = (self.messages, self.flushes);
        does(self);
        self.deliver()?;
        Ok((self.messages - before.0, self.flushes - before.1))
    }

    pub fn background(&mut self) -> Result<(), Violation> {
        if self.again { self.server(Input::Tick) } else { Ok(()) }
    }

    pub fn fault(&mut self, at: usize) -> Result<(), Violation> {
        match self.below(24) {
            _ if !self.faults => Ok(()),
            0 => self.restart(),
            1 => self.stop(at),
            8..10 => self.breaks(at),
            2 => {
                self.machines[at].frozen = true;
                Ok(())
            }
            // Long enough for a session to lapse.
            3 => self.pass_time(60_000),
            4..8 => {
                self.machines[at].frozen = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The server stops and starts again from its checkpoint.
    pub fn restart(&mut self) -> Result<(), Violation> {
        self.restarts += 1;
        self.directory.checkpoint(&mut self.store);
        self.directory = Directory::open(&self.store, wire::Versions::KNOWN).map_err(|e| e.to_string())?;
        self.server(Input::Lead)
    }

    /// The machine stops and starts again at once. The end of its messages to the server does not
    /// arrive.
    pub fn stop(&mut self, at: usize) -> Result<(), Violation> {
        let client = self.new_client();
        self.ends += 1;
        self.oracle.forget(at);
        self.answers.retain(|(machine, ..)| *machine != at);
        let machine = &mut self.machines[at];
        (machine.over, machine.session, machine.begun) = (true, None, None);
        machine.incarnation += 1;
        machine.client = client;
        self.breaks(at)
    }

    /// The connection breaks, and a new one opens at once. Of the messages under way only a
    /// beginning of the machine's own arrives.
    fn breaks(&mut self, at: usize) -> Result<(), Violation> {
        self.breaks += 1;
        let arrives = self.below(self.machines[at].to_server.len() as u64 + 1) as usize;
        self.machines[at].to_server.truncate(arrives);
        self.connect(at)
    }

    fn connect(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        machine.connection += 1;
        machine.connected = false;
        machine.to_client.clear();
        self.client(at, client::Input::Greeting)?;
        let machine = &mut self.machines[at];
        let (incarnation, session, connection) = (machine.incarnation, machine.begun, machine.connection);
        machine.to_server.push_back(Input::Space(Space {
            total: 1 << 40,
            free: 1 << 40,
            files: 0,
            lends: 0,
        }));
        machine.to_server.push_back(Input::Open {
            machine: MachineId(at as u64 + 1),
            incarnation,
            greeting: wire::GreetingNumber { drawn: incarnation, count: connection },
            session,
            connection,
            version: wire::Version::NEWEST,
        });
        Ok(())
    }

    /// Enrols the machine. The founder needs no invitation.
    fn enrol(&mut self, machine: MachineId) -> Result<(), Violation> {
        let mut token = [0; 32];
        token[..8].copy_from_slice(&machine.0.to_be_bytes());
        let (rights, name, connection) = (Rights::FULL, format!("machine-{}", machine.0), 0);
        if machine != directory::FOUNDER {
            self.server(Input::Invite { token, rights, at: 0, until: 1 })?;
            self.server(Input::Enrol { token, name, key: [0; 32], at: 0, connection })?;
        }
        Ok(())
    }

    pub fn server_receives(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].frozen {
            return Ok(());
        }
        let Some(input) = self.machines[at].to_server.pop_front() else { return Ok(()) };
        self.messages += 1;
        self.server(input)
    }

    fn server(&mut self, input: Input) -> Result<(), Violation> {
        self.again &= !matches!(input, Input::Tick);
        let mut out = Vec::new();
        self.directory.handle(self.now, input, &mut self.store, &mut out).map_err(|e| e.to_string())?;
        self.lasting |= self.directory.lasts();
        if self.lasting && out.iter().any(directory::Output::rests_on_the_log) {
            self.flushes += 1;
            self.lasting = false;
        }
        for output in out {
            match output {
                directory::Output::Opened { machine, session, connection, .. } => {
                    let machine = &mut self.machines[machine.0 as usize - 1];
                    if machine.connection == connection {
                        (machine.session, machine.over) = (Some(session), false);
                        machine.connected = true;
                    }
                }
                directory::Output::Send { session, message } => self.send(session, message),
                directory::Output::Shares(_)
                | directory::Output::Sync
                | directory::Output::Raised { .. }
                | directory::Output::Authorized { .. }
                | directory::Output::Revoked { .. }
                | directory::Output::Refused { .. }
                | directory::Output::Invited { .. }
                | directory::Output::Enrolled { .. }
                | directory::Output::Expelled { .. } => {}
                directory::Output::Again => self.again = true,
            }
        }
        match self.directory.misdeeds().first() {
            Some((session, misdeed)) => Err(format!("{session:?}: {misdeed}")),
            None => Ok(()),
        }
    }

    fn send(&mut self, session: SessionId, message: ToClient) {
        self.messages += 1;
        let Some(at) = self.machines.iter().position(|machine| machine.session == Some(session)) else {
            return;
        };
        if matches!(message, ToClient::Fenced) {
            self.machines[at].over = true;
            // A session without a beginning at the machine has nothing to lose.
            if self.machines[at].begun == Some(session) {
                self.oracle.forget(at);
            }
        }
        let machine = &mut self.machines[at];
        if machine.connected {
            machine.to_client.push_back(message);
        }
    }

    pub fn client_receives(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        if machine.frozen {
            return Ok(());
        }
        match machine.to_client.pop_front() {
            Some(message) => {
                if matches!(message, ToClient::Opened { .. }) {
                    machine.begun = machine.session;
                }
                self.client(at, client::Input::Message(message))
            }
            None => Ok(()),
        }
    }

    fn client(&mut self, at: usize, input: client::Input) -> Result<(), Violation> {
        let (now, mut out) = (self.now(), Vec::new());
        self.machines[at].client.handle(now, input, &mut out);
        self.carry_out(at, out)
    }

    fn carry_out(&mut self, at: usize, out: Vec<Output>) -> Result<(), Violation> {
        let (mut cut_off, mut yielded) = (false, Vec::new());
        for output in out {
            let machine = &mut self.machines[at];
            match output {
                Output::Send(message) => {
                    let session = machine.session;
                    machine.to_server.extend(session.map(|session| Input::Message { session, message }));
                }
                Output::Answer { ticket, result } => self.answers.push_back((at, ticket, result)),
                Output::Salvage(salvage) if salvage.cut_off => cut_off = true,
                Output::Salvage(salvage) if !machine.over => {
                    return Err(format!("{at}: what was done was refused: {salvage:?}"));
                }
                Output::Yield { number, .. } => yielded.push(number),
                Output::Store(_)
                | Output::Unneeded(_)
                | Output::Settled(_)
                | Output::Salvage(_)
                | Output::Invalidate(_) => {}
            }
        }
        // No front door has anything cached.
        for number in yielded {
            self.client(at, client::Input::Yielded { number })?;
        }
        // A new session begins, unless one has already.
        if cut_off && self.machines[at].over {
            self.ends += 1;
            (self.machines[at].session, self.machines[at].begun) = (None, None);
            self.connect(at)?;
        }
        Ok(())
    }

    /// Checks that each client's knowledge of locks is true, and that the server's state is sound.
    pub fn check_at_rest(&self) -> Result<(), Violation> {
        for (at, machine) in self.machines.iter().enumerate() {
            for (n, file) in self.files.iter().enumerate() {
                machine.client.locks(file).map_or(Ok(()), |locks| self.oracle.check_known(at, n, &locks))?;
            }
        }
        let mut violations: Vec<directory::Violation> = Vec::new();
        self.directory.check(&self.store, &mut violations);
        match violations.first() {
            Some(violation) => Err(format!("the server's state: {violation}")),
            None => Ok(()),
        }
    }
}
