//! The time in which leases count.

use serde::{Deserialize, Serialize};

/// Milliseconds since an arbitrary zero, never going backwards at one place. On a server the time
/// comes with the log entry. On a client it comes from the clock that runs during suspend. Times of
/// different machines cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// Returns the time `ms` milliseconds later.
    pub fn after_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
