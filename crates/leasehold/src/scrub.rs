//! `leasehold scrub`.

use crate::answer::answer;
use crate::progress::Progress;
use crate::{Failure, places};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Scrub {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Scrub {
    /// Has everything read, and says what was found.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let progress = Progress::new();
        let report = node::scrub(&data, &mut |text| progress.say(text))?;
        drop(progress);
        answer(self.json, &report, |report| format!("{report}\n"))?;
        Ok(if report.found == 0 && report.damaged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
