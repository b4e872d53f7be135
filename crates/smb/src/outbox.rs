//! Messages on their way to a client.
//!
//! The thread that has a message sends it, as far as the connection takes it at once. So a break
//! is on its way before the answer to the request that has caused it, which goes elsewhere.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

/// Bytes of the length before each message (MS-SMB2 §2.1).
const LENGTH_BYTES: usize = 4;

/// The sending end. All of a connection are one.
#[derive(Clone)]
pub(crate) struct Outbox(Arc<Shared>);

/// The other end, of which there is one. The connection is gone without it.
pub(crate) struct Outgoing(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    unsent: AtomicUsize,
    sent: Notify,
    /// There are messages that no sender could send.
    waiting: Notify,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    /// Bytes of the first message that are sent, its length included.
    begun: usize,
    writes: Option<Arc<OwnedWriteHalf>>,
    is_gone: bool,
}

impl Outbox {
    pub(crate) fn new() -> (Outbox, Outgoing) {
        let shared = Arc::<Shared>::default();
        (Outbox(shared.clone()), Outgoing(shared))
    }

    /// Sends a message, or queues it. Returns false if the connection is gone.
    pub(crate) fn send(&self, message: Vec<u8>) -> bool {
        let mut queue = self.0.queue.lock();
        if queue.is_gone {
            return false;
        }
        self.0.unsent.fetch_add(message.len(), Relaxed);
        queue.messages.push_back(message);
        // Messages before it wait for the connection, which is not asked again here.
        let is_first = queue.messages.len() == 1;
        // An error is found again by the other end.
        let is_sent = is_first && matches!(self.0.write(&mut queue), Ok(true));
        drop(queue);
        if !is_sent {
            self.0.waiting.notify_one();
        }
        true
    }

    /// Returns whether the connection is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.queue.lock().is_gone
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

impl Shared {
    /// Writes as many messages as the connection takes at once. Returns whether all are written.
    fn write(&self, queue: &mut Queue) -> io::Result<bool> {
        let Some(writes) = queue.writes.clone() else { return Ok(false) };
        while let Some(message) = queue.messages.front() {
            let length = (message.len() as u32).to_be_bytes();
            let rest = [
                IoSlice::new(&length[queue.begun.min(LENGTH_BYTES)..]),
                IoSlice::new(&message[queue.begun.saturating_sub(LENGTH_BYTES)..]),
            ];
            match writes.try_write_vectored(&rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => queue.begun += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if queue.begun == LENGTH_BYTES + message.len() {
                self.unsent.fetch_sub(message.len(), Relaxed);
                self.sent.notify_one();
                queue.messages.pop_front();
                queue.begun = 0;
            }
        }
        Ok(true)
    }
}

impl Outgoing {
    /// Sends on this connection from now on, until it fails.
    pub(crate) async fn send_on(self, writes: OwnedWriteHalf) -> io::Result<()> {
        let writes = Arc::new(writes);
        self.0.queue.lock().writes = Some(writes.clone());
        loop {
            if self.0.write(&mut self.0.queue.lock())? {
                self.0.waiting.notified().await;
            } else {
                writes.writable().await?;
            }
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        *queue = Queue { is_gone: true, ..Queue::default() };
    }
}

/// For tests, which take the messages in the place of a connection.
#[cfg(test)]
impl Outgoing {
    pub(crate) fn try_recv(&mut self) -> Option<Vec<u8>> {
        self.0.queue.lock().messages.pop_front()
    }

    pub(crate) async fn recv(&mut self) -> Option<Vec<u8>> {
        loop {
            let message = self.try_recv();
            if message.is_some() {
                return message;
            }
            self.0.waiting.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    const SENDERS: u8 = 4;
    const EACH: usize = 300;

    /// The message number `turn` of a sender, of lengths from 1 byte to more than a socket takes.
    fn message(sender: u8, turn: usize) -> Vec<u8> {
        let mut message =
            vec![sender; 1 + (turn * 7919) % 3000 + if turn.is_multiple_of(97) { 400_000 } else { 0 }];
        message.extend((turn as u32).to_be_bytes());
        message
    }

    #[test]
    fn messages_of_all_threads_arrive_whole_and_in_the_order_of_each() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let called = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut heard, _) = listener.accept().await.unwrap();
            let (outbox, outgoing) = Outbox::new();
            assert!(outbox.send(message(SENDERS, 0)), "before there is a connection");
            let sending = tokio::spawn(outgoing.send_on(called.into_split().1));
            let senders = (0..SENDERS).map(|sender| {
                let outbox = outbox.clone();
                thread::spawn(move || (0..EACH).all(|turn| outbox.send(message(sender, turn))))
            });
            let senders = senders.collect::<Vec<_>>();
            let mut next = [0; SENDERS as usize + 1];
            for _ in 0..usize::from(SENDERS) * EACH + 1 {
                let length = heard.read_u32().await.unwrap() as usize;
                let mut bytes = vec![0; length];
                heard.read_exact(&mut bytes).await.unwrap();
                let turn = &mut next[usize::from(bytes[0])];
                assert!(bytes == message(bytes[0], *turn), "{} {turn}", bytes[0]);
                *turn += 1;
            }
            assert!(senders.into_iter().all(|sender| sender.join().unwrap()));
            outbox.has_room(0).await;
            // A connection that is lost is noticed by the next messages.
            drop(heard);
            while outbox.send(vec![1]) {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            sending.await.unwrap().unwrap_err();
            assert!(outbox.is_gone());
        });
    }
}
