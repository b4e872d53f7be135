//! A world of machines and one server, or a group of servers, in one thread and from one seed.
//! Links have delays of their own; they lose, double and reorder, break and heal. Machines freeze
//! and crash, and their clocks drift. Servers start again from their durable state, and elect
//! another leader.
//!
//! Everything that takes time is an event; the earliest happens next. The world records each
//! answer, and compares it with the server's updates in the server's order ([`history`]). The
//! invariants are one file each in [`checks`]. Programs begin a given number of calls; then all
//! heals, and everything must come to rest.

mod checks;
mod election;
mod ending;
mod events;
mod faults;
mod group;
mod history;
mod leader;
mod limited;
mod log;
mod lone;
mod machine;
mod members;
mod net;
mod paths;
mod replica;
mod rows;
mod server;
mod shipped;
mod state;
#[cfg(test)]
mod tests;
mod upgrade;
mod weather;
mod workload;

use crate::counts::counts;
use crate::host::Violation;
use crate::model::feed;
use events::{Event, Events};
use history::History;
use lease::Time;
use namespace::ShareId;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use shipped::servers::Shipped;
use state::agreed_log::AgreedLog;
use state::group::Group;
use state::host::found;
use state::known::ProgramKnowledge;
use state::limits::Limits;
use state::link::WireLink;
use state::lone::Lone;
use state::machine::Machine;
use state::members::Members;
use state::paths::Paths;
use std::collections::BTreeMap;

pub use weather::{Mutation, Weather};

counts! {
    /// Counts of events, to show that a run had some.
    Stats {
        /// Calls begun.
        calls,
        /// Calls answered with a refusal or with a result.
        answered,
        /// Calls answered by saying that this machine was cut off.
        cut_off,
        /// Calls that began again in the next session.
        begun_again,
        /// Calls that a machine's kernel answered by itself.
        kept,
        /// Calls that gave way to an invalidation.
        gave_way,
        /// Times that no call gave way, and all entries went.
        stuck,
        /// Changes in write-through.
        heard,
        /// The longest wait of a program for a name that others replaced, ms.
        waited_ms by u64::max,
        /// Most replacements of a name during one lookup of it.
        overtaken by u64::max,
        /// Messages that arrived.
        messages,
        /// Times that a session went on over another connection.
        resumed,
        /// Sessions that ended, other than in order.
        fenced,
        /// Updates of a machine that were lost, since its session ended before.
        lost,
        /// Times that a machine's process ended and began again.
        crashes,
        /// Times that a machine's process ended in order.
        ends,
        /// Times that the next start went on with the rest of an orderly end.
        went_on,
        /// Times that processes of servers ended and began again.
        restarts,
        /// Elections in groups of servers.
        elections,
        /// Times that a server got its state from another.
        snapshots,
        /// Questions that a leader answered without a log entry.
        questions,
        /// Entries that a leader never knew to be committed, and that its successor committed.
        survived,
        /// Entries that were in some replica's log and went.
        vanished,
        /// Times that a server's disk lost or changed durable data.
        rotten,
        /// Times that a server's disk was put back to an older copy, or emptied.
        put_back,
        /// Times that a leader was asked to hand over.
        handed_over,
        /// Times that a server refused to go on with such a disk, and was added anew.
        refused,
        /// Times that a server's disk was full.
        full,
        /// Steps between memberships of a group of servers.
        changes,
        /// Calls refused for lack of rights.
        denied,
        /// Times that the cluster's version was raised.
        raised,
        /// Files that were made with the policy of their directory.
        inherited,
        /// Publications of content that is spread by a policy.
        spread,
        /// Updates that were decided by the version before the cluster's.
        by_last_version,
        /// Milliseconds that went by.
        ms,
        /// Digest of all events and of the server's states: equal for equal runs.
        trace by chain,
    }
}

/// The digest of runs, one after the other.
fn chain(trace: u64, next: u64) -> u64 {
    trace.wrapping_mul(31).wrapping_add(next)
}

/// All machines and servers, and the faults that befall them.
pub struct World {
    rng: ChaCha12Rng,
    /// Milliseconds, as a lone server's clock counts them.
    now: u64,
    events: Events,
    weather: Weather,
    group: Group,
    lone: Lone,
    shipped: Shipped,
    ledger: AgreedLog,
    machines: Vec<Machine>,
    links: Vec<WireLink>,
    connections: u64,
    /// The share server's shares.
    shares: BTreeMap<ShareId, Vec<u8>>,
    history: History,
    known: ProgramKnowledge,
    paths: Paths,
    limits: Limits,
    /// Calls that are still to be begun.
    calls_left: u64,
    /// Whether no more faults come.
    healed: bool,
    happened: Stats,
}

/// Runs so many machines as `seed` chooses until they have made `calls` calls, in weather of the
/// seed's choice. Describes a violation.
pub fn run_world(seed: u64, machines: u64, calls: u64) -> Result<Stats, Violation> {
    run_world_in(Weather::of(seed), seed, machines, calls)
}

/// The same in this weather.
pub fn run_world_in(weather: Weather, seed: u64, machines: u64, calls: u64) -> Result<Stats, Violation> {
    let mut building = World::new(weather, seed, machines, calls)?;
    let outcome = building.run();
    let (begun, ms) = (building.happened.calls, building.now);
    outcome.map_err(|what| {
        format!("seed {seed}, {machines} machines, call {begun} of {calls}, {ms} ms: {what}")
    })?;
    Ok(building.happened)
}

impl World {
    fn new(weather: Weather, seed: u64, machines: u64, calls: u64) -> Result<World, Violation> {
        // Machines with restricted rights join once the files for them exist.
        let weather = Weather { limited: weather.limited.min(machines - 1), ..weather };
        let full = machines - weather.limited;
        let (directory, store) = found(full)?;
        let now = 1_000;
        let mut building = World {
            rng: ChaCha12Rng::seed_from_u64(seed),
            now,
            events: Events::default(),
            weather,
            group: Group::new(
                weather.servers as usize,
                weather.servers_max() as usize,
                &directory,
                &store,
                Time(now),
            ),
            lone: Lone::new(&directory),
            shipped: Shipped::new(
                if weather.shipped { weather.servers_max() } else { 0 },
                seed,
                weather.lie,
            )?,
            ledger: AgreedLog::new(match weather.shipped {
                true => Members::of([raft::FOUNDER]),
                false => Members::of(0..weather.servers),
            }),
            machines: Vec::new(),
            links: Vec::new(),
            connections: 0,
            shares: BTreeMap::new(),
            history: History::default(),
            known: ProgramKnowledge::default(),
            paths: Paths::default(),
            limits: Limits::default(),
            calls_left: calls,
            healed: false,
            happened: Stats { trace: 0xcbf2_9ce4_8422_2325, ..Stats::default() },
        };
        building.servers_begin(full)?;
        for at in 0..full as usize {
            building.add_machine(at);
        }
        building.make_directories()?;
        building.make_paths()?;
        building.admits_limited(full, machines)?;
        building.programs_begin();
        building.begin_faults();
        building.begin_upgrade();
        Ok(building)
    }

    fn run(&mut self) -> Result<(), Violation> {
        while self.calls_left > 0 {
            self.step()?;
        }
        self.heal()?;
        self.comes_to_rest()?;
        self.look_at_everything()?;
        self.check_authority()?;
        if self.weather.shipped {
            self.check_members()?;
        } else {
            self.check_members_settled()?;
            self.check_replicas()?;
            self.check_rot()?;
            // The last machine with an older version may have been heard just now.
            let _ = self.comes_to(|building| building.check_version().is_ok());
            self.check_version()?;
        }
        self.happened.lost = self.history.lost();
        (self.happened.inherited, self.happened.spread) = (self.history.inherited, self.history.spread);
        self.happened.ms = self.now;
        self.history.check()
    }

    /// Handles the next event.
    fn step(&mut self) -> Result<(), Violation> {
        if self.weather.shipped && self.servers_run()? {
            return Ok(());
        }
        let Some((time, event)) = self.events.next() else { return Err("nothing happens any more".into()) };
        self.now = self.now.max(time);
        let digests = self.group.replicas.iter().map(|replica| replica.directory.digest());
        let digest = digests.fold(0, |all: u64, digest| all.rotate_left(1) ^ digest);
        feed(&mut self.happened.trace, &[time.to_be_bytes(), digest.to_be_bytes()].concat());
        if let Some(until) = self.is_for_stopped(&event) {
            self.events.add(until, event);
            return Ok(());
        }
        match event {
            Event::Arrives { at, way, connection, packet } => self.arrives(at, way, connection, packet),
            Event::Resends { at, way, connection, packet } => {
                self.transmits(at, way, connection, packet);
                Ok(())
            }
            Event::Dials(at) => self.dials(at),
            Event::Ticks(at) => self.machine_ticks(at),
            Event::Asks(at) => self.asks(at),
            Event::Calls(at, program) => self.begins(at, program),
            Event::CallsAgain(at, incarnation, program, call) => {
                self.calls_again(at, incarnation, program, call)
            }
            Event::Forgets(at, incarnation, file) => self.forgets(at, incarnation, file),
            Event::Uploads(at, life, upload) => self.uploads(at, life, upload),
            Event::Revokes(at, incarnation, revoking) => self.revokes(at, incarnation, revoking),
            Event::Thaws(at) => self.thaws(at),
            Event::Applies(start) => self.applies(start),
            Event::ServerTicks => self.server_ticks(),
            Event::ReplicaStarts(at) => self.server_starts(at),
            Event::Settles(at, start, work) => self.settles(at, start, work),
            Event::Replicates { from, to, members, message } => self.replicates(from, to, members, message),
            Event::Synced { at, tail, up_to } => self.synced(at, tail, up_to),
            Event::Appends(at, start) => self.appends(at, start),
            Event::Retires(at) => {
                self.retires_now(at);
                Ok(())
            }
            Event::Beats(at, start) => self.beats(at, start),
            Event::Watches => self.watches(),
            Event::Repairs(repaired) => self.repairs(repaired),
            Event::Fault => self.fault(),
            Event::Upgrades => self.upgrades(),
            Event::RepairsLink(at, repaired) => self.repairs_link(at, repaired),
            Event::Looks => self.looks(),
        }
    }

    /// Prints an event, if the weather is `aloud`.
    fn notes(&self, what: impl FnOnce() -> String) {
        if self.weather.aloud {
            println!("{:>9} {}", self.now, what());
        }
    }

    /// A random number less than `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// Adds an event in `ms` milliseconds from now.
    fn later(&mut self, ms: u64, event: Event) {
        self.events.add(self.now + ms, event);
    }
}
