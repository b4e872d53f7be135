//! The group's thread looks out for what clients and other servers say next before it sleeps: where
//! machines wait for each other one says something soon after another was answered.

use os::Patience;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// For so long: what a machine takes that does something with what it was told, or another server
/// that makes it durable.
const LOOK_OUT: Duration = Duration::from_micros(400);
/// A look takes no longer.
const TURN: Duration = Duration::from_micros(10);

/// See the module.
#[derive(Default)]
pub(super) struct Lookout {
    heard: AtomicU64,
    wake: Notify,
}

impl Lookout {
    /// A client or another server has said something, on a connection of this thread's.
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Relaxed);
        self.wake.notify_one();
    }

    /// Keeps this thread awake for a while whenever something was said. Whoever has something to do
    /// on it, or on its processor, comes first.
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

    /// Whether something was said.
    async fn look(&self) -> bool {
        let before = self.heard.load(Relaxed);
        let (mut left, mut looked_at) = (LOOK_OUT, Instant::now());
        while self.heard.load(Relaxed) == before && !left.is_zero() {
            // tokio asks the system whether anything has come, and does not wait for it.
            tokio::task::yield_now().await;
            let offered_at = Instant::now();
            std::thread::yield_now();
            let now = Instant::now();
            // Others want the processor for longer.
            if now - offered_at > LOOK_OUT {
                break;
            }
            // While the thread did something else, or waited for the disk, nobody was looked out
            // for.
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
