//! A connection that any thread may use. Each thread sends its own messages. A task receives them,
//! or a thread that waits for an answer. The reason is latency: waking another thread takes longer
//! than the message's way.

use crate::call::{End, Stream};
use crate::frames::Frames;
use crate::round_trips::RoundTrip;
use bytes::{Bytes, BytesMut};
use futures_util::{Sink, Stream as _};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Instant;
use tokio::sync::Notify;
use wire::{ToServer, encode};

/// Messages taken from the connection at a time, so that the client gets them together.
const TOGETHER: usize = 64;

/// A connection that any thread may send on and receive from.
pub(crate) struct Line {
    /// The messages to send, in this order; `None` is a probe.
    waiting: Mutex<VecDeque<Option<ToServer>>>,
    frames: Mutex<Frames<Stream>>,
    /// When something was last heard. The lock is held from receiving messages until they are
    /// delivered, so that they are delivered in order.
    heard: Mutex<Instant>,
    failed: Mutex<Option<End>>,
    again: Arc<Again>,
    /// When the unanswered renewal was sent.
    renewal: Mutex<Option<Instant>>,
    round_trip: Arc<RoundTrip>,
}

/// A wake-up for the moment when the connection can take more, or has failed. It is separate from
/// the line, or there would be a cycle: the connection keeps its waker, and the line keeps the
/// connection.
#[derive(Default)]
struct Again(Notify);

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Line {
    pub(crate) fn new(frames: Frames<Stream>, round_trip: Arc<RoundTrip>) -> Arc<Line> {
        Arc::new(Line {
            waiting: Default::default(),
            frames: Mutex::new(frames),
            heard: Mutex::new(Instant::now()),
            failed: Default::default(),
            again: Default::default(),
            renewal: Default::default(),
            round_trip,
        })
    }

    /// Queues a message for the next [`Line::push`], or for when the connection can take more.
    pub(crate) fn say(&self, message: Option<ToServer>) {
        if let Some(ToServer::Renew) = message {
            self.renewal.lock().get_or_insert_with(Instant::now);
        }
        self.waiting.lock().push_back(message);
    }

    /// Sends the queued messages, as far as the connection takes them at once. Never waits for the
    /// connection, nor for another thread that sends.
    pub(crate) fn push(&self) {
        // The thread that holds the connection looks at the queue again after it has unlocked it.
        // So no message stays behind that was queued meanwhile.
        while !self.waiting.lock().is_empty() {
            let Some(mut frames) = self.frames.try_lock() else { return };
            if !self.push_into(&mut frames) {
                return;
            }
        }
    }

    /// Sends the queue; returns whether all of it was sent. If not, [`Line::keep_saying`] goes on
    /// when the connection takes more, or ends.
    fn push_into(&self, frames: &mut Frames<Stream>) -> bool {
        let waker = Waker::from(self.again.clone());
        match self.poll_say(Pin::new(frames), &mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => {
                self.fail(error.into());
                false
            }
            Poll::Pending => false,
        }
    }

    /// Ends [`Line::keep_saying`] with `end`.
    fn fail(&self, end: End) {
        *self.failed.lock() = Some(end);
        self.again.0.notify_one();
    }

    fn poll_say<S: Sink<Bytes, Error = io::Error>>(
        &self,
        mut frames: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(frames.as_mut().poll_ready(cx))?;
            let Some(message) = self.waiting.lock().pop_front() else { break };
            let frame = message.map_or_else(Bytes::new, |message| encode(&message).into());
            frames.as_mut().start_send(frame)?;
        }
        frames.poll_flush(cx)
    }

    /// Sends what the connection could not take before, until the connection fails.
    pub(crate) async fn keep_saying(&self) -> End {
        loop {
            self.again.0.notified().await;
            if let Some(end) = self.failed.lock().take() {
                return end;
            }
            let said = self.push_into(&mut self.frames.lock());
            if said {
                self.push();
            }
        }
    }

    /// Reports the answer to a renewal, and notes its round trip. A server answers a renewal at
    /// once, whatever else it has to do for the session.
    pub(crate) fn is_renewed(&self) {
        if let Some(asked) = self.renewal.lock().take() {
            self.round_trip.note(asked.elapsed());
        }
    }

    /// When something was last heard.
    pub(crate) fn heard(&self) -> Instant {
        *self.heard.lock()
    }

    /// Delivers the other side's messages to `hear` until the connection ends.
    pub(crate) async fn listen(&self, hear: impl Fn(Vec<BytesMut>) -> Result<(), End>) -> End {
        std::future::poll_fn(|cx| self.poll_hear(cx, false, &hear)).await
    }

    /// Delivers the messages that have arrived to `hear`, on this thread, unless another thread is
    /// doing so. Never waits for the other side.
    pub(crate) fn look(&self, hear: impl Fn(Vec<BytesMut>) -> Result<(), End>) {
        if let Poll::Ready(end) = self.poll_hear(&mut Context::from_waker(Waker::noop()), true, &hear) {
            self.fail(end);
        }
    }

    /// Delivers all that has arrived. Data that stays in the connection's buffers would wake no
    /// task.
    fn poll_hear(
        &self,
        cx: &mut Context<'_>,
        beside: bool,
        hear: &impl Fn(Vec<BytesMut>) -> Result<(), End>,
    ) -> Poll<End> {
        let mut heard_at = if beside {
            let Some(heard_at) = self.heard.try_lock() else { return Poll::Pending };
            heard_at
        } else {
            self.heard.lock()
        };
        loop {
            let heard = {
                let mut frames = self.frames.lock();
                frames.get_mut().get_mut().0.read_beside(beside);
                let heard = poll_listen(Pin::new(&mut frames), cx);
                frames.get_mut().get_mut().0.read_beside(false);
                heard
            };
            self.push();
            let told = match ready!(heard) {
                Ok(frames) => {
                    *heard_at = Instant::now();
                    hear(frames)
                }
                Err(error) => Err(error.into()),
            };
            if let Err(end) = told {
                return Poll::Ready(end);
            }
        }
    }
}

/// Receives what has arrived, up to `TOGETHER` frames.
fn poll_listen(
    mut frames: Pin<&mut Frames<Stream>>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Vec<BytesMut>>> {
    let mut heard = Vec::new();
    while heard.len() < TOGETHER {
        match frames.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(frame))) => heard.push(frame),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
            // The next poll reports the end again.
            Poll::Ready(None) | Poll::Pending if !heard.is_empty() => break,
            Poll::Ready(None) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Ok(heard))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority;
    use crate::credential_store::CredentialStore;
    use crate::round_trips::{RoundTrips, TimedConnection};
    use crate::tls::Reception;
    use crate::{call, frames};
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    use std::time::Duration;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;
    use wire::MachineId;

    const THREADS: u64 = 4;
    const EACH: u64 = 5000;

    /// A connection that takes few bytes at a time, and its other end.
    async fn connected(
        round_trip: Arc<RoundTrip>,
    ) -> (Arc<Line>, Frames<tokio_rustls::server::TlsStream<TcpStream>>) {
        let dir = tempfile::tempdir().unwrap();
        let credentials =
            Authority::found(dir.path()).unwrap().credentials(dir.path(), MachineId(1)).unwrap();
        let acceptor = TlsAcceptor::from(Reception::new(&credentials, &[], &[]).unwrap().tls);
        let caller = CredentialStore::of(dir.path(), credentials).unwrap().caller();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (called, accepted) = tokio::join!(call::call(&address, &caller), async {
            acceptor.accept(listener.accept().await.unwrap().0).await
        });
        let called = called.unwrap();
        set_socket_send_buffer_size(called.get_ref().0.tcp(), 4096).unwrap();
        let line = Line::new(frames::greetings(called), round_trip);
        (line, frames::greetings(accepted.unwrap()))
    }

    fn within_a_minute(talk: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(300), talk).await.expect("hangs") });
    }

    /// The delivered messages, and how many of them a thread that looked has delivered.
    #[derive(Default)]
    struct Heard {
        told: Mutex<Vec<u64>>,
        looked: AtomicU64,
    }

    impl Heard {
        fn hear(&self, frames: Vec<BytesMut>, looking: bool) -> Result<(), End> {
            self.looked.fetch_add(u64::from(looking) * frames.len() as u64, SeqCst);
            let mut told = self.told.lock();
            told.extend(frames.into_iter().map(|frame| u64::from_le_bytes(frame[..].try_into().unwrap())));
            if told.len() as u64 == EACH { Err(End::Stopped) } else { Ok(()) }
        }
    }

    #[test]
    fn what_is_said_is_told_once_and_in_its_order_whoever_hears_it() {
        within_a_minute(async {
            let (line, mut says) = connected(Arc::default()).await;
            let (heard, over) = (Arc::<Heard>::default(), Arc::<AtomicBool>::default());
            let looking = {
                let (line, heard, over) = (line.clone(), heard.clone(), over.clone());
                std::thread::spawn(move || {
                    while !over.load(SeqCst) {
                        line.look(|frames| heard.hear(frames, true));
                    }
                })
            };
            let saying = async {
                for number in 0..EACH {
                    frames::send(&mut says, number.to_le_bytes().to_vec()).await.unwrap();
                    // The pause leaves moments in which there is nothing to hear.
                    if number % 64 == 0 {
                        tokio::time::sleep(Duration::from_micros(200)).await;
                    }
                }
                std::future::pending::<End>().await
            };
            let end = tokio::select! {
                end = line.listen(|frames| heard.hear(frames, false)) => end,
                end = line.keep_saying() => end,
                end = saying => end,
            };
            over.store(true, SeqCst);
            looking.join().unwrap();
            assert!(matches!(end, End::Stopped), "{end}");
            assert!(heard.told.lock().iter().copied().eq(0..EACH), "{:?}", heard.told.lock());
            assert!(heard.looked.load(SeqCst) > 0, "who looks hears something");
        });
    }

    #[test]
    fn a_renewal_is_timed_until_it_is_answered() {
        within_a_minute(async {
            let round_trips = RoundTrips::default();
            let (line, _) = connected(round_trips.to(MachineId(1), TimedConnection::Session)).await;
            line.say(Some(ToServer::ReserveInodes { known: 1 }));
            line.is_renewed();
            assert_eq!(round_trips.report(), [], "nobody has asked for that");
            line.say(Some(ToServer::Renew));
            line.is_renewed();
            assert_eq!(round_trips.report().len(), 1);
        });
    }

    #[test]
    fn what_threads_say_comes_once_and_in_their_order_also_if_nobody_listens_at_first() {
        within_a_minute(async {
            let (line, mut heard) = connected(Arc::default()).await;
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let line = &line;
                    scope.spawn(move || {
                        for turn in 0..EACH {
                            line.say(Some(ToServer::ReserveInodes { known: thread * EACH + turn }));
                            line.push();
                        }
                    });
                }
            });
            assert!(!line.waiting.lock().is_empty(), "more was said than a connection takes unheard");
            let mut next = [0; THREADS as usize];
            let hearing = async {
                while next.iter().sum::<u64>() < THREADS * EACH {
                    let message = wire::decode(&frames::receive(&mut heard).await.unwrap()).unwrap();
                    let ToServer::ReserveInodes { known } = message else { panic!("{message:?}") };
                    let next = &mut next[(known / EACH) as usize];
                    assert_eq!(*next, known % EACH);
                    *next += 1;
                }
            };
            tokio::select! {
                () = hearing => {}
                error = line.keep_saying() => panic!("{error}"),
            }
            // Dropping a line closes its connection even while that takes no more.
            while line.waiting.lock().is_empty() {
                line.say(Some(ToServer::Renew));
                line.push();
            }
            let given_up = Arc::downgrade(&line);
            drop(line);
            assert!(given_up.upgrade().is_none(), "who waits for the connection keeps it");
            while frames::receive(&mut heard).await.is_ok() {}
        });
    }
}
