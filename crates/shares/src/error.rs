//! The errors of each operation: the action, its object and the cause.

use std::{io, path::PathBuf, sync::Arc};

use namespace::ShareId;
use thiserror::Error;

use crate::{header::HeaderError, share::file_name};

/// An error of the lease database.
#[derive(Clone, Debug, Error)]
pub enum DatabaseError {
    /// SQLite reports an error.
    #[error("lease database: {doing}: {cause}")]
    Sql {
        /// The operation.
        doing: &'static str,
        /// The cause.
        cause: Arc<rusqlite::Error>,
    },
    /// A row or page does not have the bytes that were written. Deletion stops, and the next start
    /// rebuilds the database.
    #[error("lease database: {doing}: it is damaged ({cause}); start the server anew, which rebuilds it")]
    Corrupt {
        /// The operation.
        doing: &'static str,
        /// The symptom.
        cause: Arc<rusqlite::Error>,
    },
    /// The account does not exist, or not any more.
    #[error("lease database: {doing}: there is no such account")]
    NoAccount {
        /// The operation.
        doing: &'static str,
    },
    /// The disk has no room for the database to grow.
    #[error("lease database: {doing}: the disk is full; make room there")]
    Full {
        /// The operation.
        doing: &'static str,
    },
    /// The writing thread has ended: the server is being closed, or its disk is.
    #[error("lease database: {doing}: it is closed")]
    Closed {
        /// The operation.
        doing: &'static str,
    },
}

impl DatabaseError {
    pub(crate) fn new(doing: &'static str, cause: rusqlite::Error) -> DatabaseError {
        DatabaseError::shared(doing, Arc::new(cause))
    }

    pub(crate) fn shared(doing: &'static str, cause: Arc<rusqlite::Error>) -> DatabaseError {
        match &*cause {
            rusqlite::Error::QueryReturnedNoRows => DatabaseError::NoAccount { doing },
            error if DatabaseError::says_full(error) => DatabaseError::Full { doing },
            error if DatabaseError::says_corrupt(error) => DatabaseError::Corrupt { doing, cause },
            _ => DatabaseError::Sql { doing, cause },
        }
    }

    fn says_full(cause: &rusqlite::Error) -> bool {
        let no_room_to_share_memory = rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
        cause.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
            || cause.sqlite_error().is_some_and(|error| error.extended_code == no_room_to_share_memory)
    }

    pub(crate) fn says_corrupt(cause: &rusqlite::Error) -> bool {
        use rusqlite::{
            Error,
            ErrorCode::{DatabaseCorrupt, NotADatabase},
        };
        // Columns have types. A value of another type, or out of range, was not written by this
        // program. A broken seal appears as a failed conversion.
        let strange = matches!(
            cause,
            Error::FromSqlConversionFailure(..)
                | Error::IntegralValueOutOfRange(..)
                | Error::InvalidColumnType(..)
                | Error::InvalidQuery
        );
        strange || matches!(cause.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
    }
}

/// An error of the disk.
#[derive(Clone, Debug, Error)]
#[error("{doing} {path}: {cause}")]
pub struct DiskError {
    /// The operation.
    pub doing: &'static str,
    /// The file or directory concerned.
    pub path: PathBuf,
    /// The cause.
    pub cause: Arc<io::Error>,
}

impl DiskError {
    pub(crate) fn new(doing: &'static str, path: impl Into<PathBuf>, cause: io::Error) -> DiskError {
        DiskError { doing, path: path.into(), cause: Arc::new(cause) }
    }

    pub(crate) fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self.cause.kind(), StorageFull | QuotaExceeded)
    }

    pub(crate) fn is_absence(&self) -> bool {
        self.cause.kind() == io::ErrorKind::NotFound
    }
}

/// The server could not be opened. No share was touched.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A disk error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A database error.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Another process has the directory open.
    #[error("another process serves the shares in {0}")]
    InUse(PathBuf),
    /// A newer version of the program has written here.
    #[error(
        "{what} in {dir} is of format version {found}; this program knows versions up to {known}: use a newer one"
    )]
    Newer {
        /// The file.
        what: &'static str,
        /// The directory.
        dir: PathBuf,
        /// The version found.
        found: u64,
        /// The newest version that this program knows.
        known: u64,
    },
    /// A file of another kind stands in the place.
    #[error("{path} is not what a share server keeps there")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The directory's shares are kept at the place that was set first.
    #[error(
        "the shares are kept in {kept}, and cannot be moved to {wanted}; start without it, or on another data directory"
    )]
    Elsewhere {
        /// The recorded place.
        kept: String,
        /// The place requested now.
        wanted: String,
    },
    /// Another directory keeps its shares at this place.
    #[error(
        "the objects at {location} belong to another share server; give each a prefix of its own (if that one is lost, delete the object `store` there to take its shares over)"
    )]
    Taken {
        /// The place.
        location: String,
    },
    /// The environment's settings for the object store are wrong.
    #[error("the object store for {location}: {why}")]
    Objects {
        /// The place.
        location: String,
        /// The fault.
        why: String,
    },
    /// No thread could be started.
    #[error("starting a thread of the share server: {0}")]
    Thread(#[source] io::Error),
}

/// An upload failed. None of its shares counts as stored; the files written so far are being
/// removed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The disk is full. Nothing is left behind.
    #[error("the disk is full")]
    Full,
    /// A disk error.
    #[error(transparent)]
    Disk(DiskError),
    /// A database error.
    #[error(transparent)]
    Database(DatabaseError),
    /// One of the shares may not be stored now.
    #[error("share {} {why}", file_name(share))]
    Refused {
        /// The share.
        share: ShareId,
        /// The reason.
        why: Refusal,
    },
}

impl From<DiskError> for StoreError {
    fn from(error: DiskError) -> StoreError {
        if error.is_full() { StoreError::Full } else { StoreError::Disk(error) }
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> StoreError {
        match error {
            DatabaseError::Full { .. } => StoreError::Full,
            other => StoreError::Database(other),
        }
    }
}

/// A reason why a share may not be stored now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Another upload of it is under way: retry later.
    #[error("is being uploaded already")]
    Coming,
    /// Its deletion is under way: retry later.
    #[error("is being deleted")]
    Going,
    /// The name belongs to a share with other bytes: shares are immutable.
    #[error("exists with other content")]
    Different,
    /// The account would exceed its quota. It must release something first.
    #[error("is more than the account's quota allows")]
    Quota,
    /// The body is larger than a share can hold.
    #[error("has a body of more than 4 GiB")]
    TooLong,
}

/// A share could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The share does not exist, or is not complete yet.
    #[error("there is no share {}", file_name(.0))]
    NotFound(ShareId),
    /// Its deletion is under way.
    #[error("share {} is being deleted", file_name(.0))]
    Going(ShareId),
    /// The share was stored, but its bytes are lost or wrong.
    #[error("share {} is damaged: {damage}", file_name(share))]
    Damaged {
        /// The share.
        share: ShareId,
        /// The damage.
        damage: Damage,
    },
    /// The range ends beyond the share's body.
    #[error("bytes {at}..{at}+{length} of share {}, which has {of}", file_name(share))]
    Beyond {
        /// The share.
        share: ShareId,
        /// The first byte requested.
        at: u32,
        /// The number of bytes requested.
        length: u32,
        /// The number of bytes in the body.
        of: u32,
    },
    /// A disk error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A database error.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// The kinds of damage to a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// The file is gone.
    #[error("its file is gone")]
    Missing,
    /// The header is invalid.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The header belongs to another share.
    #[error("its file holds another share")]
    Stranger,
    /// The file is shorter or longer than its header says.
    #[error("its file has the wrong length")]
    Length,
    /// The body differs from the stored one.
    #[error("its body does not have the digest that it was stored with")]
    Digest,
    /// The disk has the file and cannot read it.
    #[error("the disk cannot read its file")]
    Unreadable,
    /// The share was found damaged earlier.
    #[error("it is in quarantine")]
    Quarantined,
}

/// The reaper was interrupted by an error. It tries again.
#[derive(Debug, Error)]
pub enum ReapError {
    /// A disk error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A database error.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}
