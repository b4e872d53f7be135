//! A campus: machines and servers in simulated time, with programs that call, wait and pause.
//!
//! The shipped state machines run unchanged. Every message takes a random time of a few
//! milliseconds, and messages of one wire keep their order. A server handles one message after
//! the other, each for a stated time of its processor. Where a message rests on the server's
//! log, it leaves after a flush, which takes the disk a stated time. Programs are futures, one
//! step after the other ([`program_context`]). Servers hand regions over by the rule that the
//! directory has for that ([`BalanceRule`](directory::BalanceRule)), if they are to. Nothing
//! fails here: `world` and `servers` have the faults, and a campus has the figures.

pub(crate) mod counts;
mod events;
pub(crate) mod files;
mod machines;
pub(crate) mod moves;
pub(crate) mod program_context;
mod serving;

use crate::host::Violation;
use crate::host::server::{DirectoryHost, enrols};
use client::Ticket;
use counts::Counts;
use directory::{ACTIVE_MS, ActiveFiles, Exchange, FOUNDER, Input, Policy};
use events::{Event, Events};
use ident::{FileId, ServerId};
use lease::{SessionId, Time};
use machines::Machine;
use moves::{Balance, Moves};
use namespace::ShareId;
use program_context::{Program, ProgramContext, Task};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use wire::{MachineId, Rights, Space};

/// The space of every server.
const SPACE: Space = Space { total: 1 << 40, free: 1 << 40, files: 0, lends: 0, elsewhere: 0 };
/// Each server looks at this interval for what is to be said again, µs.
const TICK_US: u64 = 200_000;
/// The beginning of the simulation, µs.
const BEGINNING_US: u64 = 1_000_000;

/// The size and pace of a campus.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CampusSettings {
    pub machines: usize,
    pub servers: u16,
    /// The least and the greatest time of a message on its way, µs.
    pub latency_us: (u64, u64),
    /// The time of a server's processor for each message, µs.
    pub service_us: u64,
    /// The time of a server's disk for each flush of its log, µs. Flushes are done one after the
    /// other, each for all that waits when it begins.
    pub disk_us: u64,
    /// How servers hand regions over to balance their load, if they do.
    pub balance: Option<Balance>,
    /// The interval of samples of the servers' load, s.
    pub sample_s: u64,
}

impl CampusSettings {
    /// A campus whose servers have time: messages and handling are short, the disk takes none, and
    /// no region moves by itself.
    pub fn at_ease(machines: usize, servers: u16) -> CampusSettings {
        CampusSettings {
            machines,
            servers,
            latency_us: (500, 1_500),
            service_us: 100,
            disk_us: 0,
            balance: None,
            sample_s: 3_600,
        }
    }
}

/// A server, its queue, and the sessions there.
struct Serving {
    server: DirectoryHost,
    /// When the last message that has arrived will have been handled, µs.
    busy_until: u64,
    /// When the disk begins with the last flush, and when that will be done, µs.
    flush: (u64, u64),
    /// Background work is to go on, and that is on its way.
    goes_on: bool,
    sessions: BTreeMap<SessionId, usize>,
    /// The region that is being handed over.
    leaving: Option<Leaving>,
    /// Regions that the last server has given up for this one, and that have no server yet, as far
    /// as is known; with the times at which these hand-overs began, µs.
    coming: Vec<(FileId, u64)>,
}

/// A hand-over under way.
struct Leaving {
    exchange: Exchange,
    to: usize,
    /// When it began, µs.
    since: u64,
}

/// The campus.
pub(crate) struct Campus {
    settings: CampusSettings,
    rng: ChaCha12Rng,
    events: Events,
    machines: Vec<Machine>,
    servers: Vec<Serving>,
    /// When the last message between two servers arrives, µs.
    between: BTreeMap<(usize, usize), u64>,
    tasks: Vec<Task>,
    /// Programs that have not ended.
    running: usize,
    /// Programs whose call waits.
    waiting: BTreeMap<(usize, Ticket), usize>,
    answered: Vec<(usize, Ticket, program_context::CallAnswer)>,
    shares: BTreeMap<ShareId, Vec<u8>>,
    moves: Moves,
    /// Whether a request is being handled for the first time.
    is_asked: bool,
    pub counts: Counts,
}

impl Campus {
    /// A new campus whose machines are connected.
    pub fn new(seed: u64, settings: CampusSettings) -> Result<Campus, Violation> {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut root = DirectoryHost::found(Policy::default());
        let ids = || (1..=settings.machines as u64).map(MachineId);
        for input in ids().filter(|id| *id != FOUNDER).flat_map(|id| enrols(id, Rights::FULL)) {
            root.handle(Time(BEGINNING_US / 1_000), input)?;
        }
        for number in 1..settings.servers {
            root.handle(Time(BEGINNING_US / 1_000), Input::Found { number: number.into(), founder: 1 })?;
        }
        root.directory.checkpoint(&mut root.store);
        let beside = (1..settings.servers).map(|number| DirectoryHost::found_beside(&root, ServerId(number)));
        let mut servers = beside.collect::<Result<Vec<DirectoryHost>, Violation>>()?;
        servers.insert(0, root);
        let machines = ids().map(|id| Machine::new(id, usize::from(settings.servers), &mut rng)).collect();
        let mut campus = Campus {
            events: Events::from(BEGINNING_US),
            servers: servers.into_iter().map(Serving::of).collect(),
            moves: Moves::default(),
            counts: Counts::of(settings.machines, usize::from(settings.servers)),
            is_asked: false,
            settings,
            rng,
            machines,
            between: BTreeMap::new(),
            tasks: Vec::new(),
            running: 0,
            waiting: BTreeMap::new(),
            answered: Vec::new(),
            shares: BTreeMap::new(),
        };
        campus.begin()?;
        Ok(campus)
    }

    fn begin(&mut self) -> Result<(), Violation> {
        for server in 0..self.servers.len() {
            self.serve(server, Input::Lead)?;
            self.serve(server, Input::Space(SPACE))?;
            let first = self.below(TICK_US);
            self.events.after(first, Event::ServerTick { server });
            if let Some(balance) = self.settings.balance {
                let first = self.below(balance.every_s * 1_000_000);
                self.events.after(first, Event::Exchange { server });
            }
        }
        self.events.after(self.settings.sample_s * 1_000_000, Event::Sample);
        (0..self.machines.len()).try_for_each(|at| self.connect(at, ServerId::ROOT))
    }

    /// The number of machines.
    pub fn machines(&self) -> usize {
        self.machines.len()
    }

    /// The time since the beginning, ms.
    pub fn elapsed_ms(&self) -> u64 {
        (self.events.now() - BEGINNING_US) / 1_000
    }

    /// A program of the machine `at` begins.
    pub fn begins<P: Program>(&mut self, at: usize, program: impl FnOnce(ProgramContext) -> P) {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let context = ProgramContext::new(ChaCha12Rng::from_seed(seed), self.events.clock());
        let task = self.tasks.len();
        self.tasks.push(Task::new(at, &context, program(context.clone())));
        self.running += 1;
        self.events.after(0, Event::Wake { task });
    }

    /// Runs for so long, or until every program has ended.
    pub fn run_ms(&mut self, ms: u64) -> Result<(), Violation> {
        let end = self.events.now() + ms * 1_000;
        while self.running > 0 && self.events.next_at() <= end {
            self.one()?;
        }
        Ok(())
    }

    /// Runs until every program has ended. Fails if that takes longer than `ms`.
    pub fn run_to_end(&mut self, ms: u64) -> Result<(), Violation> {
        self.run_ms(ms)?;
        match self.tasks.iter().position(|task| !task.has_ended()) {
            Some(task) => Err(format!("after {ms} ms program {task} goes on: {}", self.tasks[task].what())),
            None => Ok(()),
        }
    }

    /// Delivers what is under way, for so long.
    pub fn rests_ms(&mut self, ms: u64) -> Result<(), Violation> {
        let end = self.events.now() + ms * 1_000;
        while self.events.next_at() <= end {
            self.one()?;
        }
        Ok(())
    }

    /// Whether each server's whole state is sound.
    pub fn check(&self) -> Result<(), Violation> {
        self.servers.iter().try_for_each(|serving| serving.server.check())
    }

    fn one(&mut self) -> Result<(), Violation> {
        match self.events.take_next() {
            Event::Arrives { server, from, input } => self.arrives(server, from, input),
            Event::Serves { server, from, input } => self.serves(server, from, input)?,
            Event::ServerTick { server } => {
                self.serve(server, Input::Tick)?;
                self.hand_overs_end(server)?;
                self.events.after(TICK_US, Event::ServerTick { server });
            }
            Event::GoesOn { server } => {
                self.servers[server].goes_on = false;
                self.serve(server, Input::Tick)?;
            }
            Event::Reaches { machine, server, connection, message } => {
                self.reaches(machine, server, connection, message)?;
            }
            Event::ClientTick { machine } => self.client_tick(machine)?,
            Event::Wake { task } => self.resume(task, None)?,
            Event::Exchange { server } => self.exchange(server)?,
            Event::Sample => self.sample(),
        }
        while let Some((at, ticket, answer)) = self.answered.pop() {
            match self.waiting.remove(&(at, ticket)) {
                Some(task) => self.resume(task, Some(answer))?,
                None => return Err(format!("machine {at}: {ticket:?} is answered, and nobody waits")),
            }
        }
        Ok(())
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    fn latency(&mut self) -> u64 {
        let (least, most) = self.settings.latency_us;
        least + self.below(most - least + 1)
    }

    fn now(&self) -> Time {
        Time(self.events.now() / 1_000)
    }

    /// The server that manages the file, by the servers' own states.
    fn server_of(&self, file: &FileId) -> Option<usize> {
        self.servers.iter().position(|serving| serving.server.directory.manages(file))
    }

    /// The files that are in use, at whatever server.
    fn active_files(&self) -> ActiveFiles {
        let now = self.now();
        ActiveFiles::joined(self.servers.iter().map(|it| it.server.directory.active(now, ACTIVE_MS)))
    }

    /// Those of these files that a server manages.
    fn active_at(&self, server: usize, all: &ActiveFiles) -> ActiveFiles {
        all.with(|file| self.servers[server].server.directory.manages(file))
    }

    fn sample(&mut self) {
        let all = self.active_files();
        let active = (0..self.servers.len()).map(|server| self.active_at(server, &all).count()).collect();
        self.counts.sample(self.elapsed_ms() / 1_000, active);
        self.events.after(self.settings.sample_s * 1_000_000, Event::Sample);
    }
}

impl Serving {
    fn of(server: DirectoryHost) -> Serving {
        let (busy_until, flush, goes_on, sessions, leaving, coming) = Default::default();
        Serving { server, busy_until, flush, goes_on, sessions, leaving, coming }
    }
}
