//! The errors of backups and restores.

use crate::format;
use data_dir::DataError;
use raft::GroupError;
use raft::RowStoreError;
use std::path::{Path, PathBuf};

/// An error of a backup or restore.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A system call failed.
    #[error("cannot {verb} {file}", file = file.display())]
    Io {
        /// The operation.
        verb: &'static str,
        /// The file concerned.
        file: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The directory does not hold backups.
    #[error("{dir} is not empty and has no backups of leasehold: choose another directory", dir = dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory has the backups of another cluster.
    #[error("{dir} has the backups of another file system: choose another directory", dir = dir.display())]
    OtherCluster {
        /// The directory.
        dir: PathBuf,
    },
    /// Files are at other servers of the directory than the root server.
    #[error(
        "files are at other servers of the directory than server 0, and a backup takes those of one: hand their regions back first (leasehold map, leasehold delegate PATH 0)"
    )]
    SeveralServers,
    /// The server cannot say which data belongs to a backup.
    #[error("{0}")]
    Server(String),
    /// Another process works in the directory.
    #[error("another backup or restore is at work in {dir}", dir = dir.display())]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// The requested backup does not exist.
    #[error("there is no {what} in {dir}: leasehold restore {dir} --list", dir = dir.display())]
    NoBackup {
        /// The backup.
        what: String,
        /// The directory of backups.
        dir: PathBuf,
    },
    /// A newer version wrote the file.
    #[error("{file} has format {found}, this leasehold knows format {known}: use a newer leasehold", file = file.display(), known = format::FORMAT)]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The metadata is encoded in another format than this program's.
    #[error("{file} has metadata of format {found}, this leasehold has format {known}: restore it with the version that made it", file = file.display(), known = raft::FORMAT)]
    Rows {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The file's bytes differ from the written ones.
    #[error("{file} is damaged: {why}", file = file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The damage.
        why: String,
    },
    /// The backup lacks content.
    #[error(
        "{count} shares of the backup are missing or damaged, the first: {first}. Restore another one (--backup NAME), or what there is: --incomplete"
    )]
    Incomplete {
        /// The number of missing shares.
        count: usize,
        /// One of them.
        first: String,
    },
    /// The backup has no such file.
    #[error("there is no {path} in backup {name}: {why}. Another backup may have it: --backup NAME", path = path.display())]
    NoFile {
        /// The requested path.
        path: PathBuf,
        /// The backup's name.
        name: String,
        /// The point at which the path ends.
        why: String,
    },
    /// A file of the backup is incomplete.
    #[error(
        "{path} is not whole in backup {name}: {why}. Take another backup (--backup NAME), or leave out what is not whole: --incomplete", path = path.display()
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// The backup's name.
        name: String,
        /// The fault.
        why: String,
    },
    /// The destination exists already.
    #[error("{to} is there already, and nothing is replaced: choose another name", to = to.display())]
    Exists {
        /// The destination.
        to: PathBuf,
    },
    /// The directory in which files are to be restored does not exist.
    #[error("{dir} is no directory: make it first, or choose another place", dir = dir.display())]
    NoDirectory {
        /// The directory.
        dir: PathBuf,
    },
    /// The place for unfinished files is taken.
    #[error(
        "{dir} is there already: another restore of {to} is at work, or was cut short, and then you can remove that directory", dir = dir.display(), to = to.display()
    )]
    Remains {
        /// The directory.
        dir: PathBuf,
        /// The destination of the restore.
        to: PathBuf,
    },
    /// Other hosts deleted content while it was to be copied.
    #[error("too much was deleted while the backup was made; try again, or on another server")]
    Gone,
    /// This server does not know the other servers' changes.
    #[error("this server does not know what the other servers have done; ask another one, or later")]
    Behind,
    /// This machine has no server.
    #[error("this machine has no server; make backups on one that has: leasehold status says where it is")]
    NoServer,
    /// The machine is stopping.
    #[error("the machine is being stopped; what was copied is kept for the next backup")]
    Stopping,
    /// An error of the data directory.
    #[error(transparent)]
    Data(#[from] DataError),
    /// An error of the rows.
    #[error(transparent)]
    Store(#[from] RowStoreError),
    /// An error of the directory's state.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An error of the share server that is being filled.
    #[error("content cannot be restored")]
    Shares(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl BackupError {
    /// The error for damage to a file's bytes.
    pub(crate) fn damaged(file: &Path, why: impl std::fmt::Display) -> BackupError {
        BackupError::Damaged { file: file.to_path_buf(), why: why.to_string() }
    }
}

/// The error of a system call that should `verb` `file`.
pub(crate) fn io<'a>(
    verb: &'static str,
    file: &'a Path,
) -> impl FnOnce(std::io::Error) -> BackupError + Copy + 'a {
    move |source| BackupError::Io { verb, file: file.to_path_buf(), source }
}
