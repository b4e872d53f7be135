//! Several servers and machines, and regions that move all the time.
//!
//! While one call at a time is under way, its answer is what the model says, whichever machine
//! makes it and wherever its files are. A stale name, a file that two servers have or none, and an
//! operation that is done in part show as a wrong answer. Calls that run at the same time must be
//! explained by some order of them (`together`). Around the calls everything else goes on: regions
//! move, messages between servers are lost, late and repeated, connections break, servers start
//! again, and kernels answer from what they have kept.

mod machines;
mod orders;
mod registry;
mod running;
mod together;
mod wires;

use crate::counts::counts;
use crate::host::Violation;
use crate::host::server::{DirectoryHost, check_edges, enrols};
use crate::model::{File, Model};
use crate::names;
use crate::workload::Users;
use client::{Call, Ticket, call};
use directory::{FOUNDER, Input, Output, Policy};
use ident::{FileId, ServerId};
use lease::{Label, OpenModes, SessionId, Time};
use machines::Machine;
use namespace::{Error, FileKind, ShareId};
use orders::{fits, made};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use registry::RegistryHistory;
use running::{Running, Seen};
use std::collections::{BTreeMap, VecDeque};
use wire::{MachineId, Rights, Space};

counts! {
    /// Counts of events, to show that a run had some.
    ServersTally {
        /// Calls of programs, but for their looks at paths.
        begun,
        /// Calls answered.
        calls,
        /// Calls that a machine's kernel answered by itself.
        kept,
        /// Times that several calls ran at once.
        together,
        /// Times that several orders of these calls explained the answers.
        ambiguous,
        /// Calls on files of a server that is not the root's.
        elsewhere,
        /// Regions that left a server.
        moves,
        /// Operations over files of several servers.
        joint,
        /// Directories that got another parent by such an operation.
        moved_dirs,
        /// Path leases that were compared with a walk.
        path_leases,
        /// Messages between servers.
        between,
        /// Messages between servers that were lost.
        lost,
        /// Connections that broke.
        breaks,
        /// Times that a server started again.
        restarts,
        /// Machines that joined.
        joined,
        /// Machines that were expelled.
        expelled,
        /// Machines that started again.
        starts,
        /// Servers that were founded.
        founded,
        /// Feeds of the registry.
        feeds,
        /// Greetings that were refused.
        turned_away,
    }
}

/// Number of labels in use.
const LABELS: usize = 6;
/// Steps within which a call is answered, and within which all comes to rest.
const STEPS_MAX: u32 = 40_000;
/// The longest note of what happens.
const NOTE_MAX: usize = 1000;
/// The space of every server.
const SPACE: Space = Space { total: 1 << 40, free: 1 << 40, files: 0, lends: 0, elsewhere: 0 };

/// Greetings of earlier starts that may come late.
const LATE_MAX: usize = 32;

/// A message between servers.
#[derive(Clone)]
struct Between {
    to: ServerId,
    input: Input,
}

/// A lie that must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Machines report that all that they revoked has gone, and kernels keep it.
    KeptBelow,
}

/// The servers, the machines, and what their users may expect.
struct ManyServers {
    rng: ChaCha12Rng,
    now: Time,
    labels: Vec<Label>,
    servers: Vec<DirectoryHost>,
    machines: Vec<Machine>,
    /// Messages between servers that are under way.
    under_way: Vec<Between>,
    /// The last ones that were sent: any of them may come once more.
    said: VecDeque<Between>,
    /// The registry so far.
    told: RegistryHistory,
    /// The machine, and the start of it, that each session is of, by its server.
    begun: BTreeMap<(usize, SessionId), (MachineId, u64)>,
    /// Greetings of earlier starts that may still come, and to which server.
    late: Vec<(usize, Input)>,
    answers: BTreeMap<(usize, Ticket), Result<Seen, Error>>,
    shares: BTreeMap<ShareId, Vec<u8>>,
    model: Model,
    /// The machine of each open handle.
    handles: BTreeMap<FileId, Vec<usize>>,
    /// Whether regions move, and anything fails.
    faults: bool,
    /// Whether several calls run at once at times.
    at_once: bool,
    lie: Option<Lie>,
    /// Whether to tell what happens.
    aloud: bool,
    tally: ServersTally,
}

/// Runs so many calls of `machines` machines on files of `servers` servers, as `seed` chooses.
/// Calls run at the same time in every second run.
pub fn run_servers(seed: u64, servers: u16, machines: u64, calls: u64) -> Result<ServersTally, Violation> {
    run_servers_in((seed % 2 == 1, None), seed, servers, machines, calls)
}

/// The same, with calls at the same time or without, and with this lie.
fn run_servers_in(
    (at_once, lie): (bool, Option<Lie>),
    seed: u64,
    servers: u16,
    machines: u64,
    calls: u64,
) -> Result<ServersTally, Violation> {
    let failed =
        |call: u64, what| format!("seed {seed}, {servers} servers, {machines} machines, call {call}: {what}");
    let mut world = ManyServers::new(seed, servers, machines).map_err(|what| failed(0, what))?;
    (world.at_once, world.lie) = (at_once, lie);
    while world.tally.begun < calls {
        let call = world.tally.begun;
        world.one().map_err(|what| failed(call, what))?;
    }
    world.finish().map_err(|what| failed(calls, what))?;
    Ok(world.tally)
}

impl ManyServers {
    fn new(seed: u64, servers: u16, machines: u64) -> Result<ManyServers, Violation> {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut root = DirectoryHost::found(Policy::default());
        let (now, ids) = (Time(1_000), || (1..=machines).map(MachineId));
        for input in ids().filter(|id| *id != FOUNDER).flat_map(|id| enrols(id, Rights::FULL)) {
            root.handle(now, input)?;
        }
        for _ in 1..servers {
            root.handle(now, Input::Found { number: 1, founder: 1 })?;
        }
        let beside = (1..servers).map(|number| DirectoryHost::found_beside(&root, ServerId(number)));
        let mut all = beside.collect::<Result<Vec<DirectoryHost>, Violation>>()?;
        all.insert(0, root);
        let labels = names::some(&mut rng, LABELS);
        let machines = ids().map(|id| Machine::new(id, usize::from(servers), &mut rng)).collect();
        let mut world = ManyServers {
            rng,
            now,
            labels,
            servers: all,
            machines,
            under_way: Vec::new(),
            said: VecDeque::new(),
            told: RegistryHistory::default(),
            begun: BTreeMap::new(),
            late: Vec::new(),
            answers: BTreeMap::new(),
            shares: BTreeMap::new(),
            model: Model::default(),
            handles: BTreeMap::new(),
            faults: true,
            at_once: false,
            lie: None,
            aloud: std::env::var_os("ALOUD").is_some(),
            tally: ServersTally::default(),
        };
        for server in 0..world.servers.len() {
            world.serve(server, Input::Lead)?;
            world.serve(server, Input::Space(SPACE))?;
        }
        for at in 0..world.machines.len() {
            world.connect(at, ServerId::ROOT)?;
        }
        Ok(world)
    }

    /// Tells what happens, to whoever looks for a fault.
    fn notes(&self, what: impl FnOnce() -> String) {
        if self.aloud {
            println!("{}", what().chars().take(NOTE_MAX).collect::<String>());
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// One call, and then some steps in which no call is under way.
    fn one(&mut self) -> Result<(), Violation> {
        self.tally.begun += 1;
        self.registry_changes()?;
        if self.at_once && self.one_in(3) {
            self.calls_together()?;
            return self.path_leases_are_right();
        }
        let call = Users { rng: &mut self.rng, labels: &self.labels }.some_call(&self.model);
        let at = self.caller(&call);
        for file in files_of(&call) {
            self.looks_up(at, &file)?;
        }
        self.calls(at, &call)?;
        for _ in 0..self.below(12) {
            self.step()?;
        }
        self.path_leases_are_right()
    }

    /// The machine that makes the call: one that has the file open, if its name or a handle counts.
    fn caller(&mut self, call: &Call) -> usize {
        let any = self.some_machine();
        let file = match call {
            Call::Close(call::Close { file, .. }) => file,
            Call::Write(call::Write { file, .. })
            | Call::Read(call::Read { file, .. })
            | Call::Allocate(call::Allocate { file, .. })
            | Call::SetAttributes(call::SetAttributes { file, .. })
            | Call::Sync(call::Sync { file })
            | Call::GetXattr(call::GetXattr { file, .. })
                if self.model.files[file].links == 0 =>
            {
                file
            }
            _ => return any,
        };
        self.handles[file].first().copied().unwrap_or(any)
    }

    /// The machine finds the file by its path, as programs do.
    fn looks_up(&mut self, at: usize, file: &FileId) -> Result<(), Violation> {
        let above = |(dir, its): (&FileId, &File)| {
            let label = its.children.iter().find(|(_, child)| *child == file)?.0;
            Some((dir.clone(), label.clone()))
        };
        let Some((dir, label)) = self.model.files.iter().find_map(above) else { return Ok(()) };
        self.looks_up(at, &dir)?;
        self.calls(at, &Call::Lookup(call::Lookup { dir, label }))
    }

    fn calls(&mut self, at: usize, call: &Call) -> Result<(), Violation> {
        self.tally.calls += 1;
        self.counts(call);
        let mut running = [self.begins(at, call)?];
        self.wait_for(&mut running)?;
        let [Running { seen: Some(seen), .. }] = &running else {
            return Err("a call has ended without an answer".to_owned());
        };
        fits(&self.model, call, seen).map_err(|what| {
            let call: String = format!("{call:?}").chars().take(NOTE_MAX).collect();
            format!("machine {at}: {call} {what}")
        })?;
        if let Ok(seen) = seen {
            let made = made(call, seen);
            self.notes_handles(at, call, made.as_ref());
            self.model.apply(call, made);
        }
        Ok(())
    }

    /// Counts a call by where its files are.
    fn counts(&mut self, call: &Call) {
        let spans = self.spans(call);
        self.tally.joint += u64::from(spans);
        self.tally.moved_dirs += u64::from(spans && self.moves_dir(call) && self.model.refuses(call).is_ok());
        let is_elsewhere = call.file().is_some_and(|file| self.server_of(file).is_some_and(|at| at != 0));
        self.tally.elsewhere += u64::from(is_elsewhere);
    }

    fn notes_handles(&mut self, at: usize, call: &Call, made: Option<&FileId>) {
        let opened = match call {
            Call::OpenFile(call::OpenFile { file, .. }) => Some(file),
            Call::Create(call::Create { open: Some(_), .. }) => made,
            _ => None,
        };
        if let Some(file) = opened {
            self.handles.entry(file.clone()).or_default().push(at);
        }
        if let Call::Close(call::Close { file, .. }) = call
            && let Some(machines) = self.handles.get_mut(file)
            && let Some(handle) = machines.iter().position(|machine| *machine == at)
        {
            machines.remove(handle);
        }
    }

    /// The server that manages `file`, by the servers' own state.
    fn server_of(&self, file: &FileId) -> Option<usize> {
        self.servers.iter().position(|server| server.directory.manages(file))
    }

    /// Whether the call is to give a directory another parent.
    fn moves_dir(&self, call: &Call) -> bool {
        let Call::Rename(call::Rename { from_dir, from, to_dir, to, .. }) = call else { return false };
        let is_dir = |(dir, label): (&FileId, &Label)| {
            let child = self.model.files.get(dir).and_then(|dir| dir.children.get(label));
            child.is_some_and(|child| self.model.files[child].kind == FileKind::Directory)
        };
        from_dir != to_dir && (is_dir((from_dir, from)) || is_dir((to_dir, to)))
    }

    /// Whether the call is about files of several servers.
    fn spans(&self, call: &Call) -> bool {
        let child = |dir: &FileId, label: &Label| self.model.files.get(dir)?.children.get(label).cloned();
        let (files, named): (Vec<FileId>, Vec<Option<FileId>>) = match call {
            Call::Link(call::Link { file, dir, .. }) => (vec![file.clone(), dir.clone()], vec![]),
            Call::Unlink(call::Unlink { dir, label, .. }) => (vec![dir.clone()], vec![child(dir, label)]),
            Call::Rename(call::Rename { from_dir, from, to_dir, to, .. }) => {
                (vec![from_dir.clone(), to_dir.clone()], vec![child(from_dir, from), child(to_dir, to)])
            }
            _ => return false,
        };
        let mut servers: Vec<Option<usize>> =
            files.iter().chain(named.iter().flatten()).map(|file| self.server_of(file)).collect();
        servers.sort_unstable();
        servers.dedup();
        servers.len() > 1
    }

    /// Lets one thing happen.
    fn step(&mut self) -> Result<(), Violation> {
        let (at, server) = (self.below(self.machines.len() as u64) as usize, self.some_server());
        match self.below(33) {
            0..9 => self.server_receives(at, server)?,
            9..18 => self.client_receives(at, server)?,
            18..21 => {
                // Servers repeat what is not confirmed, so the more is under way the more arrives.
                (0..=self.under_way.len() / 4).try_for_each(|_| self.delivers())?;
            }
            21 => self.pass_time(400)?,
            22 => self.background(server)?,
            23 if self.faults => self.moves_a_region(server)?,
            24 if self.faults && self.one_in(30) => {
                self.tally.breaks += 1;
                self.reconnect(at, ServerId(server as u16))?;
            }
            25 if self.faults && self.one_in(60) => self.restarts(server)?,
            26..30 => self.front_door_goes_on(at)?,
            30 => self.feeds(server)?,
            31 if self.faults && self.one_in(10) => self.misleads(server)?,
            32 if self.faults => self.comes_late()?,
            _ => {}
        }
        self.no_file_has_two_servers()
    }

    fn some_server(&mut self) -> usize {
        self.below(self.servers.len() as u64) as usize
    }

    fn moves_a_region(&mut self, server: usize) -> Result<(), Violation> {
        let at = self.below(self.model.files.len() as u64) as usize;
        let region = self.model.files.keys().nth(at).cloned().unwrap_or_else(FileId::root);
        let to = ServerId(self.some_server() as u16);
        if self.one_in(8) {
            return self.serve(server, Input::Keep { region });
        }
        self.serve(server, Input::Delegate { region, to })
    }

    fn restarts(&mut self, server: usize) -> Result<(), Violation> {
        self.tally.restarts += 1;
        self.servers[server].restart()?;
        self.serve(server, Input::Lead)?;
        self.serve(server, Input::Space(SPACE))
    }

    fn no_file_has_two_servers(&self) -> Result<(), Violation> {
        for file in self.model.files.keys() {
            let manage = self.servers.iter().filter(|server| server.directory.manages(file)).count();
            if manage > 1 {
                return Err(format!("{manage} servers manage {file}"));
            }
        }
        Ok(())
    }

    /// Every path lease is what a walk up over the states of all servers finds. The lease on a
    /// directory that is gone is released afterwards.
    fn path_leases_are_right(&mut self) -> Result<(), Violation> {
        let above = |dir: &FileId| {
            let server = self.servers.iter().find(|server| server.directory.manages(dir));
            let server = server.ok_or_else(|| format!("no server manages {dir}"))?;
            let links = server.directory.links(&server.store, dir).map_err(|corrupt| corrupt.to_string())?;
            Ok::<_, Violation>(links.and_then(|links| links.first().map(|link| link.dir.clone())))
        };
        let mut compared = 0;
        for server in &self.servers {
            for (dir, known) in server.directory.path_leases() {
                let (mut way, mut last) = (Vec::new(), above(dir)?);
                let is_gone = last.is_none() && *dir != FileId::root();
                while let Some(dir) = last.filter(|_| way.len() <= known.len()) {
                    last = above(&dir)?;
                    way.push(dir);
                }
                if !is_gone && way != known {
                    return Err(format!("a path lease says {known:?} is above {dir}, and {way:?} is"));
                }
                compared += 1;
            }
        }
        self.tally.path_leases += compared;
        Ok(())
    }

    /// A server handles an input.
    fn serve(&mut self, server: usize, input: Input) -> Result<(), Violation> {
        self.notes(|| format!("server {server} <- {input:?}"));
        let from = ServerId(server as u16);
        let outputs =
            self.servers[server].take(self.now, input).map_err(|what| format!("server {server}: {what}"))?;
        self.registry_is_right(server, &outputs)?;
        for output in outputs {
            match output {
                Output::HandOver { to, message } => {
                    self.sends(Between { to, input: Input::HandOver { from, message } });
                }
                Output::Joint { to, message } => {
                    self.sends(Between { to, input: Input::Joint { from, message } });
                }
                Output::PathLease { to, message } => {
                    self.sends(Between { to, input: Input::PathLease { from, message } });
                }
                Output::Delegated { result, .. } => self.tally.moves += u64::from(result.is_ok()),
                output => self.told(server, output)?,
            }
        }
        Ok(())
    }

    fn sends(&mut self, said: Between) {
        self.tally.between += 1;
        self.said.push_back(said.clone());
        if self.said.len() > 64 {
            self.said.pop_front();
        }
        match self.faults && self.one_in(8) {
            true => self.tally.lost += 1,
            false => self.under_way.push(said),
        }
    }

    /// A message between servers arrives: any that is under way, or an earlier one once more.
    fn delivers(&mut self) -> Result<(), Violation> {
        let again = self.faults && self.one_in(6);
        let picked = match again {
            true => self.below(self.said.len() as u64) as usize,
            false => self.below(self.under_way.len() as u64) as usize,
        };
        let said = match again {
            true => self.said.get(picked).cloned(),
            false => (picked < self.under_way.len()).then(|| self.under_way.swap_remove(picked)),
        };
        let Some(Between { to, input }) = said else { return Ok(()) };
        self.serve(usize::from(to.0), input)
    }

    /// Ends the run without further faults: the tree is what was made of it, seen by every machine,
    /// and each server's state is sound.
    fn finish(&mut self) -> Result<(), Violation> {
        self.faults = false;
        for (file, machines) in std::mem::take(&mut self.handles) {
            for at in machines {
                let close =
                    Call::Close(call::Close { file: file.clone(), open: OpenModes::posix(true, true) });
                self.handles.entry(file.clone()).or_default().push(at);
                self.calls(at, &close)?;
            }
        }
        for at in 0..self.machines.len() {
            if !self.machines[at].is_expelled {
                self.calls(at, &Call::SyncAll)?;
                self.looks_at_all(at)?;
            }
        }
        for _ in 0..STEPS_MAX / 100 {
            self.step()?;
        }
        self.all_feeds_arrive()?;
        self.servers.iter().try_for_each(DirectoryHost::check)?;
        check_edges(&self.servers)
    }

    /// A machine looks at every name, and reads every file.
    fn looks_at_all(&mut self, at: usize) -> Result<(), Violation> {
        let files: Vec<(FileId, File)> = self.model.files.clone().into_iter().collect();
        for (id, file) in files {
            for label in file.children.keys() {
                self.calls(at, &Call::Lookup(call::Lookup { dir: id.clone(), label: label.clone() }))?;
            }
            if file.kind == FileKind::Regular {
                let length = file.content.len() as u32 + 1;
                let read = call::Read { file: id, offset: 0, length, kept: true, quietly: false };
                self.calls(at, &Call::Read(read))?;
            }
        }
        Ok(())
    }
}

/// The files that a call names by their identifiers.
fn files_of(call: &Call) -> Vec<FileId> {
    match call {
        Call::Lookup(call::Lookup { dir, .. })
        | Call::Create(call::Create { dir, .. })
        | Call::Unlink(call::Unlink { dir, .. }) => vec![dir.clone()],
        Call::Link(call::Link { file, dir, .. }) => vec![file.clone(), dir.clone()],
        Call::Rename(call::Rename { from_dir, to_dir, .. }) => vec![from_dir.clone(), to_dir.clone()],
        Call::SetAttributes(call::SetAttributes { file, .. })
        | Call::OpenFile(call::OpenFile { file, .. })
        | Call::Read(call::Read { file, .. })
        | Call::Write(call::Write { file, .. })
        | Call::Allocate(call::Allocate { file, .. })
        | Call::Sync(call::Sync { file })
        | Call::GetXattr(call::GetXattr { file, .. })
        | Call::SetXattr(call::SetXattr { file, .. })
        | Call::RemoveXattr(call::RemoveXattr { file, .. }) => vec![file.clone()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
