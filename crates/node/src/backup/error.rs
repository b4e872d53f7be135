//! Why there is no backup, or nothing is restored.

use super::format;
use crate::data::DataError;
use raft::GroupError;
use raft::StoreError;
use std::path::{Path, PathBuf};

/// Why there is no backup, or nothing is restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The system refused.
    #[error("cannot {verb} {file}", file = file.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On what.
        file: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It is no directory for backups.
    #[error("{dir} is not empty and has no backups of leasehold: choose another directory", dir = dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// It has the backups of another cluster.
    #[error("{dir} has the backups of another file system: choose another directory", dir = dir.display())]
    OtherCluster {
        /// The directory.
        dir: PathBuf,
    },
    /// The server cannot say what belongs to a backup.
    #[error("{0}")]
    Server(String),
    /// Somebody else is at it.
    #[error("another backup or restore is at work in {dir}", dir = dir.display())]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no such backup.
    #[error("there is no {what} in {dir}: leasehold restore {dir} --list", dir = dir.display())]
    NoBackup {
        /// Which.
        what: String,
        /// Where.
        dir: PathBuf,
    },
    /// Written by a newer version.
    #[error("{file} has format {found}, this leasehold knows format {known}: use a newer leasehold", file = file.display(), known = format::FORMAT)]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The metadata in it is encoded otherwise than here.
    #[error("{file} has metadata of format {found}, this leasehold has format {known}: restore it with the version that made it", file = file.display(), known = raft::FORMAT)]
    Rows {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It is not what was written.
    #[error("{file} is damaged: {why}", file = file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Content is missing in the backup.
    #[error(
        "{count} shares of the backup are missing or damaged, the first: {first}. Restore another one (--backup NAME), or what there is: --incomplete"
    )]
    Incomplete {
        /// How many shares.
        count: usize,
        /// One of them.
        first: String,
    },
    /// There is no such file in the backup.
    #[error("there is no {path} in backup {name}: {why}. Another backup may have it: --backup NAME", path = path.display())]
    NoFile {
        /// Which.
        path: PathBuf,
        /// The backup's name.
        name: String,
        /// How far the path leads.
        why: String,
    },
    /// A file of the backup is not whole.
    #[error(
        "{path} is not whole in backup {name}: {why}. Take another backup (--backup NAME), or leave out what is not whole: --incomplete", path = path.display()
    )]
    Lost {
        /// Which file.
        path: PathBuf,
        /// The backup's name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Something is where files are to be restored.
    #[error("{to} is there already, and nothing is replaced: choose another name", to = to.display())]
    Exists {
        /// Where.
        to: PathBuf,
    },
    /// There is no directory in which files could be restored.
    #[error("{dir} is no directory: make it first, or choose another place", dir = dir.display())]
    NoDirectory {
        /// Which.
        dir: PathBuf,
    },
    /// Something is where files are made before they have their name.
    #[error(
        "{dir} is there already: another restore of {to} is at work, or was cut short, and then you can remove that directory", dir = dir.display(), to = to.display()
    )]
    Remains {
        /// The directory.
        dir: PathBuf,
        /// What is to be restored.
        to: PathBuf,
    },
    /// Content was deleted everywhere while it was to be copied.
    #[error("too much was deleted while the backup was made; try again, or on another server")]
    Gone,
    /// What the others have done this server does not know.
    #[error("this server does not know what the other servers have done; ask another one, or later")]
    Behind,
    /// This machine has no server.
    #[error("this machine has no server; make backups on one that has: leasehold status says where it is")]
    NoServer,
    /// The machine ends.
    #[error("the machine is being stopped; what was copied is kept for the next backup")]
    Stopping,
    /// The data directory.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The rows.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory's state.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The share server that is being filled.
    #[error("content cannot be restored")]
    Shares(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl BackupError {
    /// What is wrong with a file's bytes.
    pub(super) fn damaged(file: &Path, why: impl std::fmt::Display) -> BackupError {
        BackupError::Damaged { file: file.to_path_buf(), why: why.to_string() }
    }
}

/// The system refused to `verb` `file`.
pub(super) fn io<'a>(
    verb: &'static str,
    file: &'a Path,
) -> impl FnOnce(std::io::Error) -> BackupError + Copy + 'a {
    move |source| BackupError::Io { verb, file: file.to_path_buf(), source }
}
