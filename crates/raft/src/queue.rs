//! The queue of work for the group's thread.
//!
//! A proposal never blocks: the proposer may hold the client's lock, which `deliver` takes. So the
//! queue has no bound of its own. The client slows its writers by [`ProposalQueue::backlog_bytes`].

use super::batch::WaitingInput;
use directory::Input;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, oneshot};

/// Bounds of one entry. It is worth one fdatasync, and does not keep readers out for long while it
/// is applied.
const BATCH_BYTES_MAX: usize = 1 << 20;
const BATCH_INPUTS_MAX: usize = 10_000;

/// How the group's thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// After all proposals, and a checkpoint.
    Orderly,
    /// At once, as in a crash.
    Abrupt,
}

/// The next work of the group's thread, in this order.
#[derive(Default)]
pub(super) struct Work {
    pub(super) batch: Vec<WaitingInput>,
    pub(super) batch_bytes: usize,
    /// The waiters for a checkpoint.
    pub(super) checkpoints: Vec<oneshot::Sender<()>>,
    /// The one that waits for another member to lead.
    pub(super) hands_over: Option<oneshot::Sender<()>>,
    pub(super) end: Option<End>,
}

#[derive(Default)]
struct QueueState {
    /// Whether this member leads. Otherwise proposals are dropped.
    open: bool,
    waiting: VecDeque<WaitingInput>,
    checkpoints: Vec<oneshot::Sender<()>>,
    hands_over: Option<oneshot::Sender<()>>,
    end: Option<End>,
    /// Whether nobody works on it any more.
    is_abandoned: bool,
}

#[derive(Default)]
pub(super) struct ProposalQueue {
    state: Mutex<QueueState>,
    wake: Notify,
    /// Bytes proposed and not applied yet.
    backlog: AtomicUsize,
}

impl ProposalQueue {
    /// Notes that this member leads from now on. `first` is its first proposal.
    pub(super) fn open(&self, first: Input) {
        self.state.lock().open = true;
        self.push(WaitingInput::new(first));
    }

    /// Notes that another member leads. Waiting proposals are dropped: they are for that leader,
    /// and clients send them again.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.open = false;
        state.hands_over = None;
        let dropped: usize = state.waiting.drain(..).map(|waiting| waiting.len()).sum();
        self.backlog.fetch_sub(dropped, Ordering::Relaxed);
    }

    pub(super) fn push(&self, waiting: WaitingInput) {
        let mut state = self.state.lock();
        if !state.open {
            return;
        }
        self.backlog.fetch_add(waiting.len(), Ordering::Relaxed);
        let is_first = state.waiting.is_empty();
        state.waiting.push_back(waiting);
        drop(state);
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Asks for a checkpoint. `tell` is dropped if nobody works on the queue any more.
    pub(super) fn ask_checkpoint(&self, tell: oneshot::Sender<()>) {
        let mut state = self.state.lock();
        if !state.is_abandoned {
            state.checkpoints.push(tell);
            self.wake.notify_one();
        }
    }

    /// Asks for another member to lead, after all proposals so far. `tell` is dropped if another
    /// leads already.
    pub(super) fn hand_over(&self, tell: oneshot::Sender<()>) {
        let mut state = self.state.lock();
        state.hands_over = Some(tell).filter(|_| state.open);
        self.wake.notify_one();
    }

    pub(super) fn end(&self, end: End) {
        self.state.lock().end = Some(end);
        self.wake.notify_one();
    }

    /// Notes that nobody works on it any more. All waiters are let go.
    fn abandon(&self) {
        self.close();
        let mut state = self.state.lock();
        state.is_abandoned = true;
        state.checkpoints.clear();
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.state.lock().is_abandoned
    }

    pub(super) fn is_ending(&self) -> bool {
        self.state.lock().end.is_some()
    }

    pub(super) fn backlog_bytes(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    pub(super) fn applied(&self, bytes: usize) {
        self.backlog.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Waits for work. An orderly end comes with the last of the waiting proposals.
    pub(super) async fn next(&self) -> Work {
        loop {
            if let Some(turn) = self.take() {
                return turn;
            }
            self.wake.notified().await;
        }
    }

    fn take(&self) -> Option<Work> {
        let mut state = self.state.lock();
        if state.end == Some(End::Abrupt) {
            return Some(Work { end: Some(End::Abrupt), ..Work::default() });
        }
        let mut turn = Work::default();
        while let Some(next) = state.waiting.front() {
            let bytes = turn.batch_bytes + next.len();
            if !turn.batch.is_empty() && (bytes > BATCH_BYTES_MAX || turn.batch.len() == BATCH_INPUTS_MAX) {
                break;
            }
            turn.batch_bytes = bytes;
            turn.batch.extend(state.waiting.pop_front());
        }
        if state.waiting.is_empty() {
            turn.checkpoints = std::mem::take(&mut state.checkpoints);
            // Not with a batch: without a majority that is written for ever, and the one who waits
            // for a hand-over is let go when the lead is lost.
            turn.hands_over = state.hands_over.take_if(|_| turn.batch.is_empty());
            turn.end = state.end;
        }
        let idle = turn.batch.is_empty()
            && turn.checkpoints.is_empty()
            && turn.hands_over.is_none()
            && turn.end.is_none();
        (!idle).then_some(turn)
    }
}

/// Stands for the work on a queue. It ends in order, by the alarm, or with its task: in any case
/// nobody goes on waiting for it.
pub(super) struct Attended(pub(super) Arc<ProposalQueue>);

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_and_an_orderly_end_comes_last() {
        let queue = ProposalQueue::default();
        queue.push(WaitingInput::of_bytes(1));
        assert!(queue.take().is_none() && queue.backlog_bytes() == 0, "only a leader proposes");
        queue.state.lock().open = true;
        for bytes in [400 << 10, 400 << 10, 400 << 10, 5 << 20, 1] {
            queue.push(WaitingInput::of_bytes(bytes));
        }
        queue.end(End::Orderly);
        let turns: Vec<Work> = std::iter::from_fn(|| queue.take()).take(4).collect();
        let seen: Vec<_> = turns.iter().map(|turn| (turn.batch.len(), turn.end)).collect();
        assert_eq!(seen, [(2, None), (1, None), (1, None), (1, Some(End::Orderly))]);
        for _ in 0..=BATCH_INPUTS_MAX {
            queue.push(WaitingInput::of_bytes(1));
        }
        assert_eq!(queue.take().unwrap().batch.len(), BATCH_INPUTS_MAX);
        assert_eq!(queue.backlog_bytes(), (1200 << 10) + (5 << 20) + 1 + BATCH_INPUTS_MAX + 1);
    }

    #[test]
    fn an_abrupt_end_does_not_wait() {
        let queue = ProposalQueue::default();
        queue.open(Input::Lead);
        queue.end(End::Abrupt);
        let turn = queue.take().unwrap();
        assert!(turn.batch.is_empty() && turn.end == Some(End::Abrupt));
    }
}
