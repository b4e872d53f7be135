//! Answers that tell the kernel another size of a file, until their threads have taken them in.
//!
//! Trap: a thread takes attributes in only when it runs again, and disregards them if the file was
//! invalidated since the request began (`attr_version`). It goes on with the size from before:
//! `read` and `lseek` end where the file ended then, and a mapping faults there. So an invalidation
//! waits until the threads that were just answered have run.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::proc;

/// How long an invalidation waits at most. A recall waits longer for it.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// How long it waits for a thread of which /proc does not show whether it has run.
const UNSEEN: Duration = Duration::from_millis(2);
/// The pause between two looks. A thread that was given a processor before it has taken its answer
/// in by its end.
const PAUSE: Duration = Duration::from_micros(50);

/// The answers on their way.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// The number of `answers`, to be looked at without the lock.
    count: AtomicUsize,
    answers: Mutex<Vec<SizeAnswer>>,
}

/// An answer that tells a size.
#[derive(Clone, Copy, Debug)]
struct SizeAnswer {
    node: u64,
    thread: u32,
    /// How often the thread had been given a processor when it was answered.
    ran: Option<u64>,
    at: Instant,
}

impl SizeAnswer {
    /// Whether the thread has been given a processor since, or has had the time for that.
    fn has_run(&self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.at);
        match self.ran {
            Some(ran) => age >= WAIT_MAX || times_run(self.thread).is_none_or(|now| now != ran),
            None => age >= UNSEEN,
        }
    }
}

impl Intake {
    /// `thread` is about to be told the size of `node`. This comes before the answer is given.
    pub(crate) fn tells(&self, node: u64, thread: u32) {
        let (ran, at) = (times_run(thread), Instant::now());
        let mut answers = self.answers.lock();
        answers.retain(|answer| answer.thread != thread && at.duration_since(answer.at) < WAIT_MAX);
        answers.push(SizeAnswer { node, thread, ran, at });
        self.count.store(answers.len(), SeqCst);
    }

    /// `thread` makes a request, so it has taken in all that it was told.
    pub(crate) fn asks(&self, thread: u32) {
        if self.count.load(SeqCst) > 0 {
            self.retain(|answer| answer.thread != thread);
        }
    }

    /// Waits until every answer about `node` that was given before has been taken in.
    pub(crate) fn settle(&self, node: u64) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let is_of = |answer: &&SizeAnswer| answer.node == node;
            let now = Instant::now();
            let waits: Vec<SizeAnswer> = match self.count.load(SeqCst) {
                0 => return,
                _ => self.answers.lock().iter().filter(is_of).copied().collect(),
            };
            if waits.is_empty() || now >= deadline {
                return;
            }
            let has_run = waits.iter().all(|answer| answer.has_run(now));
            std::thread::sleep(PAUSE);
            if has_run {
                self.retain(|answer| answer.node != node || answer.at > now);
            }
        }
    }

    fn retain(&self, keeps: impl Fn(&SizeAnswer) -> bool) {
        let mut answers = self.answers.lock();
        answers.retain(keeps);
        self.count.store(answers.len(), SeqCst);
    }
}

/// How often a thread has been given a processor. Nothing where /proc does not say so, or the
/// thread is gone.
fn times_run(thread: u32) -> Option<u64> {
    if !proc::shows(thread) {
        return None;
    }
    proc::read(&format!("{thread}/schedstat")).ok()?.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread::sleep;

    /// The number of a thread that sleeps until it is woken, and the waker.
    fn sleeper() -> (u32, std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>) {
        let ((tell, tid), (wake, woken)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let sleeps = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            // It runs on, as a program does, until the test is done with it.
            for () in woken {
                std::hint::black_box(());
            }
        });
        let tid = tid.recv().unwrap();
        while !proc::read(&format!("{tid}/stat")).unwrap().contains(") S ") {
            std::thread::yield_now();
        }
        (tid, wake, sleeps)
    }

    #[test]
    fn an_invalidation_waits_until_the_thread_has_run() {
        let (intake, (tid, wake, sleeps)) = (Arc::new(Intake::default()), sleeper());
        intake.tells(5, tid);
        let begun = Instant::now();
        intake.settle(6);
        assert!(begun.elapsed() < WAIT_MAX, "another file");
        let waits = Arc::clone(&intake);
        let waiting = std::thread::spawn(move || waits.settle(5));
        sleep(WAIT_MAX / 10);
        let waited = !waiting.is_finished() || begun.elapsed() >= WAIT_MAX;
        assert!(waited, "the thread has not run");
        wake.send(()).unwrap();
        waiting.join().unwrap();
        drop(wake);
        sleeps.join().unwrap();
    }

    #[test]
    fn a_thread_that_asks_again_has_taken_in_what_it_was_told() {
        let (intake, (tid, wake, sleeps)) = (Intake::default(), sleeper());
        intake.tells(5, tid);
        intake.tells(6, tid + 1);
        intake.asks(tid);
        assert_eq!(intake.answers.lock().iter().map(|answer| answer.node).collect::<Vec<_>>(), [6]);
        intake.asks(tid + 1);
        assert_eq!(intake.count.load(SeqCst), 0);
        drop(wake);
        sleeps.join().unwrap();
    }

    #[test]
    fn no_invalidation_waits_for_ever() {
        let (intake, (tid, wake, sleeps)) = (Intake::default(), sleeper());
        let begun = Instant::now();
        intake.tells(5, tid);
        intake.settle(5);
        assert!(begun.elapsed() >= WAIT_MAX);
        // A thread of another namespace, or of none.
        intake.tells(5, 0);
        let begun = Instant::now();
        intake.settle(5);
        assert!(begun.elapsed() >= UNSEEN);
        intake.tells(7, 0);
        sleep(WAIT_MAX);
        intake.tells(8, 0);
        assert_eq!(intake.answers.lock().iter().map(|answer| answer.node).collect::<Vec<_>>(), [8]);
        drop(wake);
        sleeps.join().unwrap();
    }
}
