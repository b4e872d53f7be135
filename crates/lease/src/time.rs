//! The time that leases count in.

use serde::{Deserialize, Serialize};

/// Milliseconds since an arbitrary zero, never going backwards at one place. On a server it comes
/// with the log entry; on a client from the clock that runs during suspend. Not comparable between
/// machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// `ms` milliseconds later.
    pub fn after_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
