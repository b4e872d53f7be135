//! The store's refusals, as NTSTATUS.

use crate::wire::NtStatus;
use objects::{AcknowledgeError, StoreError};

impl From<StoreError> for NtStatus {
    fn from(error: StoreError) -> NtStatus {
        match error {
            StoreError::NotFound => NtStatus::OBJECT_NAME_NOT_FOUND,
            StoreError::PathNotFound => NtStatus::OBJECT_PATH_NOT_FOUND,
            StoreError::InvalidName => NtStatus::OBJECT_NAME_INVALID,
            StoreError::LeavesShare => NtStatus::OBJECT_PATH_SYNTAX_BAD,
            StoreError::StoppedOnLink => NtStatus::STOPPED_ON_SYMLINK,
            StoreError::NameCollision => NtStatus::OBJECT_NAME_COLLISION,
            StoreError::IsDirectory => NtStatus::FILE_IS_A_DIRECTORY,
            StoreError::NotDirectory => NtStatus::NOT_A_DIRECTORY,
            StoreError::NotLink => NtStatus::NOT_A_REPARSE_POINT,
            StoreError::NotEmpty => NtStatus::DIRECTORY_NOT_EMPTY,
            StoreError::AccessDenied => NtStatus::ACCESS_DENIED,
            StoreError::SharingViolation => NtStatus::SHARING_VIOLATION,
            StoreError::NotAvailable => NtStatus::FILE_NOT_AVAILABLE,
            StoreError::DeletePending => NtStatus::DELETE_PENDING,
            StoreError::CannotDelete => NtStatus::CANNOT_DELETE,
            StoreError::Invalid => NtStatus::INVALID_PARAMETER,
            StoreError::NotSupported => NtStatus::NOT_SUPPORTED,
            StoreError::NoSuchFile => NtStatus::NO_SUCH_FILE,
            StoreError::NoMoreFiles => NtStatus::NO_MORE_FILES,
            StoreError::EndOfFile => NtStatus::END_OF_FILE,
            StoreError::LockNotGranted => NtStatus::LOCK_NOT_GRANTED,
            StoreError::RangeNotLocked => NtStatus::RANGE_NOT_LOCKED,
            StoreError::FileLockConflict => NtStatus::FILE_LOCK_CONFLICT,
            StoreError::InvalidLockRange => NtStatus::INVALID_LOCK_RANGE,
            StoreError::DiskFull => NtStatus::DISK_FULL,
            StoreError::TooManyLinks => NtStatus::TOO_MANY_LINKS,
            StoreError::Closed => NtStatus::FILE_CLOSED,
            StoreError::ReadOnly => NtStatus::MEDIA_WRITE_PROTECTED,
            StoreError::NoAttribute => NtStatus::NONEXISTENT_EA_ENTRY,
            StoreError::TooBig => NtStatus::EA_TOO_LARGE,
            StoreError::TooMany => NtStatus::INSUFFICIENT_RESOURCES,
            StoreError::Damaged => NtStatus::FILE_CORRUPT_ERROR,
            StoreError::CutOff => NtStatus::CONNECTION_DISCONNECTED,
            StoreError::Cancelled => NtStatus::CANCELLED,
            StoreError::NotSameDevice => NtStatus::NOT_SAME_DEVICE,
            StoreError::PrivilegeNotHeld => NtStatus::PRIVILEGE_NOT_HELD,
        }
    }
}

impl From<AcknowledgeError> for NtStatus {
    fn from(error: AcknowledgeError) -> NtStatus {
        match error {
            AcknowledgeError::Unknown => NtStatus::OBJECT_NAME_NOT_FOUND,
            AcknowledgeError::NotBreaking => NtStatus::UNSUCCESSFUL,
            AcknowledgeError::MoreThanTold { .. } => NtStatus::REQUEST_NOT_ACCEPTED,
        }
    }
}
