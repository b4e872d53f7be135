//! A simulated member: all that it does is done by tasks on one thread, by a seed and a clock of
//! its own, and can be stopped and ended from outside, as processes are.
//!
//! The member that ships runs outside of any life.

use super::machine::LOOK;
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

/// How long a disk takes for a checkpoint, ms: at least, and how much more at most.
const CHECKPOINT_MS: (u64, u64) = (20, 100);
/// And for a flush of the log at most, unless it is slow.
const FLUSH_MS: u64 = 6;

/// See the module.
pub struct Life {
    /// When its clock showed nothing, and by how many millionths it runs too fast, or too slow.
    zero: (Instant, i64),
    state: Mutex<State>,
}

struct State {
    chance: ChaCha12Rng,
    tasks: Vec<AbortHandle>,
    stopped: bool,
    /// Who has something to do once it goes on.
    waiting: Vec<Waker>,
    /// How long a flush takes at most, ms.
    flush_ms: u64,
    /// The disk is full.
    full: bool,
    restores_leader: bool,
    believes_members: bool,
    /// It is over: why, if it ended itself.
    over: Option<Option<String>>,
}

impl Life {
    /// A new one, by this seed, with a clock that is so many millionths too fast. Called where time
    /// is simulated.
    pub fn new(seed: u64, clock_ppm: i64) -> Arc<Life> {
        let chance = ChaCha12Rng::seed_from_u64(seed);
        let state = State {
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

    /// The one that this task is of.
    pub(crate) fn current() -> Option<Arc<Life>> {
        LIFE.try_with(Arc::clone).ok()
    }

    /// Does something as part of it.
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

    /// Does this as part of it, here and now. None if it gave itself up over that.
    pub fn within<T>(self: &Arc<Self>, what: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(|| LIFE.sync_scope(self.clone(), what))).ok()
    }

    /// The disk takes so much longer at most, ms, for a flush.
    pub fn slows_disk(&self, ms: u64) {
        self.state.lock().flush_ms = FLUSH_MS + ms;
    }

    /// The disk is full from now on, or not any more: what is written beside the log waits as a
    /// whole.
    pub fn fills_disk(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Whether this member is one whose disk is full.
    pub(crate) fn lacks_room() -> bool {
        Life::current().is_some_and(|life| life.state.lock().full)
    }

    /// If it led when it ended, it leads again at once, without being elected. That is wrong, since
    /// it does not know all that it had told to be committed: the simulation shows that it would
    /// find it.
    pub fn restores_leader(&self) {
        self.state.lock().restores_leader = true;
    }

    /// Whether this member is one that does so.
    pub(crate) fn leads_unelected() -> bool {
        Life::current().is_some_and(|life| life.state.lock().restores_leader)
    }

    /// It takes every member for what that was, and itself. That is wrong, since a disk may be
    /// older than what was promised: the simulation shows that it would find it.
    pub fn believes(&self) {
        self.state.lock().believes_members = true;
    }

    /// Whether this member is one that does so.
    pub(crate) fn believes_members() -> bool {
        Life::current().is_some_and(|life| life.state.lock().believes_members)
    }

    /// Nothing of it goes on, as when a process is stopped. Time does.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
    }

    /// It goes on.
    pub fn go_on(&self) {
        let mut state = self.state.lock();
        state.stopped = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ends it, wherever it is.
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

    /// It has ended itself, since it cannot go on.
    pub(crate) fn gives_up(&self, why: &dyn std::error::Error) -> ! {
        self.fails(why);
        resume_unwind(Box::new(()))
    }

    /// It is over, since it cannot go on.
    pub(crate) fn fails(&self, why: &dyn std::error::Error) {
        self.end_for(Some(why.to_string()));
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.state.lock().over.is_some()
    }

    /// Why it ended itself, if it did.
    pub fn why_over(&self) -> Option<String> {
        self.state.lock().over.clone().flatten()
    }

    pub(crate) fn next_u64(&self) -> u64 {
        self.state.lock().chance.next_u64()
    }

    /// What its clock shows, ms.
    pub(crate) fn clock_ms(&self) -> u64 {
        let (zero, ppm) = self.zero;
        let ms = zero.elapsed().as_millis() as u64;
        ms.saturating_add_signed(ms as i64 * ppm / 1_000_000)
    }

    /// Does what waits for the disk, after a while.
    pub(crate) async fn waits_for_disk<T>(&self, work: impl FnOnce() -> T) -> T {
        let ms = CHECKPOINT_MS.0 + self.next_u64() % CHECKPOINT_MS.1;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        while self.state.lock().full {
            tokio::time::sleep(LOOK).await;
        }
        work()
    }

    /// Makes the log durable, after a while.
    pub(crate) async fn waits_for_flush(&self, work: impl FnOnce()) {
        let at_most = self.state.lock().flush_ms;
        let ms = self.next_u64() % at_most;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        work();
    }
}

/// Something that a life does.
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
