//! `leasehold fsck`.

use crate::answer::answer;
use crate::progress::Progress;
use crate::{Failure, places};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Check {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Checks and prints what is wrong.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let progress = Progress::new();
        let report = node::fsck(&data, &mut |text| progress.say(text))?;
        drop(progress);
        answer(self.json, &report, |report| report.to_string())?;
        Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
