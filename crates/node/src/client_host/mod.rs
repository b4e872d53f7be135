//! The part of a machine that its threads share: it carries out the client's outputs, and brings
//! the client the results.
//!
//! Lock order: the client before the server's state. [`Upstream::send`] never blocks, and
//! deliveries hold no lock of the server's. So neither order can close a circle.

mod calls;
mod chores;
mod continuation;
pub(crate) mod ending;
mod figures;
mod revocations;
pub(crate) mod sessions;
mod uploads;

use crate::clock;
use crate::salvage::SalvageStore;
use crate::upstream::Upstream;
use chores::Chore;
use client::{Client, Input, Invalidation, Output, Reply, Settings, Ticket, Upload};
use continuation::GoesOn;
use file_service::{Activity, CacheHolder, Responder};
use ident::ServerId;
use lease::SessionId;
use namespace::{Error, ShareId};
use parking_lot::{Condvar, Mutex, RwLock};
use revocations::DueRevocation;
use rustc_hash::FxHashMap;
use share_hosts::{Copies, Pieces};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use wire::{MachineId, Receipt, Start, ToClient, ToServer};

/// The interval between two ticks of the client.
const TICK: Duration = Duration::from_millis(100);

/// The client of a machine, with the queues and connections that its threads share.
pub(crate) struct ClientHost {
    hosted: Mutex<Hosted>,
    /// Signalled when the session opens, and when the client has nothing left to send.
    changed: Condvar,
    /// The way to the servers. `here` serves while this machine has the only member of each;
    /// `there` takes over once there are members elsewhere.
    here: OnceLock<Upstream>,
    there: OnceLock<Upstream>,
    copies: OnceLock<Copies>,
    me: OnceLock<Weak<ClientHost>>,
    pieces: Pieces,
    uploads: Sender<Upload>,
    chores: Sender<Chore>,
    caches: RwLock<Vec<Arc<dyn CacheHolder>>>,
    tap: OnceLock<Tap>,
    revocations: Sender<DueRevocation>,
    stopping: AtomicBool,
    /// The server does not accept this machine any more.
    refused: AtomicBool,
    salvage: SalvageStore,
    /// Salvages that are not written to disk yet.
    salvaging: AtomicU64,
    started: Instant,
    activity: Arc<Activity>,
    /// Recalls received.
    recalls: AtomicU64,
}

/// Gets every message from the server to this machine's client.
pub(crate) type Tap = Box<dyn Fn(&ToClient) + Send + Sync>;

/// The client, and the calls that wait for it.
struct Hosted {
    client: Client,
    answers: BTreeMap<Ticket, Responder>,
    /// The machine and this start of it.
    identity: (MachineId, Start),
    /// The connections to servers of the directory.
    servers: BTreeMap<ServerId, ServerConnection>,
    open: bool,
    /// Uploads that are not stored yet, by number.
    unstored: BTreeMap<u64, Upload>,
    /// Stored uploads whose publication the server may not have. Should the session end, no other
    /// machine keeps them.
    unsettled: FxHashMap<ShareId, Upload>,
    /// The changes that the last end of this machine left, until the server has them. The client
    /// begins after that.
    goes_on: Option<GoesOn>,
    /// The client has ended, and handles nothing more.
    ended: bool,
}

/// The connection to one server of the directory.
#[derive(Default)]
struct ServerConnection {
    /// The server's latest report of how far it has the log.
    receipt: Option<Receipt>,
    /// The session of the latest connection. Its beginning may still be on its way.
    welcomed: Option<SessionId>,
    /// The client's session: the one whose beginning the client has heard. Only that session can
    /// continue over the next connection.
    session: Option<SessionId>,
    /// Arriving messages belong to a session that does not matter any more, until the next one is
    /// opened.
    deaf: bool,
    /// When this machine's own member was asked for a session that it has not opened yet. Asked
    /// twice, it ends the session of the first answer.
    asked: Option<Instant>,
}

/// The work queues of threads: [`ClientHost::store_uploads`], [`ClientHost::do_chores`],
/// [`ClientHost::revoke`].
pub(crate) struct Queues {
    pub uploads: Receiver<Upload>,
    pub chores: Receiver<Chore>,
    pub revocations: Receiver<DueRevocation>,
}

/// Work left to do once no lock is held.
#[derive(Default)]
struct After {
    answers: Vec<(Responder, Result<Reply, Error>)>,
    queries: Vec<(ServerId, ToServer)>,
    invalidations: Vec<Invalidation>,
    revocations: Vec<DueRevocation>,
    /// Sessions at these servers are over, and others are needed.
    fenced: BTreeSet<ServerId>,
    /// Connections to these servers are needed: the client has to do with them, or the session of
    /// an earlier start is finished.
    begins: BTreeSet<ServerId>,
}

impl ClientHost {
    /// Makes the client host of the machine `identity`. [`ClientHost::connect`] gives it its server
    /// later.
    pub(crate) fn new(
        seed: [u8; 32],
        identity: (MachineId, Start),
        salvage: SalvageStore,
    ) -> (ClientHost, Queues) {
        let (to_upload, uploads) = channel();
        let (to_do, chores) = channel();
        let (to_revoke, revocations) = channel();
        let hosted = Hosted {
            client: Client::new(Settings::new(seed)),
            answers: BTreeMap::new(),
            identity,
            servers: BTreeMap::new(),
            open: false,
            unstored: BTreeMap::new(),
            unsettled: FxHashMap::default(),
            goes_on: None,
            ended: false,
        };
        let client_host = ClientHost {
            hosted: Mutex::new(hosted),
            changed: Condvar::new(),
            here: OnceLock::new(),
            there: OnceLock::new(),
            copies: OnceLock::new(),
            me: OnceLock::new(),
            pieces: Pieces::default(),
            uploads: to_upload,
            chores: to_do,
            caches: RwLock::new(Vec::new()),
            tap: OnceLock::new(),
            revocations: to_revoke,
            stopping: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            salvage,
            salvaging: AtomicU64::new(0),
            started: Instant::now(),
            activity: Arc::new(Activity::new("fuse")),
            recalls: AtomicU64::new(0),
        };
        (client_host, Queues { uploads, chores, revocations })
    }

    /// Gives the client host a reference to itself, and the access to shares. To be called once,
    /// before anything else.
    pub(crate) fn introduce(self: &Arc<Self>, copies: Copies) {
        let _ = self.copies.set(copies);
        let _ = self.me.set(Arc::downgrade(self));
    }

    /// Sets the connection to the server. To be called before any thread starts that needs it, and
    /// once more if the server moves from this machine to another.
    pub(crate) fn connect(&self, upstream: Upstream) {
        let way = if matches!(upstream, Upstream::There(_)) { &self.there } else { &self.here };
        let _ = way.set(upstream);
    }

    /// Makes all threads end at their next look, and drops the front doors. Front doors hold the
    /// machine; the machine does not hold them any longer.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.caches.write().clear();
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        #[expect(clippy::expect_used, reason = "set before any thread that can come here is started")]
        self.there.get().or_else(|| self.here.get()).expect("connected")
    }

    /// Whether the server is on another machine, or is called as if it were.
    pub(crate) fn is_remote(&self) -> bool {
        self.there.get().is_some()
    }

    pub(crate) fn copies(&self) -> &Copies {
        #[expect(clippy::expect_used, reason = "set before any thread that can come here is started")]
        self.copies.get().expect("connected")
    }

    pub(crate) fn salvage(&self) -> &SalvageStore {
        &self.salvage
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The session at the root server.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.hosted.lock().session(ServerId::ROOT)
    }

    /// Shows every message of the server to `tap`. See [`crate::Machine::tap`].
    pub(crate) fn tap(&self, tap: Tap) {
        let _ = self.tap.set(tap);
    }

    fn input(&self, hosted: &mut Hosted, input: Input, after: &mut After) {
        let mut out = Vec::new();
        hosted.client.handle(clock::now(), input, &mut out);
        self.carry_out(hosted, out, after);
    }

    /// Carries out the outputs that need the lock (for the order of messages), and collects in
    /// `after` those that must not hold it.
    fn carry_out(&self, hosted: &mut Hosted, out: Vec<Output>, after: &mut After) {
        for output in out {
            match output {
                Output::Send(server, message @ ToServer::Extents { .. }) => {
                    after.queries.push((server, message));
                }
                Output::Send(server, message) => {
                    self.upstream().send(server, hosted.session(server), message);
                }
                Output::Connect(server) => {
                    hosted.servers.entry(server).or_default();
                    after.begins.insert(server);
                }
                Output::Answer { ticket, result } => {
                    if let Some(answer) = hosted.answers.remove(&ticket) {
                        after.answers.push((answer, result));
                    }
                }
                Output::Store(upload) => {
                    hosted.unstored.insert(upload.upload, upload.clone());
                    let _ = self.uploads.send(upload);
                }
                Output::Unneeded(shares) => {
                    shares.iter().for_each(|share| _ = hosted.unsettled.remove(share));
                    self.chore(Chore::Unneeded(shares));
                }
                Output::Settled(shares) => {
                    shares.iter().for_each(|share| _ = hosted.unsettled.remove(share));
                }
                Output::Salvage(mut salvage) => {
                    hosted.fill_in(&mut salvage.items);
                    self.salvaging.fetch_add(1, Ordering::SeqCst);
                    self.chore(Chore::Salvage(salvage));
                }
                Output::Revoke { number, what, offered } => {
                    after.revocations.push(DueRevocation { number, what, offered });
                }
                Output::RevokeUncovered(invalidation) => after.invalidations.push(invalidation),
            }
        }
    }

    /// Carries out the work that must not hold the lock. `may_block`: this thread may wait for the
    /// disk (a front door's own).
    fn finish(&self, mut after: After, may_block: bool) {
        while !after.queries.is_empty() {
            let queries = std::mem::take(&mut after.queries);
            let mut replies = Vec::new();
            for (server, query) in queries {
                let session = self.hosted.lock().session(server);
                let reply = self.upstream().ask(server, session, query);
                replies.extend(reply.map(|reply| (server, reply)));
            }
            let mut hosted = self.hosted.lock();
            for (server, reply) in replies {
                self.input(&mut hosted, Input::Message(server, reply), &mut after);
            }
        }
        self.upstream().push();
        if !after.invalidations.is_empty() {
            for cache in self.caches.read().iter() {
                cache.revoke_soon(after.invalidations.clone());
            }
        }
        for DueRevocation { number, what, offered } in after.revocations {
            // Invalidating the kernel's caches takes time. A separate thread does it, so that no
            // request waits.
            let caches = self.caches.read().clone();
            let of_all = |what| caches.iter().map(move |cache| cache.revoke_uncached(what));
            let uncached: Option<Vec<_>> = of_all(&what).chain(of_all(&offered)).collect();
            match uncached {
                Some(seals) => {
                    self.revoked(number, BTreeSet::new(), seals).into_iter().for_each(|again| again());
                }
                None => _ = self.revocations.send(DueRevocation { number, what, offered }),
            }
        }
        for (answer, result) in after.answers {
            self.tell(answer, result, may_block);
        }
        if self.is_stopping() {
            return;
        }
        after.begins.into_iter().for_each(|server| self.open_again(server));
        for server in after.fenced {
            tracing::error!(
                server = server.0,
                "the server has ended this machine's session; it goes on with a new one"
            );
            self.open_again(server);
        }
    }
}
