//! The group's thread looks out for what clients say next before it sleeps: where machines wait for each other one says something soon after another was answered.

use crate::patience::Patience;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// For so long: what a machine takes that does something with what it was told, or another that it tells.
const LOOK_OUT: Duration = Duration::from_micros(200);
/// A look takes no longer.
const TURN: Duration = Duration::from_micros(5);

/// See the module.
#[derive(Default)]
pub(super) struct Lookout {
    heard: AtomicU64,
    wake: Notify,
}

impl Lookout {
    /// A client has said something, on a connection of this thread's.
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Relaxed);
        self.wake.notify_one();
    }

    /// Keeps this thread awake for a while whenever something was said. Whoever has something to do on it, or on its processor, comes first.
    pub(super) async fn look_out(&self) {
        let mut patience = Patience::default();
        loop {
            self.wake.notified().await;
            if !patience.begins() {
                continue;
            }
            let before = self.heard.load(Relaxed);
            let (mut left, mut looked_at) = (LOOK_OUT, Instant::now());
            while self.heard.load(Relaxed) == before && !left.is_zero() {
                // tokio asks the system whether anything has come, and does not wait for it.
                tokio::task::yield_now().await;
                std::thread::yield_now();
                let now = Instant::now();
                // Where the thread did something else, or waited for the disk, nobody was looked out for.
                left = left.saturating_sub((now - looked_at).min(TURN));
                looked_at = now;
            }
            patience.ends(self.heard.load(Relaxed) != before);
        }
    }
}
