//! Linux' capabilities, as far as they decide about files (capabilities(7)).

use serde::{Deserialize, Serialize};

/// A privilege that a thread may have without being root. Numbered as Linux does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Gives files away.
    Chown = 0,
    /// Is not bound by permission bits.
    DacOverride = 1,
    /// Reads and searches whatever permission bits say.
    DacReadSearch = 2,
    /// Counts as the owner of every file.
    Fowner = 3,
    /// Keeps set-id bits, of whatever group.
    Fsetid = 4,
    /// Reads and writes `trusted.*`, and writes `security.*`.
    SysAdmin = 21,
    /// Makes devices.
    Mknod = 27,
    /// Gives programs capabilities.
    Setfcap = 31,
}

/// A set of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities(u32);

impl Capabilities {
    /// What most users have.
    pub const NONE: Capabilities = Capabilities(0);
    /// All that decide anything here.
    pub const EVERY: Capabilities = Capabilities::NONE
        .with(Capability::Chown)
        .with(Capability::DacOverride)
        .with(Capability::DacReadSearch)
        .with(Capability::Fowner)
        .with(Capability::Fsetid)
        .with(Capability::SysAdmin)
        .with(Capability::Mknod)
        .with(Capability::Setfcap);

    /// Those among Linux' bits that decide anything here.
    pub fn of_bits(bits: u64) -> Capabilities {
        Capabilities(bits as u32 & Capabilities::EVERY.0)
    }

    /// These and one more.
    pub const fn with(self, capability: Capability) -> Capabilities {
        Capabilities(self.0 | 1 << capability as u8)
    }

    /// These but one.
    pub const fn without(self, capability: Capability) -> Capabilities {
        Capabilities(self.0 & !(1 << capability as u8))
    }

    /// Whether it is among these.
    pub fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u8 != 0
    }
}
