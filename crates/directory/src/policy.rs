//! The server's choices beyond its duties.

use lease::Granularity;

/// The choices that the server is free to make. Replicated state machines must agree on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Grants carry everything that no other session holds or waits for: write instead of read, the
    /// whole file, a directory's other entries.
    pub generous: bool,
    /// The creator of a file holds everything in it. Clients rely on this; it is off only to
    /// measure its savings.
    pub birthright: bool,
    /// The units of leases; coarser than fields only to measure what the finer ones save.
    pub granularity: Granularity,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { generous: true, birthright: true, granularity: Granularity::Fields }
    }
}
