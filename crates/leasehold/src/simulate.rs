//! `leasehold simulate`.

use crate::Failure;
use crate::answer::Answer;
use clap::Args;
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Simulate {
    /// A seed, or a range of them: A..B.
    #[arg(long, value_name = "N|A..B", default_value = "0..100")]
    seed: Seeds,
    /// Calls of each run.
    #[arg(long, value_name = "M", default_value_t = 500)]
    steps: u64,
    /// Machines that share the file system. Each seed is run twice then: a world, with links,
    /// clocks, crashes and histories; and another one, where it is handles and deletions that are
    /// looked at.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    machines: u64,
    /// Servers of the world: one, or a group that elects a leader. The seed chooses one or three
    /// if this is not said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=7))]
    servers: Option<u64>,
    /// The servers of the world run the code that ships, with openraft, on simulated disks:
    /// three of them or five. Otherwise they run what Raft promises, which is faster.
    #[arg(long, requires = "machines")]
    raft: bool,
}

#[derive(Clone, Debug)]
struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;
    fn from_str(text: &str) -> Result<Seeds, String> {
        let number = |text: &str| text.trim().parse::<u64>().map_err(|e| format!("{text}: {e}"));
        match text.split_once("..") {
            Some((from, to)) => match (number(from)?, number(to)?) {
                (from, to) if from < to => Ok(Seeds(from..to)),
                (from, to) => Err(format!("there is no seed from {from} up to, and without, {to}")),
            },
            None => {
                let seed = number(text)?;
                Ok(Seeds(seed..seed.checked_add(1).ok_or("too large")?))
            }
        }
    }
}

/// The results of the runs.
#[derive(Default, Serialize)]
struct Simulated {
    /// Seeds whose runs have ended.
    seeds: u64,
    /// Machines of each run.
    machines: u64,
    /// The counts of a machine alone.
    alone: Option<Alone>,
    /// The counts of the world with links, clocks, crashes and histories.
    world: Option<sim::Stats>,
    /// The counts of the world with handles and deletions.
    handles: Option<sim::Tally>,
    /// The violation that was found, and how to reproduce it.
    violation: Option<String>,
}

/// The counts of a machine that shares nothing.
#[derive(Default, Serialize)]
struct Alone {
    /// Calls answered.
    calls: u64,
    /// Crashes survived.
    crashes: u64,
    /// Calls that found no space.
    full: u64,
    /// Digest of the last run's trace, hexadecimal: equal for equal runs.
    trace: String,
}

impl fmt::Display for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Simulated { seeds, machines, alone, world, handles, violation } = self;
        if let Some(violation) = violation {
            return write!(f, "VIOLATION {violation}");
        }
        if let Some(Alone { calls, crashes, full, trace }) = alone {
            return write!(
                f,
                "{seeds} runs, {calls} calls, {crashes} crashes, {full} times no space: nothing wrong (last trace {trace})"
            );
        }
        write!(f, "{seeds} seeds of {machines} machines: nothing wrong")?;
        world.iter().try_for_each(|happened| write!(f, "\nworld: {}", counts(happened)))?;
        handles.iter().try_for_each(|tally| write!(f, "\nhandles: {}", counts(tally)))
    }
}

/// Lists the counts that are not zero, by the names of their fields.
fn counts(figures: &impl Serialize) -> String {
    let fields = serde_json::to_value(figures).expect("counts are JSON");
    let fields = fields.as_object().into_iter().flatten();
    let happened = fields.filter(|(_, count)| **count != 0);
    let counts: Vec<String> =
        happened.map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
    counts.join(", ")
}

impl Simulate {
    /// Runs every seed. Stops at the first violation, and prints how to reproduce it.
    pub fn run(self) -> Result<Answer, Failure> {
        let mut done = Simulated { machines: self.machines, ..Simulated::default() };
        for seed in self.seed.0.clone() {
            let ran = if self.machines > 1 {
                self.run_many(seed, &mut done)
            } else {
                self.run_one(seed, &mut done)
            };
            done.violation = ran.err();
            if done.violation.is_some() {
                break;
            }
            done.seeds += 1;
        }
        Ok(Answer::of(&done)?.no_if(done.violation.is_some()))
    }

    fn run_one(&self, seed: u64, done: &mut Simulated) -> Result<(), String> {
        let summary = sim::run(seed, self.steps).map_err(|failure| failure.to_string())?;
        let alone = done.alone.get_or_insert_default();
        alone.calls += summary.calls;
        alone.crashes += summary.crashes;
        alone.full += summary.full;
        alone.trace = format!("{:016x}", summary.trace);
        Ok(())
    }

    fn run_many(&self, seed: u64, done: &mut Simulated) -> Result<(), String> {
        let (machines, steps) = (self.machines, self.steps);
        let again = |what| {
            let servers = self.servers.map(|servers| format!("--servers {servers} ")).unwrap_or_default();
            let raft = if self.raft { "--raft " } else { "" };
            format!(
                "{what}\nagain: leasehold simulate {raft}--machines {machines} {servers}--steps {steps} --seed {seed}"
            )
        };
        let weather = if self.raft { sim::Weather::shipped(seed) } else { sim::Weather::of(seed) };
        let weather = sim::Weather { servers: self.servers.unwrap_or(weather.servers), ..weather };
        let happened = sim::run_world_in(weather, seed, machines, steps).map_err(again)?;
        *done.world.get_or_insert_default() += happened;
        if !self.raft {
            *done.handles.get_or_insert_default() += sim::run_many(seed, machines, steps).map_err(again)?;
        }
        Ok(())
    }
}
