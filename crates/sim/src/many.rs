//! Several machines and one server in one thread: who has what open, and what becomes of files without names.
//!
//! Each channel keeps its order; between channels the seed decides what arrives next. Machines stop and start again, or are not heard of until they are fenced; the server
//! starts again from what it wrote down. The oracle knows nothing of leases: it remembers which machine has which handle.

mod programs;

use crate::cluster::{Violation, root};
use client::{Call, Client, Now, Outcome, Output, Reply, Settings, Ticket};
use directory::{Directory, Input, MemoryStore, Policy, Store};
use ident::FileId;
use lease::{Field, Label, Mode, Open, SessionId, Time};
use namespace::{Cred, Entry, Error, FileKind, Link, RenameMode, Timestamp};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{MachineId, Space, ToClient};

pub(crate) use programs::Program;

/// Labels are few, so that machines meet.
const LABELS: [&str; 3] = ["a", "b", "c"];
/// Directories, the root among them.
const DIRS_MAX: usize = 4;
/// Calls of one machine that may be under way at a time.
const CALLS_MAX: usize = 3;
/// How programs open files: mostly so that others may, too.
const OPENINGS: [&[Mode]; 8] = [
    &[Mode::AccessRead],
    &[Mode::AccessRead, Mode::AccessWrite],
    &[Mode::AccessDelete],
    &[Mode::AccessRead, Mode::AccessDelete],
    &[Mode::AccessRead, Mode::ExcludeWrite],
    &[Mode::AccessWrite, Mode::ExcludeRead, Mode::ExcludeWrite],
    &[Mode::AccessDelete, Mode::ExcludeDelete],
    &[],
];
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
    /// Opens that did not go with somebody's handle.
    pub conflicts: u64,
    /// Files of which the deletion was set to happen at the last close.
    pub doomed: u64,
    /// Opens refused because of that.
    pub too_late: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        let Tally { calls, messages, ends, restarts, nameless, told_open, conflicts, doomed, too_late } =
            other;
        self.calls += calls;
        self.messages += messages;
        self.ends += ends;
        self.restarts += restarts;
        self.nameless += nameless;
        self.told_open += told_open;
        self.conflicts += conflicts;
        self.doomed += doomed;
        self.too_late += too_late;
    }
}

/// What is done for a call that is under way.
#[derive(Clone, Debug)]
enum Doing {
    Open(FileId, Open),
    /// With a handle, or without.
    Create(Option<Open>),
    Use(FileId),
    /// Deletes at the last close, or takes that back.
    Doom(bool),
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
    /// Handles that its programs have; of no file none.
    open: BTreeMap<FileId, Vec<Open>>,
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
    /// Every file that anybody has heard of and the name it was made by, and those that the server has had.
    known: Vec<FileId>,
    names: BTreeMap<FileId, Link>,
    /// Which machine, in which life, made a file: until the server has it nobody else can have heard of it.
    makers: BTreeMap<FileId, (MachineId, u64)>,
    dirs: Vec<FileId>,
    /// What was last listed.
    listed: Option<Vec<Entry>>,
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
            names: BTreeMap::new(),
            makers: BTreeMap::new(),
            dirs: vec![FileId::root()],
            listed: None,
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
        self.ghosts.extend(self.known.iter().filter(|file| !machine.client.own(file).is_closed()).cloned());
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
            let told = |grant: &&wire::FileGrant| grant.values.others.get(&Field::Handles) == Some(true);
            self.tally.told_open += grants.iter().filter(told).count() as u64;
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
        if let Call::Close { file, open } = &call
            && let Some(handles) = machine.open.get_mut(file)
            && let Some(at) = handles.iter().position(|handle| handle == open)
        {
            handles.remove(at);
            machine.open.retain(|_, handles| !handles.is_empty());
        }
        match machine.client.call(now, &Cred::default(), call.clone(), &mut out) {
            Outcome::Done(result) => self.answered(at, &call, doing, result)?,
            Outcome::Waiting(ticket) => _ = machine.calls.insert(ticket, (call, doing)),
        }
        self.carry_out(at, out)
    }

    fn some_call(&mut self, at: usize) -> (Call, Doing) {
        let (dir, label) = (self.some_dir(at), self.label());
        let handles = |(file, handles): (&FileId, &Vec<Open>)| {
            let file = file.clone();
            handles.clone().into_iter().map(move |open| (file.clone(), open))
        };
        let open: Vec<(FileId, Open)> = self.machines[at].open.iter().flat_map(handles).collect();
        let pick = self.below(open.len() as u64) as usize;
        let some_open = open.get(pick).cloned();
        let pick = self.below(self.known.len() as u64) as usize;
        let some_known = self.known.get(pick).filter(|file| self.has_heard_of(at, file)).cloned();
        // A kernel lets go of a handle when what was asked through it has been answered.
        let calls = self.machines[at].calls.values();
        let used: Vec<FileId> = calls
            .filter_map(|(_, doing)| if let Doing::Use(file) = doing { Some(file.clone()) } else { None })
            .collect();
        match (self.below(20), some_open, some_known) {
            (0..4, Some((file, open)), _) if !used.contains(&file) => {
                (Call::Close { file, open }, Doing::Name)
            }
            (4, Some((file, _)), _) => (Call::Stat { file: file.clone() }, Doing::Use(file)),
            (5, Some((file, open)), _) if open.has_mode(Mode::AccessRead) => {
                (Call::Read { file: file.clone(), offset: 0, length: 1 }, Doing::Use(file))
            }
            (6..8, Some((file, open)), _) if open.has_mode(Mode::AccessDelete) => {
                let set = self.below(3) > 0;
                let link = self.names.get(&file).filter(|_| set).cloned();
                (Call::SetDisposition { file: file.clone(), link }, Doing::Doom(set))
            }
            (8..12, _, Some(file)) => {
                let open = self.some_opening();
                (Call::Open { file: file.clone(), open, mask: 0 }, Doing::Open(file, open))
            }
            (12, ..) => (Call::Lookup { dir, label }, Doing::Name),
            (13, ..) => {
                let directory = self.one_in(3);
                (Call::Unlink { dir, label, directory }, Doing::Name)
            }
            (14, ..) => {
                let (to_dir, to, mode) = (self.some_dir(at), self.label(), RenameMode::Replace);
                (Call::Rename { from_dir: dir, from: label, to_dir, to, mode }, Doing::Name)
            }
            (15, _, Some(file)) => (Call::Link { file, dir, label }, Doing::Name),
            (16, ..) if self.dirs.len() < DIRS_MAX => {
                (creates(dir, label, FileKind::Directory, None), Doing::Create(None))
            }
            _ => {
                let open = if self.one_in(2) { Some(self.some_opening()) } else { None };
                (creates(dir, label, FileKind::Regular, open), Doing::Create(open))
            }
        }
    }

    fn some_opening(&mut self) -> Open {
        let pick = self.below(OPENINGS.len() as u64) as usize;
        Open::with(OPENINGS[pick].iter().copied())
    }

    fn some_dir(&mut self, at: usize) -> FileId {
        let pick = self.below(self.dirs.len() as u64) as usize;
        let dir = self.dirs[pick].clone();
        if self.has_heard_of(at, &dir) { dir } else { FileId::root() }
    }

    /// Whether a program of that machine can know the file.
    fn has_heard_of(&self, at: usize, file: &FileId) -> bool {
        let Machine { id, incarnation, .. } = self.machines[at];
        self.makers.get(file) == Some(&(id, incarnation)) || self.store.get(&record_key(file)).is_some()
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
                if let Call::Create { dir, label, .. } = call {
                    let link = Link { dir: dir.clone(), label: label.clone() };
                    self.names.insert(entry.file.clone(), link);
                    let Machine { id, incarnation, .. } = self.machines[at];
                    self.makers.insert(entry.file.clone(), (id, incarnation));
                }
                match entry.kind {
                    FileKind::Directory => self.dirs.push(entry.file.clone()),
                    _ => self.known.push(entry.file.clone()),
                }
                open.map(|open| (entry.file.clone(), open))
            }
            (Ok(Reply::Opened { .. }), Doing::Open(file, open)) => Some((file, open)),
            (Ok(Reply::Stat(stat)), Doing::Use(_)) => {
                self.tally.nameless += u64::from(stat.attributes.links == 0);
                None
            }
            (Ok(_), Doing::Open(..) | Doing::Create(_)) => return Err(format!("{call:?} gave {result:?}")),
            (Ok(_), Doing::Doom(set)) => {
                self.tally.doomed += u64::from(set);
                None
            }
            (Ok(Reply::Listing { entries, .. }), _) => {
                self.listed = Some(entries.iter().map(|listed| listed.entry.clone()).collect());
                None
            }
            (Ok(_), _) | (Err(Error::CutOff), _) => None,
            (Err(error), Doing::Use(file)) if self.machines[at].open.contains_key(&file) => {
                return Err(format!("{call:?}: {error}, though it is open here"));
            }
            (Err(Error::SharingViolation), Doing::Open(file, open)) => {
                self.tally.conflicts += 1;
                let of_all = self.machines.iter().flat_map(|machine| machine.client.own(&file).modes());
                let conflicts = of_all.into_iter().any(|mode| open.has_mode(mode.against()));
                if !conflicts && !self.ghosts.contains(&file) && !self.machines[at].over {
                    return Err(format!("{call:?} is refused, and nobody has it open so"));
                }
                None
            }
            (Err(Error::DeletePending), Doing::Open(..) | Doing::Create(_) | Doing::Name) => {
                self.tally.too_late += 1;
                None
            }
            // The handle that might have deleted may have been closed meanwhile.
            (Err(Error::AccessDenied), Doing::Doom(..)) => None,
            (
                Err(
                    Error::NotFound
                    | Error::Exists
                    | Error::Stale
                    | Error::NotEmpty
                    | Error::IsDirectory
                    | Error::NotDirectory
                    | Error::Invalid,
                ),
                _,
            ) => None,
            (Err(error), _) => return Err(format!("{call:?}: {error}")),
        };
        if let Some((file, open)) = opened {
            // Programs of a session that is over have nothing open.
            if !self.machines[at].over {
                self.machines[at].open.entry(file).or_default().push(open);
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
        for file in &self.known {
            let handles = self.machines.iter().filter_map(|machine| machine.open.get(file)).flatten();
            let handles: Vec<&Open> = handles.collect();
            for (at, open) in handles.iter().enumerate() {
                let others = handles.iter().skip(at + 1);
                if others.clone().any(|other| open.modes().any(|mode| other.has_mode(mode.against()))) {
                    return Err(format!("{file} is open as does not go together: {handles:?}"));
                }
            }
        }
        for machine in self.machines.iter().filter(|machine| !machine.over) {
            for file in &self.known {
                let others = self.machines.iter().filter(|other| other.id != machine.id && !other.over);
                let open = others.fold(Open::CLOSED, |open, other| open.or(other.client.own(file)));
                for field in &Field::BLACK_BOXES {
                    let Some(belief) = machine.client.others(file, field) else { continue };
                    if belief != open.has(field) && !(belief && self.ghosts.contains(file)) {
                        let id = machine.id;
                        return Err(format!(
                            "{id:?} knows {belief} of {field:?} of {file}, and others have it {open:?}"
                        ));
                    }
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
        let doomed = self.store.scan(&[2], &[3], usize::MAX).into_iter();
        let mut doomed = doomed.filter_map(|(key, _)| FileId::from_bytes(&key[1..]).ok());
        let is_open = |file: &FileId| self.machines.iter().any(|machine| machine.open.contains_key(file));
        if let Some(file) = doomed.find(|file| !is_open(file)) {
            return Err(format!("{file} was to go with its last handle, and has none"));
        }
        let mut named: Vec<FileId> = Vec::new();
        let mut dirs = vec![FileId::root()];
        while let Some(dir) = dirs.pop() {
            for entry in self.list(dir)? {
                dirs.extend((entry.kind == FileKind::Directory).then(|| entry.file.clone()));
                named.push(entry.file);
            }
        }
        let open = self.machines.iter().flat_map(|machine| machine.open.keys().cloned());
        let expected: BTreeSet<FileId> = named.into_iter().chain(open).collect();
        if let Some(file) = expected.iter().find(|file| self.store.get(&record_key(file)).is_none()) {
            return Err(format!("{file} is not there"));
        }
        let found = self.directory.status(self.now).files;
        if found != expected.len() as u64 + 1 {
            let known = self.known.iter().chain(&self.dirs[1..]);
            let left = known.filter(|f| !expected.contains(f) && self.store.get(&record_key(f)).is_some());
            let left: Vec<_> = left.map(|file| (file, self.names.get(file))).collect();
            return Err(format!(
                "{found} files, and with the root {} have a name or a handle: {left:?} have not",
                expected.len() + 1
            ));
        }
        Ok(())
    }

    /// What the first machine sees in `dir`.
    fn list(&mut self, dir: FileId) -> Result<Vec<Entry>, Violation> {
        self.listed = None;
        self.call(0, Call::List { dir: dir.clone(), after: 0, limit: 1_000, stat: false }, Doing::Name)?;
        self.rest()?;
        self.listed.take().ok_or_else(|| format!("{dir} is not listed"))
    }

    /// Comes to rest with what is open, then without.
    pub(crate) fn finish(&mut self) -> Result<(), Violation> {
        self.rest()?;
        self.check_at_rest()?;
        for at in 0..self.machines.len() {
            for (file, handles) in self.machines[at].open.clone() {
                for open in handles {
                    self.call(at, Call::Close { file: file.clone(), open }, Doing::Name)?;
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

fn creates(dir: FileId, label: Label, kind: FileKind, open: Option<Open>) -> Call {
    let (mode, umask, rdev, target) = (0o755, 0o022, 0, Vec::new());
    Call::Create { dir, label, kind, mode, umask, rdev, target, open }
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

        /// Makes `a`, without a handle or with one that was opened so.
        fn creates(&mut self, at: usize, open: Option<Open>) -> FileId {
            let call = creates(FileId::root(), Label::new(b"a").unwrap(), FileKind::Regular, open);
            self.calls(at, call, Doing::Create(open));
            self.calls(at, Call::SyncAll, Doing::Name);
            self.known.last().unwrap().clone()
        }

        /// Whether it could be opened.
        fn tries(&mut self, at: usize, file: &FileId, open: Open) -> bool {
            let handles = |office: &Office| office.machines[at].open.get(file).map_or(0, Vec::len);
            let before = handles(self);
            self.calls(at, Call::Open { file: file.clone(), open, mask: 0 }, Doing::Open(file.clone(), open));
            handles(self) > before
        }

        fn opens(&mut self, at: usize, file: &FileId) {
            assert!(self.tries(at, file, READING));
        }

        fn closes(&mut self, at: usize, file: &FileId, open: Open) {
            self.calls(at, Call::Close { file: file.clone(), open }, Doing::Name);
        }

        fn unlinks(&mut self, at: usize) {
            let call =
                Call::Unlink { dir: FileId::root(), label: Label::new(b"a").unwrap(), directory: false };
            self.calls(at, call, Doing::Name);
        }

        /// Sets the deletion disposition; refused if there is no handle that may.
        fn dooms(&mut self, at: usize, file: &FileId) -> bool {
            let before = self.tally.doomed;
            let link = self.names.get(file).cloned();
            self.calls(at, Call::SetDisposition { file: file.clone(), link }, Doing::Doom(true));
            self.tally.doomed > before
        }

        fn is_there(&self, file: &FileId) -> bool {
            self.store.get(&record_key(file)).is_some()
        }
    }

    const READING: Open = Open::posix(true, false);

    /// Farsite §8.3.3: what opens and closes cost depends on the clients, not on how often they open.
    #[test]
    fn messages_are_in_proportion_to_clients_not_to_opens() {
        let messages = |machines: u64, rounds: u32| {
            let mut office = Office::new(7, machines);
            office.drain();
            let file = office.creates(0, None);
            let before = office.tally.messages;
            for _ in 0..rounds {
                for at in 0..machines as usize {
                    office.opens(at, &file);
                    office.opens(at, &file);
                    office.closes(at, &file, READING);
                    office.closes(at, &file, READING);
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

    /// Two handles as Windows describes them: what each may do, and what it lets others do, as bits for read, write and delete. They go together if neither may do what
    /// the other does not share (BlackBox §4.4, in the words of its first paragraph).
    fn go_together((access, share): (u8, u8), (other_access, other_share): (u8, u8)) -> bool {
        access & !other_share == 0 && other_access & !share == 0
    }

    fn opening((access, share): (u8, u8)) -> Open {
        let bits = |flags: u8, modes: [Mode; 3]| {
            modes
                .into_iter()
                .enumerate()
                .filter(move |(bit, _)| flags & (1 << bit) != 0)
                .map(|(_, mode)| mode)
        };
        let access = bits(access, [Mode::AccessRead, Mode::AccessWrite, Mode::AccessDelete]);
        Open::with(access.chain(bits(!share, [Mode::ExcludeRead, Mode::ExcludeWrite, Mode::ExcludeDelete])))
    }

    fn all_openings() -> impl Iterator<Item = (u8, u8)> {
        (0..8).flat_map(|access| (0..8).map(move |share| (access, share)))
    }

    /// All 64 × 64, on two machines and on one; and whoever fails again for the same reason asks nobody (Farsite §6).
    #[test]
    fn handles_go_together_as_windows_has_it() {
        for first in all_openings() {
            let mut office = Office::new(1, 2);
            office.drain();
            let file = office.creates(0, Some(opening(first)));
            for second in all_openings() {
                for at in [1, 0] {
                    let opened = office.tries(at, &file, opening(second));
                    assert_eq!(opened, go_together(first, second), "{first:?} and {second:?} at {at}");
                    let before = office.tally.messages;
                    if opened {
                        office.closes(at, &file, opening(second));
                    } else {
                        assert!(!office.tries(at, &file, opening(second)));
                        assert_eq!(office.tally.messages, before, "{first:?} and {second:?} at {at}");
                    }
                }
            }
        }
    }

    /// Among many creators a directory is removed exactly when it is empty, and what was made in it is not lost.
    #[test]
    fn a_directory_is_emptied_and_removed_among_many_creators() {
        let (mut removed, mut refused) = (0, 0);
        for seed in 0..200 {
            let mut office = Office::new(seed, 4);
            office.drain();
            let name = Label::new(b"d").unwrap();
            let root = FileId::root();
            office.calls(
                0,
                creates(root.clone(), name.clone(), FileKind::Directory, None),
                Doing::Create(None),
            );
            office.calls(0, Call::SyncAll, Doing::Name);
            let dir = office.dirs.pop().unwrap();
            for round in 0..60 {
                let at = office.below(4) as usize;
                let label = office.label();
                let call = match office.below(7) {
                    0..2 => creates(dir.clone(), label, FileKind::Regular, None),
                    2..6 => Call::Unlink { dir: dir.clone(), label, directory: false },
                    _ => Call::Unlink { dir: root.clone(), label: name.clone(), directory: true },
                };
                if office.machines[at].calls.len() < CALLS_MAX {
                    office.call(at, call, Doing::Name).unwrap();
                }
                for _ in 0..office.below(6) {
                    let at = office.below(4) as usize;
                    office.server_receives(at).unwrap();
                    office.client_receives(at).unwrap();
                }
                if round % 20 == 19 {
                    office.rest().unwrap();
                }
            }
            office.finish().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            if office.is_there(&dir) { refused += 1 } else { removed += 1 }
        }
        println!("removed in {removed} of {} runs", removed + refused);
        assert!(removed > 50 && refused > 10, "{removed} {refused}");
    }

    /// A new file takes its access list from its directory's default list. That there is none is knowledge too, under a lease on that name alone as under any other.
    #[test]
    fn who_creates_again_asks_nobody() {
        let mut office = Office::new(7, 2);
        office.drain();
        let mut makes = |at: usize, name: &[u8]| {
            let before = office.tally.messages;
            let (dir, label) = (FileId::root(), Label::new(name).unwrap());
            let call = creates(dir.clone(), label.clone(), FileKind::Regular, None);
            office.calls(at, call, Doing::Create(None));
            office.calls(at, Call::Unlink { dir, label, directory: false }, Doing::Name);
            office.tally.messages - before
        };
        // The first has all of the directory, the second what it needs of it.
        assert_ne!((makes(0, b"a"), makes(1, b"b")), (0, 0));
        assert_eq!((makes(0, b"a"), makes(1, b"b")), (0, 0));
    }

    /// What happens in a run of [`a_file_is_there_while_anybody_has_it_open`].
    #[derive(Clone, Copy, Debug)]
    struct Plan {
        /// Whether it is unlinked, or its disposition set.
        unlink: bool,
        /// Who does that: one that has it open, or the third.
        deleter: usize,
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
        let mut office = Office::new(plan.deleter as u64, 3);
        office.drain();
        let deleting = Open::with([Mode::AccessRead, Mode::AccessDelete]);
        let file = office.creates(0, Some(deleting));
        assert!(office.tries(1, &file, deleting));
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
                0 if plan.unlink => {
                    office.unlinks(plan.deleter);
                    named = false;
                }
                0 => {
                    if plan.deleter == 2 {
                        assert!(office.tries(2, &file, deleting));
                    }
                    named = !office.dooms(plan.deleter, &file);
                    if plan.deleter == 2 {
                        office.closes(2, &file, deleting);
                    }
                    assert!(named || !office.tries(2, &file, READING), "{plan:?}: it is to go");
                }
                1 => office.closes(plan.first, &file, deleting),
                2 => office.closes(1 - plan.first, &file, deleting),
                _ => {}
            }
            // What was done here is there.
            for at in 0..3 {
                office.calls(at, Call::SyncAll, Doing::Name);
            }
            let open = office.machines.iter().any(|machine| machine.open.contains_key(&file));
            assert_eq!(office.is_there(&file), named || open, "{plan:?} after step {step}");
            let mut violations: Vec<directory::Violation> = Vec::new();
            office.directory.check(&office.store, &mut violations);
            assert!(violations.is_empty(), "{plan:?} after step {step}: {violations:?}");
        }
        office.finish().unwrap();
        assert_eq!(office.directory.status(office.now).files, 1 + u64::from(named), "{plan:?}");
    }

    /// Unlinked while open elsewhere, or to be deleted at the last close, in every order of closes, with either session ending and the server starting again at each step.
    #[test]
    fn a_file_is_there_while_anybody_has_it_open() {
        let stops = (0..2).flat_map(|at| (0..4).map(move |step| Some((at, step))));
        for stops in stops.chain([None]) {
            for restarts in (0..4).map(Some).chain([None]) {
                for (unlink, deleter) in (0..3).flat_map(|deleter| [(true, deleter), (false, deleter)]) {
                    for (first, seen) in [(0, false), (1, false), (0, true), (1, true)] {
                        carry_out(Plan { unlink, deleter, first, stops, restarts, seen });
                    }
                }
            }
        }
    }
}
