//! Ends calls for which programs no longer wait.
//!
//! A thread whose request is with us waits until we answer, and cannot even be killed.
//! FUSE_INTERRUPT does not name the signal, and comes by another way than the request. So while any
//! call has waited for [`LOOK_EVERY`], this module looks at the waiting threads in /proc.
//!
//! A wait for a lock ends when a signal is pending that the thread would take. The kernel turns our
//! EINTR into a restart of the system call, and a signal handler sees the same as on a local file.
//! Any other call ends early only when its thread is being killed. POSIX lets most of them not be
//! interrupted, and a change under way may have been done.
//!
//! /proc does not show a thread in a pid namespace outside ours. Only FUSE_INTERRUPT tells of it,
//! once. That ends its wait for a lock, which takes any signal, and nothing else.

use client::Ticket;
use ident::FileId;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::groups::Asker;
use crate::proc;
use crate::way::Locks;

/// How often threads are looked at, and how long a call waits before that.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The most interrupts that are remembered in case they have overtaken their requests.
const EARLY_MAX: usize = 256;

/// Calls that wait for the client.
#[derive(Default)]
pub(crate) struct Waits {
    calls: Mutex<Calls>,
    changed: Condvar,
    /// Whether any of them is a change. It may stay true for a while after the last one.
    any_change: AtomicBool,
}

#[derive(Default)]
struct Calls {
    waiting: Vec<Wait>,
    /// Requests that were interrupted before they waited. Most are of threads that /proc shows.
    early: VecDeque<u64>,
    /// The mount is gone.
    closed: bool,
}

/// A call that waits.
pub(crate) struct Wait {
    /// The client's name for it.
    pub(crate) ticket: Ticket,
    /// The thread that waits for it.
    pub(crate) waiter: Waiter,
    /// Any signal ends it, not only a deadly one.
    pub(crate) interruptible: bool,
    /// Set when it is answered.
    pub(crate) answered: Arc<AtomicBool>,
    /// When it began to wait.
    pub(crate) since: Instant,
    /// Its process had a signal to take at the last look.
    pub(crate) signalled: bool,
    /// The directories that it keeps locked in the kernel meanwhile.
    pub(crate) locks: Locks,
}

/// The identity of a waiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiter {
    /// By its number, which /proc shows.
    Thread(u32),
    /// By its request, which the kernel interrupts.
    Request { number: u64, interrupted: bool },
}

impl Waiter {
    /// The waiter of a request. Nothing for the kernel itself, which never stops waiting.
    pub(crate) fn of(asker: Asker) -> Option<Waiter> {
        match asker {
            Asker { request: 0, .. } => None,
            Asker { pid, .. } if proc::shows(pid) => Some(Waiter::Thread(pid)),
            Asker { request, .. } => Some(Waiter::Request { number: request, interrupted: false }),
        }
    }

    /// The thread's number; 0 if /proc does not show it.
    fn thread(self) -> u32 {
        match self {
            Waiter::Thread(tid) => tid,
            Waiter::Request { .. } => 0,
        }
    }

    fn interrupt(&mut self, request: u64) -> bool {
        match self {
            Waiter::Request { number, interrupted } if *number == request => {
                *interrupted = true;
                true
            }
            _ => false,
        }
    }
}

impl Wait {
    pub(crate) fn new(
        ticket: Ticket,
        waiter: Waiter,
        interruptible: bool,
        answered: Arc<AtomicBool>,
    ) -> Wait {
        let (since, locks) = (Instant::now(), Locks::default());
        Wait { ticket, waiter, interruptible, answered, since, signalled: false, locks }
    }
}

impl Waits {
    pub(crate) fn add(&self, mut wait: Wait) {
        let mut calls = self.calls.lock();
        calls.early.iter().for_each(|request| _ = wait.waiter.interrupt(*request));
        if wait.locks.changes {
            self.any_change.store(true, SeqCst);
        }
        calls.waiting.push(wait);
        drop(calls);
        self.changed.notify_one();
    }

    /// The thread of a request has received a signal.
    pub(crate) fn interrupt(&self, request: u64) {
        let mut calls = self.calls.lock();
        if !calls.waiting.iter_mut().any(|wait| wait.waiter.interrupt(request)) {
            calls.early.truncate(EARLY_MAX - 1);
            calls.early.push_front(request);
        }
    }

    /// Whether a waiting change may keep a directory locked in the kernel. `dir` is asked for only
    /// if there is a waiting change at all.
    pub(crate) fn is_changing(&self, dir: impl FnOnce() -> Option<FileId>) -> bool {
        // Nearly always there is none.
        if !self.any_change.load(SeqCst) {
            return false;
        }
        let Some(dir) = dir() else { return false };
        let calls = self.calls.lock();
        let mut changes = calls.waiting.iter().filter(|wait| wait.locks.changes);
        changes.any(|wait| !wait.answered.load(SeqCst) && wait.locks.may_be_of(&dir))
    }

    /// Waiting calls that may keep `dir` locked in the kernel. Each comes with its thread, 0 if
    /// that is unknown, and whether it is a change.
    pub(crate) fn locking(&self, dir: &FileId) -> Vec<(Ticket, u32, bool)> {
        let calls = self.calls.lock();
        let waiting =
            calls.waiting.iter().filter(|wait| !wait.answered.load(SeqCst) && wait.locks.may_be_of(dir));
        waiting.map(|wait| (wait.ticket, wait.waiter.thread(), wait.locks.changes)).collect()
    }

    /// Makes [`Waits::run`] return.
    pub(crate) fn close(&self) {
        self.calls.lock().closed = true;
        self.changed.notify_one();
    }

    /// Watches the waiting threads, and calls `cancel` for each call that need not wait any more,
    /// until closed.
    pub(crate) fn run(&self, cancel: impl Fn(Ticket)) {
        loop {
            let mut calls = self.calls.lock();
            while calls.waiting.is_empty() && !calls.closed {
                self.changed.wait(&mut calls);
            }
            if calls.closed {
                return;
            }
            drop(calls);
            std::thread::sleep(LOOK_EVERY);
            for ticket in self.over(Instant::now(), Thread::look) {
                cancel(ticket);
            }
        }
    }

    /// The calls whose threads no longer wait. Answered calls are forgotten.
    fn over(&self, now: Instant, look: impl Fn(u32) -> Option<Thread>) -> Vec<Ticket> {
        let mut calls = self.calls.lock();
        calls.waiting.retain(|wait| !wait.answered.load(SeqCst));
        self.any_change.store(calls.waiting.iter().any(|wait| wait.locks.changes), SeqCst);
        let (mut over, mut told) = (Vec::new(), BTreeSet::new());
        // In order of threads: a process' first thread takes a signal to the process, if it can.
        calls.waiting.sort_by_key(|wait| wait.waiter);
        for wait in calls.waiting.iter_mut().filter(|wait| now.duration_since(wait.since) >= LOOK_EVERY) {
            let tid = match wait.waiter {
                Waiter::Thread(tid) => tid,
                Waiter::Request { interrupted, .. } => {
                    over.extend((interrupted && wait.interruptible).then_some(wait.ticket));
                    continue;
                }
            };
            let Some(thread) = look(tid) else {
                over.push(wait.ticket);
                continue;
            };
            let signalled = thread.may_take(thread.of_process);
            // One thread takes a signal to a process: this one only if no other has by now. They
            // are ended one at a time, since the others have nothing to restart for.
            let taken_here = signalled && wait.signalled && !told.contains(&thread.process);
            wait.signalled = signalled;
            if thread.is_dying() || (wait.interruptible && (thread.may_take(thread.own) || taken_here)) {
                told.insert(thread.process);
                over.push(wait.ticket);
            }
        }
        over
    }
}

/// The signals of a thread, as bits: number n is bit n - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Thread {
    process: u32,
    /// Sent to it and not taken.
    own: u64,
    /// Sent to its process and not taken.
    of_process: u64,
    blocked: u64,
    ignored: u64,
}

const KILL: u64 = 1 << (libc::SIGKILL - 1);

impl Thread {
    /// Reads a thread's signals. Nothing if there is no such thread.
    fn look(tid: u32) -> Option<Thread> {
        Thread::parse(&proc::read(&format!("{tid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Thread> {
        let mut thread = Thread::default();
        for line in status.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let signals = || u64::from_str_radix(value.trim(), 16).ok();
            match name {
                "State" if value.trim_start().starts_with(['Z', 'X']) => return None,
                "Tgid" => thread.process = value.trim().parse().ok()?,
                "SigPnd" => thread.own = signals()?,
                "ShdPnd" => thread.of_process = signals()?,
                "SigBlk" => thread.blocked = signals()?,
                "SigIgn" => thread.ignored = signals()?,
                _ => {}
            }
        }
        (thread.process != 0).then_some(thread)
    }

    fn is_dying(self) -> bool {
        (self.own | self.of_process) & KILL != 0
    }

    fn may_take(self, signals: u64) -> bool {
        signals & !self.blocked & !self.ignored != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: u64 = 1 << (libc::SIGTERM - 1);

    fn waits(calls: &[(u64, u32, bool)]) -> (Waits, Instant) {
        let waits = Waits::default();
        for (ticket, tid, interruptible) in calls {
            waits.add(Wait::new(Ticket(*ticket), Waiter::Thread(*tid), *interruptible, Arc::default()));
        }
        (waits, Instant::now() + LOOK_EVERY)
    }

    fn thread(own: u64, of_process: u64) -> Thread {
        Thread { process: 7, own, of_process, ..Thread::default() }
    }

    #[test]
    fn a_signal_ends_a_wait_for_a_lock_and_death_any() {
        let (waits, soon) = waits(&[(1, 7, true), (2, 7, false)]);
        assert_eq!(waits.over(soon, |_| Some(thread(0, 0))), []);
        let ignored = Thread { ignored: TERM, ..thread(TERM, TERM) };
        let blocked = Thread { blocked: TERM, ..thread(TERM, TERM) };
        assert_eq!(waits.over(soon, |_| Some(ignored)), []);
        assert_eq!(waits.over(soon, |_| Some(blocked)), []);
        assert_eq!(waits.over(soon, |_| Some(thread(TERM, 0))), [Ticket(1)]);
        assert_eq!(waits.over(soon, |_| Some(thread(KILL, 0))), [Ticket(1), Ticket(2)]);
        assert_eq!(waits.over(soon, |_| None), [Ticket(1), Ticket(2)]);
        assert_eq!(waits.over(Instant::now() - LOOK_EVERY, |_| None), [], "too early to look");
    }

    /// A signal to a process is for one of its threads only.
    #[test]
    fn a_signal_to_the_process_ends_one_wait_and_only_if_nobody_else_takes_it() {
        let (waits, soon) = waits(&[(1, 8, true), (2, 7, true)]);
        assert_eq!(waits.over(soon, |_| Some(thread(0, TERM))), []);
        assert_eq!(waits.over(soon, |_| Some(thread(0, 0))), []);
        assert_eq!(waits.over(soon, |_| Some(thread(0, TERM))), []);
        assert_eq!(waits.over(soon, |_| Some(thread(0, TERM))), [Ticket(2)]);
    }

    /// The interrupt comes by another way than its request, and may come first.
    #[test]
    fn whom_proc_does_not_show_an_interrupt_takes_out_of_a_wait_for_a_lock() {
        let waits = Waits::default();
        let wait = |ticket, number, interruptible| {
            let waiter = Waiter::Request { number, interrupted: false };
            waits.add(Wait::new(Ticket(ticket), waiter, interruptible, Arc::default()));
        };
        let over = || waits.over(Instant::now() + LOOK_EVERY, |_| panic!("nobody is to be looked at"));
        wait(1, 10, true);
        wait(2, 20, true);
        wait(3, 30, false);
        (0..2 * EARLY_MAX as u64).for_each(|other| waits.interrupt(1000 + other));
        [40, 20, 30].into_iter().for_each(|request| waits.interrupt(request));
        assert_eq!(over(), [Ticket(2)]);
        wait(4, 40, true);
        assert_eq!(over(), [Ticket(2), Ticket(4)]);
        assert_eq!(waits.calls.lock().early.len(), EARLY_MAX);
    }

    #[test]
    fn what_was_answered_is_forgotten() {
        let (waits, soon) = waits(&[(1, 7, true)]);
        waits.calls.lock().waiting[0].answered.store(true, SeqCst);
        assert_eq!(waits.over(soon, |_| None), []);
        assert!(waits.calls.lock().waiting.is_empty());
    }

    #[test]
    fn signals_are_read_from_proc() {
        let status = "Name:\tx: y\nState:\tS (sleeping)\nTgid:\t42\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000004000\n\
                      SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n";
        let thread = Thread::parse(status).unwrap();
        assert_eq!(
            thread,
            Thread { process: 42, own: 0x100, of_process: 0x4000, blocked: 1, ignored: 0x1000 }
        );
        assert!(thread.is_dying());
        assert_eq!(Thread::parse("State:\tZ (zombie)\nTgid:\t42\n"), None);
        assert_eq!(Thread::parse(""), None);
        assert!(Thread::look(std::process::id()).is_some_and(|thread| thread.process == std::process::id()));
    }
}
