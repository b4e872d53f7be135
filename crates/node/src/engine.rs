//! Carries out what the client and the server put out, and brings them what comes of it: the part of a machine that its threads share.
//!
//! Lock order: the client before the server's state. `Group::propose` never blocks and deliveries hold no lock of the server's, so
//! neither order can close a circle.

use crate::clock;
use crate::door::{Answer, Door, Told};
use crate::group::Group;
use crate::machine::MachineError;
use crate::pieces::Pieces;
use crate::shares_server::{Shares, utc_secs};
use client::{Call, Client, Input, Invalidation, Outcome, Output, Reply, Settings, Ticket, Upload};
use directory::ShareWork;
use lease::SessionId;
use namespace::{Cred, Error};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire::{MachineId, ToClient, ToServer};

/// Uploads that one thread takes together, so that they share the disk's flushes.
const UPLOADS_TOGETHER: usize = 16;
/// How long a start may take until the session is open.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often free space is measured, and the client looked after.
const TICK: Duration = Duration::from_millis(100);

/// Who is to be told what the kernel may no longer keep.
type Tell = Arc<dyn Fn(&Invalidation) + Send + Sync>;

/// See the module.
pub(crate) struct Engine {
    hosted: Mutex<Hosted>,
    /// Signalled when the session opens and when the client has nothing left to get out.
    changed: Condvar,
    group: OnceLock<Group>,
    shares: Shares,
    pieces: Pieces,
    uploads: Sender<Upload>,
    share_work: Sender<Chore>,
    tell: RwLock<Vec<Tell>>,
    stopping: AtomicBool,
    dir: PathBuf,
    started: Instant,
    /// The first second (UTC) in which this incarnation stores uploads: leases tell time in seconds, and an earlier incarnation may have stored some in
    /// the very second in which it was killed and this one started.
    first_second: u64,
}

/// The client and who waits for it.
struct Hosted {
    client: Client,
    answers: BTreeMap<Ticket, Answer>,
    /// The machine and its incarnation.
    identity: (MachineId, u64),
    session: Option<SessionId>,
    open: bool,
}

/// What threads are to work off: [`Engine::store_uploads`] and [`Engine::do_chores`].
pub(crate) struct Queues {
    pub uploads: Receiver<Upload>,
    pub chores: Receiver<Chore>,
}

/// What the share thread does.
pub(crate) enum Chore {
    Work(Vec<ShareWork>),
    Unneeded(Vec<namespace::ShareId>),
    /// Uploads from before this time (UTC seconds) that nobody has adopted by now are nobody's.
    Sweep(u64),
    /// The reply of a waiting read, whose pieces must be fetched by a thread that may block.
    Gather(Vec<content::Part>, Answer),
}

/// What is left to do once no lock is held.
#[derive(Default)]
struct After {
    answers: Vec<(Answer, Result<Reply, Error>)>,
    queries: Vec<ToServer>,
    invalidations: Vec<Invalidation>,
}

impl Engine {
    /// Of the machine in `dir`, which starts now as this incarnation. The server comes by [`Engine::serve_from`].
    pub(crate) fn new(
        dir: &Path,
        seed: [u8; 32],
        identity: (MachineId, u64),
        shares: Shares,
    ) -> (Engine, Queues) {
        let (to_upload, uploads) = channel();
        let (to_do, chores) = channel();
        let hosted = Hosted {
            client: Client::new(Settings::new(seed)),
            answers: BTreeMap::new(),
            identity,
            session: None,
            open: false,
        };
        let engine = Engine {
            hosted: Mutex::new(hosted),
            changed: Condvar::new(),
            group: OnceLock::new(),
            shares,
            pieces: Pieces::new(),
            uploads: to_upload,
            share_work: to_do,
            tell: RwLock::new(Vec::new()),
            stopping: AtomicBool::new(false),
            dir: dir.to_path_buf(),
            started: Instant::now(),
            first_second: utc_secs() + 1,
        };
        (engine, Queues { uploads, chores })
    }

    /// The server is there. Once, before any thread is started.
    pub(crate) fn serve_from(&self, group: Group) {
        let _ = self.group.set(group);
    }

    /// Threads end when they next look.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn group(&self) -> &Group {
        #[expect(clippy::expect_used, reason = "set before any thread that can come here is started")]
        self.group.get().expect("the group is open")
    }

    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Files that the client knows, and dirty bytes that it holds.
    pub(crate) fn client_figures(&self) -> (usize, usize) {
        let hosted = self.hosted.lock();
        (hosted.client.files_known(), hosted.client.dirty_bytes())
    }

    /// Opens this incarnation's session.
    pub(crate) fn open_session(&self) -> Result<(), MachineError> {
        let (machine, incarnation) = self.hosted.lock().identity;
        self.group().propose(directory::Input::Lead);
        self.measure_space(&mut None);
        self.group().propose(directory::Input::Open { machine, incarnation });
        let deadline = Instant::now() + START_TIMEOUT;
        let mut hosted = self.hosted.lock();
        while !hosted.open {
            if self.changed.wait_until(&mut hosted, deadline).timed_out() {
                return Err(MachineError::NoSession);
            }
        }
        // Behind the work that the new leader gave out again.
        self.chore(Chore::Sweep(self.first_second));
        Ok(())
    }

    /// Outputs of applied log entries.
    pub(crate) fn deliver(&self, outputs: Vec<directory::Output>) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        for output in outputs {
            match output {
                directory::Output::Opened { machine, incarnation, session }
                    if (machine, incarnation) == hosted.identity =>
                {
                    hosted.session = Some(session);
                }
                directory::Output::Send { session, message } if hosted.session == Some(session) => {
                    hosted.open |= matches!(message, ToClient::Opened { .. });
                    self.input(&mut hosted, Input::Message(message), &mut after);
                }
                // Other machines' sessions, and earlier ones of this machine.
                directory::Output::Opened { .. } | directory::Output::Send { .. } => {}
                directory::Output::Shares(work) => self.chore(Chore::Work(work)),
                directory::Output::Again => self.group().propose(directory::Input::Tick),
            }
        }
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
    }

    fn input(&self, hosted: &mut Hosted, input: Input, after: &mut After) {
        let mut out = Vec::new();
        hosted.client.handle(clock::now(), input, &mut out);
        self.carry_out(hosted, out, after);
    }

    /// Carries out what needs the lock (order of messages), and collects what must not have it.
    fn carry_out(&self, hosted: &mut Hosted, out: Vec<Output>, after: &mut After) {
        for output in out {
            match output {
                Output::Send(message @ ToServer::Extents { .. }) => after.queries.push(message),
                Output::Send(message) => {
                    if let Some(session) = hosted.session {
                        self.group().propose(directory::Input::Message { session, message });
                    }
                }
                Output::Answer { ticket, result } => {
                    if let Some(answer) = hosted.answers.remove(&ticket) {
                        after.answers.push((answer, result));
                    }
                }
                Output::Store(upload) => {
                    let _ = self.uploads.send(upload);
                }
                Output::Unneeded(shares) => self.chore(Chore::Unneeded(shares)),
                Output::Rejected { operation, error } => {
                    tracing::error!(?operation, %error, "the server refused an update that was done here");
                }
                Output::Invalidate(invalidation) => after.invalidations.push(invalidation),
                Output::CutOff => {
                    tracing::error!("the session was ended by the server: unsaved updates are lost")
                }
            }
        }
    }

    /// Does what must not hold the lock. `may_block`: this thread may wait for the disk (a front door's own).
    fn finish(&self, mut after: After, may_block: bool) {
        while !after.queries.is_empty() {
            let queries = std::mem::take(&mut after.queries);
            let session = self.hosted.lock().session;
            let replies: Vec<ToClient> = queries
                .iter()
                .filter_map(|query| {
                    self.group().query(|directory, store| directory.query(session?, query, store))
                })
                .collect();
            let mut hosted = self.hosted.lock();
            for reply in replies {
                self.input(&mut hosted, Input::Message(reply), &mut after);
            }
        }
        if !after.invalidations.is_empty() {
            for tell in self.tell.read().iter() {
                after.invalidations.iter().for_each(|invalidation| tell(invalidation));
            }
        }
        for (answer, result) in after.answers {
            self.tell(answer, result, may_block);
        }
    }

    fn tell(&self, answer: Answer, result: Result<Reply, Error>, may_block: bool) {
        match result {
            Ok(Reply::Data(parts)) => {
                let waits = parts.iter().any(|part| matches!(part, content::Part::Piece { .. }));
                if waits && !may_block {
                    self.chore(Chore::Gather(parts, answer));
                } else {
                    answer(self.pieces.gather(&self.shares, parts).map(Told::Data));
                }
            }
            Ok(reply) => answer(Ok(Told::Reply(reply))),
            Err(error) => answer(Err(error)),
        }
    }

    fn chore(&self, chore: Chore) {
        // The share thread ends after the last sender's owner.
        let _ = self.share_work.send(chore);
    }

    /// Seals and stores uploads until the machine stops.
    pub(crate) fn store_uploads(&self, queue: &Mutex<Receiver<Upload>>) {
        loop {
            let uploads: Vec<Upload> = {
                let queue = queue.lock();
                let Ok(first) = queue.recv_timeout(TICK) else {
                    if self.is_stopping() {
                        return;
                    }
                    continue;
                };
                std::iter::once(first).chain(queue.try_iter().take(UPLOADS_TOGETHER - 1)).collect()
            };
            while utc_secs() < self.first_second && !self.is_stopping() {
                std::thread::sleep(Duration::from_millis(10));
            }
            let stored = self.shares.store(uploads);
            let mut after = After::default();
            let mut hosted = self.hosted.lock();
            for (upload, result) in stored {
                self.input(&mut hosted, Input::Stored { upload, result }, &mut after);
            }
            self.changed.notify_all();
            drop(hosted);
            self.finish(after, true);
        }
    }

    pub(crate) fn do_chores(&self, chores: &Receiver<Chore>) {
        let mut unsettled: Vec<ShareWork> = Vec::new();
        loop {
            match chores.recv_timeout(TICK) {
                Ok(Chore::Work(work)) => {
                    unsettled.extend(work);
                    if self.shares.settle(&unsettled) {
                        self.group().propose(directory::Input::SharesSettled(std::mem::take(&mut unsettled)));
                    }
                }
                // What is pending may be the adoption of such an upload.
                Ok(Chore::Sweep(_)) if !unsettled.is_empty() => {}
                Ok(Chore::Sweep(since)) => self.shares.sweep(since),
                Ok(Chore::Unneeded(shares)) => self.shares.let_go(&shares),
                Ok(Chore::Gather(parts, answer)) => {
                    answer(self.pieces.gather(&self.shares, parts).map(Told::Data));
                }
                Err(_) if self.is_stopping() => return,
                Err(_) => {}
            }
        }
    }

    /// Looks after time and space until the machine stops.
    pub(crate) fn tick(&self) {
        let mut measured = None;
        while !self.is_stopping() {
            std::thread::sleep(TICK);
            let now = clock::time();
            let mut after = After::default();
            {
                let mut hosted = self.hosted.lock();
                if hosted.client.deadline().is_some_and(|deadline| deadline <= now) {
                    self.input(&mut hosted, Input::Tick, &mut after);
                }
            }
            self.finish(after, true);
            self.measure_space(&mut measured);
        }
    }

    /// Tells the server what is free, when that has changed by what matters.
    fn measure_space(&self, last: &mut Option<u64>) {
        let Ok(space) = crate::space::measure(&self.dir) else { return };
        let changed = last.is_none_or(|last: u64| last.abs_diff(space.free) > (space.free / 32).max(1 << 20));
        if changed {
            *last = Some(space.free);
            self.group().propose(directory::Input::Space(space));
        }
    }

    pub(crate) fn close_client(&self, deadline: Instant) -> bool {
        loop {
            let mut after = After::default();
            let mut hosted = self.hosted.lock();
            let mut out = Vec::new();
            let clean = hosted.client.close(clock::now(), &mut out);
            self.carry_out(&mut hosted, out, &mut after);
            if !clean {
                self.changed.wait_for(&mut hosted, TICK);
            }
            drop(hosted);
            self.finish(after, true);
            if clean || Instant::now() > deadline {
                return clean;
            }
        }
    }
}

impl Door for Engine {
    fn call(&self, cred: &Cred, call: Call, answer: Answer) -> Option<Ticket> {
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

    fn cancel(&self, ticket: Ticket) {
        let (mut out, mut after) = (Vec::new(), After::default());
        let mut hosted = self.hosted.lock();
        hosted.client.cancel(ticket, &mut out);
        self.carry_out(&mut hosted, out, &mut after);
        drop(hosted);
        self.finish(after, true);
    }

    fn valid_for(&self) -> Duration {
        Duration::from_millis(self.hosted.lock().client.valid_for_ms(clock::time()))
    }

    fn on_invalidate(&self, tell: Tell) {
        self.tell.write().push(tell);
    }
}
