//! The results of requests.

use namespace::Stat;
use std::time::Duration;

use super::handle::Handle;
use crate::errno::Errno;

/// The result of a request.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// The result of a look for a request, and the way to reply to it. An error is replied at once.
pub(super) fn or_reply<T, U, R: FnOnce(Outcome<U>)>(found: Outcome<T>, reply: R) -> Option<(T, R)> {
    match found {
        Ok(found) => Some((found, reply)),
        Err(errno) => {
            reply(Err(errno));
            None
        }
    }
}

/// Attributes for the kernel, how long they are valid, and how long the asked name is this file's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) stat: Stat,
    /// The kernel's number for the file.
    pub(crate) node: u64,
    pub(crate) ttl: Duration,
    pub(crate) entry_ttl: Duration,
}

impl Shown {
    /// The same with a time-out of 0: the attributes were so, and no lease says that they still
    /// are.
    pub(super) fn uncached(self) -> Shown {
        Shown { ttl: Duration::ZERO, ..self }
    }
}

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum LookedUp {
    /// A file.
    File(Shown),
    /// There is no such name, and the kernel may cache that for so long.
    Missing(Duration),
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) handle: Handle,
    /// Pages of this file in the kernel are still right.
    pub(crate) keep_pages: bool,
}
