//! The machine's connection to its server. The link opens it again for as long as the machine is
//! up.

use crate::authority::CertificateError;
use crate::call::{CALL_TIMEOUT, End, call, greet, machine_at};
use crate::credential_store::Caller;
use crate::discovery::Places;
use crate::frames;
use crate::line::Line;
use crate::round_trips::{RoundTrips, TimedConnection};
use crate::thread::NetThread;
use bytes::BytesMut;
use ident::ServerId;
use lease::SessionId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;
use wire::{GreetingError, Purpose, Receipt, ServerAt, Start, ToClient, ToServer, Welcome, decode};

/// The pause between two attempts at first.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The pause between two attempts at most.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long one of several servers may take at first to accept a call. Another server may be
/// quicker. The answer to a greeting may take [`GREETING`] times as long.
const CALL_WITHIN_MIN: Duration = Duration::from_secs(1);
/// The limit at most. If all servers are silent, the network itself may be slow, so the limit
/// grows.
const CALL_WITHIN_MAX: Duration = Duration::from_secs(4);
const GREETING: u32 = 4;
/// The pause between two attempts if there are several servers. During an election no server can
/// name a leader.
const ELECTION_PAUSE: Duration = Duration::from_millis(100);
/// How long a silent server is skipped if there are others. A server that refuses the connection is
/// not silent, and may be back at any moment.
const GONE: Duration = Duration::from_secs(3);
/// The divisor of the time to accept a call; the quotient is the silence that one of several
/// servers may keep. After that silence the client sends a probe. After as much silence again it
/// calls another server.
const QUIET: u32 = 2;
/// The silence that an only server may keep before a probe, and as much again after it. The client
/// then calls it anew: a connection that loses packets waits ever longer before it repeats them,
/// and the session ends after 30 s.
const QUIET_ALONE: Duration = Duration::from_secs(2);
/// The silence grows up to this if calling anew does not help: the server or the network is slow.
const QUIET_MAX: Duration = Duration::from_secs(6);
/// How long all servers may be out of reach before the link logs a warning.
const MISSED: Duration = Duration::from_secs(10);
/// How often the link then looks for servers in the local network: all may have moved.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(30);
/// The pause after a refusal, which is not expected to change soon.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// The client whose sessions go over links, one for each server of the directory. The machine's
/// engine is the client: it is above this crate, and a link calls back into it.
pub trait SessionClient: Send + Sync {
    /// The greeting of a new connection to `server`: this start of the machine, its session there
    /// until now, and that server's latest receipt.
    fn greeting(&self, server: ServerId) -> (Start, Option<SessionId>, Option<Receipt>);
    /// The connection to `server` is this session's from here on.
    fn opened(&self, server: ServerId, session: SessionId);
    /// Takes the messages of `server` in the session.
    fn deliver(&self, server: ServerId, messages: Vec<ToClient>);
    /// `server` does not accept this machine, for this reason.
    fn refused(&self, server: ServerId, why: &str);
}

/// The state of the connection.
#[derive(Clone, Debug)]
pub struct ServerLinkStatus {
    /// The address of the latest call.
    pub server: String,
    /// Since when the connection is up, or down.
    pub since: Instant,
    /// Why the connection is down; `None` if it is up.
    pub down: Option<LinkDown>,
}

/// Why the connection is down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LinkDown {
    /// No server was called yet.
    #[error("not called yet")]
    NotCalled,
    /// The last call failed, or the connection has ended.
    #[error("{why}")]
    Failed {
        /// The error.
        why: String,
    },
}

/// A callback for the start of each session. Its arguments are the servers, and whether this
/// machine is to become one.
pub type Servers = Box<dyn Fn(Vec<ServerAt>, bool) + Send + Sync>;

/// A callback for a later start of this machine that the server knows and the machine does not. It
/// returns whether the machine counts its starts from there.
pub type Later = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// Why a running machine gives up after a later start of it became known.
const REPLACED: &str = "another process has started with a copy of this machine's data directory, and has taken its place: of the two one must go (its machine can join anew with another data directory)";

/// A machine's link to a server: the connection, its state, and the addresses to call.
pub struct ServerLink {
    server: ServerId,
    /// The connection, if it is up.
    line: Mutex<Option<Arc<Line>>>,
    status: Mutex<ServerLinkStatus>,
    /// The addresses that servers have reported: the first of each server, then the second of each.
    told: Mutex<Vec<String>>,
    /// The addresses of this machine's own server.
    own: Vec<String>,
    /// Where servers that have moved may listen. A server reports its new address only to machines
    /// that reach it.
    places: Arc<Places>,
    round_trips: Arc<RoundTrips>,
    servers: Servers,
    later: Later,
    /// Signals that the session is over and the link must call again.
    again: Notify,
    /// Signals that the link may call.
    begun: Notify,
}

impl ServerLink {
    /// Starts the link to `server`, whose members are at some of `addresses`, of the machine's
    /// `own`, or in `places`. The returned thread keeps the connection: hold on to it. The link
    /// calls nobody before [`ServerLink::begin`].
    pub fn start(
        (server, addresses): (ServerId, Vec<String>),
        (own, places): (Vec<String>, Arc<Places>),
        round_trips: Arc<RoundTrips>,
        config: Caller,
        client: Weak<dyn SessionClient>,
        (servers, later): (Servers, Later),
    ) -> Result<(Arc<ServerLink>, NetThread), CertificateError> {
        let status = ServerLinkStatus {
            server: addresses.first().cloned().unwrap_or_default(),
            since: Instant::now(),
            down: Some(LinkDown::NotCalled),
        };
        let link = Arc::new(ServerLink {
            server,
            line: Mutex::new(None),
            status: Mutex::new(status),
            told: Mutex::new(addresses),
            own,
            places,
            round_trips,
            servers,
            later,
            again: Notify::new(),
            begun: Notify::new(),
        });
        let calling = link.clone();
        let thread = NetThread::spawn("link", move || async move {
            calling.begun.notified().await;
            calling.keep(config, &client).await;
        })
        .map_err(|source| data_dir::DataError::Io {
            verb: "start a thread for",
            file: "the network".into(),
            source,
        })?;
        Ok((link, thread))
    }

    /// Lets the link call: the client now knows that this link is its way to the server.
    pub fn begin(&self) {
        self.begun.notify_one();
    }

    /// Queues a message for the next [`ServerLink::push`], if there is a connection.
    pub fn send(&self, message: ToServer) {
        if let Some(line) = &*self.line.lock() {
            line.say(Some(message));
        }
    }

    /// Sends the queued messages, on this thread.
    pub fn push(&self) {
        let line = self.line.lock().clone();
        if let Some(line) = line {
            line.push();
        }
    }

    /// Takes in the server's messages, on this thread. It serves a thread that is idle, or a call
    /// that waits.
    pub fn look(&self, client: &dyn SessionClient) {
        let line = self.line.lock().clone();
        if let Some(line) = line {
            line.look(|frames| self.tell(client, &line, frames));
        }
    }

    /// Reports that the session is over; the link opens another one.
    pub fn begin_again(&self) {
        self.again.notify_one();
    }

    /// The addresses where servers may listen.
    pub fn addresses(&self) -> Vec<String> {
        each_once(self.told.lock().iter().chain(&self.own).chain(&self.places.all()))
    }

    /// The state of the connection.
    pub fn status(&self) -> ServerLinkStatus {
        self.status.lock().clone()
    }

    /// The address that is `turn` places on in the list.
    fn address(&self, turn: usize) -> String {
        let addresses = self.addresses();
        addresses.get(turn % addresses.len().max(1)).cloned().unwrap_or_default()
    }

    /// The number of addresses from `turn` on that are of silent servers; 0 if all are.
    fn passed_over(&self, turn: usize, is_gone: impl Fn(&String) -> bool) -> usize {
        let all = self.addresses().len();
        (0..all).find(|on| !is_gone(&self.address(turn + on))).unwrap_or_default()
    }

    async fn keep(&self, config: Caller, client: &Weak<dyn SessionClient>) {
        let (mut pause, mut turn, mut within) = (PAUSE_MIN, 0, CALL_WITHIN_MIN);
        // The silence that the last connection did not survive, doubled.
        let mut quiet = Duration::ZERO;
        // Consecutive silent addresses.
        let mut silent = 0;
        // The leader's addresses, from a server's answer.
        let mut hints: Vec<String> = Vec::new();
        // Silent addresses, and when each was found silent.
        let mut gone: Vec<(String, Instant)> = Vec::new();
        // Before the first connection the starter of the machine reports the failure itself.
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
            let ended = self.hold(&address, &config, client, (&mut pause, &mut within, &mut quiet)).await;
            *self.line.lock() = None;
            let Err(why) = ended else { return };
            let (was_up, text) = (self.status.lock().down.is_none(), why.to_string());
            // Connections end whenever servers come and go, and the next one is up in a moment.
            // Only a failure to come back up is worth a warning.
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
                within = (2 * within).min(CALL_WITHIN_MAX);
                silent = 0;
            }
            match why {
                End::Over => pause = PAUSE_MIN,
                End::Elsewhere(_) if is_hint => {
                    // A leader's address may belong to another server here, or to this machine's
                    // own server. Or the leader has stepped down, and may name one that does not
                    // lead yet.
                    if hints.is_empty() {
                        tokio::time::sleep(ELECTION_PAUSE).await;
                    }
                }
                End::Elsewhere(leader) => {
                    hints = worth_calling(leader, is_gone);
                    if hints.is_empty() {
                        // Other servers do not know yet that the leader is gone.
                        tokio::time::sleep(ELECTION_PAUSE).await;
                    }
                }
                End::Refused(why) => {
                    if let Some(client) = client.upgrade() {
                        client.refused(self.server, &why);
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
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    fn went_down(&self, was_up: bool, why: String) {
        let mut status = self.status.lock();
        if was_up {
            status.since = Instant::now();
        }
        status.down = Some(LinkDown::Failed { why });
    }

    /// Holds one connection from its beginning to its end; `Ok` once the machine is gone.
    async fn hold(
        &self,
        address: &str,
        config: &Caller,
        client: &Weak<dyn SessionClient>,
        (pause, within, quiet): (&mut Duration, &mut Duration, &mut Duration),
    ) -> Result<(), End> {
        let limit = if self.addresses().len() > 1 { *within } else { CALL_TIMEOUT * 4 };
        let began = Instant::now();
        let stream = timeout(limit, call(address, config)).await??;
        *within = (2 * began.elapsed()).clamp(CALL_WITHIN_MIN, CALL_WITHIN_MAX);
        let machine = machine_at(&stream).ok_or(GreetingError::Foreign)?;
        let mut frames = frames::greetings(stream);
        let Some(session_of) = client.upgrade() else { return Ok(()) };
        let (start, session, receipt) = session_of.greeting(self.server);
        drop(session_of);
        let purpose = Purpose::Session { server: self.server, start, session, receipt };
        let welcome = timeout(limit * GREETING, greet(&mut frames, config, &purpose)).await??;
        let (session, servers, serve) = match welcome {
            Welcome::Session { session, servers, serve } => (session, servers, serve),
            Welcome::Elsewhere { addresses } => return Err(End::Elsewhere(addresses)),
            Welcome::Started { incarnation } if (self.later)(incarnation) => return Err(End::Over),
            Welcome::Started { .. } => return Err(End::Refused(REPLACED.to_owned())),
            _ => return Err(GreetingError::Foreign.into()),
        };
        frames::messages(&mut frames);
        let usual = if servers.len() > 1 { *within / QUIET } else { QUIET_ALONE };
        self.heard(servers, serve);
        let line = Line::new(frames, self.round_trips.to(machine, TimedConnection::Session));
        *self.line.lock() = Some(line.clone());
        *pause = PAUSE_MIN;
        {
            let mut status = self.status.lock();
            status.down = None;
            status.since = Instant::now();
        }
        let Some(session_of) = client.upgrade() else { return Ok(()) };
        session_of.opened(self.server, session);
        drop(session_of);
        match self.converse(&line, client, (usual, quiet)).await {
            End::Stopped => Ok(()),
            end => Err(end),
        }
    }

    fn heard(&self, servers: Vec<ServerAt>, serve: bool) {
        // The first address of each server comes first, then the second of each. So another server
        // is tried before a second address of a server that is gone.
        let most = servers.iter().map(|server| server.addresses.len()).max().unwrap_or_default();
        let turns =
            (0..most).flat_map(|turn| servers.iter().filter_map(move |server| server.addresses.get(turn)));
        let told = each_once(turns);
        if !told.is_empty() {
            *self.told.lock() = told;
        }
        (self.servers)(servers, serve);
    }

    async fn converse(
        &self,
        line: &Arc<Line>,
        client: &Weak<dyn SessionClient>,
        (usual, quiet): (Duration, &mut Duration),
    ) -> End {
        let hear = |frames| self.tell(&*client.upgrade().ok_or(End::Stopped)?, line, frames);
        let mut most = usual.max(std::mem::take(quiet));
        let watching = async {
            loop {
                let silence = line.heard().elapsed();
                if silence < most {
                    tokio::time::sleep(most - silence).await;
                    continue;
                }
                line.say(None);
                line.push();
                tokio::time::sleep(most).await;
                if line.heard().elapsed() >= 2 * most {
                    *quiet = (2 * most).min(QUIET_MAX);
                    return;
                }
                most = usual;
            }
        };
        tokio::select! {
            end = line.listen(hear) => end,
            end = line.keep_saying() => end,
            () = watching => End::Gone,
            () = self.again.notified() => End::Over,
        }
    }

    /// Delivers the server's messages from `line` to the machine. An empty frame is only a probe.
    fn tell(&self, client: &dyn SessionClient, line: &Line, frames: Vec<BytesMut>) -> Result<(), End> {
        let said = frames.iter().filter(|frame| !frame.is_empty());
        let heard = |frame: &BytesMut| {
            let message = decode(frame)?;
            if let ToClient::Renewed { .. } = message {
                line.is_renewed();
            }
            Ok(message)
        };
        let told = said.map(heard).collect::<Result<Vec<_>, End>>()?;
        if !told.is_empty() {
            client.deliver(self.server, told);
        }
        Ok(())
    }
}

/// The leader's addresses that are not known to be silent, the first one last. A leader may be
/// reached at one of its addresses while the network of another one is down.
fn worth_calling(leader: Vec<String>, is_gone: impl Fn(&String) -> bool) -> Vec<String> {
    leader.into_iter().rev().filter(|address| !is_gone(address)).collect()
}

/// The addresses without repetition. Several servers may have an address in common that means each
/// one's own machine.
fn each_once<'a>(addresses: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut once = Vec::new();
    for address in addresses {
        if !once.contains(address) {
            once.push(address.clone());
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority;
    use crate::credential_store::CredentialStore;
    use crate::listener::{Greeted, Listener};
    use std::sync::mpsc::{Sender, channel};
    use wire::{FOUNDER, Versions};

    /// Notes when sessions open.
    struct Noting(Sender<Instant>);

    impl SessionClient for Noting {
        fn greeting(&self, _: ServerId) -> (Start, Option<SessionId>, Option<Receipt>) {
            (Start { incarnation: 1, drawn: 1, before: Vec::new(), greeting: 1 }, None, None)
        }

        fn opened(&self, _: ServerId, _: SessionId) {
            let _ = self.0.send(Instant::now());
        }

        fn deliver(&self, _: ServerId, _: Vec<ToClient>) {}

        fn refused(&self, _: ServerId, why: &str) {
            panic!("{why}");
        }
    }

    #[test]
    fn a_connection_to_an_only_server_that_goes_silent_is_replaced_and_one_that_answers_is_not() {
        let dir = tempfile::tempdir().unwrap();
        Authority::found(dir.path()).unwrap().credentials(dir.path(), FOUNDER).unwrap();
        let credentials = CredentialStore::open(dir.path(), Versions::KNOWN).unwrap();
        // The server answers one probe of each connection, and takes in the others.
        let serve = async |greeted| {
            let Greeted { mut frames, version, .. } = greeted;
            let welcome = Welcome::Session { session: SessionId(1), servers: Vec::new(), serve: false };
            frames::send(&mut frames, wire::answer(version, &welcome)).await?;
            frames::receive(&mut frames).await?;
            frames::send(&mut frames, Vec::new()).await?;
            while frames::receive(&mut frames).await.is_ok() {}
            Ok(())
        };
        let server = Listener::start(credentials.clone(), "127.0.0.1:0".parse().unwrap(), serve).unwrap();
        let (opens, opened) = channel();
        let client: Arc<dyn SessionClient> = Arc::new(Noting(opens));
        let (link, _keeps) = ServerLink::start(
            (ServerId::ROOT, vec![server.address().to_string()]),
            (Vec::new(), Arc::new(Places::new(Vec::new()))),
            Arc::default(),
            credentials.caller(),
            Arc::downgrade(&client),
            (Box::new(|_, _| ()), Box::new(|_| false)),
        )
        .unwrap();
        link.begin();
        let next = || opened.recv_timeout(Duration::from_secs(120)).expect("a session opens");
        let (first, second) = (next(), next());
        assert!(second - first >= 3 * QUIET_ALONE, "a probe was answered: {:?}", second - first);
    }

    #[test]
    fn a_silent_address_of_the_leader_leaves_its_other_ones_to_call() {
        let leader = || ["172.17.0.1:1", "10.0.0.1:1", "10.1.0.1:1"].map(str::to_owned).to_vec();
        let but = |gone: &[&str]| worth_calling(leader(), |address| gone.contains(&address.as_str()));
        assert_eq!(but(&[]), ["10.1.0.1:1", "10.0.0.1:1", "172.17.0.1:1"], "the first is popped first");
        assert_eq!(but(&["172.17.0.1:1"]), ["10.1.0.1:1", "10.0.0.1:1"]);
        assert_eq!(but(&["172.17.0.1:1", "10.0.0.1:1", "10.1.0.1:1"]), [""; 0]);
    }
}
