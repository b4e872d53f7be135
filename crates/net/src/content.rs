//! A machine's way to another machine's share server. It has a connection of its own, so that bulk
//! does not hold up messages.
//!
//! Every request may be done twice. When a connection breaks, the next one sends the unanswered
//! requests again. If no connection can be had, the asker is told so, and may ask another host. So
//! is the asker of a request that is not answered in time: a host may be up and answer nothing.

use crate::call::{End, Stream, agree, dial, is_at};
use crate::credential_store::Caller;
use crate::frames;
use crate::reach;
use crate::round_trips::{RoundTrips, TimedConnection, smoothed};
use crate::socket::Socket;
use crate::tls;
use bytes::Bytes;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use namespace::Error;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use wire::{
    GreetingError, MachineId, Purpose, ShareCall, ShareReply, ShareRequest, Version, Welcome,
    decode_with_body, encode,
};

/// How long a host may take at first to accept a call and to greet. Another host may have the
/// share, so the limit is short.
const CALL_WITHIN_MIN: Duration = Duration::from_secs(2);
/// The limit at most. It grows because the network itself may be slow.
const CALL_WITHIN_MAX: Duration = Duration::from_secs(8);
/// The pause between two attempts at first.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The pause between two attempts at most.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The idle time after which a connection is closed. A host that is down is called again for as
/// long after the last request for it.
const IDLE: Duration = Duration::from_secs(120);
/// How long any request may take, however long the asker is ready to wait. A host with a slow disk,
/// or a store elsewhere that is away for a moment, needs less.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(180);
/// The part of that time after which requests are looked at.
const LOOKS: u32 = 16;

/// The result of a request.
pub type Results = (Vec<Result<(), Error>>, Bytes);

/// A thread's handle for asking one host.
#[derive(Debug)]
pub struct ShareClient {
    requests: mpsc::UnboundedSender<ShareRequestSent>,
    reach: Arc<Reach>,
    answered_within: Duration,
}

/// The task that keeps the connection to one host.
pub struct ShareLink {
    machine: MachineId,
    requests: mpsc::UnboundedReceiver<ShareRequestSent>,
    /// Requests that are not answered yet.
    waiting: BTreeMap<u64, ShareRequestSent>,
    last: u64,
    reach: Arc<Reach>,
    answered_within: Duration,
    round_trips: Arc<RoundTrips>,
}

/// How a host has answered lately.
#[derive(Debug)]
struct Reach {
    state: Mutex<ReachState>,
    /// Signals that a thread wants the host that was down.
    wanted: Notify,
}

#[derive(Clone, Copy, Debug)]
struct ReachState {
    /// The host could not be called, or has not answered in time. No thread waits for it.
    down: bool,
    heard: Instant,
    asked: Instant,
    /// The smoothed time that an answer takes.
    takes: Duration,
}

#[derive(Debug)]
struct ShareRequestSent {
    what: ShareCall,
    body: Vec<Bytes>,
    sent: Instant,
    /// When nobody waits for it any more.
    until: Instant,
    reply: blocking::SyncSender<Results>,
}

/// A request under way.
#[derive(Debug)]
pub struct Pending {
    reply: blocking::Receiver<Results>,
    sent: Instant,
    until: Instant,
    reach: Arc<Reach>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// There is no answer yet.
    Silent,
    /// There will be no answer.
    Unreachable,
}

/// Why a connection ended.
enum Over {
    /// All clients are dropped.
    Done,
    /// No request came for `IDLE`.
    Idle,
    /// The host cannot be called, or does not greet as it should.
    Unreachable(End),
    /// The connection was up, and broke.
    Broken(End),
}

impl Pending {
    /// Waits for the answer, as long as any request may take. `within`, if given, limits the time
    /// in which nothing at all is heard of the host. After that no thread waits for the host until
    /// it is heard of again.
    pub fn wait(&self, within: Option<Duration>) -> Result<Results, Unanswered> {
        self.wait_once(within).inspect_err(|_| self.give_up())
    }

    /// Waits like `Pending::wait`, but the request may be waited for again.
    pub fn wait_once(&self, within: Option<Duration>) -> Result<Results, Unanswered> {
        loop {
            let heard = self.reach.state.lock().heard;
            let left = self.until.saturating_duration_since(Instant::now());
            let of_silence = within.map(|within| within.saturating_sub(self.sent.max(heard).elapsed()));
            match self.reply.recv_timeout(of_silence.map_or(left, |silence| silence.min(left))) {
                Ok(results) => return Ok(results),
                Err(blocking::RecvTimeoutError::Disconnected) => return Err(Unanswered::Unreachable),
                Err(blocking::RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(Unanswered::Unreachable);
                }
                Err(blocking::RecvTimeoutError::Timeout) if of_silence.is_some_and(|left| left.is_zero()) => {
                    return Err(Unanswered::Silent);
                }
                Err(blocking::RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Marks the host as down: no thread waits for it until it is heard of.
    pub fn give_up(&self) {
        self.reach.state.lock().down = true;
    }

    /// The answer, if it has come.
    pub fn heard(&self) -> Result<Option<Results>, Unanswered> {
        match self.reply.try_recv() {
            Ok(results) => Ok(Some(results)),
            Err(blocking::TryRecvError::Empty) if Instant::now() >= self.until => {
                Err(Unanswered::Unreachable)
            }
            Err(blocking::TryRecvError::Empty) => Ok(None),
            Err(blocking::TryRecvError::Disconnected) => Err(Unanswered::Unreachable),
        }
    }
}

impl ShareClient {
    /// Makes the client of the host `machine`, and the link that keeps its connection. No request
    /// waits longer than `answered_within`: usually [`ANSWERED_WITHIN`].
    pub fn new(
        machine: MachineId,
        round_trips: Arc<RoundTrips>,
        answered_within: Duration,
    ) -> (ShareClient, ShareLink) {
        let (sender, requests) = mpsc::unbounded_channel();
        let now = Instant::now();
        let state = ReachState { down: false, heard: now, asked: now, takes: Duration::ZERO };
        let reach = Arc::new(Reach { state: Mutex::new(state), wanted: Notify::new() });
        let client = ShareClient { requests: sender, reach: reach.clone(), answered_within };
        let waiting = BTreeMap::new();
        (client, ShareLink { machine, requests, waiting, last: 0, reach, answered_within, round_trips })
    }

    /// Sends a request, unless the host is known to be down. Never blocks.
    pub fn call(&self, what: ShareCall, body: Vec<Bytes>) -> Option<Pending> {
        let (reply, pending) = blocking::sync_channel(1);
        let sent = Instant::now();
        let until = sent + self.answered_within;
        let mut state = self.reach.state.lock();
        state.asked = sent;
        if state.down {
            self.reach.wanted.notify_one();
            return None;
        }
        // The link may be gone. Then the reply's other end is gone, too.
        let _ = self.requests.send(ShareRequestSent { what, body, sent, until, reply });
        drop(state);
        Some(Pending { reply: pending, sent, until, reach: self.reach.clone() })
    }

    /// Whether the host is down, and how long it takes to answer. The asker orders hosts by it.
    pub fn distance(&self) -> (bool, Duration) {
        let state = self.reach.state.lock();
        (state.down, state.takes)
    }
}

impl Reach {
    fn heard(&self, took: Option<Duration>) {
        let mut state = self.state.lock();
        (state.heard, state.down) = (Instant::now(), false);
        if let Some(took) = took {
            state.takes = smoothed(state.takes, took);
        }
    }
}

impl ShareLink {
    /// Keeps a connection while there are requests, until all clients are dropped.
    pub async fn keep(mut self, addresses: Vec<String>, config: Caller) {
        let (mut pause, mut within) = (PAUSE_MIN, CALL_WITHIN_MIN);
        loop {
            if self.waiting.is_empty() {
                tokio::select! {
                    request = self.requests.recv() => match request {
                        Some(request) => self.begin(request),
                        None => return,
                    },
                    () = self.reach.wanted.notified() => {}
                }
            }
            match self.hold(&addresses, &config, (&mut pause, &mut within)).await {
                Over::Done => return,
                Over::Idle => continue,
                Over::Broken(why) => {
                    tracing::debug!(machine = self.machine.0, %why, "the connection to a share server broke");
                }
                Over::Unreachable(why) => {
                    tracing::debug!(machine = self.machine.0, %why, "no connection to a share server");
                    if why.is_silence() {
                        within = (2 * within).min(CALL_WITHIN_MAX);
                    }
                    self.give_up();
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn begin(&mut self, request: ShareRequestSent) {
        self.last += 1;
        self.waiting.insert(self.last, request);
    }

    /// Ends all waiting requests, so that the askers go elsewhere. From now on no thread waits for
    /// the host.
    fn give_up(&mut self) {
        let mut state = self.reach.state.lock();
        state.down = true;
        let wanted = state.asked.elapsed() < IDLE;
        drop(state);
        self.waiting.clear();
        while self.requests.try_recv().is_ok() {}
        if wanted {
            self.reach.wanted.notify_one();
        }
    }

    /// The connection, and its version.
    async fn connect(&self, address: &str, config: &Caller) -> Result<(Frames, Version), End> {
        let tcp = dial(address).await?;
        let stream = TlsConnector::from(config.tls()).connect(tls::server_name(), Socket::new(tcp)).await?;
        // Two hosts that are one machine would make one copy.
        is_at(&stream, self.machine)?;
        let mut frames = frames::greetings(stream);
        let (version, welcome) = agree(&mut frames, config, &Purpose::Content).await?;
        if welcome != Welcome::Content {
            return Err(GreetingError::Foreign.into());
        }
        frames::messages(&mut frames);
        Ok((frames, version))
    }

    async fn hold(
        &mut self,
        addresses: &[String],
        config: &Caller,
        (pause, within): (&mut Duration, &mut Duration),
    ) -> Over {
        let began = Instant::now();
        let connecting = reach::first(addresses, |address| self.connect(address, config));
        let connected = timeout(*within, connecting).await.map_err(End::from);
        let (frames, version) =
            match connected.map(|found| found.unwrap_or(Err(GreetingError::Foreign.into()))) {
                Ok(Ok(frames)) => frames,
                Ok(Err(end)) | Err(end) => return Over::Unreachable(end),
            };
        (*pause, *within) = (PAUSE_MIN, (2 * began.elapsed()).clamp(CALL_WITHIN_MIN, CALL_WITHIN_MAX));
        self.reach.heard(None);
        let round_trip = self.round_trips.to(self.machine, TimedConnection::Shares);
        let (mut sink, mut stream) = frames.split();
        // Reading and writing go on at once. A server that waits for its answers to be taken takes
        // no requests.
        let ShareLink { requests, waiting, last, reach, answered_within, .. } = self;
        let waiting = RefCell::new(waiting);
        let now = Instant::now();
        waiting.borrow_mut().retain(|_, request| since(&request.what) <= version && request.until > now);
        let again: Vec<Bytes> = waiting.borrow().iter().map(|(number, r)| frame(*number, r)).collect();
        let writing = async {
            for frame in again {
                sink.feed(frame).await?;
            }
            sink.flush().await?;
            loop {
                let request = match timeout(IDLE, requests.recv()).await {
                    Ok(Some(request)) => request,
                    Ok(None) => return Ok(Over::Done),
                    Err(_) if waiting.borrow().is_empty() => return Ok(Over::Idle),
                    Err(_) => continue,
                };
                if since(&request.what) > version {
                    // The asker learns that there is no answer.
                    continue;
                }
                *last += 1;
                let frame = frame(*last, &request);
                waiting.borrow_mut().insert(*last, request);
                sink.feed(frame).await?;
                if requests.is_empty() {
                    sink.flush().await?;
                }
            }
        };
        let reading = async {
            loop {
                let (ShareReply { number, results }, body) = receive(&mut stream).await?;
                let Some(request) = waiting.borrow_mut().remove(&number) else {
                    reach.heard(None);
                    continue;
                };
                let took = request.sent.elapsed();
                reach.heard(Some(took));
                round_trip.note(took);
                // The asker may have stopped waiting.
                let _ = request.reply.send((results, body));
            }
        };
        // A caller that waits for what is forgotten here is told that there is no answer.
        let forgetting = async {
            loop {
                tokio::time::sleep(*answered_within / LOOKS).await;
                let (now, before) = (Instant::now(), waiting.borrow().len());
                waiting.borrow_mut().retain(|_, request| request.until > now);
                let forgot = waiting.borrow().len() < before;
                if forgot && reach.state.lock().heard.elapsed() >= *answered_within {
                    return Err(End::Gone);
                }
            }
        };
        let ended: Result<Over, End> = tokio::select! {
            ended = writing => ended,
            ended = reading => ended,
            ended = forgetting => ended,
        };
        ended.unwrap_or_else(Over::Broken)
    }
}

/// The first version that has `call`.
pub(crate) fn since(call: &ShareCall) -> Version {
    // A call of the next version, which only tests have.
    #[cfg(test)]
    if *call == crate::tests::OF_NEXT {
        return Version::NEWEST.next();
    }
    call.since()
}

type Frames = Framed<Stream, LengthDelimitedCodec>;

fn frame(number: u64, request: &ShareRequestSent) -> Bytes {
    let header = encode(&ShareRequest { number, what: request.what.clone() });
    let length = request.body.iter().map(Bytes::len).sum::<usize>();
    let mut frame = Vec::with_capacity(header.len() + length);
    frame.extend(header);
    request.body.iter().for_each(|part| frame.extend_from_slice(part));
    frame.into()
}

async fn receive(stream: &mut SplitStream<Frames>) -> Result<(ShareReply, Bytes), End> {
    let frame = stream.next().await.unwrap_or_else(|| Err(std::io::ErrorKind::UnexpectedEof.into()))?;
    let frame = frame.freeze();
    let (reply, body) = decode_with_body(&frame)?;
    let body = frame.slice_ref(body);
    Ok((reply, body))
}
