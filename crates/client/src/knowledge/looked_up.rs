//! When a file was last looked up.

use lease::Time;
use std::num::NonZeroU16;

/// The time after a lookup within which the kernel may come back for the file, ms. A file that a
/// recall finds so recent lingers for the same time. By then a thread that waits for a busy
/// processor has come back. A slower thread looks the name up once more.
pub(crate) const LOOKED_UP_MS: u64 = 2_000;

/// When a file was last looked up, in seconds. The counter wraps within two bytes, because each
/// known file has one. A lookup of 18 hours ago may seem to be recent, and then the file lingers
/// needlessly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookedUp(Option<NonZeroU16>);

impl LookedUp {
    const ROUND: u64 = u16::MAX as u64;

    /// A lookup now.
    pub fn at(now: Time) -> LookedUp {
        LookedUp(u16::try_from(now.0 / 1000 % Self::ROUND + 1).ok().and_then(NonZeroU16::new))
    }

    /// Whether the kernel may still come back for the file.
    pub fn is_recent(self, now: Time) -> bool {
        self.0.is_some_and(|second| {
            let age = (now.0 / 1000 + Self::ROUND + 1 - u64::from(second.get())) % Self::ROUND;
            age <= LOOKED_UP_MS / 1000
        })
    }
}
