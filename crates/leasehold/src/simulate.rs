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
        let (mut runs, mut calls, mut crashes, mut full) = (0, 0, 0, 0);
        let mut trace = 0;
        for seed in self.seed.0.clone() {
            match sim::run(seed, self.steps) {
                Ok(summary) => {
                    runs += 1;
                    calls += summary.calls;
                    crashes += summary.crashes;
                    full += summary.full;
                    trace = summary.trace;
                }
                Err(failure) => {
                    println!("VIOLATION {failure}");
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
        println!(
            "{runs} runs, {calls} calls, {crashes} crashes, {full} times no space: nothing wrong (last trace {trace:016x})"
        );
        Ok(ExitCode::SUCCESS)
    }
}
