//! Opens that outlive their connection (MS-SMB2 §3.3.5.9.6, §3.3.5.9.10, §3.3.5.15.9).
//!
//! An open is durable if its client asks for that and its lease or oplock has HANDLE caching. When
//! the connection is lost, the open waits for its client, for a time. It goes as soon as somebody
//! else needs what it caches: nobody could be asked. A resilient open stays, and loses what it
//! caches. A persistent open stays, too, and its break waits for the client ([`crate::records`]).

use crate::wire::contexts::CreateContexts;
use crate::wire::{NtStatus, Reader};
use objects::{CachingState, Granted, Open};
use std::time::Duration;

/// The time of a client that does not say any.
const USUAL: Duration = Duration::from_secs(60);
/// The shortest time of a resilient open: its client needs some round trips to come back.
const LEAST: Duration = Duration::from_secs(1);
/// The longest time that a client gets.
const LONGEST: Duration = Duration::from_secs(300);

/// SMB2_DHANDLE_FLAG_PERSISTENT.
pub(crate) const PERSISTENT: u32 = 2;

/// The request that makes an open durable.
#[derive(Clone, Debug)]
pub(crate) struct Durable {
    /// How long it waits for its client.
    pub(crate) timeout: Duration,
    /// The identifier of the create, of version 2.
    pub(crate) create_guid: Option<[u8; 16]>,
    /// The user's name.
    pub(crate) user: String,
    /// It waits whatever it caches.
    pub(crate) is_resilient: bool,
    /// It outlives the server, too, and waits whatever it caches.
    pub(crate) is_persistent: bool,
}

impl Durable {
    /// Returns what a request asks for, if the open may be durable. On a share that is continuously
    /// available it may be persistent.
    pub(crate) fn granted(
        contexts: &CreateContexts,
        open: &Open,
        user: &str,
        is_continuous: bool,
    ) -> Option<Durable> {
        let is_persistent = is_continuous && contexts.durable_v2.is_some_and(|v2| v2.flags & PERSISTENT != 0);
        if open.is_directory() || !(is_persistent || has_handle(open)) {
            return None;
        }
        let (timeout, create_guid) = match &contexts.durable_v2 {
            Some(v2) => {
                let asked = Duration::from_millis(u64::from(v2.timeout_ms));
                (if asked.is_zero() { USUAL } else { asked.min(LONGEST) }, Some(v2.create_guid))
            }
            None if contexts.durable => (USUAL, None),
            None => return None,
        };
        let user = user.to_owned();
        Some(Durable { timeout, create_guid, user, is_resilient: false, is_persistent })
    }

    /// Parses NETWORK_RESILIENCY_REQUEST (MS-SMB2 §2.2.31.3) of a user, for an open that was
    /// durable in this way before.
    pub(crate) fn resilient(input: &[u8], user: &str, before: Option<&Durable>) -> Result<Durable, NtStatus> {
        let mut reader = Reader::new(input);
        let (timeout_ms, _reserved) = (reader.u32()?, reader.u32()?);
        let timeout = match Duration::from_millis(u64::from(timeout_ms)) {
            Duration::ZERO => USUAL,
            asked if asked > LONGEST => return Err(NtStatus::INVALID_PARAMETER),
            asked => asked.max(LEAST),
        };
        let create_guid = before.and_then(|before| before.create_guid);
        let is_persistent = before.is_some_and(|before| before.is_persistent);
        Ok(Durable { timeout, create_guid, user: user.to_owned(), is_resilient: true, is_persistent })
    }

    /// Returns whether the open waits for its client.
    pub(crate) fn keeps(&self, open: &Open) -> bool {
        self.is_resilient || self.is_persistent || has_handle(open)
    }
}

/// Returns whether the open's lease or oplock lets it be kept.
fn has_handle(open: &Open) -> bool {
    caches_handle(open.granted())
}

/// Returns whether a lease or an oplock has HANDLE caching.
pub(crate) fn caches_handle(granted: Granted) -> bool {
    match granted {
        Granted::Oplock(state) | Granted::Lease { state, .. } => state.has(CachingState::HANDLE),
        Granted::Nothing => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resilient_open_waits_as_long_as_its_client_says() {
        let asks = |timeout_ms: u32| {
            let input = [timeout_ms.to_le_bytes(), [0; 4]].concat();
            Durable::resilient(&input, "anna", None).map(|durable| (durable.timeout, durable.is_resilient))
        };
        assert_eq!(asks(1500), Ok((Duration::from_millis(1500), true)));
        assert_eq!(asks(100), Ok((LEAST, true)));
        assert_eq!(asks(0), Ok((USUAL, true)));
        assert_eq!(asks(300_001), Err(NtStatus::INVALID_PARAMETER));
        let before = Durable {
            timeout: LONGEST,
            create_guid: Some([7; 16]),
            user: "anna".into(),
            is_resilient: false,
            is_persistent: true,
        };
        let after = Durable::resilient(&[0; 8], "anna", Some(&before)).unwrap();
        assert_eq!((after.create_guid, after.is_persistent, after.timeout), (Some([7; 16]), true, USUAL));
        assert_eq!(
            Durable::resilient(&[0; 7], "anna", None).err(),
            Some(NtStatus::INVALID_PARAMETER),
            "too short"
        );
    }
}
