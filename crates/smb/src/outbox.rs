//! Messages on their way to a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::{Notify, mpsc};

/// The sending end. All of a connection are one.
#[derive(Clone)]
pub(crate) struct Outbox(Arc<Shared>);

struct Shared {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    unsent: AtomicUsize,
    sent: Notify,
}

impl Outbox {
    pub(crate) fn new() -> (Outbox, mpsc::UnboundedReceiver<Vec<u8>>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        (Outbox(Arc::new(Shared { queue, unsent: AtomicUsize::new(0), sent: Notify::new() })), receiver)
    }

    /// Queues a message. Returns false if the connection is gone.
    pub(crate) fn send(&self, message: Vec<u8>) -> bool {
        self.0.unsent.fetch_add(message.len(), Relaxed);
        self.0.queue.send(message).is_ok()
    }

    /// Returns whether the connection is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.queue.is_closed()
    }

    /// Notes that bytes were sent.
    pub(crate) fn note_sent(&self, bytes: usize) {
        self.0.unsent.fetch_sub(bytes, Relaxed);
        self.0.sent.notify_one();
    }

    /// Waits until at most so many bytes are unsent: then more may be read.
    pub(crate) async fn has_room(&self, most: usize) {
        while self.0.unsent.load(Relaxed) > most {
            self.0.sent.notified().await;
        }
    }

    pub(crate) fn is(&self, other: &Outbox) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
