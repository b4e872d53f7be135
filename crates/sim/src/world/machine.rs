//! A machine: the host of a client, with a clock of its own, programs, and a link to the server.

use super::events::{Event, Revoking};
use super::history::{tick_of, wall};
use super::state::link::{Packet, Way, WireLink};
use super::state::machine::Machine;
use super::{Mutation, Violation, World};
use crate::host::connection::Connection;
use crate::kernel::{Kernel, locks};
use client::{Client, Input, Invalidation, Now, Output, Settings, Ticket, Upload};
use ident::{FileId, ServerId};
use lease::Time;
use rand_core::Rng;
use std::collections::{BTreeMap, BTreeSet};
use wire::{LogEntry, MachineId, Space, ToClient, ToServer, Version};

/// Time between a machine's readings of its clock, ms.
const TICK_MS: u64 = 100;
/// Time between a machine's questions that change nothing, where there are several servers, ms on
/// average.
const ASK_MS: u64 = 300;
/// Time that a crashed machine is away, ms at most.
const CRASHED_MS: u64 = 5_000;
/// The number of such a question. A client's own requests never have it.
pub(super) const QUESTION: u64 = u64::MAX;

/// Number of tries to invalidate an entry whose directory is locked, and the time between them, ms.
const LOCKED_TRIES: u32 = 200;
pub(super) const LOCKED_TRY_MS: u64 = 10;
/// One of this many offered items stays in the kernel, on average, although nothing needs it.
const KEEPS_ONE_OF: u64 = 8;

impl World {
    pub(super) fn add_machine(&mut self, at: usize) {
        // Servers' clocks are wrong, too, where one server goes on after another.
        let drift = if self.group.is_lone() { self.weather.drift_ppm } else { self.weather.drift_ppm / 2 };
        // Half of all clocks are as wrong as they may be.
        let rate_ppm = match self.below(4) {
            0 => 1_000_000 - drift,
            1 => 1_000_000 + drift,
            _ => 1_000_000 - drift + self.below(2 * drift + 1),
        };
        let (client, offset) = (self.new_client(), self.below(1_000_000));
        let id = MachineId(at as u64 + 1);
        let life = self.history.new_life(at);
        let servers = self.group.replicas.len();
        let server = if self.weather.servers > 1 { self.below(self.weather.servers) as usize } else { 0 };
        self.machines.push(Machine {
            id,
            incarnation: 1,
            speaks: Version::NEWEST,
            client,
            connection: Connection::default(),
            server,
            life,
            frozen: None,
            rate_ppm,
            offset,
            kernel: Kernel::new(self.weather.lie == Some(Mutation::FoldedBelow)),
            unstored: BTreeMap::new(),
            left: None,
            steady: None,
            rough_until: 0,
            calls: BTreeMap::new(),
            gave_way: BTreeSet::new(),
        });
        // Some machines are near and some are far.
        let far = [1, 2, 5, 30][self.below(4) as usize];
        self.links.push(WireLink::new(far, servers));
        self.later(0, Event::Dials(at));
        let tick = self.below(TICK_MS);
        self.later(tick, Event::Ticks(at));
        if !self.group.is_lone() || self.is_limited(at) {
            self.later(ASK_MS, Event::Asks(at));
        }
    }

    pub(super) fn new_client(&mut self) -> Client {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        // Small bounds, so that every limit is met.
        let mut client = Client::new(Settings {
            dirty_bytes_max: 512 << 10,
            files_max: 24,
            names_max: 4,
            ..Settings::new(seed)
        });
        if self.weather.lie != Some(Mutation::NothingBelow) {
            client.has_below();
        }
        client
    }

    /// The time on the machine's clock.
    pub(super) fn clock(&self, at: usize) -> Time {
        let machine = &self.machines[at];
        Time(machine.offset + self.now * machine.rate_ppm / 1_000_000)
    }

    /// Reads the machine's clocks. No two readings give the same time for stamps of files, so each
    /// update differs from all others.
    pub(super) fn read_clocks(&mut self, at: usize) -> Now {
        let wall = wall(self.history.tick());
        Now { time: self.clock(at), wall }
    }

    /// Whether the machine is frozen. If so, the event waits until the machine goes on.
    pub(super) fn waits_frozen(&mut self, at: usize, event: impl FnOnce() -> Event) -> bool {
        let Some(until) = self.machines[at].frozen.filter(|until| *until >= self.now) else { return false };
        self.events.add(until, event());
        true
    }

    pub(super) fn thaws(&mut self, at: usize) -> Result<(), Violation> {
        self.machines[at].frozen = None;
        Ok(())
    }

    pub(super) fn machine_ticks(&mut self, at: usize) -> Result<(), Violation> {
        if self.waits_frozen(at, || Event::Ticks(at)) {
            return Ok(());
        }
        self.later(TICK_MS, Event::Ticks(at));
        let now = self.clock(at);
        if self.machines[at].client.deadline().is_some_and(|deadline| deadline <= now) {
            self.input(at, Input::Tick)?;
        }
        self.gives_up_silence(at);
        Ok(())
    }

    /// The machine sends a question that its client seldom has: for content that did not fit into a
    /// grant.
    pub(super) fn asks(&mut self, at: usize) -> Result<(), Violation> {
        let (wait, file) = (1 + self.below(2 * ASK_MS), self.below(self.known.files.len() as u64) as usize);
        self.later(wait, Event::Asks(at));
        if let Some(file) = self.known.files.get(file).filter(|_| self.machines[at].frozen.is_none()) {
            let question = ToServer::Extents { number: QUESTION, file: file.clone(), from: 0 };
            let asks = self.asks_for(at, file.clone());
            self.says(at, question);
            asks.into_iter().for_each(|question| self.says(at, question));
        }
        Ok(())
    }

    /// The machine receives a message of the server.
    pub(super) fn machine_hears(
        &mut self,
        at: usize,
        connection: u64,
        message: ToClient,
    ) -> Result<(), Violation> {
        let asked = matches!(
            message,
            ToClient::Extents { number: QUESTION, .. }
                | ToClient::Shipped { number: QUESTION, .. }
                | ToClient::Reported { number: QUESTION, .. }
        );
        if asked || self.machines[at].connection.number != Some(connection) {
            self.happened.questions += u64::from(asked);
            return Ok(());
        }
        if self.machines[at].left.is_some() {
            return self.goes_on_hears(at, &message);
        }
        let fenced = matches!(message, ToClient::Fenced);
        if matches!(message, ToClient::Opened { .. } | ToClient::Resumed { .. }) {
            self.machines[at].connection.begin();
            self.machines[at].steady = Some(self.now);
        }
        self.happened.resumed += u64::from(matches!(message, ToClient::Resumed { .. }));
        self.happened.heard += u64::from(matches!(message, ToClient::Heard { goes_on: true, .. }));
        if self.weather.lie == Some(Mutation::TermFromReceipt)
            && let ToClient::Renewed { space } = message
        {
            return self.lie_about_receipt(at, space);
        }
        if let (ToClient::Opened { .. }, Some(session)) = (&message, self.machines[at].connection.session) {
            self.input(at, Input::Message(ServerId::ROOT, message))?;
            let life = self.machines[at].life;
            self.history.begins(session, life);
        } else {
            self.input(at, Input::Message(ServerId::ROOT, message))?;
        }
        if fenced {
            self.breaks(at);
        }
        Ok(())
    }

    /// A client that counts its term from the receipt: as if it had greeted only now.
    fn lie_about_receipt(&mut self, at: usize, space: Space) -> Result<(), Violation> {
        let (up_to, rejected, term_ms, version) = (0, Vec::new(), directory::TERM_MS, Version::NEWEST);
        self.input(at, Input::Greeting(ServerId::ROOT))?;
        let resumed = ToClient::Resumed { up_to, rejected, forgotten: 0, space, term_ms, version };
        self.input(at, Input::Message(ServerId::ROOT, resumed))
    }

    pub(super) fn input(&mut self, at: usize, input: Input) -> Result<(), Violation> {
        let now = self.read_clocks(at);
        let mut out = Vec::new();
        self.notes(|| format!("machine {at} hears at {}: {input:?}", tick_of(now.wall)));
        self.machines[at].client.handle(now, input, &mut out);
        self.carry_out(at, now, out)
    }

    /// Carries out the client's outputs.
    pub(super) fn carry_out(&mut self, at: usize, now: Now, out: Vec<Output>) -> Result<(), Violation> {
        // As in the shipped machine, a program makes no other call before all outputs are on their
        // way. Otherwise the call would overtake them.
        let mut interrupted = Vec::new();
        let failed = |output: &Output| match output {
            Output::Answer { ticket, result: Err(namespace::Error::CutOff) } => Some(*ticket),
            _ => None,
        };
        let failed: BTreeSet<Ticket> = out.iter().filter_map(failed).collect();
        for output in out {
            self.notes(|| format!("machine {at} at {}: {output:?}", tick_of(now.wall)));
            match output {
                Output::Send(_, message) => self.says(at, message),
                Output::Connect(server) => {
                    return Err(format!("machine {at} wants {server:?}, and there is one"));
                }
                Output::Answer { ticket, result } => {
                    let Some((call, program)) = self.machines[at].calls.remove(&ticket) else {
                        return Err(format!("{ticket:?} of machine {at} is answered twice"));
                    };
                    match result {
                        Err(namespace::Error::Interrupted) => interrupted.push((call, program, result)),
                        result => self.told(at, call, program, result, now)?,
                    }
                }
                Output::Store(upload) => {
                    self.machines[at].unstored.insert(upload.upload, upload.clone());
                    let (wait, life) = (1 + self.below(400), self.machines[at].incarnation);
                    self.later(wait, Event::Uploads(at, life, Box::new(upload)));
                }
                Output::Salvage(salvage) if salvage.cut_off => {
                    self.happened.fenced += 1;
                    let life = self.history.new_life(at);
                    self.machines[at].life = life;
                    // Calls that do not fail begin again.
                    let calls =
                        self.machines[at].calls.iter().filter(|(ticket, _)| !failed.contains(*ticket));
                    for (_, (call, _)) in calls {
                        self.happened.begun_again += 1;
                        self.history.begins_again(*call, life);
                    }
                }
                Output::Salvage(salvage) if self.is_limited(at) => {
                    // A directory was moved out of the machine's rights.
                    let life = self.machines[at].life;
                    salvage
                        .items
                        .iter()
                        .for_each(|lost| self.history.turned_down(life, &lost.what, &lost.file));
                }
                Output::Salvage(salvage) => {
                    return Err(format!("what machine {at} did was refused: {:?}", salvage.items));
                }
                Output::Revoke { number, what, offered } => {
                    let (wait, incarnation) = (self.below(30), self.machines[at].incarnation);
                    let revoking = Revoking { number, what, offered, tries: 0 };
                    self.later(wait, Event::Revokes(at, incarnation, revoking));
                }
                Output::RevokeUncovered(what) => {
                    let kernel = &mut self.machines[at].kernel;
                    kernel.bar(tick_of(now.wall), std::slice::from_ref(&what));
                    kernel.takes_back(&[what]);
                }
                Output::Unneeded(_) | Output::Settled(_) => {}
            }
        }
        interrupted
            .into_iter()
            .try_for_each(|(call, program, result)| self.told(at, call, program, result, now))
    }

    /// Sends a message of the client to the server, if there is a connection.
    pub(super) fn says(&mut self, at: usize, message: ToServer) {
        let Some(connection) = self.machines[at].connection.number else { return };
        if self.weather.lie == Some(Mutation::HeardEarly)
            && let ToServer::Log { first, entries, .. } = &message
            && let Some(LogEntry::Wrote { file }) = entries.last()
        {
            let up_to = first + entries.len() as u64 - 1;
            let heard = ToClient::Heard { file: file.clone(), up_to, goes_on: true };
            self.send(at, Way::Down, connection, Packet::Tells(heard));
        }
        self.send(at, Way::Up, connection, Packet::Says(message));
    }

    /// The kernel drops all that the client revokes: entries only once no call keeps their
    /// directory locked. Of what is offered it keeps what a call keeps locked, and some of the
    /// rest.
    pub(super) fn revokes(
        &mut self,
        at: usize,
        incarnation: u64,
        mut revoking: Revoking,
    ) -> Result<(), Violation> {
        let gone = self.machines[at].incarnation != incarnation || self.machines[at].left.is_some();
        if gone || self.waits_frozen(at, || Event::Revokes(at, incarnation, revoking.clone())) {
            return Ok(());
        }
        let Revoking { number, what, offered, tries } = &mut revoking;
        if self.weather.lie == Some(Mutation::KeptBelow) {
            return self.input(at, Input::Revoked { number: *number, kept: BTreeSet::new() });
        }
        let now = self.clock(at);
        self.machines[at].kernel.contend(now, what);
        let dirs = self.locked_below(at, what);
        if dirs.is_empty() || *tries == LOCKED_TRIES {
            let mut kept = self.locked_below(at, offered);
            for file in offered.iter().filter_map(Invalidation::file) {
                if self.below(KEEPS_ONE_OF) == 0 {
                    kept.insert(file.clone());
                }
            }
            offered.retain(|what| what.file().is_some_and(|file| !kept.contains(file)));
            what.append(offered);
            let tick = tick_of(self.read_clocks(at).wall);
            let kernel = &mut self.machines[at].kernel;
            if !dirs.is_empty() {
                self.happened.stuck += 1;
                kernel.drops_entries();
            }
            kernel.takes_back(what);
            kernel.bar(tick, what);
            return self.input(at, Input::Revoked { number: *number, kept });
        }
        // All entries of these directories are to go, so that a call that comes again blocks
        // nothing.
        for dir in &dirs {
            let entries = Invalidation::Entries(dir.clone());
            if !what.contains(&entries) {
                what.push(entries);
            }
        }
        *tries += 1;
        self.later(LOCKED_TRY_MS, Event::Revokes(at, incarnation, revoking));
        self.gives_way(at, &dirs)
    }

    /// The directories that these invalidations need to lock and that some call under way keeps
    /// locked.
    fn locked_below(&self, at: usize, what: &[Invalidation]) -> BTreeSet<FileId> {
        let machine = &self.machines[at];
        let called = machine.calls.values().filter_map(|(number, _)| self.history.calls.get(*number));
        let locked: BTreeSet<&FileId> = called.flat_map(|called| locks(&called.call)).flatten().collect();
        let needed = what.iter().filter_map(|what| machine.kernel.needs_lock(what));
        needed.filter(|dir| locked.contains(dir)).cloned().collect()
    }

    /// Calls that keep these directories locked give way, none of them twice in a row.
    fn gives_way(&mut self, at: usize, dirs: &BTreeSet<FileId>) -> Result<(), Violation> {
        let machine = &self.machines[at];
        let locks_one = |number: &usize| {
            let called = self.history.calls.get(*number);
            called.is_some_and(|it| locks(&it.call).into_iter().flatten().any(|dir| dirs.contains(dir)))
        };
        let holders = machine
            .calls
            .iter()
            .filter(|(_, (number, program))| !machine.gave_way.contains(program) && locks_one(number));
        let holders: Vec<(Ticket, usize)> =
            holders.map(|(ticket, (_, program))| (*ticket, *program)).collect();
        for (ticket, program) in holders {
            let (now, mut out) = (self.read_clocks(at), Vec::new());
            self.machines[at].gave_way.insert(program);
            self.machines[at].client.give_way(now, ticket, &mut out);
            self.carry_out(at, now, out)?;
        }
        Ok(())
    }

    /// An upload is stored, or waits while the machine has no way to the share server.
    pub(super) fn uploads(
        &mut self,
        at: usize,
        incarnation: u64,
        upload: Box<Upload>,
    ) -> Result<(), Violation> {
        if self.machines[at].incarnation != incarnation || self.machines[at].left.is_some() {
            return Ok(());
        }
        let away = self.links[at].cut.iter().any(|cut| *cut > 0) || !self.group.is_up();
        if away || self.machines[at].frozen.is_some() {
            self.later(700, Event::Uploads(at, incarnation, upload));
            return Ok(());
        }
        let pieces = upload.pieces.iter().map(|(nonce, plain)| (*nonce, plain));
        let (bytes, hashes) = content::seal_share(&upload.key, pieces);
        self.shares.insert(upload.share, bytes);
        self.machines[at].unstored.remove(&upload.upload);
        self.input(at, Input::Stored { upload: upload.upload, result: Ok(hashes) })
    }

    /// The machine's process crashes, and begins anew.
    pub(super) fn crashes(&mut self, at: usize) -> Result<(), Violation> {
        self.happened.crashes += 1;
        if self.machines[at].left.is_some() {
            self.crashes_going_on(at);
            return Ok(());
        }
        self.check_soon(at, self.machines[at].life)?;
        self.begins_anew(at, CRASHED_MS);
        let life = self.history.new_life(at);
        let machine = &mut self.machines[at];
        machine.life = life;
        machine.incarnation += 1;
        Ok(())
    }
}
