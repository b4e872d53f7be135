//! `leasehold leases`.

use crate::answer::answer;
use crate::{Failure, places};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Leases {
    /// The file, by its path below the mount, or from the root of the file system.
    path: String,
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Leases {
    /// Prints them.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let leases = node::leases(&data, &places::below_root(&data, self.path))?;
        answer(self.json, &leases, |leases| leases.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}
