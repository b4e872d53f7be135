//! What each operation can fail with: what was being done, to which thing, and why.

use std::{io, path::PathBuf, sync::Arc};

use namespace::ShareId;
use thiserror::Error;

use crate::{header::HeaderError, share::file_name};

/// The lease database could not do something.
#[derive(Clone, Debug, Error)]
pub enum DatabaseError {
    /// SQLite says no.
    #[error("lease database: {doing}: {cause}")]
    Sql {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        cause: Arc<rusqlite::Error>,
    },
    /// A row or page is not what was written. Nothing is deleted any more; the database is made
    /// anew at the next start.
    #[error("lease database: {doing}: it is damaged ({cause}); start the server anew, which rebuilds it")]
    Corrupt {
        /// What was being done.
        doing: &'static str,
        /// How it shows.
        cause: Arc<rusqlite::Error>,
    },
    /// There is no such account, or no more.
    #[error("lease database: {doing}: there is no such account")]
    NoAccount {
        /// What was being done.
        doing: &'static str,
    },
    /// No room for the database to grow.
    #[error("lease database: {doing}: the disk is full; make room there")]
    Full {
        /// What was being done.
        doing: &'static str,
    },
    /// The writing thread is gone, since the server is being closed or its disk is.
    #[error("lease database: {doing}: it is closed")]
    Closed {
        /// What was being done.
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
        // Columns have types: what is of another one, or out of range, nobody of ours has written.
        // A broken seal is a conversion that failed.
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

/// The disk could not do something.
#[derive(Clone, Debug, Error)]
#[error("{doing} {path}: {cause}")]
pub struct DiskError {
    /// What was being done.
    pub doing: &'static str,
    /// To which file or directory.
    pub path: PathBuf,
    /// Why not.
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
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The database refused.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Another process has it open.
    #[error("another process serves the shares in {0}")]
    InUse(PathBuf),
    /// A later program has been here.
    #[error(
        "{what} in {dir} is of format version {found}; this program knows versions up to {known}: use a newer one"
    )]
    Newer {
        /// The file.
        what: &'static str,
        /// Where.
        dir: PathBuf,
        /// Its version.
        found: u64,
        /// Ours.
        known: u64,
    },
    /// Something else is there.
    #[error("{path} is not what a share server keeps there")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The shares of this directory are kept where it was said first.
    #[error(
        "the shares are kept in {kept}, and cannot be moved to {wanted}; start without it, or on another data directory"
    )]
    Elsewhere {
        /// Where they are.
        kept: String,
        /// Where they were to be now.
        wanted: String,
    },
    /// Another directory keeps its shares there.
    #[error(
        "the objects at {location} belong to another share server; give each a prefix of its own (if that one is lost, delete the object `store` there to take its shares over)"
    )]
    Taken {
        /// Where.
        location: String,
    },
    /// What the environment says of the object store is wrong.
    #[error("the object store for {location}: {why}")]
    Objects {
        /// Where.
        location: String,
        /// What is wrong.
        why: String,
    },
    /// No thread could be started.
    #[error("starting a thread of the share server: {0}")]
    Thread(#[source] io::Error),
}

/// Shares could not be stored. None of those asked for counts as stored; what was written is being
/// removed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// No room. Nothing is left behind.
    #[error("the disk is full")]
    Full,
    /// The disk refused.
    #[error(transparent)]
    Disk(DiskError),
    /// The database refused.
    #[error(transparent)]
    Database(DatabaseError),
    /// One of the shares may not be stored now.
    #[error("share {} {why}", file_name(share))]
    Refused {
        /// Which.
        share: ShareId,
        /// Why.
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

/// Why a share may not be stored now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Another upload of it is under way: retry later.
    #[error("is being uploaded already")]
    Coming,
    /// Its deletion is under way: retry later.
    #[error("is being deleted")]
    Going,
    /// Its name is taken by other bytes: shares are immutable.
    #[error("exists with other content")]
    Different,
    /// The account would hold more than it may: let go of something first.
    #[error("is more than the account's quota allows")]
    Quota,
    /// More than a share can hold.
    #[error("has a body of more than 4 GiB")]
    TooLong,
}

/// A share could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// There is no such share (or it is not completely there yet).
    #[error("there is no share {}", file_name(.0))]
    NotFound(ShareId),
    /// Its deletion is under way.
    #[error("share {} is being deleted", file_name(.0))]
    Going(ShareId),
    /// It was stored, but its bytes are lost or wrong.
    #[error("share {} is damaged: {damage}", file_name(share))]
    Damaged {
        /// Which.
        share: ShareId,
        /// How.
        damage: Damage,
    },
    /// It has fewer bytes than that.
    #[error("bytes {at}..{at}+{length} of share {}, which has {of}", file_name(share))]
    Beyond {
        /// Which.
        share: ShareId,
        /// First byte asked for.
        at: u32,
        /// How many.
        length: u32,
        /// How many it has.
        of: u32,
    },
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The database refused.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// How a share is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// The file is gone.
    #[error("its file is gone")]
    Missing,
    /// The header is not one.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The header is that of another share.
    #[error("its file holds another share")]
    Stranger,
    /// The file is shorter or longer than its header says.
    #[error("its file has the wrong length")]
    Length,
    /// The body is not what was stored.
    #[error("its body does not have the digest that it was stored with")]
    Digest,
    /// The disk has it, and cannot read it.
    #[error("the disk cannot read its file")]
    Unreadable,
    /// Found damaged earlier.
    #[error("it is in quarantine")]
    Quarantined,
}

/// The reaper could not go on; it will try again.
#[derive(Debug, Error)]
pub enum ReapError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The database refused.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}
