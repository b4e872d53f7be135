//! `leasehold simulate`.

use crate::Failure;
use crate::answer::say;
use clap::Args;
use std::ops::Range;
use std::process::ExitCode;
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
    /// Machines that share the file system. Each seed is run twice then: a building, with links,
    /// clocks, crashes and histories; and an office, where it is handles and deletions that are
    /// looked at.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    machines: u64,
    /// Servers of the building: one, or a group that elects a leader. The seed chooses one or three
    /// if this is not said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=7))]
    servers: Option<u64>,
    /// The servers of the building run the code that ships, with openraft, on simulated disks:
    /// three of them or five. Otherwise they run what Raft promises, which is faster.
    #[arg(long, requires = "machines")]
    raft: bool,
}

#[derive(Clone, Debug)]
struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;
    fn from_str(text: &str) -> Result<Seeds, String> {
        let number = |text: &str| text.trim().parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
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

impl Simulate {
    /// Runs every seed; stops at the first violation and says how to see it again.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let outcome = if self.machines > 1 { self.run_many() } else { self.run_one() };
        Ok(match outcome {
            Ok(summary) => {
                say(summary)?;
                ExitCode::SUCCESS
            }
            Err(violation) => {
                say(format_args!("VIOLATION {violation}"))?;
                ExitCode::FAILURE
            }
        })
    }

    fn run_one(&self) -> Result<String, String> {
        let (mut runs, mut calls, mut crashes, mut full) = (0, 0, 0, 0);
        let mut trace = 0;
        for seed in self.seed.0.clone() {
            let summary = sim::run(seed, self.steps).map_err(|failure| failure.to_string())?;
            runs += 1;
            calls += summary.calls;
            crashes += summary.crashes;
            full += summary.full;
            trace = summary.trace;
        }
        Ok(format!(
            "{runs} runs, {calls} calls, {crashes} crashes, {full} times no space: nothing wrong (last trace {trace:016x})"
        ))
    }

    fn run_many(&self) -> Result<String, String> {
        let (mut building, mut office) = (sim::Stats::default(), sim::Tally::default());
        let (machines, steps) = (self.machines, self.steps);
        let servers = self.servers.map(|servers| format!("--servers {servers} ")).unwrap_or_default();
        let raft = if self.raft { "--raft " } else { "" };
        let again = |what| {
            format!(
                "{what}\nagain: leasehold simulate {raft}--machines {machines} {servers}--steps {steps} --seed "
            )
        };
        for seed in self.seed.0.clone() {
            let weather = if self.raft { sim::Weather::shipped(seed) } else { sim::Weather::of(seed) };
            let weather = sim::Weather { servers: self.servers.unwrap_or(weather.servers), ..weather };
            building += sim::run_world_in(weather, seed, machines, steps)
                .map_err(|what| again(what) + &seed.to_string())?;
            if self.raft {
                continue;
            }
            office += sim::run_many(seed, machines, steps).map_err(|what| again(what) + &seed.to_string())?;
        }
        let runs = self.seed.0.end.saturating_sub(self.seed.0.start);
        Ok(format!("{runs} seeds of {machines} machines: nothing wrong\n{building:?}\n{office:?}"))
    }
}
