//! `leasehold simulate`.

use crate::Failure;
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
    /// Machines that share the file system. With several it is names, handles and the ends of sessions that are looked at.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    machines: u64,
}

#[derive(Clone, Debug)]
struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;
    fn from_str(text: &str) -> Result<Seeds, String> {
        let number = |text: &str| text.trim().parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
        match text.split_once("..") {
            Some((from, to)) => Ok(Seeds(number(from)?..number(to)?)),
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
                println!("{summary}");
                ExitCode::SUCCESS
            }
            Err(violation) => {
                println!("VIOLATION {violation}");
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
        let mut all = sim::Tally::default();
        for seed in self.seed.0.clone() {
            all += sim::run_many(seed, self.machines, self.steps)?;
        }
        let runs = self.seed.0.end - self.seed.0.start;
        Ok(format!("{runs} runs: nothing wrong ({all:?})"))
    }
}
