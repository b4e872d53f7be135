//! `leasehold backup`, `restore`.

use crate::answer::Answer;
use crate::confirm::Confirm;
use crate::progress::Progress;
use crate::words::Words;
use crate::{Failure, places};
use backup::{BackupOrder, Extracting, Restoring};
use clap::Args;
use std::path::{Path, PathBuf};

/// See the command's help.
#[derive(Debug, Args)]
pub struct Backup {
    /// Where backups are kept. Made if it does not exist.
    dir: PathBuf,
    /// Afterwards remove all backups but the latest N, and what only they have. One that you have
    /// renamed stays.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Backup {
    /// Makes a backup. Exits with 1 if some content could not be had.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        // The running machine has another working directory.
        let order =
            BackupOrder { dir: std::path::absolute(self.dir)?, keep: self.keep.map(|keep| keep as usize) };
        let mounted_on = admin::ask_status(&data).ok().flatten().and_then(|status| status.mounted_on);
        mounted_on.map_or(Ok(()), |mount| places::is_beside(&order.dir, Path::new(&mount)))?;
        let progress = Progress::new();
        let report = node::back_up(&data, &order, &mut |at| progress.say(at))?;
        drop(progress);
        Ok(Answer::report(&report)?.no_if(!report.faults.is_empty()))
    }
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Restore {
    /// Where backups are kept.
    dir: PathBuf,
    /// The data directory that is to be made. There must be nothing yet.
    #[arg(long, value_name = "NEW", required_unless_present_any = ["list", "file"])]
    data: Option<PathBuf>,
    /// Restore only this file, or directory with all below, named from the root of the file system.
    /// This takes no server and no mount.
    #[arg(long, value_name = "PATH", requires = "to", conflicts_with_all = ["data", "content"])]
    file: Option<PathBuf>,
    /// Where that file or directory is to be. There must be nothing yet.
    #[arg(long, value_name = "DEST", requires = "file")]
    to: Option<PathBuf>,
    /// Which backup; the latest if absent.
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// Keep the content in an S3-compatible store, s3://BUCKET/PREFIX, and not in that directory:
    /// see leasehold up.
    #[arg(long, value_name = "URL")]
    content: Option<node::Location>,
    /// Do without content that is missing or damaged in the backup. With --file, files that are not
    /// whole are left out, and listed.
    #[arg(long)]
    incomplete: bool,
    /// Only say which backups there are.
    #[arg(long, conflicts_with_all = ["data", "file", "backup", "content", "incomplete"])]
    list: bool,
    #[command(flatten)]
    confirm: Confirm,
}

impl Restore {
    /// Restores. Exits with 1 if some content is missing.
    pub fn run(self) -> Result<Answer, Failure> {
        if let (Some(file), Some(to)) = (&self.file, &self.to) {
            return self.extract(file.clone(), to.clone());
        }
        let data = match self.data {
            Some(data) if !self.list => data,
            _ => return list(&self.dir),
        };
        self.confirm.ask(
            "What was done since the backup will not be there, and the servers of now must not be up beside it.",
        )?;
        let order = Restoring {
            dir: self.dir,
            name: self.backup,
            data: data.clone(),
            content: self.content,
            incomplete: self.incomplete,
        };
        let progress = Progress::new();
        let report = backup::restore(&order, &mut |at| progress.say(at))?;
        drop(progress);
        let next = format!("next: leasehold fsck --data {0}, leasehold up --data {0}", data.display());
        Ok(Answer::told(&report, format!("{}{next}", Words(&report)))?.no_if(!report.lost.is_empty()))
    }

    /// Restores one file, or a directory.
    fn extract(&self, file: PathBuf, to: PathBuf) -> Result<Answer, Failure> {
        let (dir, name, incomplete) = (self.dir.clone(), self.backup.clone(), self.incomplete);
        let order = Extracting { dir, name, file, to, incomplete };
        let progress = Progress::new();
        let report = backup::extract(&order, &mut |at| progress.say(at))?;
        drop(progress);
        Ok(Answer::report(&report)?.no_if(!report.lost.is_empty()))
    }
}

/// Lists the backups in `dir`.
fn list(dir: &Path) -> Result<Answer, Failure> {
    let backups = backup::list(dir)?;
    if backups.is_empty() {
        return Err(format!("there is no backup in {}: leasehold backup makes one", dir.display()).into());
    }
    Answer::told(&backups, backups.join("\n"))
}
