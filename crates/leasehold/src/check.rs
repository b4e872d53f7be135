//! `leasehold fsck`.

use crate::answer::Answer;
use crate::progress::Progress;
use crate::{Failure, places};
use clap::Args;
use std::path::PathBuf;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Check {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Check {
    /// Checks and prints what is wrong.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let progress = Progress::new();
        let report = node::fsck(&data, &mut |at| progress.say(at))?;
        drop(progress);
        Ok(Answer::report(&report)?.no_if(!report.faults.is_empty()))
    }
}
