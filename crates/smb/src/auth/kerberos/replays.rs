//! The authenticators that were used, as long as they could be used again (RFC 4120 §3.2.3).
//!
//! The memory of them ends with the process. Somebody who repeats an older one gets a session whose
//! key only its client knows, and no message without a signature is listened to.

use crate::auth::refused::Refused;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The most authenticators of a user within the time.
pub const REPLAYS_MAX: usize = 16 << 10;

/// Hashes of authenticators, and the last second of each, by user.
#[derive(Debug, Default)]
pub struct Replays(Mutex<BTreeMap<String, BTreeMap<[u8; 32], i64>>>);

impl Replays {
    /// Takes an authenticator in that is accepted until a second, both included. A user with too
    /// many of them is refused, so that nobody's are forgotten.
    pub(super) fn admit(&self, user: &str, sealed: &[u8], until: i64, now: i64) -> Result<(), Refused> {
        let hash = *crypto::hash(sealed).as_bytes();
        let mut all = self.0.lock();
        let used = all.entry(user.to_lowercase()).or_default();
        used.retain(|_, until| *until >= now);
        if used.contains_key(&hash) {
            return Err(Refused("the authenticator was used before"));
        }
        if used.len() >= REPLAYS_MAX {
            return Err(Refused("the user logs on too often"));
        }
        used.insert(hash, until);
        Ok(())
    }
}
