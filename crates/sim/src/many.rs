//! Several machines and one server in one thread: who has what open, and what becomes of files without names.
//!
//! Each channel keeps its order; between channels the seed decides what arrives next. Machines stop and start again, or are not heard of until they are fenced; the server
//! starts again from what it wrote down. The oracle knows nothing of leases: it remembers which machine has which handle.

mod programs;

use crate::cluster::{Violation, root};
use client::{Call, Client, Now, Outcome, Output, Reply, Settings, Ticket};
use directory::{Directory, Input, MemoryStore, Policy, Store};
use ident::FileId;
use lease::{Label, SessionId, Time};
use namespace::{Cred, Error, FileKind, RenameMode, Timestamp};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{MachineId, Space, ToClient};

pub(crate) use programs::Program;

/// Labels are few, so that machines meet.
const LABELS: [&str; 3] = ["a", "b", "c"];
/// Calls of one machine that may be under way at a time.
const CALLS_MAX: usize = 3;
/// Events until everything must have come to rest once nothing new happens.
const REST_MAX: u32 = 20_000;

/// What happened, in case it is of interest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls begun.
    pub calls: u64,
    /// Messages in both directions.
    pub messages: u64,
    /// Sessions that ended with something open.
    pub ends: u64,
    /// Times the server started again.
    pub restarts: u64,
    /// Calls on an open file that had no name any more.
    pub nameless: u64,
    /// Times somebody was told that others have a file open.
    pub told_open: u64,
}

/// What is done for a call that is under way.
#[derive(Clone, Debug)]
enum Doing {
    Open(FileId),
    /// With a handle, or without.
    Create(bool),
    Use(FileId),
    Name,
}

/// What a machine does when it is its turn.
enum Work {
    /// What the seed says.
    Any,
    /// What a program says. The answer to its last call is here when it came.
    Program(Box<dyn Program>, Option<Result<Reply, Error>>),
    /// Nothing, or nothing any more.
    Nothing,
}

struct Machine {
    id: MachineId,
    incarnation: u64,
    client: Client,
    session: Option<SessionId>,
    /// The server has ended the session; nobody here may know yet.
    over: bool,
    /// Nothing reaches it and nothing leaves it.
    frozen: bool,
    to_server: VecDeque<Input>,
    to_client: VecDeque<ToClient>,
    calls: BTreeMap<Ticket, (Call, Doing)>,
    /// Handles that its programs have.
    open: BTreeMap<FileId, u32>,
    work: Work,
}

/// See the module.
pub struct Office {
    rng: ChaCha12Rng,
    now: Time,
    policy: Policy,
    directory: Directory,
    store: MemoryStore,
    machines: Vec<Machine>,
    /// Background work is left.
    again: bool,
    /// Every file that anybody has heard of, and those that the server has had.
    known: Vec<FileId>,
    stored: BTreeSet<FileId>,
    /// Files that a session had open when it ended: until all is at rest, some may still be told so.
    ghosts: BTreeSet<FileId>,
    /// Whether machines stop and vanish, and the server starts again.
    pub faults: bool,
    /// Files of which a client remembers something.
    files_max: usize,
    /// What the server has sent, while somebody listens.
    pub(crate) heard: Option<Vec<ToClient>>,
    /// What happened.
    pub tally: Tally,
}

/// Does what `seed` says with so many machines, and says what was wrong.
pub fn run_many(seed: u64, machines: u64, steps: u64) -> Result<Tally, Violation> {
    run_many_under(Policy::default(), seed, machines, steps)
}

/// The same with another policy.
pub fn run_many_under(policy: Policy, seed: u64, machines: u64, steps: u64) -> Result<Tally, Violation> {
    let mut office = Office::under(policy, seed, machines);
    office.faults = !seed.is_multiple_of(3);
    let failed =
        |step: u64, what| format!("seed {seed}, {machines} machines, step {step} of {steps}: {what}");
    for step in 0..steps {
        office.step().map_err(|what| failed(step, what))?;
    }
    office.finish().map_err(|what| failed(steps, what))?;
    Ok(office.tally)
}

impl Office {
    /// So many machines, and nothing but a root.
    pub fn new(seed: u64, machines: u64) -> Office {
        Office::under(Policy::default(), seed, machines)
    }

    /// The same with another policy.
    pub fn under(policy: Policy, seed: u64, machines: u64) -> Office {
        // So few that files are forgotten all the time.
        let mut office = Office::empty(seed, policy, 6);
        office.add_machines(machines, || Work::Any);
        office
    }

    fn empty(seed: u64, policy: Policy, files_max: usize) -> Office {
        let rng = ChaCha12Rng::seed_from_u64(seed);
        let mut store = MemoryStore::default();
        let directory = Directory::create(&mut store, root()).with_policy(policy);
        Office {
            rng,
            now: Time(1_000),
            policy,
            directory,
            store,
            machines: Vec::new(),
            again: false,
            known: Vec::new(),
            stored: BTreeSet::new(),
            ghosts: BTreeSet::new(),
            faults: false,
            files_max,
            heard: None,
            tally: Tally::default(),
        }
    }

    fn add_machines(&mut self, machines: u64, work: impl Fn() -> Work) {
        for id in 1..=machines {
            let client = self.new_client();
            let mut machine = Machine::new(MachineId(id), client, work());
            machine.connect();
            self.machines.push(machine);
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    fn now(&self) -> Now {
        let secs = 1_700_000_000 + (self.now.0 / 1_000) as i64;
        Now { time: self.now, wall: Timestamp { secs, nanos: (self.now.0 % 1_000) as u32 * 1_000_000 } }
    }

    fn new_client(&mut self) -> Client {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        Client::new(Settings { files_max: self.files_max, ..Settings::new(seed) })
    }

    /// One thing happens.
    pub fn step(&mut self) -> Result<(), Violation> {
        let at = self.below(self.machines.len() as u64) as usize;
        match self.below(24) {
            0..9 => self.server_receives(at)?,
            9..18 => self.client_receives(at)?,
            18..21 => self.begin(at)?,
            // As fast for each machine, however many there are.
            21 => self.pass_time(4_000 / self.machines.len() as u64)?,
            22 if self.again => self.server(Input::Tick)?,
            23 if self.faults => self.fault(at)?,
            _ => {}
        }
        self.check()
    }

    fn fault(&mut self, at: usize) -> Result<(), Violation> {
        match self.below(40) {
            0 => self.restart(),
            1 => {
                self.stop(at);
                Ok(())
            }
            2 => {
                self.machines[at].frozen = true;
                Ok(())
            }
            3..10 => {
                self.machines[at].frozen = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The server stops and starts again from what it wrote down.
    fn restart(&mut self) -> Result<(), Violation> {
        self.tally.restarts += 1;
        self.directory.checkpoint(&mut self.store);
        let directory = Directory::open(&self.store).map_err(|e| e.to_string())?;
        self.directory = directory.with_policy(self.policy);
        self.server(Input::Lead)
    }

    /// The machine stops; the end of what it had sent does not arrive. It starts again at once.
    pub(crate) fn stop(&mut self, at: usize) {
        let arrives = self.below(self.machines[at].to_server.len() as u64 + 1) as usize;
        let client = self.new_client();
        self.session_over(at);
        let machine = &mut self.machines[at];
        machine.to_server.truncate(arrives);
        machine.to_client.clear();
        machine.calls.clear();
        machine.client = client;
        machine.connect();
    }

    /// What the machine's programs have open counts no more.
    fn session_over(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.over = true;
        let open = std::mem::take(&mut machine.open);
        self.tally.ends += u64::from(!open.is_empty());
        // One that is being closed is open as others see it.
        self.ghosts.extend(self.known.iter().filter(|file| machine.client.is_open(file)).cloned());
    }

    /// The server takes an input.
    fn server(&mut self, input: Input) -> Result<(), Violation> {
        self.again &= !matches!(input, Input::Tick);
        let mut out = Vec::new();
        self.directory.handle(self.now, input, &mut self.store, &mut out).map_err(|e| e.to_string())?;
        for output in out {
            match output {
                directory::Output::Opened { machine, incarnation, session } => {
                    let opened =
                        self.machines.iter_mut().find(|m| m.id == machine && m.incarnation == incarnation);
                    if let Some(machine) = opened {
                        (machine.session, machine.over) = (Some(session), false);
                    }
                }
                directory::Output::Send { session, message } => self.send(session, message)?,
                directory::Output::Shares(_) => {}
                directory::Output::Again => self.again = true,
            }
        }
        if let Some((session, misdeed)) = self.directory.misdeeds().first() {
            return Err(format!("{session:?}: {misdeed}"));
        }
        Ok(())
    }

    fn send(&mut self, session: SessionId, message: ToClient) -> Result<(), Violation> {
        self.tally.messages += 1;
        if let Some(heard) = &mut self.heard {
            heard.push(message.clone());
        }
        let Some(at) = self.machines.iter().position(|machine| machine.session == Some(session)) else {
            return Ok(());
        };
        if let ToClient::Granted { grants, .. } = &message {
            self.tally.told_open +=
                grants.iter().filter(|grant| grant.values.others_open == Some(true)).count() as u64;
        }
        if matches!(message, ToClient::Fenced) && !self.machines[at].over {
            self.session_over(at);
        }
        self.machines[at].to_client.push_back(message);
        Ok(())
    }

    fn server_receives(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].frozen {
            return Ok(());
        }
        let Some(input) = self.machines[at].to_server.pop_front() else { return Ok(()) };
        self.tally.messages += 1;
        self.server(input)
    }

    fn client_receives(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        if machine.frozen {
            return Ok(());
        }
        match machine.to_client.pop_front() {
            Some(message) => self.client(at, client::Input::Message(message)),
            None => Ok(()),
        }
    }

    fn client(&mut self, at: usize, input: client::Input) -> Result<(), Violation> {
        let mut out = Vec::new();
        let now = self.now();
        self.machines[at].client.handle(now, input, &mut out);
        self.carry_out(at, out)
    }

    fn carry_out(&mut self, at: usize, out: Vec<Output>) -> Result<(), Violation> {
        let mut cut_off = false;
        for output in out {
            let machine = &mut self.machines[at];
            match output {
                Output::Send(message) => {
                    let session = machine.session;
                    machine.to_server.extend(session.map(|session| Input::Message { session, message }));
                }
                Output::Answer { ticket, result } => {
                    let Some((call, doing)) = machine.calls.remove(&ticket) else {
                        return Err(format!("{ticket:?} is answered twice"));
                    };
                    self.answered(at, &call, doing, result)?;
                }
                Output::Rejected { operation, error } if !machine.over => {
                    return Err(format!("{:?}: refused ({error}) what was done: {operation:?}", machine.id));
                }
                Output::CutOff => cut_off = true,
                Output::Store(_) | Output::Unneeded(_) | Output::Rejected { .. } | Output::Invalidate(_) => {}
            }
        }
        if cut_off {
            if !self.machines[at].over {
                return Err(format!("{:?} was cut off without reason", self.machines[at].id));
            }
            self.stop(at);
        }
        Ok(())
    }

    /// A program calls.
    fn begin(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].calls.len() >= CALLS_MAX || self.machines[at].frozen {
            return Ok(());
        }
        let (call, doing) = match &mut self.machines[at].work {
            Work::Any => self.some_call(at),
            Work::Program(..) => return self.go_on(at),
            Work::Nothing => return Ok(()),
        };
        self.call(at, call, doing)
    }

    fn call(&mut self, at: usize, call: Call, doing: Doing) -> Result<(), Violation> {
        self.tally.calls += 1;
        let now = self.now();
        let mut out = Vec::new();
        let machine = &mut self.machines[at];
        if let Call::Close { file, .. } = &call
            && let Some(count) = machine.open.get_mut(file)
        {
            *count -= 1;
            machine.open.retain(|_, count| *count > 0);
        }
        match machine.client.call(now, &Cred::default(), call.clone(), &mut out) {
            Outcome::Done(result) => self.answered(at, &call, doing, result)?,
            Outcome::Waiting(ticket) => _ = machine.calls.insert(ticket, (call, doing)),
        }
        self.carry_out(at, out)
    }

    fn some_call(&mut self, at: usize) -> (Call, Doing) {
        let dir = FileId::root();
        let open: Vec<FileId> = self.machines[at].open.keys().cloned().collect();
        let pick = self.below(open.len() as u64) as usize;
        let some_open = open.get(pick).cloned();
        let pick = self.below(self.known.len() as u64) as usize;
        let some_known = self.known.get(pick).cloned();
        // A kernel lets go of a handle when what was asked through it has been answered.
        let calls = self.machines[at].calls.values();
        let used: Vec<FileId> = calls
            .filter_map(|(_, doing)| if let Doing::Use(file) = doing { Some(file.clone()) } else { None })
            .collect();
        match (self.below(14), some_open, some_known) {
            (0..4, Some(file), _) if !used.contains(&file) => {
                (Call::Close { file, write: true }, Doing::Name)
            }
            (4, Some(file), _) => (Call::Stat { file: file.clone() }, Doing::Use(file)),
            (5, Some(file), _) => (Call::Read { file: file.clone(), offset: 0, length: 1 }, Doing::Use(file)),
            (6..9, _, Some(file)) => {
                (Call::Open { file: file.clone(), read: true, write: false }, Doing::Open(file))
            }
            (9, ..) => (Call::Lookup { dir, label: self.label() }, Doing::Name),
            (10, ..) => (Call::Unlink { dir, label: self.label(), directory: false }, Doing::Name),
            (11, ..) => {
                let (from, to, mode) = (self.label(), self.label(), RenameMode::Replace);
                (Call::Rename { from_dir: dir.clone(), from, to_dir: dir, to, mode }, Doing::Name)
            }
            _ => {
                let (label, open, target) = (self.label(), self.one_in(2), Vec::new());
                let (kind, mode, umask, rdev) = (FileKind::Regular, 0o644, 0o022, 0);
                (Call::Create { dir, label, kind, mode, umask, rdev, target, open }, Doing::Create(open))
            }
        }
    }

    fn label(&mut self) -> Label {
        let pick = self.below(LABELS.len() as u64) as usize;
        #[expect(clippy::expect_used, reason = "the table above holds nothing else")]
        Label::new(LABELS[pick].as_bytes()).expect("a label")
    }

    fn answered(
        &mut self,
        at: usize,
        call: &Call,
        doing: Doing,
        result: Result<Reply, Error>,
    ) -> Result<(), Violation> {
        if let Work::Program(_, answer) = &mut self.machines[at].work {
            *answer = Some(result.clone());
        }
        let opened = match (&result, doing) {
            (Ok(Reply::Node(entry, _)), Doing::Create(open)) => {
                self.known.push(entry.file.clone());
                open.then(|| entry.file.clone())
            }
            (Ok(Reply::Opened { .. }), Doing::Open(file)) => Some(file),
            (Ok(Reply::Stat(stat)), Doing::Use(_)) => {
                self.tally.nameless += u64::from(stat.attributes.links == 0);
                None
            }
            (Ok(_), Doing::Open(_) | Doing::Create(_)) => return Err(format!("{call:?} gave {result:?}")),
            (Ok(_), _) | (Err(Error::CutOff), _) => None,
            (Err(error), Doing::Use(file)) if self.machines[at].open.contains_key(&file) => {
                return Err(format!("{call:?}: {error}, though it is open here"));
            }
            (Err(Error::NotFound | Error::Exists | Error::Stale), _) => None,
            (Err(error), _) => return Err(format!("{call:?}: {error}")),
        };
        if let Some(file) = opened {
            // Programs of a session that is over have nothing open.
            if !self.machines[at].over {
                *self.machines[at].open.entry(file).or_default() += 1;
            }
        }
        Ok(())
    }

    fn pass_time(&mut self, ms_max: u64) -> Result<(), Violation> {
        let by = 1 + self.below(ms_max);
        self.now = self.now.after_ms(by);
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            if !machine.frozen && machine.client.deadline().is_some_and(|deadline| deadline <= self.now) {
                self.client(at, client::Input::Tick)?;
            }
        }
        self.server(Input::Tick)
    }

    /// Everything that is on its way arrives; no time passes.
    pub(crate) fn deliver(&mut self) -> Result<(), Violation> {
        let idle = |machine: &Machine| machine.to_server.is_empty() && machine.to_client.is_empty();
        while self.again || !self.machines.iter().all(idle) {
            let at = self.below(self.machines.len() as u64) as usize;
            self.server_receives(at)?;
            self.client_receives(at)?;
            if self.again {
                self.server(Input::Tick)?;
            }
        }
        self.check()
    }

    /// What must hold at any time.
    fn check(&mut self) -> Result<(), Violation> {
        for file in self.machines.iter().flat_map(|machine| machine.open.keys()) {
            if self.store.get(&record_key(file)).is_some() {
                self.stored.insert(file.clone());
            } else if self.stored.contains(file) {
                return Err(format!("{file} is gone, and somebody has it open"));
            }
        }
        for machine in self.machines.iter().filter(|machine| !machine.over) {
            for file in &self.known {
                let Some(belief) = machine.client.others_open(file) else { continue };
                let others = self.machines.iter().filter(|other| other.id != machine.id && !other.over);
                let open = others.clone().any(|other| other.client.is_open(file));
                if belief != open && !(belief && self.ghosts.contains(file)) {
                    return Err(format!(
                        "{:?} knows {belief} of others and {file}, and it is {open}",
                        machine.id
                    ));
                }
            }
        }
        Ok(())
    }

    /// Nothing new happens until everything has come to rest.
    fn rest(&mut self) -> Result<(), Violation> {
        self.machines.iter_mut().for_each(|machine| machine.frozen = false);
        let mut quiet = 0;
        for _ in 0..REST_MAX {
            let at = self.below(self.machines.len() as u64) as usize;
            self.server_receives(at)?;
            let at = self.below(self.machines.len() as u64) as usize;
            self.client_receives(at)?;
            let idle = |machine: &Machine| {
                machine.to_server.is_empty() && machine.to_client.is_empty() && !machine.over
            };
            if self.machines.iter().all(idle) {
                quiet += 1;
                self.pass_time(6_000)?;
            }
            self.check()?;
            // Every log has been flushed, and everything that is to follow has.
            if quiet > 40
                && !self.again
                && self.machines.iter().all(|machine| idle(machine) && machine.calls.is_empty())
            {
                return Ok(());
            }
        }
        let calls: Vec<_> = self.machines.iter().flat_map(|machine| machine.calls.values()).collect();
        Err(format!("does not come to rest: {calls:?}"))
    }

    /// The server's whole state is sound, and nothing is kept that has neither name nor handle.
    fn check_at_rest(&mut self) -> Result<(), Violation> {
        self.ghosts.clear();
        self.check()?;
        let mut violations: Vec<directory::Violation> = Vec::new();
        self.directory.check(&self.store, &mut violations);
        if let Some(violation) = violations.first() {
            return Err(format!("{} faults in the server's state, the first: {violation}", violations.len()));
        }
        let dir = FileId::root();
        self.machines[0].calls.clear();
        let now = self.now();
        let mut out = Vec::new();
        let list = Call::List { dir, after: 0, limit: 1_000, stat: false };
        let mut outcome = self.machines[0].client.call(now, &Cred::default(), list.clone(), &mut out);
        for _ in 0..REST_MAX {
            let Outcome::Waiting(ticket) = outcome else { break };
            self.machines[0].calls.insert(ticket, (list.clone(), Doing::Name));
            self.carry_out(0, std::mem::take(&mut out))?;
            self.rest()?;
            let now = self.now();
            outcome = self.machines[0].client.call(now, &Cred::default(), list.clone(), &mut out);
        }
        self.carry_out(0, out)?;
        let Outcome::Done(Ok(Reply::Listing { entries, .. })) = outcome else {
            return Err(format!("the root is not listed: {outcome:?}"));
        };
        let named = entries.into_iter().map(|listed| listed.entry.file);
        let open = self.machines.iter().flat_map(|machine| machine.open.keys().cloned());
        let expected: BTreeSet<FileId> = named.chain(open).collect();
        if let Some(file) = expected.iter().find(|file| self.store.get(&record_key(file)).is_none()) {
            return Err(format!("{file} is not there"));
        }
        let found = self.directory.status(self.now).files;
        if found != expected.len() as u64 + 1 {
            return Err(format!(
                "{found} files, and with the root {} have a name or a handle",
                expected.len() + 1
            ));
        }
        Ok(())
    }

    /// Comes to rest with what is open, then without.
    pub(crate) fn finish(&mut self) -> Result<(), Violation> {
        self.rest()?;
        self.check_at_rest()?;
        for at in 0..self.machines.len() {
            for (file, count) in self.machines[at].open.clone() {
                for _ in 0..count {
                    self.call(at, Call::Close { file: file.clone(), write: true }, Doing::Name)?;
                }
            }
        }
        self.rest()?;
        self.check_at_rest()
    }
}

impl Machine {
    fn new(id: MachineId, client: Client, work: Work) -> Machine {
        Machine {
            id,
            incarnation: 0,
            client,
            session: None,
            over: true,
            frozen: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            calls: BTreeMap::new(),
            open: BTreeMap::new(),
            work,
        }
    }

    fn connect(&mut self) {
        self.incarnation += 1;
        self.session = None;
        self.to_server.push_back(Input::Space(Space { total: 1 << 40, free: 1 << 40, files: 0 }));
        self.to_server.push_back(Input::Open { machine: self.id, incarnation: self.incarnation });
    }
}

/// Where a file's record stands: its identifier and the first tag.
fn record_key(file: &FileId) -> Vec<u8> {
    [file.as_bytes(), &[1]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Office {
        fn drain(&mut self) {
            self.deliver().unwrap();
        }

        fn calls(&mut self, at: usize, call: Call, doing: Doing) {
            self.call(at, call, doing).unwrap();
            self.drain();
            assert!(self.machines[at].calls.is_empty(), "{:?} wait", self.machines[at].calls);
        }

        fn creates(&mut self, at: usize, open: bool) -> FileId {
            let (kind, mode, umask, rdev, target) = (FileKind::Regular, 0o644, 0o022, 0, Vec::new());
            let (dir, label) = (FileId::root(), Label::new(b"a").unwrap());
            let call = Call::Create { dir, label, kind, mode, umask, rdev, target, open };
            self.calls(at, call, Doing::Create(open));
            self.calls(at, Call::SyncAll, Doing::Name);
            self.known.last().unwrap().clone()
        }

        fn opens(&mut self, at: usize, file: &FileId) {
            let call = Call::Open { file: file.clone(), read: true, write: false };
            self.calls(at, call, Doing::Open(file.clone()));
            assert!(self.machines[at].open.contains_key(file));
        }

        fn closes(&mut self, at: usize, file: &FileId) {
            self.calls(at, Call::Close { file: file.clone(), write: false }, Doing::Name);
        }

        fn unlinks(&mut self, at: usize) {
            let call =
                Call::Unlink { dir: FileId::root(), label: Label::new(b"a").unwrap(), directory: false };
            self.calls(at, call, Doing::Name);
        }
    }

    /// Farsite §8.3.3: what opens and closes cost depends on the clients, not on how often they open.
    #[test]
    fn messages_are_in_proportion_to_clients_not_to_opens() {
        let messages = |machines: u64, rounds: u32| {
            let mut office = Office::new(7, machines);
            office.drain();
            let file = office.creates(0, false);
            let before = office.tally.messages;
            for _ in 0..rounds {
                for at in 0..machines as usize {
                    office.opens(at, &file);
                    office.opens(at, &file);
                    office.closes(at, &file);
                    office.closes(at, &file);
                }
            }
            office.tally.messages - before
        };
        let (once, often) = (messages(12, 1), messages(12, 100));
        println!("12 clients: {once} messages for 24 opens, {often} for 2,400");
        assert_eq!(once, often);
        // Each asks once and is answered once; the first is told once to let go of what it sees.
        assert!(once <= 3 * 12, "{once}");
        // With one machine nothing is ever said.
        assert_eq!(messages(1, 100), 0);
    }

    /// A new file takes its access list from its directory's default list. That there is none is knowledge too, under a lease on that name alone as under any other.
    #[test]
    fn who_creates_again_asks_nobody() {
        let mut office = Office::new(7, 2);
        office.drain();
        let mut creates = |at: usize, name: &[u8]| {
            let before = office.tally.messages;
            let (kind, mode, umask, rdev, target) = (FileKind::Regular, 0o644, 0o022, 0, Vec::new());
            let (dir, label, open) = (FileId::root(), Label::new(name).unwrap(), false);
            let call = Call::Create {
                dir: dir.clone(),
                label: label.clone(),
                kind,
                mode,
                umask,
                rdev,
                target,
                open,
            };
            office.calls(at, call, Doing::Create(open));
            office.calls(at, Call::Unlink { dir, label, directory: false }, Doing::Name);
            office.tally.messages - before
        };
        // The first has all of the directory, the second what it needs of it.
        assert_ne!((creates(0, b"a"), creates(1, b"b")), (0, 0));
        assert_eq!((creates(0, b"a"), creates(1, b"b")), (0, 0));
    }

    /// What happens in a run of [`a_file_is_there_while_anybody_has_it_open`].
    #[derive(Clone, Copy, Debug)]
    struct Plan {
        /// Who removes the name: one that has it open, or the third.
        unlinker: usize,
        /// Who closes first.
        first: usize,
        /// Who stops before which step.
        stops: Option<(usize, usize)>,
        /// Before which step the server starts again.
        restarts: Option<usize>,
        /// Whether others have learnt that it is open elsewhere.
        seen: bool,
    }

    fn carry_out(plan: Plan) {
        let mut office = Office::new(plan.unlinker as u64, 3);
        office.drain();
        let file = office.creates(0, true);
        office.opens(1, &file);
        if plan.seen {
            // A second name for a moment: then removing the first asks nobody, so the last is what asks.
            let (dir, label) = (FileId::root(), Label::new(b"b").unwrap());
            let link = Call::Link { file: file.clone(), dir: dir.clone(), label: label.clone() };
            office.calls(2, link, Doing::Name);
            office.calls(2, Call::Unlink { dir, label, directory: false }, Doing::Name);
        }
        let mut named = true;
        for step in 0..4 {
            if plan.restarts == Some(step) {
                office.restart().unwrap();
            }
            if let Some((at, _)) = plan.stops.filter(|(_, before)| *before == step) {
                office.stop(at);
                office.drain();
            }
            match step {
                0 => {
                    office.unlinks(plan.unlinker);
                    named = false;
                }
                1 => office.closes(plan.first, &file),
                2 => office.closes(1 - plan.first, &file),
                _ => {}
            }
            // What was done here is there.
            for at in 0..3 {
                office.calls(at, Call::SyncAll, Doing::Name);
            }
            let open = office.machines.iter().any(|machine| machine.open.contains_key(&file));
            let there = office.store.get(&record_key(&file)).is_some();
            assert_eq!(there, named || open, "{plan:?} after step {step}");
            let mut violations: Vec<directory::Violation> = Vec::new();
            office.directory.check(&office.store, &mut violations);
            assert!(violations.is_empty(), "{plan:?} after step {step}: {violations:?}");
        }
        office.finish().unwrap();
        assert_eq!(office.directory.status(office.now).files, 1, "{plan:?}");
    }

    /// Unlinked while open elsewhere, in every order of closes, with either session ending and the server starting again at each step.
    #[test]
    fn a_file_is_there_while_anybody_has_it_open() {
        let stops = (0..2).flat_map(|at| (0..4).map(move |step| Some((at, step))));
        for stops in stops.chain([None]) {
            for restarts in (0..4).map(Some).chain([None]) {
                for unlinker in 0..3 {
                    for (first, seen) in [(0, false), (1, false), (0, true), (1, true)] {
                        carry_out(Plan { unlinker, first, stops, restarts, seen });
                    }
                }
            }
        }
    }
}
