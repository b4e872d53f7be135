//! Counts the messages between the sessions of clients and their server.

use admin::TrafficReport;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::ToClient;

/// The counts since the start of the server. All messages of sessions count, also renewals, and
/// those of this machine's own client. Greetings and shares do not.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    heard: AtomicU64,
    told: AtomicU64,
    recalls: AtomicU64,
}

// Relaxed: counts order nothing.
impl Traffic {
    /// Counts a message of a session.
    pub(crate) fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message to a session.
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
