//! What goes between the sessions of clients and their server, counted.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use wire::ToClient;

/// Since the server was started. Whatever a session says or is told counts, renewals too, and that
/// of this machine's own client; greetings and shares do not.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    heard: AtomicU64,
    told: AtomicU64,
    recalls: AtomicU64,
}

/// Messages of all sessions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficReport {
    /// From clients.
    pub messages_heard: u64,
    /// To clients.
    pub messages_told: u64,
    /// Those among them that ask for leases.
    pub recalls: u64,
}

// Relaxed: counts order nothing.
impl Traffic {
    /// A session has said something.
    pub(crate) fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// A session is told something.
    pub(crate) fn tell(&self, message: &ToClient) {
        self.told.fetch_add(1, Ordering::Relaxed);
        if matches!(message, ToClient::Recall { .. }) {
            self.recalls.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn report(&self) -> TrafficReport {
        TrafficReport {
            messages_heard: self.heard.load(Ordering::Relaxed),
            messages_told: self.told.load(Ordering::Relaxed),
            recalls: self.recalls.load(Ordering::Relaxed),
        }
    }
}
