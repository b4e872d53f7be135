//! Carries out what the client puts out, and brings it what comes of it: the part of a machine that its threads share.
//!
//! Lock order: the client before the server's state. [`Upstream::send`] never blocks and deliveries hold no lock of the server's, so
//! neither order can close a circle.

use crate::clock;
use crate::copies::Copies;
use crate::door::{Again, Answer, Below, Door, Told};
use crate::machine::{MachineError, STOP_LOOK};
use crate::pieces::Pieces;
use crate::routes::Down;
use crate::salvage::SalvageStore;
use crate::upstream::Upstream;
use crate::waits::{LONG_MS, LongWaits};
use client::{Call, Client, Input, Invalidation, Outcome, Output, Reply, Salvage, Settings, Ticket, Upload};
use ident::FileId;
use lease::SessionId;
use namespace::{Cred, Error};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use wire::{MachineId, ToClient, ToServer};

/// Uploads that one thread takes together, so that they share the disk's flushes.
const UPLOADS_TOGETHER: usize = 16;
/// How long a start may take until the session is open.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a read is tried whose content was not where it was said to be: what was overwritten meanwhile by another machine is gone, once this one has let go of it.
const READS_MAX: u8 = 3;
/// How often the client is looked after.
const TICK: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Engine {
    hosted: Mutex<Hosted>,
    /// Signalled when the session opens and when the client has nothing left to get out.
    changed: Condvar,
    /// The way to the server: here, as long as it is the only one; there from when it is another, or there are several.
    here: OnceLock<Upstream>,
    there: OnceLock<Upstream>,
    copies: OnceLock<Copies>,
    me: OnceLock<Weak<Engine>>,
    pieces: Pieces,
    uploads: Sender<Upload>,
    chores: Sender<Chore>,
    below: RwLock<Vec<Arc<dyn Below>>>,
    tap: OnceLock<Tap>,
    yields: Sender<Yield>,
    stopping: AtomicBool,
    /// The server does not take this machine any more.
    refused: AtomicBool,
    salvage: SalvageStore,
    started: Instant,
}

/// Is told what the server tells this machine's client.
pub(crate) type Tap = Box<dyn Fn(&ToClient) + Send + Sync>;

/// The client and who waits for it.
struct Hosted {
    client: Client,
    answers: BTreeMap<Ticket, Answer>,
    /// The machine and its incarnation.
    identity: (MachineId, u64),
    /// What the latest connection is in. Its beginning may still be on its way.
    welcomed: Option<SessionId>,
    /// What the client is in: the one whose beginning it has heard. Only that can go on over the next connection.
    session: Option<SessionId>,
    open: bool,
}

/// What threads are to work off: [`Engine::store_uploads`], [`Engine::do_chores`], [`Engine::take_back`].
pub(crate) struct Queues {
    pub uploads: Receiver<Upload>,
    pub chores: Receiver<Chore>,
    pub yields: Receiver<Yield>,
}

/// What is to be taken back from below before leases are let go.
pub(crate) struct Yield {
    number: u64,
    what: Vec<Invalidation>,
}

/// What may block, and so is for threads of its own.
pub(crate) enum Chore {
    Unneeded(Vec<namespace::ShareId>),
    /// The reply of a waiting read, whose pieces must be fetched.
    Gather(Vec<content::Part>, Answer),
    /// What could not be applied is to be written down.
    Salvage(Salvage),
}

/// What is left to do once no lock is held.
#[derive(Default)]
struct After {
    answers: Vec<(Answer, Result<Reply, Error>)>,
    queries: Vec<ToServer>,
    invalidations: Vec<Invalidation>,
    yields: Vec<Yield>,
    /// The session is over, and another is wanted.
    fenced: bool,
}

impl Engine {
    /// Of the machine `identity`, which starts now as this incarnation. The way to the server comes by [`Engine::connect`].
    pub(crate) fn new(seed: [u8; 32], identity: (MachineId, u64), salvage: SalvageStore) -> (Engine, Queues) {
        let (to_upload, uploads) = channel();
        let (to_do, chores) = channel();
        let (to_yield, yields) = channel();
        let hosted = Hosted {
            client: Client::new(Settings::new(seed)),
            answers: BTreeMap::new(),
            identity,
            welcomed: None,
            session: None,
            open: false,
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
            below: RwLock::new(Vec::new()),
            tap: OnceLock::new(),
            yields: to_yield,
            stopping: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            salvage,
            started: Instant::now(),
        };
        (engine, Queues { uploads, chores, yields })
    }

    /// It knows itself, and the way to shares. Once, before anything else.
    pub(crate) fn introduce(self: &Arc<Self>, copies: Copies) {
        let _ = self.copies.set(copies);
        let _ = self.me.set(Arc::downgrade(self));
    }

    /// The way to the server: before any thread is started that needs it, and once more if that changes from this machine to another.
    pub(crate) fn connect(&self, upstream: Upstream) {
        let way = if matches!(upstream, Upstream::There(_)) { &self.there } else { &self.here };
        let _ = way.set(upstream);
    }

    /// Threads end when they next look. Front doors hold the machine; it does not hold them any longer.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.below.write().clear();
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        #[expect(clippy::expect_used, reason = "set before any thread that can come here is started")]
        self.there.get().or_else(|| self.here.get()).expect("connected")
    }

    /// Whether its server is on another machine, or is called as if it were.
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

    /// What a greeting says: the machine, its incarnation, the session that it had. The client's time counts from here.
    pub(crate) fn greet(&self) -> (MachineId, u64, Option<SessionId>) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        self.input(&mut hosted, Input::Greeting, &mut after);
        let session = hosted.session.filter(|_| hosted.client.has_session());
        let (machine, incarnation) = hosted.identity;
        drop(hosted);
        self.finish(after, false);
        (machine, incarnation, session)
    }

    /// Waits for the session, unless the server refuses it.
    pub(crate) fn wait_until_open(&self) -> Result<(), MachineError> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut hosted = self.hosted.lock();
        while !hosted.open {
            if self.refused.load(Ordering::SeqCst) {
                return Err(MachineError::NoSession);
            }
            if self.changed.wait_until(&mut hosted, deadline).timed_out() {
                return Err(MachineError::NoSession);
            }
        }
        Ok(())
    }

    /// The server does not take this machine (any more): it has been expelled. Nothing it knows counts, and nobody is to wait for it.
    pub(crate) fn refused(&self) {
        if self.refused.swap(true, Ordering::SeqCst) {
            return;
        }
        // The session is over, whether the connection lasted long enough to say so or not: what could not be applied is salvaged.
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        self.input(&mut hosted, Input::Message(ToClient::Fenced), &mut after);
        let answers = std::mem::take(&mut hosted.answers);
        hosted.session = None;
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
        for answer in answers.into_values() {
            answer(Err(Error::CutOff));
        }
        for below in self.below.read().iter() {
            below.take_back_soon(vec![Invalidation::Everything]);
        }
    }

    /// See [`crate::Machine::tap`].
    pub(crate) fn tap(&self, tap: Tap) {
        let _ = self.tap.set(tap);
    }

    /// From the server.
    pub(crate) fn deliver(&self, told: Vec<Down>) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        for told in told {
            match told {
                Down::Opened(session) => {
                    hosted.welcomed = Some(session);
                    self.refused.store(false, Ordering::SeqCst);
                }
                Down::Message(message) => {
                    if let Some(tap) = self.tap.get() {
                        tap(&message);
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

    /// Files that the client knows, and dirty bytes that it holds.
    pub(crate) fn client_figures(&self) -> (usize, usize) {
        let hosted = self.hosted.lock();
        (hosted.client.files_known(), hosted.client.dirty_bytes())
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
                Output::Send(message) => self.upstream().send(hosted.session, message),
                Output::Answer { ticket, result } => {
                    if let Some(answer) = hosted.answers.remove(&ticket) {
                        after.answers.push((answer, result));
                    }
                }
                Output::Store(upload) => {
                    let _ = self.uploads.send(upload);
                }
                Output::Unneeded(shares) => self.chore(Chore::Unneeded(shares)),
                Output::Salvage(salvage) => self.chore(Chore::Salvage(salvage)),
                Output::Yield { number, what } => after.yields.push(Yield { number, what }),
                Output::Invalidate(invalidation) => after.invalidations.push(invalidation),
            }
        }
    }

    /// Does what must not hold the lock. `may_block`: this thread may wait for the disk (a front door's own).
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
            for below in self.below.read().iter() {
                below.take_back_soon(after.invalidations.clone());
            }
        }
        for Yield { number, what } in after.yields {
            // What the kernel may have takes its time, on a thread that nobody's request waits for.
            let has = |below: &Arc<dyn Below>| what.iter().any(|what| below.has(what));
            if self.below.read().iter().any(has) {
                let _ = self.yields.send(Yield { number, what });
            } else {
                self.yielded(number, Vec::new());
            }
        }
        for (answer, result) in after.answers {
            self.tell(answer, result, may_block);
        }
        if after.fenced && !self.is_stopping() {
            tracing::error!("the server has ended this machine's session; it goes on with a new one");
            self.upstream().open_again(self);
        }
    }

    fn tell(&self, answer: Answer, result: Result<Reply, Error>, may_block: bool) {
        match result {
            Ok(Reply::Data(parts)) => {
                let shares = || {
                    parts.iter().filter_map(|part| match part {
                        content::Part::Piece { share, .. } => Some(*share),
                        content::Part::Bytes(_) | content::Part::Zeros(_) => None,
                    })
                };
                let waits = shares().next().is_some();
                if waits && (!may_block || !self.copies().are_here(shares())) {
                    self.chore(Chore::Gather(parts, answer));
                } else {
                    answer(self.pieces.gather(self.copies(), parts).map(Told::Data));
                }
            }
            Ok(Reply::Passing(reply)) => answer(Ok(Told::Passing(*reply))),
            Ok(reply) => answer(Ok(Told::Reply(reply))),
            Err(error) => answer(Err(error)),
        }
    }

    /// Takes back from below what is recalled, until the machine stops. By several threads: what the kernel is slow to let go of holds up no other recall.
    pub(crate) fn take_back(&self, yields: &Mutex<Receiver<Yield>>) {
        while !self.is_stopping() {
            let next = yields.lock().recv_timeout(STOP_LOOK);
            let Ok(Yield { number, what }) = next else { continue };
            let below = self.below.read().clone();
            let again: Vec<Again<'_>> = below.iter().map(|below| below.take_back(&what)).collect();
            self.yielded(number, again).into_iter().for_each(|again| again());
        }
    }

    /// Trap: who asks from here on is answered under no lease that is let go here, and has nothing taken back: that would make the kernel disregard what it is just being told.
    fn yielded<'a>(&self, number: u64, again: Vec<Again<'a>>) -> Vec<Box<dyn FnOnce() + 'a>> {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        let again = again.into_iter().map(|again| again()).collect();
        self.input(&mut hosted, Input::Yielded { number }, &mut after);
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
        again
    }

    fn begin(&self, cred: &Cred, call: Call, answer: Answer) -> Option<Ticket> {
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

    /// The answer to a read: one that finds its content gone is tried again from its beginning.
    fn reading(&self, cred: Cred, call: Call, answer: Answer, tries: u8) -> Answer {
        let Some(engine) = self.me.get().and_then(Weak::upgrade).filter(|_| tries > 0) else { return answer };
        Box::new(move |told| {
            if !matches!(told, Err(Error::Damaged)) {
                return answer(told);
            }
            let answer = engine.reading(cred.clone(), call.clone(), answer, tries - 1);
            // It has no name any more by which it could be cancelled; nor does it wait for anybody.
            engine.begin(&cred, call, answer);
        })
    }

    fn chore(&self, chore: Chore) {
        // The threads end after the last sender's owner.
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
            // What belongs to no session is swept at the next.
            let session = self.session().unwrap_or(SessionId(0));
            let stored = self.copies().store(session, uploads);
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

    /// Does what may block until the machine stops. By several threads where that is a network.
    pub(crate) fn do_chores(&self, chores: &Mutex<Receiver<Chore>>) {
        loop {
            let chore = chores.lock().recv_timeout(STOP_LOOK);
            match chore {
                Ok(Chore::Unneeded(shares)) => self.copies().let_go(&shares),
                Ok(Chore::Gather(parts, answer)) => {
                    answer(self.pieces.gather(self.copies(), parts).map(Told::Data));
                }
                Ok(Chore::Salvage(salvage)) => {
                    self.salvage.keep(salvage, |parts| self.pieces.gather(self.copies(), parts));
                }
                Err(_) if self.is_stopping() => return,
                Err(_) => {}
            }
        }
    }

    /// Looks after time until the machine stops.
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
                hosted.client.waits(now, LONG_MS)
            };
            self.finish(after, true);
            for wait in said.due(waits, |wait| (wait.ticket.0, wait.for_ms)) {
                let seconds = wait.for_ms as f64 / 1e3;
                tracing::warn!(call = wait.call, seconds, "a call waits for {}", wait.what);
            }
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
        let answer = if matches!(call, Call::Read { .. }) {
            self.reading(cred.clone(), call.clone(), answer, READS_MAX)
        } else {
            answer
        };
        self.begin(cred, call, answer)
    }

    fn cancel(&self, ticket: Ticket) {
        let (mut out, mut after) = (Vec::new(), After::default());
        let mut hosted = self.hosted.lock();
        hosted.client.cancel(ticket, &mut out);
        self.carry_out(&mut hosted, out, &mut after);
        drop(hosted);
        self.finish(after, true);
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

    fn hand_out(&self, below: Arc<dyn Below>) {
        self.below.write().push(below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, MachineSettings};

    /// The first recall is not over before there is a second.
    #[derive(Default)]
    struct Slow {
        begun: Mutex<u32>,
        more: Condvar,
    }

    impl Below for Slow {
        fn has(&self, _: &Invalidation) -> bool {
            true
        }

        fn take_back(&self, _: &[Invalidation]) -> Again<'_> {
            let mut begun = self.begun.lock();
            *begun += 1;
            self.more.notify_all();
            let deadline = Instant::now() + Duration::from_secs(30);
            while *begun < 2 {
                assert!(!self.more.wait_until(&mut begun, deadline).timed_out(), "one waits for the other");
            }
            Box::new(|| Box::new(|| ()))
        }

        fn take_back_soon(&self, _: Vec<Invalidation>) {}
    }

    #[test]
    fn a_recall_that_the_kernel_is_slow_to_let_go_of_holds_up_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
        let (engine, slow) = (machine.engine(), Arc::new(Slow::default()));
        engine.hand_out(slow.clone());
        for number in [u64::MAX - 1, u64::MAX] {
            engine.yields.send(Yield { number, what: vec![Invalidation::Everything] }).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut begun = slow.begun.lock();
        while *begun < 2 {
            assert!(!slow.more.wait_until(&mut begun, deadline).timed_out(), "one waits for the other");
        }
        drop(begun);
        machine.stop().unwrap();
    }
}
