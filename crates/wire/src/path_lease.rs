//! The messages between servers about path leases (Farsite §4.3).

use crate::JointAge;
use ident::{FileId, ServerId};
use serde::{Deserialize, Serialize};

/// About the path lease on a directory: the identifiers of all directories above it, which do not
/// change as long as the lease is held. The directory's server issues the lease to a server that
/// has children of the directory, or wants to put some there.
///
/// The server that asks says `Ask` again until an answer has come, and the issuer says `Recall`
/// again until `Released` has. Any message may come twice, late, or in another order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathLease {
    /// The directory.
    pub dir: FileId,
    /// The asking server's number for its question, and so for the lease. No two questions of a
    /// server have the same. A lease that was released never comes back under its number.
    pub number: u64,
    /// The message.
    pub step: PathStep,
}

/// A step in the life of a path lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathStep {
    /// Issue the lease. The asker has given up every lease on the directory with a lesser number.
    Ask {
        /// The age of the oldest joint operation that waits for the lease, if any does.
        age: Option<JointAge>,
    },
    /// Answers `Ask`: the lease is issued.
    Issued {
        /// The directories above, the nearest first. The last is the root.
        above: Vec<FileId>,
    },
    /// Answers `Ask`: the directory has no name, or is gone for ever.
    Gone,
    /// Answers `Ask`: another server manages the directory, as far as this one knows.
    NotHere {
        /// The other server.
        server: ServerId,
    },
    /// From the issuer: give the lease back, and all that were issued on it first.
    Recall,
    /// The lease is given up for ever.
    Released,
}
