//! The versions in use.

use crate::Fault;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{MachineId, Version, Versions};

/// The versions in use. The cluster's comes first: a program that does not know it reads no
/// further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InUse {
    /// The cluster's version.
    pub version: Version,
    /// The oldest that a session may speak.
    pub oldest: Version,
    /// The version that each machine spoke last, as long as some may speak an older version than
    /// the cluster's. Machines not heard of since the raise may still speak the oldest.
    pub machines: BTreeMap<MachineId, Version>,
    /// The oldest that a session of the root server may speak, as far as this server knows. It may
    /// be later than `oldest` at another server, and even than that one's `version`.
    pub oldest_at_root: Version,
}

impl InUse {
    /// The versions in use in a new cluster of `version`.
    pub fn of(version: Version) -> InUse {
        InUse { version, oldest: version, machines: BTreeMap::new(), oldest_at_root: version }
    }

    /// No older version than the cluster's is spoken any more.
    pub fn drop_last(&mut self) {
        let oldest_at_root = self.oldest_at_root.max(self.version);
        *self = InUse { oldest_at_root, ..InUse::of(self.version) };
    }

    /// Whether an older version than the cluster's may be spoken.
    pub fn are_two(&self) -> bool {
        self.oldest < self.version
    }
}

/// Checks that a program knows `version`.
pub(crate) fn known_to(known: Versions, version: Version) -> Result<(), Fault> {
    if known.know(version) { Ok(()) } else { Err(Fault::Version { version, known }) }
}
