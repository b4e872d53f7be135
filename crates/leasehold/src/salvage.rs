//! `leasehold salvage`.

use crate::answer::{answer, lines};
use crate::{Failure, places};
use clap::{Args, Subcommand};
use node::SalvageStore;
use node::figures::date;
use std::path::PathBuf;
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum Salvage {
    /// List the salvaged changes. Exits with 1 if there are any.
    List(List),
    /// Write the content of one salvage below a directory, each file by its path.
    ///
    /// Where only parts of a file's content are known, these are written as NAME.partial.
    Restore(Restore),
    /// Delete one salvage.
    Drop(Drop),
}

/// Which machine.
#[derive(Debug, Args)]
struct Of {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    of: Of,
    /// As JSON.
    #[arg(long)]
    json: bool,
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

impl Salvage {
    /// Does it. Needs no machine that is up.
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Salvage::List(list) => list.run(),
            Salvage::Restore(Restore { number, to, of }) => {
                lines(of.store()?.restore(number, &to)?.iter().map(|file| file.display()))?;
                Ok(ExitCode::SUCCESS)
            }
            Salvage::Drop(Drop { number, of }) => {
                of.store()?.drop_one(number)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl List {
    fn run(self) -> Result<ExitCode, Failure> {
        let salvaged = self.of.store()?.list()?;
        answer(self.json, &salvaged, |salvaged| {
            let mut text = String::new();
            for one in salvaged {
                let why = match (one.goes_on, one.cut_off) {
                    (true, _) => "left when the machine ended: its next start goes on with it",
                    (false, true) => "cut off",
                    (false, false) => "refused by the server",
                };
                text.push_str(&format!("{} of {} ({why})\n", one.number, date(one.when)));
                for item in &one.items {
                    text.push_str(&format!("    {}: {}\n", item.path, item.what));
                }
            }
            text
        })?;
        Ok(if salvaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
