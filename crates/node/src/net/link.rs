//! A machine's connection to its server: opened again and again for as long as the machine is up.

use super::NetThread;
use super::authority::{CertificateError, machine_of};
use super::credential_store::Caller;
use super::discovery::Places;
use super::frames::{self, Frames};
use super::line::Line;
use super::socket::Socket;
use super::tls;
use crate::engine::{Engine, Greeting};
use crate::routes::Down;
use bytes::BytesMut;
use parking_lot::Mutex;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::{GreetingError, MachineId, Purpose, ServerAt, ToClient, ToServer, Version, Welcome, decode};

/// How long a server may take to take a call. What is said after that may take longer: a link may
/// lose some of it.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two attempts, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long one of several servers may take to take a call: another may be quicker. At first, and
/// at most: where all are silent it may be the network that is slow. To answer a greeting it may
/// take [`GREETING`] times as long.
const CALL_WITHIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
const GREETING: u32 = 4;
/// Between two attempts where there are several servers: while they elect a leader none has one to
/// tell of.
const ELECTION_PAUSE: Duration = Duration::from_millis(100);
/// A server that says nothing, not even that nobody listens, is passed over for so long, where
/// there are others. Who does may be back at any moment.
const GONE: Duration = Duration::from_secs(3);
/// A server that says nothing for half of the time that it is given to take a call is asked whether
/// it is there; after as much again, another one is called. Only where there are others.
const QUIET: u32 = 2;
/// How long no server may be reached until that is said.
const MISSED: Duration = Duration::from_secs(10);
/// How often servers are then looked for in the local network: all may have moved.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(30);
/// After a refusal, which is not expected to change soon.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// A stream to a server.
pub(super) type Stream = TlsStream<Socket>;

/// Why a call did not succeed, or ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    #[error("the server sends what is no message: {0}")]
    Frame(#[from] wire::FrameError),
    #[error("the server refuses this machine: {0}")]
    Refused(String),
    #[error(
        "this machine's clock shows a time before 1975, when no certificate holds yet: set the clock, and try again"
    )]
    Clock,
    #[error(
        "the server's certificate is of an authority that this machine does not know: either another cluster's server is there now, or the authority was renewed, and this machine was expelled before it had heard of that (leasehold machines, on a server, says so; then leasehold leave, and join anew)"
    )]
    Stranger,
    #[error("no answer in time")]
    Silence(#[from] tokio::time::error::Elapsed),
    #[error("the session is over")]
    Over,
    #[error("another server leads")]
    Elsewhere(Vec<String>),
    #[error("the server has gone silent")]
    Gone,
    #[error("the server has given this machine other certificates: it calls again with those")]
    Certified,
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the machine has stopped")]
    Stopped,
}

impl End {
    /// Whether calling again is likely to take as long as it took to find this out.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            End::Silence(_) | End::Gone => true,
            End::Io(error) => {
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable)
            }
            _ => false,
        }
    }
}

/// How the connection stands.
#[derive(Clone, Debug)]
pub(crate) struct ServerLinkStatus {
    /// The address that was called last.
    pub server: String,
    /// Since when it is up, or down.
    pub since: Instant,
    /// Why it is down; up if absent.
    pub down: Option<String>,
}

/// Is told which servers there are, whenever a session goes on, and whether this machine is to
/// become one.
pub(crate) type Servers = Box<dyn Fn(Vec<ServerAt>, bool) + Send + Sync>;

/// Is told of a start of this machine that the server knows and it does not; whether it counts from
/// there.
pub(crate) type Later = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// Why a machine gives up that was up, and of which a later start is known.
const REPLACED: &str = "another process has started with a copy of this machine's data directory, and has taken its place: of the two one must go (its machine can join anew with another data directory)";

/// See the module.
pub(crate) struct ServerLink {
    /// The connection that is up.
    line: Mutex<Option<Arc<Line>>>,
    status: Mutex<ServerLinkStatus>,
    /// Where servers say that they listen, those of one after those of another.
    told: Mutex<Vec<String>>,
    /// Where this machine's own server listens.
    own: Vec<String>,
    /// Where some may listen who have moved: they say it only to whom they hear.
    places: Arc<Places>,
    servers: Servers,
    later: Later,
    /// The session is over: call again.
    again: Notify,
    /// It may call.
    begun: Notify,
}

impl ServerLink {
    /// Of a machine whose server is at one of `addresses`, of its `own`, or of `places`; and what
    /// keeps it, which is to be kept. It calls nobody before [`ServerLink::begin`].
    pub(crate) fn start(
        addresses: Vec<String>,
        (own, places): (Vec<String>, Arc<Places>),
        config: Caller,
        engine: Weak<Engine>,
        (servers, later): (Servers, Later),
    ) -> Result<(Arc<ServerLink>, NetThread), CertificateError> {
        let status = ServerLinkStatus {
            server: addresses.first().cloned().unwrap_or_default(),
            since: Instant::now(),
            down: Some("not called yet".to_owned()),
        };
        let link = Arc::new(ServerLink {
            line: Mutex::new(None),
            status: Mutex::new(status),
            told: Mutex::new(addresses),
            own,
            places,
            servers,
            later,
            again: Notify::new(),
            begun: Notify::new(),
        });
        let calling = link.clone();
        let thread = NetThread::spawn("link", move || async move {
            calling.begun.notified().await;
            calling.keep(config, &engine).await;
        })
        .map_err(|source| crate::data::DataError::Io {
            verb: "start a thread for",
            file: "the network".into(),
            source,
        })?;
        Ok((link, thread))
    }

    /// Calls from now on: the engine knows that this is its way to the server.
    pub(crate) fn begin(&self) {
        self.begun.notify_one();
    }

    /// To be sent with the next [`ServerLink::push`], if there is a connection.
    pub(crate) fn send(&self, message: ToServer) {
        if let Some(line) = &*self.line.lock() {
            line.say(Some(message));
        }
    }

    /// Sends what waits, on this thread.
    pub(crate) fn push(&self) {
        let line = self.line.lock().clone();
        if let Some(line) = line {
            line.push();
        }
    }

    /// Takes in what the server has said, on this thread: for one that has a moment, and a call
    /// that waits.
    pub(crate) fn look(&self, engine: &Engine) {
        let line = self.line.lock().clone();
        if let Some(line) = line {
            line.look(|frames| tell(engine, frames));
        }
    }

    /// The session is over: another one is to be opened.
    pub(crate) fn begin_again(&self) {
        self.again.notify_one();
    }

    /// Where servers may listen.
    pub(crate) fn addresses(&self) -> Vec<String> {
        each_once(self.told.lock().iter().chain(&self.own).chain(&self.places.all()))
    }

    /// How it stands.
    pub(crate) fn status(&self) -> ServerLinkStatus {
        self.status.lock().clone()
    }

    /// Where the next server is, `turn` addresses on.
    fn address(&self, turn: usize) -> String {
        let addresses = self.addresses();
        addresses.get(turn % addresses.len().max(1)).cloned().unwrap_or_default()
    }

    /// How many addresses from `turn` on are of servers that are gone, if not all are.
    fn passed_over(&self, turn: usize, is_gone: impl Fn(&String) -> bool) -> usize {
        let all = self.addresses().len();
        (0..all).find(|on| !is_gone(&self.address(turn + on))).unwrap_or_default()
    }

    async fn keep(&self, config: Caller, engine: &Weak<Engine>) {
        let (mut pause, mut turn, mut within) = (PAUSE.0, 0, CALL_WITHIN.0);
        // How many addresses were silent since one was not.
        let mut silent = 0;
        // Where a server has said that the leader is.
        let mut hints: Vec<String> = Vec::new();
        // Where nothing was to be heard lately, and when.
        let mut gone: Vec<(String, Instant)> = Vec::new();
        // Before the first connection whoever starts the machine says so.
        let mut missed = true;
        let mut discovered = None::<Instant>;
        loop {
            gone.retain(|(_, at)| at.elapsed() < GONE);
            let is_gone = |address: &String| gone.iter().any(|(gone, _)| gone == address);
            let hinted = hints.pop();
            let is_hint = hinted.is_some();
            if !is_hint {
                turn += self.passed_over(turn, is_gone);
            }
            let address = hinted.unwrap_or_else(|| self.address(turn));
            self.status.lock().server.clone_from(&address);
            let ended = self.hold(&address, &config, engine, (&mut pause, &mut within)).await;
            *self.line.lock() = None;
            let Err(why) = ended else { return };
            let (was_up, text) = (self.status.lock().down.is_none(), why.to_string());
            // Connections end whenever servers come and go, and the next one is up in a moment. It
            // is when that does not come that somebody wants to know.
            if was_up {
                tracing::info!(
                    server = address,
                    why = text,
                    "the connection to the server ended; calling again"
                );
                missed = false;
            } else if !missed && self.status.lock().since.elapsed() > MISSED {
                tracing::warn!(
                    server = address,
                    why = text,
                    "the server cannot be reached; what needs it waits"
                );
                missed = true;
            }
            self.went_down(was_up, text);
            if self.status.lock().since.elapsed() > MISSED
                && discovered.is_none_or(|at| at.elapsed() > DISCOVERY_PAUSE)
            {
                self.places.discover(&config.authority()).await;
                discovered = Some(Instant::now());
            }
            turn += usize::from(!is_hint);
            silent = if why.is_silence() && !was_up { silent + 1 } else { 0 };
            if silent >= self.addresses().len() {
                within = (2 * within).min(CALL_WITHIN.1);
                silent = 0;
            }
            match why {
                End::Over => pause = PAUSE.0,
                End::Elsewhere(_) if is_hint => {
                    // At some of the leader's addresses there may be another server here, or this
                    // machine's own. Or it leads no more, and may name one that leads not yet.
                    if hints.is_empty() {
                        tokio::time::sleep(ELECTION_PAUSE).await;
                    }
                }
                End::Elsewhere(leader) => {
                    // Others do not know yet that a leader is gone.
                    if leader.is_empty() || leader.iter().any(is_gone) {
                        hints.clear();
                        tokio::time::sleep(ELECTION_PAUSE).await;
                    } else {
                        hints = leader.into_iter().rev().collect();
                    }
                }
                End::Refused(_) => {
                    if let Some(engine) = engine.upgrade() {
                        engine.refused();
                    }
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
                why if self.addresses().len() > 1 => {
                    if why.is_silence() {
                        gone.push((address, Instant::now()));
                    }
                    tokio::time::sleep(ELECTION_PAUSE).await;
                }
                _ => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }

    fn went_down(&self, was_up: bool, why: String) {
        let mut status = self.status.lock();
        if was_up {
            status.since = Instant::now();
        }
        status.down = Some(why);
    }

    /// One connection, from its beginning to its end; `Ok` once the machine is gone.
    async fn hold(
        &self,
        address: &str,
        config: &Caller,
        engine: &Weak<Engine>,
        (pause, within): (&mut Duration, &mut Duration),
    ) -> Result<(), End> {
        let limit = if self.addresses().len() > 1 { *within } else { CALL_TIMEOUT * 4 };
        let began = Instant::now();
        let stream = timeout(limit, call(address, config)).await??;
        *within = (2 * began.elapsed()).clamp(CALL_WITHIN.0, CALL_WITHIN.1);
        let quiet = *within / QUIET;
        let mut frames = frames::greetings(stream);
        let Some(client) = engine.upgrade() else { return Ok(()) };
        let Greeting { start, session, receipt, .. } = client.greet();
        drop(client);
        let purpose = Purpose::Session { start, session, receipt };
        let welcome = timeout(limit * GREETING, greet(&mut frames, config, &purpose)).await??;
        let (session, servers, serve) = match welcome {
            Welcome::Session { session, servers, serve } => (session, servers, serve),
            Welcome::Elsewhere { addresses } => return Err(End::Elsewhere(addresses)),
            Welcome::Started { incarnation } if (self.later)(incarnation) => return Err(End::Over),
            Welcome::Started { .. } => return Err(End::Refused(REPLACED.to_owned())),
            _ => return Err(GreetingError::Foreign.into()),
        };
        frames::messages(&mut frames);
        let watched = (servers.len() > 1).then_some(quiet);
        self.heard(servers, serve);
        let line = Line::new(frames);
        *self.line.lock() = Some(line.clone());
        *pause = PAUSE.0;
        {
            let mut status = self.status.lock();
            status.down = None;
            status.since = Instant::now();
        }
        let Some(client) = engine.upgrade() else { return Ok(()) };
        client.deliver(vec![Down::Opened(session)]);
        drop(client);
        match self.converse(&line, engine, watched).await {
            End::Stopped => Ok(()),
            end => Err(end),
        }
    }

    fn heard(&self, servers: Vec<ServerAt>, serve: bool) {
        // The first of each server, then the second of each: of a server that is gone no second one
        // is tried before another server.
        let most = servers.iter().map(|server| server.addresses.len()).max().unwrap_or_default();
        let turns =
            (0..most).flat_map(|turn| servers.iter().filter_map(move |server| server.addresses.get(turn)));
        let told = each_once(turns);
        if !told.is_empty() {
            *self.told.lock() = told;
        }
        (self.servers)(servers, serve);
    }

    async fn converse(&self, line: &Arc<Line>, engine: &Weak<Engine>, watched: Option<Duration>) -> End {
        let hear = |frames| tell(&*engine.upgrade().ok_or(End::Stopped)?, frames);
        let watching = async {
            let Some(most) = watched else { return std::future::pending().await };
            loop {
                let quiet = line.heard().elapsed();
                if quiet < most {
                    tokio::time::sleep(most - quiet).await;
                    continue;
                }
                line.say(None);
                line.push();
                tokio::time::sleep(most).await;
                if line.heard().elapsed() >= 2 * most {
                    return;
                }
            }
        };
        tokio::select! {
            end = line.listen(hear) => end,
            end = line.keep_saying() => end,
            () = watching => End::Gone,
            () = self.again.notified() => End::Over,
        }
    }
}

/// Several servers may have an address in common, which is of each of their machines alone.
fn each_once<'a>(addresses: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut once = Vec::new();
    for address in addresses {
        if !once.contains(address) {
            once.push(address.clone());
        }
    }
    once
}

/// Tells a machine what the server says; one that is empty only asks whether anybody is there.
fn tell(engine: &Engine, frames: Vec<BytesMut>) -> Result<(), End> {
    let said = frames.iter().filter(|frame| !frame.is_empty());
    let told =
        said.map(|frame| Ok(Down::Message(decode::<ToClient>(frame)?))).collect::<Result<Vec<_>, End>>()?;
    if !told.is_empty() {
        engine.deliver(told);
    }
    Ok(())
}

/// Calls `address`.
pub(super) async fn call(address: &str, config: &Caller) -> Result<Stream, End> {
    let tcp = timeout(CALL_TIMEOUT, TcpStream::connect(address)).await??;
    frames::prepare(&tcp)?;
    let connecting = TlsConnector::from(config.tls()).connect(tls::server_name(), Socket::new(tcp));
    let connected = timeout(frames::SILENCE, connecting).await?;
    connected.map_err(|error| match error {
        error if tls::is_before_all(&error) => End::Clock,
        error if tls::is_of_another_authority(&error) => End::Stranger,
        error => End::Io(error),
    })
}

/// An error unless `machine` is at the other end, as its certificate says.
pub(super) fn is_at(stream: &Stream, machine: MachineId) -> Result<(), End> {
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    if certificate.and_then(machine_of) == Some(machine) {
        return Ok(());
    }
    Err(End::Refused("another machine answers at this address".to_owned()))
}

/// Calls `address` and says what for; once more if it is given other certificates.
pub(super) async fn ask(
    address: &str,
    caller: &Caller,
    purpose: &Purpose,
) -> Result<(Frames<Stream>, Version, Welcome), End> {
    let mut again = true;
    loop {
        let mut frames = frames::greetings(call(address, caller).await?);
        match agree(&mut frames, caller, purpose).await {
            Err(End::Certified) if std::mem::take(&mut again) => {}
            agreed => return agreed.map(|(version, welcome)| (frames, version, welcome)),
        }
    }
}

/// Says what for.
pub(super) async fn greet(
    frames: &mut Frames<Stream>,
    caller: &Caller,
    purpose: &Purpose,
) -> Result<Welcome, End> {
    Ok(agree(frames, caller, purpose).await?.1)
}

/// The same; and the version that is spoken from here on.
pub(super) async fn agree(
    frames: &mut Frames<Stream>,
    caller: &Caller,
    purpose: &Purpose,
) -> Result<(Version, Welcome), End> {
    frames::send(frames, wire::greeting(caller.knows, purpose)).await?;
    match wire::read_answer(caller.knows, &frames::receive(frames).await?)? {
        (_, Welcome::Refused { why }) => Err(End::Refused(why)),
        // Whoever calls tries again anyway.
        (_, Welcome::Certified { certificates }) => Err(caller.take(certificates)?),
        agreed => Ok(agreed),
    }
}
