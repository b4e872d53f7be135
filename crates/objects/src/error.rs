//! The reasons why the store refuses.

use namespace::Error;

/// A refusal of the store. Each stands for one NTSTATUS, which its line names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StoreError {
    /// STATUS_OBJECT_NAME_NOT_FOUND.
    #[error("no such file")]
    NotFound,
    /// STATUS_OBJECT_PATH_NOT_FOUND.
    #[error("no such directory on the way to the file")]
    PathNotFound,
    /// STATUS_OBJECT_NAME_INVALID.
    #[error("the name has a character, a length or a form that no name has")]
    InvalidName,
    /// STATUS_OBJECT_PATH_SYNTAX_BAD: the path leaves the share.
    #[error("the path leads out of the share")]
    LeavesShare,
    /// STATUS_STOPPED_ON_SYMLINK: a symbolic link leads out of the share, or there are too many.
    #[error("a symbolic link leads out of the share")]
    StoppedOnLink,
    /// STATUS_OBJECT_NAME_COLLISION.
    #[error("the name exists already")]
    NameCollision,
    /// STATUS_FILE_IS_A_DIRECTORY.
    #[error("the name is a directory's, and a file is wanted")]
    IsDirectory,
    /// STATUS_NOT_A_DIRECTORY.
    #[error("the name is a file's, and a directory is wanted")]
    NotDirectory,
    /// STATUS_NOT_A_REPARSE_POINT.
    #[error("the file is no symbolic link")]
    NotLink,
    /// STATUS_DIRECTORY_NOT_EMPTY.
    #[error("the directory has children")]
    NotEmpty,
    /// STATUS_ACCESS_DENIED.
    #[error("the user or the open may not do this")]
    AccessDenied,
    /// STATUS_SHARING_VIOLATION.
    #[error("another open excludes this one, or the other way round")]
    SharingViolation,
    /// STATUS_FILE_NOT_AVAILABLE: a client that has the file open is away, and is waited for.
    #[error("a client has the file open that has lost its connection; try again when it is back")]
    NotAvailable,
    /// STATUS_DELETE_PENDING.
    #[error("the file is about to be deleted")]
    DeletePending,
    /// STATUS_CANNOT_DELETE.
    #[error("the file is read-only, or cannot be deleted for another reason")]
    CannotDelete,
    /// STATUS_INVALID_PARAMETER.
    #[error("the parameters do not go together")]
    Invalid,
    /// STATUS_NOT_SUPPORTED.
    #[error("not supported for this kind of file")]
    NotSupported,
    /// STATUS_NO_SUCH_FILE: the first query of a directory with this pattern found nothing.
    #[error("no file of the directory matches the pattern")]
    NoSuchFile,
    /// STATUS_NO_MORE_FILES.
    #[error("the listing is at its end")]
    NoMoreFiles,
    /// STATUS_END_OF_FILE.
    #[error("nothing to read at or behind the end of the file")]
    EndOfFile,
    /// STATUS_LOCK_NOT_GRANTED.
    #[error("another lock is on the range")]
    LockNotGranted,
    /// STATUS_RANGE_NOT_LOCKED.
    #[error("the open has no lock on exactly this range")]
    RangeNotLocked,
    /// STATUS_FILE_LOCK_CONFLICT: a read or write of a range that another has locked.
    #[error("another open has locked bytes of the range")]
    FileLockConflict,
    /// STATUS_INVALID_LOCK_RANGE.
    #[error("the range to lock goes beyond 2^64")]
    InvalidLockRange,
    /// STATUS_DISK_FULL.
    #[error("no space is left")]
    DiskFull,
    /// STATUS_TOO_MANY_LINKS.
    #[error("the file has as many names as a file can have")]
    TooManyLinks,
    /// STATUS_FILE_CLOSED.
    #[error("the open was closed, or its file is gone")]
    Closed,
    /// STATUS_MEDIA_WRITE_PROTECTED.
    #[error("the machine or the share may only read")]
    ReadOnly,
    /// STATUS_NO_EAS_ON_FILE, STATUS_NONEXISTENT_EA_ENTRY.
    #[error("no such extended attribute")]
    NoAttribute,
    /// STATUS_EA_TOO_LARGE, STATUS_FILE_TOO_LARGE.
    #[error("larger than it can be")]
    TooBig,
    /// STATUS_INSUFFICIENT_RESOURCES.
    #[error("the file has as many locks, or the store as many opens, as there can be")]
    TooMany,
    /// STATUS_FILE_CORRUPT_ERROR.
    #[error("content is missing or damaged")]
    Damaged,
    /// STATUS_CONNECTION_DISCONNECTED: the machine is cut off from its servers.
    #[error("the machine is cut off from the servers")]
    CutOff,
    /// STATUS_CANCELLED.
    #[error("the caller does not wait any longer")]
    Cancelled,
    /// STATUS_NOT_SAME_DEVICE.
    #[error("the target is in another share")]
    NotSameDevice,
    /// STATUS_PRIVILEGE_NOT_HELD.
    #[error("nobody holds the privilege that ACCESS_SYSTEM_SECURITY needs")]
    PrivilegeNotHeld,
}

impl From<Error> for StoreError {
    fn from(error: Error) -> StoreError {
        match error {
            Error::NotFound | Error::AnotherFile => StoreError::NotFound,
            Error::Exists => StoreError::NameCollision,
            Error::NotDirectory => StoreError::NotDirectory,
            Error::IsDirectory => StoreError::IsDirectory,
            Error::NotEmpty => StoreError::NotEmpty,
            Error::NotPermitted | Error::AccessDenied => StoreError::AccessDenied,
            Error::Invalid => StoreError::Invalid,
            Error::TooManyLinks => StoreError::TooManyLinks,
            Error::Stale => StoreError::Closed,
            Error::SharingViolation => StoreError::SharingViolation,
            Error::DeletePending => StoreError::DeletePending,
            Error::NoAttribute => StoreError::NoAttribute,
            Error::TooBig => StoreError::TooBig,
            Error::NotSupported => StoreError::NotSupported,
            Error::NoSpace => StoreError::DiskFull,
            Error::Damaged => StoreError::Damaged,
            Error::CutOff => StoreError::CutOff,
            Error::ReadOnly => StoreError::ReadOnly,
            Error::WouldBlock => StoreError::LockNotGranted,
            Error::TooManyLocks => StoreError::TooMany,
            Error::Deadlock => StoreError::LockNotGranted,
            Error::Interrupted => StoreError::Cancelled,
        }
    }
}
