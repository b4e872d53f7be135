//! The one table from errors of the file system to the kernel's error numbers.

use lease::NotALabel;
use namespace::Error;

/// A positive error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The error for an answer that makes no sense to the front door.
    pub(crate) const IO: Errno = Errno(libc::EIO);
    /// A node that the kernel was not given, or has forgotten.
    pub(crate) const STALE: Errno = Errno(libc::ESTALE);
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(match error {
            Error::NotFound => libc::ENOENT,
            Error::Exists => libc::EEXIST,
            Error::NotDirectory => libc::ENOTDIR,
            Error::IsDirectory => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::NotPermitted => libc::EPERM,
            Error::AccessDenied => libc::EACCES,
            Error::Invalid => libc::EINVAL,
            Error::TooManyLinks => libc::EMLINK,
            // The kernel looks the path up once more, without its caches, before it shows this to a
            // program.
            Error::Stale | Error::AnotherFile => libc::ESTALE,
            Error::NoAttribute => libc::ENODATA,
            Error::TooBig => libc::EFBIG,
            Error::NotSupported => libc::EOPNOTSUPP,
            Error::SharingViolation => libc::EBUSY,
            Error::DeletePending => libc::ENOENT,
            Error::NoSpace => libc::ENOSPC,
            Error::ReadOnly => libc::EROFS,
            Error::WouldBlock => libc::EAGAIN,
            Error::TooManyLocks => libc::ENOLCK,
            Error::Deadlock => libc::EDEADLK,
            Error::Interrupted => libc::EINTR,
            Error::Damaged | Error::CutOff => libc::EIO,
        })
    }
}

impl Errno {
    /// The error number of an operation on extended attributes, where a size that does not fit has
    /// another number.
    pub(crate) fn of_xattr(error: Error) -> Errno {
        match error {
            Error::TooBig => Errno(libc::E2BIG),
            other => other.into(),
        }
    }
}

impl From<NotALabel> for Errno {
    fn from(not: NotALabel) -> Errno {
        Errno(match not {
            NotALabel::TooLong => libc::ENAMETOOLONG,
            NotALabel::Reserved => libc::EINVAL,
        })
    }
}
