//! Backups: the whole file system as it was at one moment, in a directory. A backup is made while
//! the file system is in use, and can be restored.
//!
//! A backup consists of the rows of the directory after exactly one log entry, in a file of its
//! own, and of the shares to which these refer. Shares never change and their names are never
//! reused, so all backups in a directory have them in common. A backup copies only the shares that
//! are not there yet. No byte is believed without its hash (`backup::format`). A backup gets its
//! name only when everything to which it refers is durable. Single files can be extracted, too.
//!
//! The crate takes what it backs up from a [`Source`]. It cannot reach the machine, nor connections
//! but those to other hosts of shares.

mod archive;
mod error;
mod extracting;
mod format;
pub mod hash_chain;
mod made;
mod making;
mod name;
mod progress;
mod restoring;
mod schedule;
mod tree;

pub use archive::Archive;
pub use error::BackupError;
pub use extracting::{ExtractReport, Extracting, LostFile, SkippedParts, extract};
pub use made::FilePart;
pub use making::{Source, run};
pub use progress::{BackupProgress, RestoreProgress};
pub use restoring::{RestoreReport, Restoring, list, restore};
pub use schedule::BackupSchedule;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An order for a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupOrder {
    /// The directory of backups.
    pub dir: PathBuf,
    /// The number of the latest backups to keep. All if absent.
    pub keep: Option<usize>,
}

/// The result of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReport {
    /// Its name: the time when it was made, UTC.
    pub name: String,
    /// The number of files.
    pub files: u64,
    /// The bytes of its own file: rows of the directory.
    pub row_bytes: u64,
    /// The number of shares to which it refers.
    pub shares: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of shares copied anew.
    pub new_shares: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// The number of older backups removed.
    pub removed: usize,
    /// The number of shares removed because no backup refers to them any more.
    pub removed_shares: u64,
    /// The time taken, in ms.
    pub ms: u64,
    /// Shares that could not be copied.
    pub faults: Vec<UncopiedShare>,
}

/// A share that could not be copied into a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncopiedShare {
    /// The share.
    pub share: String,
    /// The error.
    pub why: String,
}
