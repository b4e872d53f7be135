//! `leasehold scrub`.

use crate::answer::say;
use crate::{Failure, places};
use clap::Args;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Scrub {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Scrub {
    /// Has everything read, and says what was found.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let terminal = std::io::stderr().is_terminal();
        let report = node::scrub(&data, &mut |progress| {
            if terminal {
                let _ = write!(std::io::stderr(), "\r\x1b[K{progress}");
            }
        })?;
        if terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        say(&report)?;
        Ok(if report.found == 0 && report.damaged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
