//! A simulated member. Tasks on one thread do all its work, with a seed and a clock of its own. The
//! simulation can stop, continue and end it, as it could a process.
//!
//! The member that ships runs outside of any life.

use parking_lot::Mutex;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

tokio::task_local! {
    static LIFE: Arc<Life>;
}

/// How long a disk takes for a checkpoint at least, ms.
const CHECKPOINT_MIN_MS: u64 = 20;
/// The most that is added to that, ms.
const CHECKPOINT_MORE_MS: u64 = 100;
/// How long a flush of the log takes at most, ms, unless the disk is slow.
const FLUSH_MS: u64 = 6;
/// The time between two looks for room on a full disk.
const LOOK: Duration = Duration::from_millis(100);

/// The life of one simulated member.
pub struct Life {
    /// The instant when its clock showed zero, and the clock's error in millionths: positive is
    /// fast.
    zero: (Instant, i64),
    state: Mutex<LifeState>,
}

struct LifeState {
    chance: ChaCha12Rng,
    tasks: Vec<AbortHandle>,
    stopped: bool,
    /// Tasks that have work when it continues.
    waiting: Vec<Waker>,
    /// How long a flush takes at most, ms.
    flush_ms: u64,
    /// Whether the disk is full.
    full: bool,
    restores_leader: bool,
    believes_members: bool,
    /// Set when it is over, with the reason if it ended itself.
    over: Option<Option<String>>,
}

impl Life {
    /// Makes a life with this seed, and with a clock that is so many millionths too fast. It must
    /// be called in simulated time.
    pub fn new(seed: u64, clock_ppm: i64) -> Arc<Life> {
        let chance = ChaCha12Rng::seed_from_u64(seed);
        let state = LifeState {
            chance,
            tasks: Vec::new(),
            stopped: false,
            waiting: Vec::new(),
            flush_ms: FLUSH_MS,
            full: false,
            restores_leader: false,
            believes_members: false,
            over: None,
        };
        Arc::new(Life { zero: (Instant::now(), clock_ppm), state: Mutex::new(state) })
    }

    /// Returns the life of this task.
    pub(crate) fn current() -> Option<Arc<Life>> {
        LIFE.try_with(Arc::clone).ok()
    }

    /// Spawns a task as part of it.
    pub fn spawn<T>(self: &Arc<Self>, future: T) -> JoinHandle<T::Output>
    where
        T: Future + Send + 'static,
        T::Output: Send + 'static,
    {
        let task = Task { life: self.clone(), future: Box::pin(future) };
        let task = tokio::spawn(LIFE.scope(self.clone(), task));
        let mut state = self.state.lock();
        if state.over.is_some() {
            task.abort();
        }
        if state.tasks.len() == state.tasks.capacity() {
            state.tasks.retain(|task| !task.is_finished());
        }
        state.tasks.push(task.abort_handle());
        task
    }

    /// Runs `what` as part of it, here and now. None if the member gave up in it.
    pub fn within<T>(self: &Arc<Self>, what: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(|| LIFE.sync_scope(self.clone(), what))).ok()
    }

    /// Sets how much longer the disk takes at most for a flush, ms.
    pub fn slows_disk(&self, ms: u64) {
        self.state.lock().flush_ms = FLUSH_MS + ms;
    }

    /// Makes the disk full, or not full any more. Writes other than the log wait until it is not.
    pub fn fills_disk(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Returns whether this member's disk is full.
    pub(crate) fn lacks_room() -> bool {
        Life::current().is_some_and(|life| life.state.lock().full)
    }

    /// Makes a member that led when it ended lead again at once, without an election. That is a
    /// fault, since the member does not know all commits that it had reported. The simulation shows
    /// that it finds this fault.
    pub fn restores_leader(&self) {
        self.state.lock().restores_leader = true;
    }

    /// Returns whether this member has that fault.
    pub(crate) fn leads_unelected() -> bool {
        Life::current().is_some_and(|life| life.state.lock().restores_leader)
    }

    /// Makes a member believe that every member, itself included, has forgotten nothing. That is a
    /// fault, since a disk may be older than the promises. The simulation shows that it finds this
    /// fault.
    pub fn believes(&self) {
        self.state.lock().believes_members = true;
    }

    /// Returns whether this member has that fault.
    pub(crate) fn believes_members() -> bool {
        Life::current().is_some_and(|life| life.state.lock().believes_members)
    }

    /// Stops it, as a process is stopped. Time goes on.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
    }

    /// Continues it.
    pub fn go_on(&self) {
        let mut state = self.state.lock();
        state.stopped = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ends it at any point.
    pub fn end(&self) {
        self.end_for(None);
    }

    fn end_for(&self, why: Option<String>) {
        let mut state = self.state.lock();
        state.over.get_or_insert(why);
        let tasks = std::mem::take(&mut state.tasks);
        state.waiting.clear();
        drop(state);
        tasks.iter().for_each(AbortHandle::abort);
    }

    /// Ends it because it cannot go on, and unwinds.
    pub(crate) fn gives_up(&self, why: &dyn std::error::Error) -> ! {
        self.fails(why);
        resume_unwind(Box::new(()))
    }

    /// Ends it because it cannot go on.
    pub(crate) fn fails(&self, why: &dyn std::error::Error) {
        self.end_for(Some(why.to_string()));
    }

    /// Returns whether it is over.
    pub fn is_over(&self) -> bool {
        self.state.lock().over.is_some()
    }

    /// Returns why it ended itself, if it did.
    pub fn why_over(&self) -> Option<String> {
        self.state.lock().over.clone().flatten()
    }

    pub(crate) fn next_u64(&self) -> u64 {
        self.state.lock().chance.next_u64()
    }

    /// Returns the time of its clock, ms.
    pub(crate) fn clock_ms(&self) -> u64 {
        let (zero, ppm) = self.zero;
        let ms = zero.elapsed().as_millis() as u64;
        ms.saturating_add_signed(ms as i64 * ppm / 1_000_000)
    }

    /// Does work that waits for the disk, after a delay.
    pub(crate) async fn waits_for_disk<T>(&self, work: impl FnOnce() -> T) -> T {
        let ms = CHECKPOINT_MIN_MS + self.next_u64() % CHECKPOINT_MORE_MS;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        while self.state.lock().full {
            tokio::time::sleep(LOOK).await;
        }
        work()
    }

    /// Makes the log durable, after a delay.
    pub(crate) async fn waits_for_flush(&self, work: impl FnOnce()) {
        let at_most = self.state.lock().flush_ms;
        let ms = self.next_u64() % at_most;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        work();
    }
}

/// A task of a life.
struct Task<F> {
    life: Arc<Life>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut state = self.life.state.lock();
        if state.stopped || state.over.is_some() {
            state.waiting.push(context.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        self.future.as_mut().poll(context)
    }
}
