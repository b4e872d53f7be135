//! Opens that outlive their connection (MS-SMB2 §3.3.5.9.6, §3.3.5.9.10).
//!
//! An open is durable if its client asks for that and its lease or oplock has HANDLE caching. When
//! the connection is lost, the open waits for its client, for a time. It goes as soon as somebody
//! else needs what it caches: nobody could be asked.

use crate::wire::contexts::CreateContexts;
use objects::{CachingState, Granted, ObjectPath, Open};
use std::time::Duration;

/// The time of a client that does not say any.
const USUAL: Duration = Duration::from_secs(60);
/// The longest time that a client gets.
const LONGEST: Duration = Duration::from_secs(300);

/// The request that makes an open durable.
#[derive(Clone, Debug)]
pub(crate) struct Durable {
    /// How long it waits for its client.
    pub(crate) timeout: Duration,
    /// The identifier of the create, of version 2.
    pub(crate) create_guid: Option<[u8; 16]>,
    /// The user's name.
    pub(crate) user: String,
    /// The path by which it was opened.
    pub(crate) path: ObjectPath,
}

impl Durable {
    /// Returns what a request asks for, if the open may be durable.
    pub(crate) fn granted(
        contexts: &CreateContexts,
        open: &Open,
        user: &str,
        path: &ObjectPath,
    ) -> Option<Durable> {
        if open.is_directory() || !has_handle(open) {
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
        Some(Durable { timeout, create_guid, user: user.to_owned(), path: path.clone() })
    }
}

/// Returns whether the open's lease or oplock lets it be kept.
pub(crate) fn has_handle(open: &Open) -> bool {
    caches_handle(open.granted())
}

/// Returns whether a lease or an oplock has HANDLE caching.
pub(crate) fn caches_handle(granted: Granted) -> bool {
    match granted {
        Granted::Oplock(state) | Granted::Lease { state, .. } => state.has(CachingState::HANDLE),
        Granted::Nothing => false,
    }
}
