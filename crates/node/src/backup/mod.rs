//! Backups: the whole file system as it was at one moment, in a directory, made while it is used;
//! and the way back.
//!
//! A backup is the rows of the directory after exactly one log entry, in a file of its own, and the
//! shares that these refer to. Shares never change and their names are never used twice, so all
//! backups in a directory have them in common: a backup copies those that are not there yet.
//! Nothing is believed without its hash ([`mod@format`]), and a backup has its name only when all
//! that it refers to is durable. Single files are had from it, too.

mod archive;
mod error;
mod extracting;
mod format;
mod made;
mod making;
mod name;
mod restoring;
mod schedule;
#[cfg(test)]
pub(crate) mod tests;
mod tree;

pub use error::BackupError;
pub use extracting::{ExtractReport, Extracting, extract};
pub(crate) use making::run;
pub use restoring::{RestoreReport, Restoring, list, restore};
pub use schedule::BackupSchedule;

use crate::figures::size;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A backup that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupOrder {
    /// Where backups are kept.
    pub dir: PathBuf,
    /// How many; the latest of them. All if absent.
    pub keep: Option<usize>,
}

/// What a backup came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReport {
    /// Its name: when it was made, UTC.
    pub name: String,
    /// Files that there were.
    pub files: u64,
    /// Bytes of its own: rows of the directory.
    pub row_bytes: u64,
    /// Shares that it refers to.
    pub shares: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Shares that were not there before.
    pub new_shares: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Older backups that were removed.
    pub removed: usize,
    /// Shares that were removed since no backup refers to them any more.
    pub removed_shares: u64,
    /// What it took, ms.
    pub ms: u64,
    /// What could not be had, in words.
    pub faults: Vec<String>,
}

impl fmt::Display for BackupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BackupReport { name, files, row_bytes, shares, bytes, new_shares, new_bytes, .. } = self;
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        write!(
            f,
            "{name}: {files} files, {} of metadata, {shares} shares with {}, of which {new_shares} with {} are new; {:.1} s",
            size(*row_bytes),
            size(*bytes),
            size(*new_bytes),
            self.ms as f64 / 1e3
        )?;
        if self.removed > 0 {
            write!(f, "; {} older ones removed, and {} shares", self.removed, self.removed_shares)?;
        }
        if !self.faults.is_empty() {
            write!(f, "; INCOMPLETE: {} shares could not be had", self.faults.len())?;
        }
        writeln!(f)
    }
}
