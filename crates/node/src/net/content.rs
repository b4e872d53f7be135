//! A machine's way to the share server: a connection of its own, so that bulk does not hold up messages.
//!
//! Every request may be done twice, so all that is unanswered is sent again over a new connection.

use super::frames;
use super::link::{End, Stream, call, greet};
use crate::upstream::Part;
use bytes::Bytes;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use namespace::{Error, ShareId};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use wire::{GreetingError, Purpose, ShareCall, ShareReply, ShareRequest, Welcome, decode_with_body, encode};

/// Between two attempts, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Shares that go in one request, bytes: no request holds up others for long.
const STORE_BYTES: usize = 4 << 20;

/// What a request comes to.
type Results = (Vec<Result<(), Error>>, Bytes);

/// How threads ask.
#[derive(Debug)]
pub(super) struct ShareClient {
    requests: Mutex<Option<mpsc::UnboundedSender<Request>>>,
}

/// Keeps the connection.
pub(super) struct ShareLink {
    requests: mpsc::UnboundedReceiver<Request>,
    /// Not answered yet.
    waiting: BTreeMap<u64, Request>,
    last: u64,
}

struct Request {
    what: ShareCall,
    body: Bytes,
    reply: blocking::SyncSender<Results>,
}

/// A request under way.
pub(super) struct Pending {
    reply: blocking::Receiver<Results>,
    count: usize,
}

impl Pending {
    /// Waits until it is answered, or the machine stops.
    pub(super) fn wait(self) -> Results {
        self.reply.recv().unwrap_or_else(|_| (vec![Err(Error::CutOff); self.count], Bytes::new()))
    }
}

impl ShareClient {
    pub(super) fn new() -> (ShareClient, ShareLink) {
        let (sender, requests) = mpsc::unbounded_channel();
        let link = ShareLink { requests, waiting: BTreeMap::new(), last: 0 };
        (ShareClient { requests: Mutex::new(Some(sender)) }, link)
    }

    pub(super) fn stop(&self) {
        *self.requests.lock() = None;
    }

    pub(super) fn call(&self, what: ShareCall, body: Bytes) -> Pending {
        let count = if let ShareCall::Store(shares) = &what { shares.len() } else { 1 };
        let (reply, pending) = blocking::sync_channel(1);
        if let Some(requests) = &*self.requests.lock() {
            // Whoever keeps the connection may be gone: then the reply's other end is, too.
            let _ = requests.send(Request { what, body, reply });
        }
        Pending { reply: pending, count }
    }

    pub(super) fn store(&self, shares: Vec<(ShareId, Vec<u8>)>) -> Vec<Result<(), Error>> {
        let mut pending = Vec::new();
        let (mut names, mut body) = (Vec::new(), Vec::new());
        for (share, bytes) in shares {
            if body.len() + bytes.len() > STORE_BYTES && !names.is_empty() {
                let store = ShareCall::Store(std::mem::take(&mut names));
                pending.push(self.call(store, std::mem::take(&mut body).into()));
            }
            names.push((share, u32::try_from(bytes.len()).unwrap_or(u32::MAX)));
            body.extend(bytes);
        }
        pending.push(self.call(ShareCall::Store(names), body.into()));
        pending.into_iter().flat_map(|pending| pending.wait().0).collect()
    }

    pub(super) fn read(&self, parts: &[Part]) -> Vec<Result<Vec<u8>, Error>> {
        let calls = parts
            .iter()
            .map(|&(share, at, length)| self.call(ShareCall::Read { share, at, length }, Bytes::new()));
        let pending: Vec<Pending> = calls.collect();
        let answers = pending.into_iter().map(|pending| {
            let (results, body) = pending.wait();
            results.into_iter().next().unwrap_or(Err(Error::Damaged)).map(|()| body.to_vec())
        });
        answers.collect()
    }
}

impl ShareLink {
    /// Keeps a connection while there is something to ask, until nobody can ask any more.
    pub(super) async fn keep(mut self, addresses: &[String], config: Arc<ClientConfig>) {
        let mut pause = PAUSE.0;
        for address in addresses.iter().cycle() {
            if self.waiting.is_empty() {
                let Some(first) = self.requests.recv().await else { return };
                self.last += 1;
                self.waiting.insert(self.last, first);
            }
            match self.hold(address, &config, &mut pause).await {
                Ok(()) => return,
                Err(why) => tracing::debug!(server = address, %why, "no connection to the share server"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn hold(
        &mut self,
        address: &str,
        config: &Arc<ClientConfig>,
        pause: &mut Duration,
    ) -> Result<(), End> {
        let stream = call(address, config).await?;
        let mut frames = frames::greetings(stream);
        let welcome = timeout(frames::SILENCE, greet(&mut frames, &Purpose::Content)).await??;
        if welcome != Welcome::Content {
            return Err(GreetingError::Foreign.into());
        }
        frames::messages(&mut frames);
        *pause = PAUSE.0;
        let (mut sink, mut stream) = frames.split();
        // Both at once: a server that waits for its answers to be taken takes no requests.
        let ShareLink { requests, waiting, last } = self;
        let waiting = RefCell::new(waiting);
        let again: Vec<Bytes> = waiting.borrow().iter().map(|(number, r)| frame(*number, r)).collect();
        let writing = async {
            for frame in again {
                sink.feed(frame).await?;
            }
            sink.flush().await?;
            while let Some(request) = requests.recv().await {
                *last += 1;
                let frame = frame(*last, &request);
                waiting.borrow_mut().insert(*last, request);
                sink.feed(frame).await?;
                if requests.is_empty() {
                    sink.flush().await?;
                }
            }
            Ok::<(), End>(())
        };
        let reading = async {
            loop {
                let (ShareReply { number, results }, body) = receive(&mut stream).await?;
                if let Some(request) = waiting.borrow_mut().remove(&number) {
                    // Whoever asked may not wait any more.
                    let _ = request.reply.send((results, body));
                }
            }
        };
        tokio::select! {
            ended = writing => ended,
            ended = reading => ended,
        }
    }
}

type Frames = Framed<Stream, LengthDelimitedCodec>;

fn frame(number: u64, request: &Request) -> Bytes {
    let mut frame = encode(&ShareRequest { number, what: request.what.clone() });
    frame.extend_from_slice(&request.body);
    frame.into()
}

async fn receive(stream: &mut SplitStream<Frames>) -> Result<(ShareReply, Bytes), End> {
    let frame = stream.next().await.unwrap_or_else(|| Err(std::io::ErrorKind::UnexpectedEof.into()))?;
    let frame = frame.freeze();
    let (reply, body) = decode_with_body(&frame)?;
    let body = frame.slice_ref(body);
    Ok((reply, body))
}
