//! Why a data directory cannot be used.

use crate::FORMAT;
use std::path::{Path, PathBuf};

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Another process holds the directory.
    #[error("{dir} is in use by {holder}; stop that one first, or choose another directory with --data")]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The text of its lock file.
        holder: String,
    },
    /// A newer version has written the directory.
    #[error("{dir} has format {found}, this leasehold knows format {FORMAT}: use a newer leasehold")]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The directory is no data directory, and not empty.
    #[error("{dir} is not empty and not a leasehold data directory: choose another with --data")]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory belongs to a machine already.
    #[error(
        "{dir} is a machine's data directory already: choose another with --data, or leave its cluster first (leasehold leave)"
    )]
    Joined {
        /// The directory.
        dir: PathBuf,
    },
    /// A restore into the directory was cut short.
    #[error("a restore into {dir} has not ended: run it again, or remove the directory")]
    Restoring {
        /// The directory.
        dir: PathBuf,
    },
    /// The machine of the directory ends.
    #[error("nothing is written to {dir} any more, because the machine ends")]
    Ends {
        /// The directory.
        dir: PathBuf,
    },
    /// No salvage has this number.
    #[error("nothing is kept by number {number}: leasehold salvage list says what is")]
    NoSalvage {
        /// The number.
        number: u64,
    },
    /// Salvage is not written over another file.
    #[error("{file} is there already, and is left alone: write to an empty directory with --to")]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// A file of the directory does not parse.
    #[error("{file} is damaged: {why}")]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The fault.
        why: String,
    },
    /// A file differs from its checksum, and so does its copy.
    #[error(
        "{file} is damaged, and so is its copy in copies/: put the file back from elsewhere (a backup of the data directory), or have this machine join anew with another data directory"
    )]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// The directory lacks a part that it had before.
    #[error(
        "{dir} lacks {what}, which it had before: mount or put back what is missing, and start again. If that is gone for good, restore the latest backup into another directory (leasehold restore), or have this machine join anew with another data directory; of shares that other servers have, too, a server makes its own anew if it is started with --accept-older-state"
    )]
    Missing {
        /// The directory.
        dir: PathBuf,
        /// The missing part.
        what: String,
    },
    /// The operating system refused an operation.
    #[error("cannot {verb} {file}")]
    Io {
        /// The operation.
        verb: &'static str,
        /// The operation's file.
        file: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// The error of a directory that lacks `what`, which it had before.
pub fn missing(dir: &Path, what: &str) -> DataError {
    DataError::Missing { dir: dir.to_path_buf(), what: what.to_owned() }
}

/// Wraps the system's error of an operation on `file`.
pub fn io<'a>(verb: &'static str, file: &'a Path) -> impl FnOnce(std::io::Error) -> DataError + 'a {
    move |source| DataError::Io { verb, file: file.to_path_buf(), source }
}
