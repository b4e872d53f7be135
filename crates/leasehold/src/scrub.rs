//! `leasehold scrub`.

use crate::answer::Answer;
use crate::progress::Progress;
use crate::{Failure, places};
use clap::Args;
use std::path::PathBuf;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Scrub {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Scrub {
    /// Scrubs everything, and reports what was found.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let progress = Progress::new();
        let report = admin::scrub(&data, &mut |at| progress.say(at))?;
        drop(progress);
        Ok(Answer::report(&report)?.no_if(report.found > 0 || report.damaged > 0))
    }
}
