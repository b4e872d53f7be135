//! `leasehold leases`.

use crate::answer::Answer;
use crate::{Failure, places};
use clap::Args;
use std::path::PathBuf;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Leases {
    /// The file, by its path below the mount, or from the root of the file system.
    path: String,
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Leases {
    /// Prints the leases.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        Answer::report(&admin::leases(&data, &places::below_root(&data, self.path))?)
    }
}
