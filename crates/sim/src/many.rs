//! Several machines and one server in one thread: open handles, and the end of files without names.
//!
//! Each channel keeps its order; between channels the seed decides which message arrives next.
//! Machines stop and start again, or freeze until they are fenced. The server starts again from its
//! checkpoint. The oracle knows nothing of leases: it remembers which machine has which handle.

mod oracle;
mod parts;
#[cfg(test)]
mod tests;
mod wires;
mod workload;

use crate::cluster::{Violation, root};
use crate::names;
use crate::paper::{Actor, Script};
use client::{Call, Client, Now, Outcome, Reply, Settings, Ticket, call};
use directory::{Directory, Input, MemoryStore, Policy};
use ident::FileId;
use lease::{Label, Open, SessionId, Time};
use namespace::{Cred, Entry, Error, FileKind, Link, Timestamp};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{MachineId, Space, ToClient};

/// Events within which everything must come to rest once nothing new happens.
const REST_MAX: u32 = 20_000;

/// Counts of events, to show that a run had some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Calls begun.
    pub calls: u64,
    /// Messages in both directions.
    pub messages: u64,
    /// Sessions that ended with an open file.
    pub ends: u64,
    /// Times that the server started again.
    pub restarts: u64,
    /// Calls on an open file that had no name any more.
    pub nameless: u64,
    /// Answers by which a machine learnt that others have a file open.
    pub told_open: u64,
    /// Opens that conflicted with another handle.
    pub conflicts: u64,
    /// Files whose deletion was set for the last close.
    pub doomed: u64,
    /// Opens refused because of that deletion.
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

/// The purpose of a call under way.
#[derive(Clone, Debug)]
enum Doing {
    Open(FileId, Open),
    /// With a handle, or without one.
    Create(Option<Open>),
    Use(FileId),
    /// Sets the deletion at the last close, or clears it.
    Doom(bool),
    Name,
}

/// A machine's work when its turn comes.
enum Work {
    /// The seed chooses.
    Any,
    /// A script chooses. The answer to its last call is here once it has come.
    Script(Box<Script>, Option<Result<Reply, Error>>),
    /// No more work: this part is done.
    Done(Actor),
    /// No work.
    Nothing,
}

struct SimulatedMachine {
    id: MachineId,
    incarnation: u64,
    client: Client,
    session: Option<SessionId>,
    /// The server has ended the session; the machine may not know yet.
    over: bool,
    /// No message reaches the machine and none leaves it.
    frozen: bool,
    to_server: VecDeque<Input>,
    to_client: VecDeque<ToClient>,
    calls: BTreeMap<Ticket, (Call, Doing)>,
    /// Handles of the machine's programs. A file without handles has no entry.
    open: BTreeMap<FileId, Vec<Open>>,
    work: Work,
}

/// Number of labels in use.
const LABELS: usize = 3;

/// The machines and their server.
pub struct ManyMachines {
    rng: ChaCha12Rng,
    /// The labels in use: few, so that machines meet.
    labels: Vec<Label>,
    now: Time,
    policy: Policy,
    directory: Directory,
    store: MemoryStore,
    machines: Vec<SimulatedMachine>,
    /// Whether background work is left.
    again: bool,
    /// Every file that was ever made, the name it was made by, and the files that the server has
    /// had.
    known: Vec<FileId>,
    names: BTreeMap<FileId, Link>,
    /// The machine and incarnation that made a file. No other machine knows the file until the
    /// server has it.
    makers: BTreeMap<FileId, (MachineId, u64)>,
    dirs: Vec<FileId>,
    /// The entries of the last listing.
    listed: Option<Vec<Entry>>,
    stored: BTreeSet<FileId>,
    /// Files that a session had open when it ended. Until all is at rest, others may still see them
    /// as open.
    ghosts: BTreeSet<FileId>,
    /// Whether machines stop and freeze, and the server starts again.
    pub faults: bool,
    /// Number of files that a client remembers.
    files_max: usize,
    /// The messages that the server has sent, if they are recorded.
    heard: Option<Vec<ToClient>>,
    /// Counts of events.
    pub tally: Tally,
}

/// Runs so many machines as `seed` chooses, and describes a violation.
pub fn run_many(seed: u64, machines: u64, steps: u64) -> Result<Tally, Violation> {
    run_many_under(Policy::default(), seed, machines, steps)
}

/// The same with another policy.
pub fn run_many_under(policy: Policy, seed: u64, machines: u64, steps: u64) -> Result<Tally, Violation> {
    let mut office = ManyMachines::under(policy, seed, machines);
    office.faults = !seed.is_multiple_of(3);
    let failed =
        |step: u64, what| format!("seed {seed}, {machines} machines, step {step} of {steps}: {what}");
    for step in 0..steps {
        office.step().map_err(|what| failed(step, what))?;
    }
    office.finish().map_err(|what| failed(steps, what))?;
    Ok(office.tally)
}

impl ManyMachines {
    /// Makes so many machines, and a root without children.
    pub fn new(seed: u64, machines: u64) -> ManyMachines {
        ManyMachines::under(Policy::default(), seed, machines)
    }

    /// The same with another policy.
    pub fn under(policy: Policy, seed: u64, machines: u64) -> ManyMachines {
        // The limit is small, so that clients forget files all the time.
        let mut office = ManyMachines::empty(seed, policy, 6);
        office.add_machines(machines, || Work::Any);
        office
    }

    fn empty(seed: u64, policy: Policy, files_max: usize) -> ManyMachines {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let labels = names::some(&mut rng, LABELS);
        let mut store = MemoryStore::default();
        let directory =
            Directory::create(&mut store, root(), "machine-1", wire::Versions::KNOWN).with_policy(policy);
        ManyMachines {
            rng,
            labels,
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
            self.enrol(MachineId(id));
            let client = self.new_client();
            let mut machine = SimulatedMachine::new(MachineId(id), client, work());
            machine.connect(self.now());
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

    /// Lets one thing happen.
    pub fn step(&mut self) -> Result<(), Violation> {
        let at = self.below(self.machines.len() as u64) as usize;
        match self.below(24) {
            0..9 => self.server_receives(at)?,
            9..18 => self.client_receives(at)?,
            18..21 => self.begin(at)?,
            // Time passes as fast for each machine, whatever their number.
            21 => self.pass_time(4_000 / self.machines.len() as u64)?,
            22 if self.again => self.server(Input::Tick)?,
            23 if self.faults => self.fault(at)?,
            _ => {}
        }
        self.check()
    }

    fn call(&mut self, at: usize, call: Call, doing: Doing) -> Result<(), Violation> {
        self.tally.calls += 1;
        let now = self.now();
        let mut out = Vec::new();
        let machine = &mut self.machines[at];
        if let Call::Close(call::Close { file, open }) = &call
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

    fn answered(
        &mut self,
        at: usize,
        call: &Call,
        doing: Doing,
        result: Result<Reply, Error>,
    ) -> Result<(), Violation> {
        if let Work::Script(_, answer) = &mut self.machines[at].work {
            *answer = Some(result.clone().map(Reply::told));
        }
        let opened = match (&result, doing) {
            (Ok(Reply::Node(entry, _)), Doing::Create(open)) => {
                if let Call::Create(call::Create { dir, label, .. }) = call {
                    let link = Link { dir: dir.clone(), label: label.clone() };
                    self.names.insert(entry.file.clone(), link);
                    let SimulatedMachine { id, incarnation, .. } = self.machines[at];
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
            // The handle with the right to delete may have been closed meanwhile.
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
            // Programs of a session that has ended have nothing open.
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

    /// Delivers all messages under way; no time passes.
    pub(crate) fn deliver(&mut self) -> Result<(), Violation> {
        let idle = |machine: &SimulatedMachine| machine.to_server.is_empty() && machine.to_client.is_empty();
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

    /// Runs until everything has come to rest; nothing new happens meanwhile.
    fn rest(&mut self) -> Result<(), Violation> {
        self.machines.iter_mut().for_each(|machine| machine.frozen = false);
        let mut quiet = 0;
        for _ in 0..REST_MAX {
            let at = self.below(self.machines.len() as u64) as usize;
            self.server_receives(at)?;
            let at = self.below(self.machines.len() as u64) as usize;
            self.client_receives(at)?;
            let idle = |machine: &SimulatedMachine| {
                machine.to_server.is_empty() && machine.to_client.is_empty() && !machine.over
            };
            if self.machines.iter().all(idle) {
                quiet += 1;
                self.pass_time(6_000)?;
            }
            self.check()?;
            // Every log has been flushed, and all consequences have arrived.
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

    /// Comes to rest and checks, with handles open; then closes them and does the same.
    pub(crate) fn finish(&mut self) -> Result<(), Violation> {
        self.rest()?;
        self.check_at_rest()?;
        for at in 0..self.machines.len() {
            for (file, handles) in self.machines[at].open.clone() {
                for open in handles {
                    self.call(at, Call::Close(call::Close { file: file.clone(), open }), Doing::Name)?;
                }
            }
        }
        self.rest()?;
        self.check_at_rest()
    }
}

impl SimulatedMachine {
    fn new(id: MachineId, client: Client, work: Work) -> SimulatedMachine {
        SimulatedMachine {
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

    /// Starts, and greets the server; no answer has come yet.
    fn connect(&mut self, now: Now) {
        self.client.handle(now, client::Input::Greeting, &mut Vec::new());
        self.incarnation += 1;
        self.session = None;
        self.to_server.push_back(Input::Space(Space { total: 1 << 40, free: 1 << 40, files: 0, lends: 0 }));
        self.to_server.push_back(Input::Open {
            machine: self.id,
            incarnation: self.incarnation,
            greeting: wire::GreetingNumber::default(),
            session: None,
            connection: 0,
            version: wire::Version::NEWEST,
        });
    }
}
