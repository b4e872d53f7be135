//! The part of a machine that its threads share: it carries out the client's outputs, and brings
//! the client the results.
//!
//! Lock order: the client before the server's state. [`Upstream::send`] never blocks, and
//! deliveries hold no lock of the server's. So neither order can close a circle.

use crate::clock;
use crate::copies::Copies;
use crate::machine::{MachineError, STOP_LOOK};
use crate::pieces::Pieces;
use crate::routes::Down;
use crate::salvage::{LeftBehind, SalvageStore};
use crate::status::ClientReport;
use crate::unsent::{Unsent, Whose};
use crate::upstream::Upstream;
use crate::waits::{LONG_MS, LongWaits};
use bytes::Bytes;
use client::{
    Call, Client, Continuation, Heard, Input, Invalidation, Lost, LostWhat, Outcome, Output, Reply, Salvage,
    Settings, Ticket, Upload,
};
use file_service::{Activity, CacheHolder, FileService, Recheck, Responder, Response, Seal};
use ident::FileId;
use lease::SessionId;
use namespace::{Cred, Error, ShareId};
use parking_lot::{Condvar, Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use wire::{MachineId, Receipt, Start, ToClient, ToServer};

/// Uploads that one thread takes together, so that they share the disk's flushes.
const UPLOADS_TOGETHER: usize = 16;
/// The time after which a start reports that it waits for a server elsewhere, and the time until it
/// repeats that.
const WAITS_FIRST: Duration = Duration::from_secs(2);
const WAITS_AGAIN: Duration = Duration::from_secs(30);
/// How long a start may take until the session is open.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a read is tried whose content is not in its place. Content that another machine has
/// overwritten meanwhile is gone once this machine has released its lease.
const READS_MAX: u8 = 3;
/// The interval between two ticks of the client.
const TICK: Duration = Duration::from_millis(100);
/// The interval of renewals of an earlier start's session, in which only the rest of that start's
/// log is left to apply.
const RENEWAL: Duration = Duration::from_secs(5);
/// How long an orderly end waits for a server that cannot be reached (`AWAY`), and for one that
/// makes no progress (`STUCK`). The changes left then are kept.
const AWAY: Duration = Duration::from_secs(5);
const STUCK: Duration = Duration::from_secs(20);

/// The client of a machine, with the queues and connections that its threads share.
pub(crate) struct Engine {
    hosted: Mutex<Hosted>,
    /// Signalled when the session opens, and when the client has nothing left to send.
    changed: Condvar,
    /// The connection to the server. `here` serves while this machine has the only server; `there`
    /// takes over once the server is another machine's, or there are several.
    here: OnceLock<Upstream>,
    there: OnceLock<Upstream>,
    copies: OnceLock<Copies>,
    me: OnceLock<Weak<Engine>>,
    pieces: Pieces,
    uploads: Sender<Upload>,
    chores: Sender<Chore>,
    caches: RwLock<Vec<Arc<dyn CacheHolder>>>,
    tap: OnceLock<Tap>,
    yields: Sender<Yield>,
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
    /// The server's latest report of how far it has the log.
    receipt: Option<Receipt>,
    /// The session of the latest connection. Its beginning may still be on its way.
    welcomed: Option<SessionId>,
    /// The client's session: the one whose beginning the client has heard. Only that session can
    /// continue over the next connection.
    session: Option<SessionId>,
    open: bool,
    /// Uploads that are not stored yet, by number.
    unstored: BTreeMap<u64, Upload>,
    /// Stored uploads whose publication the server may not have. Should the session end, no other
    /// machine keeps them.
    unsettled: FxHashMap<ShareId, Upload>,
    /// The changes that the last end of this machine left, until the server has them. The client
    /// begins after that.
    goes_on: Option<GoesOn>,
    /// Arriving messages belong to a session that does not matter any more, until the next one is
    /// opened.
    deaf: bool,
    /// The client has ended, and handles nothing more.
    ended: bool,
}

/// A session of an earlier start, whose end left changes.
struct GoesOn {
    number: u64,
    unsent: Arc<Unsent>,
    continuation: Continuation,
    /// The time of the session's last renewal, once it continues.
    renewed: Option<Instant>,
}

/// The result of an orderly end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The server has everything.
    Clean,
    /// The rest of `count` changes is kept under this number. `goes_on` says whether the next start
    /// continues with it.
    Kept { number: u64, count: usize, goes_on: bool },
    /// The rest could not be kept.
    Lost { count: usize, why: crate::data::DataError },
}

/// A machine's first message to a server over a new connection.
pub(crate) struct Greeting {
    pub machine: MachineId,
    pub start: Start,
    /// The machine's session until now.
    pub session: Option<SessionId>,
    pub receipt: Option<Receipt>,
}

impl Hosted {
    /// Turns a resumption into a fence if the server has forgotten part of this client's log.
    ///
    /// Such a server has less of the log than it had acknowledged. For this client its session is
    /// over: no later message of that server builds on the forgotten part.
    fn unless_forgotten(&self, message: ToClient) -> ToClient {
        match message {
            ToClient::Resumed { through, .. } if through < self.client.acknowledged() => {
                tracing::error!(
                    "the server has forgotten what it had acknowledged: its disk may be an older copy; what it lacks is kept: leasehold salvage list"
                );
                ToClient::Fenced
            }
            message => message,
        }
    }
}

/// The work queues of threads: [`Engine::store_uploads`], [`Engine::do_chores`],
/// [`Engine::revoke`].
pub(crate) struct Queues {
    pub uploads: Receiver<Upload>,
    pub chores: Receiver<Chore>,
    pub yields: Receiver<Yield>,
}

/// Front-door caches to revoke before leases are released.
pub(crate) struct Yield {
    number: u64,
    what: Vec<Invalidation>,
}

/// Work that may block, and so has threads of its own.
pub(crate) enum Chore {
    Unneeded(Vec<ShareId>),
    /// The reply to a waiting read, whose pieces must be fetched.
    Gather(Vec<content::ReadPart>, Responder),
    /// Changes that could not be applied, to write to disk.
    Salvage(Salvage),
    /// The session of an earlier start continues.
    GoOn,
}

/// Work left to do once no lock is held.
#[derive(Default)]
struct After {
    answers: Vec<(Responder, Result<Reply, Error>)>,
    queries: Vec<ToServer>,
    invalidations: Vec<Invalidation>,
    yields: Vec<Yield>,
    /// The session is over, and another is needed.
    fenced: bool,
    /// The session of an earlier start is finished, and one of this start is needed.
    begins: bool,
}

impl Engine {
    /// Makes the engine of the machine `identity`. [`Engine::connect`] gives it its server later.
    pub(crate) fn new(
        seed: [u8; 32],
        identity: (MachineId, Start),
        salvage: SalvageStore,
    ) -> (Engine, Queues) {
        let (to_upload, uploads) = channel();
        let (to_do, chores) = channel();
        let (to_yield, yields) = channel();
        let hosted = Hosted {
            client: Client::new(Settings::new(seed)),
            answers: BTreeMap::new(),
            identity,
            receipt: None,
            welcomed: None,
            session: None,
            open: false,
            unstored: BTreeMap::new(),
            unsettled: FxHashMap::default(),
            goes_on: None,
            deaf: false,
            ended: false,
        };
        let engine = Engine {
            hosted: Mutex::new(hosted),
            changed: Condvar::new(),
            here: OnceLock::new(),
            there: OnceLock::new(),
            copies: OnceLock::new(),
            me: OnceLock::new(),
            pieces: Pieces::new(),
            uploads: to_upload,
            chores: to_do,
            caches: RwLock::new(Vec::new()),
            tap: OnceLock::new(),
            yields: to_yield,
            stopping: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            salvage,
            salvaging: AtomicU64::new(0),
            started: Instant::now(),
            activity: Arc::new(Activity::new("fuse")),
            recalls: AtomicU64::new(0),
        };
        (engine, Queues { uploads, chores, yields })
    }

    /// Gives the engine a reference to itself, and the access to shares. To be called once, before
    /// anything else.
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

    pub(crate) fn session(&self) -> Option<SessionId> {
        self.hosted.lock().session
    }

    /// Makes the machine begin with the changes that its last end left. To be called before the
    /// machine connects to any server.
    pub(crate) fn go_on_with(&self, number: u64, unsent: Unsent) {
        let continuation = Continuation::new(unsent.first, unsent.entries.clone());
        let goes_on = GoesOn { number, unsent: Arc::new(unsent), continuation, renewed: None };
        self.hosted.lock().goes_on = Some(goes_on);
    }

    /// Makes the greeting of a new connection. The client's time counts from here.
    pub(crate) fn greet(&self) -> Greeting {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        if let Some(goes_on) = &hosted.goes_on {
            // The session belongs to the start that opened it. The calling process belongs to this
            // start, and to no copy of the directory.
            let Whose { machine, incarnation, session } = goes_on.unsent.whose;
            let start = Start { incarnation, ..hosted.identity.1.clone() };
            return Greeting { machine, start, session: Some(session), receipt: hosted.receipt };
        }
        self.input(&mut hosted, Input::Greeting, &mut after);
        let session = hosted.session.filter(|_| hosted.client.has_session());
        let ((machine, start), receipt) = (hosted.identity.clone(), hosted.receipt);
        drop(hosted);
        self.finish(after, false);
        Greeting { machine, start, session, receipt }
    }

    /// Counts this machine's starts on from `incarnation`, a later start than the greeting's, of
    /// which the server knows a session. Returns the start to greet the server with next. Returns
    /// none if this process has had a session of its own: then another process has started after
    /// it.
    pub(crate) fn counts_from(&self, incarnation: u64) -> Option<u64> {
        let mut hosted = self.hosted.lock();
        if hosted.open {
            return None;
        }
        // The later start's session has ended the session that was to continue.
        if let Some(goes_on) = hosted.goes_on.take() {
            self.stays(&goes_on);
        }
        let start = &mut hosted.identity.1;
        start.incarnation = start.incarnation.max(incarnation + 1);
        Some(start.incarnation)
    }

    /// Waits for the session, unless the server refuses the machine. A server elsewhere may be away
    /// for any time: `waits` is called now and then.
    pub(crate) fn wait_until_open(&self, waits: &mut dyn FnMut()) -> Result<(), MachineError> {
        let mut deadline = Instant::now() + START_TIMEOUT;
        let mut say = Instant::now() + WAITS_FIRST;
        let mut hosted = self.hosted.lock();
        while !hosted.open {
            if self.refused.load(Ordering::SeqCst) {
                return Err(MachineError::NoSession);
            }
            if hosted.goes_on.as_ref().is_some_and(|goes_on| goes_on.renewed.is_some()) {
                // Storing the rest of the log first may take long.
                deadline = Instant::now() + START_TIMEOUT;
            }
            if self.changed.wait_until(&mut hosted, deadline.min(say)).timed_out() {
                let now = Instant::now();
                if now >= deadline && !self.is_remote() {
                    return Err(MachineError::NoSession);
                }
                if now >= say {
                    say = now + WAITS_AGAIN;
                    parking_lot::MutexGuard::unlocked(&mut hosted, &mut *waits);
                }
                if now >= deadline {
                    deadline = now + START_TIMEOUT;
                }
            }
        }
        Ok(())
    }

    /// Handles the server's refusal of this machine, which has been expelled. The client's state
    /// counts no more, and all waiting calls end.
    pub(crate) fn refused(&self) {
        if self.refused.swap(true, Ordering::SeqCst) {
            return;
        }
        // The session is over, even if the connection broke before the server's message. Changes
        // that could not be applied are salvaged.
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        if let Some(goes_on) = hosted.goes_on.take() {
            self.stays(&goes_on);
        }
        self.input(&mut hosted, Input::Message(ToClient::Fenced), &mut after);
        let answers = std::mem::take(&mut hosted.answers);
        hosted.session = None;
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
        for answer in answers.into_values() {
            answer(Err(Error::CutOff));
        }
        for cache in self.caches.read().iter() {
            cache.revoke_soon(vec![Invalidation::Everything]);
        }
    }

    /// Shows every message of the server to `tap`. See [`crate::Machine::tap`].
    pub(crate) fn tap(&self, tap: Tap) {
        let _ = self.tap.set(tap);
    }

    /// Hands the server's messages to the client.
    pub(crate) fn deliver(&self, told: Vec<Down>) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        if hosted.ended {
            return;
        }
        for told in told {
            match told {
                Down::Opened(session) => {
                    (hosted.welcomed, hosted.deaf) = (Some(session), false);
                    self.refused.store(false, Ordering::SeqCst);
                }
                Down::Message(ToClient::Receipt(receipt)) => hosted.receipt = Some(receipt),
                Down::Message(_) if hosted.deaf => {}
                Down::Message(message) if hosted.goes_on.is_some() => {
                    self.goes_on_hears(&mut hosted, &message, &mut after);
                }
                Down::Message(message) => {
                    let message = hosted.unless_forgotten(message);
                    if let Some(tap) = self.tap.get() {
                        tap(&message);
                    }
                    if matches!(message, ToClient::Recall { .. }) {
                        self.recalls.fetch_add(1, Ordering::Relaxed);
                    }
                    hosted.open |= matches!(message, ToClient::Opened { .. });
                    if matches!(message, ToClient::Opened { .. } | ToClient::Resumed { .. }) {
                        hosted.session = hosted.welcomed;
                    }
                    if matches!(message, ToClient::Fenced) {
                        hosted.session = None;
                        after.fenced = true;
                    }
                    self.input(&mut hosted, Input::Message(message), &mut after);
                }
                Down::Refused(_) | Down::Enrolled(_) => {}
            }
        }
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
    }

    /// Counts the client's files, dirty bytes, unsent operations and waiting calls.
    pub(crate) fn client_figures(&self) -> ClientFigures {
        let hosted = self.hosted.lock();
        ClientFigures {
            files_known: hosted.client.files_known(),
            dirty_bytes: hosted.client.dirty_bytes(),
            operations_unsent: hosted.client.operations_unsent(),
            waits: hosted.client.waits(clock::time(), 0),
        }
    }

    /// Sends all changes made here until now to the server. Returns whether the server has them
    /// within `at_most`.
    pub(crate) fn flush(&self, at_most: Duration) -> bool {
        let (tell, told) = sync_channel(1);
        let answer: Responder = Box::new(move |result| _ = tell.try_send(result.is_ok()));
        let asked = self.begin(&Cred::default(), Call::SyncAll, answer);
        let done = told.recv_timeout(at_most).unwrap_or(false);
        if let Some(ticket) = asked.filter(|_| !done) {
            self.cancel(ticket);
        }
        done
    }

    /// Counts the client's leases and the recalls it has received.
    pub(crate) fn client_report(&self) -> ClientReport {
        let hosted = self.hosted.lock();
        ClientReport {
            leases: hosted.client.held(clock::time()).map(|(_, held)| held.iter().count()).sum(),
            recalls_received: self.recalls.load(Ordering::Relaxed),
        }
    }

    /// The path of `file`, as far as this machine's client knows.
    pub(crate) fn path(&self, file: &FileId) -> Option<String> {
        self.hosted.lock().client.path(file)
    }

    /// Begins to count the directories in use, or continues to.
    pub(crate) fn watch(&self) {
        self.activity.watch();
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
                Output::Send(message @ ToServer::Extents { .. }) => after.queries.push(message),
                Output::Send(message) => self.upstream().send(hosted.session, message),
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
                Output::Yield { number, what } => after.yields.push(Yield { number, what }),
                Output::Invalidate(invalidation) => after.invalidations.push(invalidation),
            }
        }
    }

    /// Carries out the work that must not hold the lock. `may_block`: this thread may wait for the
    /// disk (a front door's own).
    fn finish(&self, mut after: After, may_block: bool) {
        while !after.queries.is_empty() {
            let queries = std::mem::take(&mut after.queries);
            let session = self.hosted.lock().session;
            let replies: Vec<ToClient> =
                queries.into_iter().filter_map(|query| self.upstream().ask(session, query)).collect();
            let mut hosted = self.hosted.lock();
            for reply in replies {
                self.input(&mut hosted, Input::Message(reply), &mut after);
            }
        }
        self.upstream().push();
        if !after.invalidations.is_empty() {
            for cache in self.caches.read().iter() {
                cache.revoke_soon(after.invalidations.clone());
            }
        }
        for Yield { number, what } in after.yields {
            // Invalidating the kernel's caches takes time. A separate thread does it, so that no
            // request waits.
            let has = |cache: &Arc<dyn CacheHolder>| what.iter().any(|what| cache.has(what));
            if self.caches.read().iter().any(has) {
                let _ = self.yields.send(Yield { number, what });
            } else {
                self.yielded(number, Vec::new());
            }
        }
        for (answer, result) in after.answers {
            self.tell(answer, result, may_block);
        }
        if after.begins && !self.is_stopping() {
            self.upstream().open_again(self);
        }
        if after.fenced && !self.is_stopping() {
            tracing::error!("the server has ended this machine's session; it goes on with a new one");
            self.upstream().open_again(self);
        }
    }

    fn tell(&self, answer: Responder, result: Result<Reply, Error>, may_block: bool) {
        match result {
            Ok(Reply::Data(parts)) => {
                let shares = || {
                    parts.iter().filter_map(|part| match part {
                        content::ReadPart::Piece { share, .. } => Some(*share),
                        content::ReadPart::Bytes(_) | content::ReadPart::Zeros(_) => None,
                    })
                };
                let waits = shares().next().is_some();
                if waits && (!may_block || !self.copies().are_here(shares())) {
                    self.chore(Chore::Gather(parts, answer));
                } else {
                    answer(self.pieces.gather(self.copies(), parts).map(Response::Data));
                }
            }
            Ok(Reply::Passing(reply)) => answer(Ok(Response::Uncached(*reply))),
            Ok(reply) => answer(Ok(Response::Reply(reply))),
            Err(error) => answer(Err(error)),
        }
    }

    /// Revokes recalled content from front doors, until the machine stops. Several threads do this,
    /// so that a kernel slow to invalidate delays no other recall.
    pub(crate) fn revoke(&self, yields: &Mutex<Receiver<Yield>>) {
        while !self.is_stopping() {
            let next = yields.lock().recv_timeout(STOP_LOOK);
            let Ok(Yield { number, what }) = next else { continue };
            let caches = self.caches.read().clone();
            let again: Vec<Seal<'_>> = caches.iter().map(|cache| cache.revoke(&what)).collect();
            self.yielded(number, again).into_iter().for_each(|again| again());
        }
    }

    /// Trap: a call from here on is answered under no lease that is released here. So its response
    /// must not be revoked: the kernel would disregard a response that it is just receiving.
    fn yielded<'a>(&self, number: u64, again: Vec<Seal<'a>>) -> Vec<Recheck<'a>> {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        let again = again.into_iter().map(|again| again()).collect();
        self.input(&mut hosted, Input::Yielded { number }, &mut after);
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
        again
    }

    fn have_done(&self, act: impl FnOnce(&mut Client, &mut Vec<Output>)) {
        let (mut out, mut after) = (Vec::new(), After::default());
        let mut hosted = self.hosted.lock();
        act(&mut hosted.client, &mut out);
        self.carry_out(&mut hosted, out, &mut after);
        drop(hosted);
        self.finish(after, true);
    }

    fn begin(&self, cred: &Cred, call: Call, answer: Responder) -> Option<Ticket> {
        if self.refused.load(Ordering::Relaxed) {
            answer(Err(Error::CutOff));
            return None;
        }
        let mut out = Vec::new();
        let mut hosted = self.hosted.lock();
        let outcome = hosted.client.call(clock::now(), cred, call, &mut out);
        let mut after = After::default();
        let waits = match outcome {
            Outcome::Done(result) if out.is_empty() => {
                drop(hosted);
                self.tell(answer, result, true);
                return None;
            }
            Outcome::Done(result) => {
                after.answers.push((answer, result));
                None
            }
            Outcome::Waiting(ticket) => {
                hosted.answers.insert(ticket, answer);
                Some(ticket)
            }
        };
        self.carry_out(&mut hosted, out, &mut after);
        drop(hosted);
        self.finish(after, true);
        waits
    }

    /// Wraps the answer to a read: a read that finds its content gone is tried again from its
    /// beginning.
    fn reading(&self, cred: Cred, call: Call, answer: Responder, tries: u8) -> Responder {
        let Some(engine) = self.me.get().and_then(Weak::upgrade).filter(|_| tries > 0) else { return answer };
        Box::new(move |told| {
            if !matches!(told, Err(Error::Damaged)) {
                return answer(told);
            }
            let answer = engine.reading(cred.clone(), call.clone(), answer, tries - 1);
            // The new attempt has no ticket by which it could be cancelled. It does not wait for
            // any other machine either.
            engine.begin(&cred, call, answer);
        })
    }

    fn chore(&self, chore: Chore) {
        // The threads outlive the owner of the last sender.
        let _ = self.chores.send(chore);
    }

    /// Seals and stores uploads until the machine stops.
    pub(crate) fn store_uploads(&self, queue: &Mutex<Receiver<Upload>>) {
        loop {
            let uploads: Vec<Upload> = {
                let queue = queue.lock();
                let Ok(first) = queue.recv_timeout(STOP_LOOK) else {
                    if self.is_stopping() {
                        return;
                    }
                    continue;
                };
                std::iter::once(first).chain(queue.try_iter().take(UPLOADS_TOGETHER - 1)).collect()
            };
            // The next session sweeps uploads that belong to no session.
            let session = self.session().unwrap_or(SessionId(0));
            let stored = self.copies().store(session, uploads);
            let mut after = After::default();
            let mut hosted = self.hosted.lock();
            for (upload, result) in stored {
                self.stored(&mut hosted, upload, result, &mut after);
            }
            self.changed.notify_all();
            drop(hosted);
            self.finish(after, true);
        }
    }

    /// Does chores until the machine stops. Several threads do this, since a chore may wait for the
    /// network.
    pub(crate) fn do_chores(&self, chores: &Mutex<Receiver<Chore>>) {
        loop {
            let chore = chores.lock().recv_timeout(STOP_LOOK);
            match chore {
                Ok(Chore::Unneeded(shares)) => self.copies().let_go(&shares),
                Ok(Chore::Gather(parts, answer)) => {
                    answer(self.pieces.gather(self.copies(), parts).map(Response::Data));
                }
                Ok(Chore::Salvage(salvage)) => {
                    self.salvage.keep(salvage, |parts| self.pieces.gather(self.copies(), parts));
                    self.salvaging.fetch_sub(1, Ordering::SeqCst);
                }
                Ok(Chore::GoOn) => self.go_on(),
                Err(_) if self.is_stopping() => return,
                Err(_) => {}
            }
        }
    }

    /// Ticks the client and renews sessions until the machine stops.
    pub(crate) fn tick(&self) {
        let mut said = LongWaits::default();
        while !self.is_stopping() {
            std::thread::sleep(TICK);
            let now = clock::time();
            let mut after = After::default();
            let waits = {
                let mut hosted = self.hosted.lock();
                if hosted.client.deadline().is_some_and(|deadline| deadline <= now) {
                    self.input(&mut hosted, Input::Tick, &mut after);
                }
                self.renews(&mut hosted);
                hosted.client.waits(now, LONG_MS)
            };
            self.finish(after, true);
            for wait in said.due(waits, |wait| (wait.ticket.0, wait.for_ms)) {
                let seconds = wait.for_ms as f64 / 1e3;
                tracing::warn!(call = wait.call, seconds, "a call waits for {}", wait.what);
            }
        }
    }

    /// Takes in that the share server has stored an upload, or cannot store it.
    fn stored(
        &self,
        hosted: &mut Hosted,
        upload: u64,
        result: Result<Vec<[u8; 32]>, Error>,
        after: &mut After,
    ) {
        if let Some(stored) = hosted.unstored.remove(&upload).filter(|_| result.is_ok()) {
            hosted.unsettled.insert(stored.share, stored);
        }
        self.input(hosted, Input::Stored { upload, result }, after);
    }
}

/// Figures of a client's state.
pub(crate) struct ClientFigures {
    pub files_known: usize,
    pub dirty_bytes: usize,
    pub operations_unsent: usize,
    pub waits: Vec<client::WaitReport>,
}

/// The orderly end, and the start after it.
impl Engine {
    /// Begins the end: the mount is about to go, and only the kernel's last writes follow.
    pub(crate) fn begin_ending(&self) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        hosted.client.begin_ending();
        self.input(&mut hosted, Input::Tick, &mut after);
        drop(hosted);
        self.finish(after, true);
    }

    /// Sends everything to the server until `deadline`, as long as that makes progress. Returns
    /// whether the server has it all.
    pub(crate) fn close_client(&self, deadline: Instant) -> bool {
        let (mut progress, mut moved, mut heard) = ((0, 0), Instant::now(), Instant::now());
        loop {
            let mut after = After::default();
            let mut hosted = self.hosted.lock();
            let mut out = Vec::new();
            let clean = hosted.client.close(clock::now(), &mut out);
            self.carry_out(&mut hosted, out, &mut after);
            if !clean {
                self.changed.wait_for(&mut hosted, TICK);
            }
            let now = Instant::now();
            if hosted.client.progress() != progress {
                (progress, moved) = (hosted.client.progress(), now);
            }
            if hosted.client.is_connected() {
                heard = now;
            }
            drop(hosted);
            self.finish(after, true);
            let in_vain = now > deadline || now - heard > AWAY || now - moved > STUCK;
            if clean || in_vain || self.refused.load(Ordering::SeqCst) {
                return clean;
            }
        }
    }

    /// Waits until all salvage is written to disk, while its content can still be read.
    pub(crate) fn finish_salvaging(&self, deadline: Instant) {
        while self.salvaging.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(STOP_LOOK / 4);
        }
    }

    /// Keeps the changes that the server may not have, and reads them back. The client does nothing
    /// more after this.
    pub(crate) fn keep_what_is_left(&self) -> Ended {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        hosted.ended = true;
        let mut items = hosted.client.unapplied();
        hosted.fill_in(&mut items);
        let mut keeping = self.salvage.begin();
        // Uploads on their way to the share servers, or waiting for that, become publications here.
        // One upload may bring the next.
        loop {
            let mut out = Vec::new();
            let clean = hosted.client.close(clock::now(), &mut out);
            self.carry_out(&mut hosted, out, &mut after);
            if clean {
                let _ = self.salvage.drop_one(keeping.number());
                return Ended::Clean;
            }
            let Some((upload, plan)) = hosted.unstored.first_key_value() else { break };
            let (upload, share) = (*upload, plan.share);
            let pieces = plan.pieces.iter().map(|(nonce, plain)| (*nonce, plain));
            let (bytes, hashes) = content::seal_share(&plan.key, pieces);
            keeping.share(share, &bytes);
            self.stored(&mut hosted, upload, Ok(hashes), &mut after);
        }
        let whole = hosted.client.is_all_logged();
        let whose = hosted.session.map(|session| {
            let (machine, start) = &hosted.identity;
            Whose { machine: *machine, incarnation: start.incarnation, session }
        });
        let (first, entries) = hosted.client.log_left();
        let count = items.len().max(entries.len());
        let left = whose.filter(|_| whole && hosted.client.has_session());
        let left = left.map(|whose| LeftBehind { whose, first, entries });
        let reaches = hosted.client.is_connected();
        drop(hosted);
        // Content that is elsewhere is not waited for while the server is away.
        let gather = |parts: Vec<content::ReadPart>| {
            let is_here = |part: &content::ReadPart| !matches!(part, content::ReadPart::Piece { .. });
            if reaches || parts.iter().all(is_here) {
                self.pieces.gather(self.copies(), parts)
            } else {
                Err(Error::CutOff)
            }
        };
        match self.salvage.finish(keeping, items, left.as_ref(), gather) {
            Ok((number, goes_on)) => Ended::Kept { number, count, goes_on },
            Err(why) => Ended::Lost { count, why },
        }
    }

    /// Handles a message of the server in the session of an earlier start.
    fn goes_on_hears(&self, hosted: &mut Hosted, message: &ToClient, after: &mut After) {
        let Some(goes_on) = &mut hosted.goes_on else { return };
        match goes_on.continuation.hear(message) {
            Heard::Nothing => {}
            Heard::GoesOn => {
                goes_on.renewed = Some(Instant::now());
                self.chore(Chore::GoOn);
            }
            Heard::Done => {
                let (number, session) = (goes_on.number, goes_on.unsent.whose.session);
                // This comes first: the next start must not take applied changes for lost.
                let kept = self.salvage.applied(number, goes_on.continuation.refused());
                if let Err(error) = kept {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, number, "what the server has now is still among the salvage");
                }
                tracing::info!("what the last end of this machine had left is applied");
                self.begins(hosted, Some(session), after);
            }
            Heard::Over => {
                if let Some(goes_on) = hosted.goes_on.take() {
                    self.stays(&goes_on);
                }
                self.begins(hosted, None, after);
            }
        }
    }

    /// Ends the session of an earlier start, and begins the client's own.
    fn begins(&self, hosted: &mut Hosted, ends: Option<SessionId>, after: &mut After) {
        if let Some(session) = ends {
            self.upstream().send(Some(session), ToServer::Goodbye);
        }
        (hosted.goes_on, hosted.deaf) = (None, true);
        after.begins = true;
    }

    /// Marks the changes of `goes_on` as never to be applied.
    fn stays(&self, goes_on: &GoesOn) {
        let number = goes_on.number;
        match self.salvage.stays(number) {
            Ok(()) => tracing::error!(
                number,
                "the session in which the last end of this machine has left something is over; that is kept: leasehold salvage list"
            ),
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                number,
                "what the last end of this machine has left cannot be applied, and cannot be noted either"
            ),
        }
    }

    /// Stores the shares that the rest of the log refers to, then sends that rest. Runs on a thread
    /// that may wait.
    fn go_on(&self) {
        let (unsent, shares) = match &self.hosted.lock().goes_on {
            Some(goes_on) => (goes_on.unsent.clone(), goes_on.continuation.shares()),
            None => return,
        };
        let stored = shares.into_iter().try_for_each(|share| {
            let Some(bytes) = unsent.share(share).map_err(|error| error.to_string())? else { return Ok(()) };
            let stored = self.copies().store_sealed(unsent.whose.session, vec![(share, bytes)]);
            stored.into_iter().collect::<Result<(), Error>>().map_err(|error| error.to_string())
        });
        if self.is_stopping() {
            return;
        }
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        match (stored, &mut hosted.goes_on) {
            (Ok(()), Some(goes_on)) => {
                let session = Some(unsent.whose.session);
                goes_on.continuation.say().into_iter().for_each(|it| self.upstream().send(session, it));
            }
            (Err(why), Some(_)) => {
                tracing::error!(why, "what the last end of this machine has left cannot be stored");
                if let Some(goes_on) = hosted.goes_on.take() {
                    self.stays(&goes_on);
                }
                self.begins(&mut hosted, Some(unsent.whose.session), &mut after);
            }
            (_, None) => {}
        }
        drop(hosted);
        self.finish(after, true);
    }

    /// Renews the earlier start's session while its shares are stored: that session must not lapse.
    fn renews(&self, hosted: &mut Hosted) {
        if let Some(goes_on) = &mut hosted.goes_on
            && let Some(renewed) = &mut goes_on.renewed
            && renewed.elapsed() >= RENEWAL
        {
            *renewed = Instant::now();
            self.upstream().send(Some(goes_on.unsent.whose.session), ToServer::Renew);
        }
    }
}

impl Hosted {
    /// Replaces pieces of shares that the server may soon drop by their plain bytes.
    fn fill_in(&self, items: &mut [Lost]) {
        for lost in items {
            let LostWhat::Content { ranges, .. } = &mut lost.what else { continue };
            for (_, part) in ranges {
                if let Some(bytes) = self.plain(part) {
                    *part = content::ReadPart::Bytes(bytes);
                }
            }
        }
    }

    fn plain(&self, part: &content::ReadPart) -> Option<Bytes> {
        let content::ReadPart::Piece { share, at, skip, length, .. } = part else { return None };
        let of_share = || self.unstored.values().find(|upload| upload.share == *share);
        let upload = self.unsettled.get(share).or_else(of_share)?;
        let mut begins = 0;
        for (_, plain) in &upload.pieces {
            if begins == *at as usize {
                let from = *skip as usize;
                return (from + *length as usize <= plain.len())
                    .then(|| plain.slice(from..from + *length as usize));
            }
            begins += plain.len() + content::TAG_BYTES;
        }
        None
    }
}

impl FileService for Engine {
    fn call(&self, cred: &Cred, call: Call, answer: Responder) -> Option<Ticket> {
        let answer = if matches!(call, Call::Read { .. }) {
            self.reading(cred.clone(), call.clone(), answer, READS_MAX)
        } else {
            answer
        };
        self.begin(cred, call, answer)
    }

    fn cancel(&self, ticket: Ticket) {
        self.have_done(|client, out| _ = client.cancel(ticket, out));
    }

    fn give_way(&self, ticket: Ticket) {
        self.have_done(|client, out| client.give_way(clock::now(), ticket, out));
    }

    fn look(&self) {
        self.upstream().look(self);
    }

    fn root(&self) -> FileId {
        self.hosted.lock().client.root().clone()
    }

    fn valid_for(&self) -> Duration {
        Duration::from_millis(self.hosted.lock().client.valid_for_ms(clock::time()))
    }

    fn forgotten(&self, files: Vec<FileId>) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        self.input(&mut hosted, Input::Forgotten(files), &mut after);
        drop(hosted);
        self.finish(after, false);
    }

    fn activity(&self) -> Option<&Arc<Activity>> {
        Some(&self.activity)
    }

    fn register_cache(&self, cache: Arc<dyn CacheHolder>) {
        self.hosted.lock().client.has_below();
        self.caches.write().push(cache);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, MachineSettings};

    /// A front door whose first revocation does not end before there is a second.
    #[derive(Default)]
    struct Slow {
        begun: Mutex<u32>,
        more: Condvar,
    }

    impl CacheHolder for Slow {
        fn has(&self, _: &Invalidation) -> bool {
            true
        }

        fn revoke(&self, _: &[Invalidation]) -> Seal<'_> {
            let mut begun = self.begun.lock();
            *begun += 1;
            self.more.notify_all();
            let deadline = Instant::now() + Duration::from_secs(200);
            while *begun < 2 {
                assert!(!self.more.wait_until(&mut begun, deadline).timed_out(), "one waits for the other");
            }
            Box::new(|| Box::new(|| ()))
        }

        fn revoke_soon(&self, _: Vec<Invalidation>) {}
    }

    #[test]
    fn a_recall_that_the_kernel_is_slow_to_let_go_of_holds_up_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
        let (engine, slow) = (machine.engine(), Arc::new(Slow::default()));
        engine.register_cache(slow.clone());
        for number in [u64::MAX - 1, u64::MAX] {
            engine.yields.send(Yield { number, what: vec![Invalidation::Everything] }).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut begun = slow.begun.lock();
        while *begun < 2 {
            assert!(!slow.more.wait_until(&mut begun, deadline).timed_out(), "one waits for the other");
        }
        drop(begun);
        machine.stop().unwrap();
    }
}
