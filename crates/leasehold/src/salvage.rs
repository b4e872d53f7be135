//! `leasehold salvage`.

use crate::answer::Answer;
use crate::words::Words;
use crate::{Failure, places};
use clap::{Args, Subcommand};
use node::SalvageStore;
use serde::Serialize;
use std::path::PathBuf;

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum Salvage {
    /// List the salvaged changes. Exits with 1 if there are any.
    List(Of),
    /// Write the content of one salvage below a directory, each file by its path.
    ///
    /// Where only parts of a file's content are known, these are written as NAME.partial.
    Restore(Restore),
    /// Delete one salvage.
    Drop(Drop),
}

/// Which machine.
#[derive(Debug, Args)]
pub struct Of {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Restore {
    /// Its number.
    number: u64,
    /// Where to.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    of: Of,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Drop {
    /// Its number.
    number: u64,
    #[command(flatten)]
    of: Of,
}

impl Of {
    fn store(self) -> Result<SalvageStore, Failure> {
        Ok(SalvageStore::open(&self.data.map_or_else(places::data, Ok)?)?)
    }
}

/// Content that was written below a directory.
#[derive(Serialize)]
struct Restored {
    number: u64,
    files: Vec<String>,
}

/// A salvage that was deleted.
#[derive(Serialize)]
struct Dropped {
    number: u64,
}

impl Salvage {
    /// Lists, restores or deletes salvages. Needs no running machine.
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            Salvage::List(of) => {
                let salvaged = of.store()?.list()?;
                let words: String = salvaged.iter().map(|one| Words(one).to_string()).collect();
                Ok(Answer::told(&salvaged, words)?.no_if(!salvaged.is_empty()))
            }
            Salvage::Restore(Restore { number, to, of }) => {
                let files = of.store()?.restore(number, &to)?;
                let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                let words = files.join("\n");
                Answer::told(&Restored { number, files }, words)
            }
            Salvage::Drop(Drop { number, of }) => {
                of.store()?.drop_one(number)?;
                Answer::told(&Dropped { number }, "")
            }
        }
    }
}
