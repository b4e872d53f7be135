//! The reason why a try at a call ends without an answer.

use super::waiting::WaitingFor;
use crate::server::ServerId;
use ident::FileId;
use lease::Lease;
use namespace::{Error, Operation};

/// The reason why a call does not return yet, or its error.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The call is answered with an error.
    Error(Error),
    /// The call is to be tried again after something has happened.
    Need(Need),
}

impl Stop {
    /// The stop of a call that only has to wait.
    pub fn until(event: WaitingFor) -> Stop {
        Stop::Need(Need::Event(event))
    }
}

/// The thing that a call needs before its next try.
#[derive(Debug)]
pub(crate) enum Need {
    /// This event, for which the client makes no request.
    Event(WaitingFor),
    /// Leases come, for the operation as a whole.
    Leases { operation: Box<Operation>, wants: Vec<Lease> },
    /// The page of a directory after position `after` comes.
    Page { dir: FileId, after: u64 },
    /// The server does the operation.
    Ship { operation: Box<Operation> },
    /// Integers of a directory come.
    Integers(FileId),
    /// Inode numbers come from this server.
    Inodes(ServerId),
    /// The allowance at a server grows by these bytes and files. `replaces` if they are for content
    /// that replaces other content.
    Allowance { server: ServerId, bytes: u64, files: u64, replaces: bool },
    /// The server reports how much space there is.
    Space,
    /// The space of replaced content is free, so that the allowance can grow.
    Freed,
    /// Extents or inline content come, from an offset on.
    Extents { file: FileId, from: u64 },
    /// Entries of this server's log up to this one are durable.
    Applied(ServerId, u64),
}
