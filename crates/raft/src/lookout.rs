//! The group's thread looks out for the next message before it sleeps. If machines wait for each
//! other, one sends a message soon after another got its answer.

use os::Patience;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long it looks out. In this time a machine uses an answer, or another server makes an entry
/// durable.
const LOOK_OUT: Duration = Duration::from_micros(400);
/// The longest time that one look counts for.
const TURN: Duration = Duration::from_micros(10);

/// Looks out for messages on the group's thread.
#[derive(Default)]
pub(super) struct Lookout {
    heard: AtomicU64,
    wake: Notify,
}

impl Lookout {
    /// Notes that a client or another server sent a message, on a connection of this thread.
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Relaxed);
        self.wake.notify_one();
    }

    /// Keeps this thread awake for a while after each message. Other work on the thread, or on its
    /// processor, comes first.
    pub(super) async fn look_out(&self) {
        let mut patience = Patience::default();
        loop {
            self.wake.notified().await;
            if !patience.begins() {
                continue;
            }
            patience.ends(self.look().await);
        }
    }

    /// Returns whether a message came.
    async fn look(&self) -> bool {
        let before = self.heard.load(Relaxed);
        let (mut left, mut looked_at) = (LOOK_OUT, Instant::now());
        while self.heard.load(Relaxed) == before && !left.is_zero() {
            // tokio polls the system for events here, and does not wait.
            tokio::task::yield_now().await;
            let offered_at = Instant::now();
            std::thread::yield_now();
            let now = Instant::now();
            // Other threads want the processor for longer.
            if now - offered_at > LOOK_OUT {
                break;
            }
            // The time in which the thread did other work, or waited for the disk, does not count.
            left = left.saturating_sub((now - looked_at).min(TURN));
            looked_at = now;
        }
        self.heard.load(Relaxed) != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_meanwhile_is_seen_and_nothing_is_waited_for_longer_than_a_while() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let lookout = Lookout::default();
        let says = async {
            tokio::task::yield_now().await;
            lookout.heard();
        };
        assert!(runtime.block_on(async { tokio::join!(lookout.look(), says).0 }));
        assert!(!runtime.block_on(lookout.look()));
    }
}
