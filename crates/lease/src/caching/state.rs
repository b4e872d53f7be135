//! The flags READ, WRITE and HANDLE, and the states that they make.

use std::fmt;

/// A set of caching flags, with the bits of MS-SMB2 §2.2.13.2.8.
///
/// A lease has one of five states: none, R, RH, RW, RWH (MS-SMB2 §3.3.1.4). Other sets say what an
/// act takes away.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CachingState(u8);

impl CachingState {
    /// Nothing may be cached.
    pub const NONE: CachingState = CachingState(0);
    /// Data that was read may be cached. As a state: R.
    pub const READ: CachingState = CachingState(1);
    /// Handles may be kept open, and opens be deferred.
    pub const HANDLE: CachingState = CachingState(2);
    /// Writes and byte-range locks may be cached.
    pub const WRITE: CachingState = CachingState(4);
    /// Read and handle.
    pub const RH: CachingState = CachingState(3);
    /// Read and write.
    pub const RW: CachingState = CachingState(5);
    /// Everything.
    pub const RWH: CachingState = CachingState(7);

    /// Returns the flags among these bits of a message. Unknown bits are off.
    pub const fn from_bits(bits: u32) -> CachingState {
        CachingState(bits as u8 & CachingState::RWH.0)
    }

    /// Returns the bits for a message.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Returns whether all of `flags` are in it.
    pub const fn has(self, flags: CachingState) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns whether any of `flags` is in it.
    pub const fn meets(self, flags: CachingState) -> bool {
        self.0 & flags.0 != 0
    }

    /// Returns the flags in both.
    pub const fn and(self, other: CachingState) -> CachingState {
        CachingState(self.0 & other.0)
    }

    /// Returns the flags in either.
    pub const fn or(self, other: CachingState) -> CachingState {
        CachingState(self.0 | other.0)
    }

    /// Returns the flags that are not in `other`.
    pub const fn but(self, other: CachingState) -> CachingState {
        CachingState(self.0 & !other.0)
    }

    /// Returns the largest state of a lease within these flags. H, W and HW come to none.
    pub const fn of_lease(self) -> CachingState {
        if self.has(CachingState::READ) { self } else { CachingState::NONE }
    }

    /// Returns the largest legacy oplock within these flags: batch is RWH, exclusive is RW, level
    /// II is R.
    pub const fn of_oplock(self) -> CachingState {
        if self.has(CachingState::RW) { self } else { self.and(CachingState::READ) }
    }
}

impl fmt::Debug for CachingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CachingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == CachingState::NONE {
            return f.write_str("none");
        }
        let flags = [(CachingState::READ, "R"), (CachingState::WRITE, "W"), (CachingState::HANDLE, "H")];
        flags.into_iter().filter(|(flag, _)| self.has(*flag)).try_for_each(|(_, letter)| f.write_str(letter))
    }
}
