//! Linux' capabilities that matter for files (capabilities(7)).

use serde::{Deserialize, Serialize};

/// A privilege that a thread may have without being root. The numbers are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Gives files to other users.
    Chown = 0,
    /// Is not bound by permission bits.
    DacOverride = 1,
    /// Reads and searches regardless of permission bits.
    DacReadSearch = 2,
    /// Counts as the owner of every file.
    Fowner = 3,
    /// Keeps set-id bits of any group.
    Fsetid = 4,
    /// Reads and writes `trusted.*`, and writes `security.*`.
    SysAdmin = 21,
    /// Makes devices.
    Mknod = 27,
    /// Gives programs capabilities.
    Setfcap = 31,
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities(u32);

impl Capabilities {
    /// The empty set, which most users have.
    pub const NONE: Capabilities = Capabilities(0);
    /// All capabilities that matter here.
    pub const EVERY: Capabilities = Capabilities::NONE
        .with(Capability::Chown)
        .with(Capability::DacOverride)
        .with(Capability::DacReadSearch)
        .with(Capability::Fowner)
        .with(Capability::Fsetid)
        .with(Capability::SysAdmin)
        .with(Capability::Mknod)
        .with(Capability::Setfcap);

    /// Those of Linux' bits that matter here.
    pub fn of_bits(bits: u64) -> Capabilities {
        Capabilities(bits as u32 & Capabilities::EVERY.0)
    }

    /// The set with one more.
    pub const fn with(self, capability: Capability) -> Capabilities {
        Capabilities(self.0 | 1 << capability as u8)
    }

    /// The set without one.
    pub const fn without(self, capability: Capability) -> Capabilities {
        Capabilities(self.0 & !(1 << capability as u8))
    }

    /// Whether the set has this capability.
    pub fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u8 != 0
    }
}
