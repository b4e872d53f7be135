//! `leasehold status`.

use crate::answer::{answer, say};
use crate::{Failure, places};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Status {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Status {
    /// Asks and prints. Exits with 1 if no machine is up.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let Some(status) = node::ask_status(&data)? else {
            if self.json {
                say("{\"up\": false}")?;
            } else {
                say(format_args!("no machine is up on {}; start it with: leasehold up", data.display()))?;
            }
            return Ok(ExitCode::FAILURE);
        };
        answer(self.json, &status, |status| status.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}
