//! The reasons why a server cannot go on: bytes of the store that make no sense, or a version that
//! its program does not know.

use wire::{Version, Versions};

/// A row that cannot be what this server wrote. It stops the server: a wrong server is worse than a
/// stopped one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {}: {what} cannot be read", key.escape_ascii())]
pub struct Corrupt {
    /// The row's key.
    pub key: Vec<u8>,
    /// The corrupt part.
    pub what: &'static str,
}

impl Corrupt {
    pub(crate) fn at(key: &[u8], what: &'static str) -> Corrupt {
        Corrupt { key: key.to_vec(), what }
    }
}

/// A fault that stops a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A row makes no sense.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The state, or an entry, is of a version that this program does not know.
    #[error("{}", unknown(*version, *known))]
    Version {
        /// The unknown version.
        version: Version,
        /// The versions that the program knows.
        known: Versions,
    },
}

fn unknown(version: Version, known: Versions) -> String {
    if version > known.newest {
        format!(
            "the cluster is at version {version}, and this leasehold knows {known}: install a newer one on this machine"
        )
    } else {
        format!(
            "machines of the cluster may still speak version {version}, and this leasehold knows {known}: go back to the one before, until `leasehold status` names none"
        )
    }
}
