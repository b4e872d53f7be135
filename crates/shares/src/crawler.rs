//! The thread of the expirer, discovery and scrub. Each process continues in small steps from its
//! last position, at its pace, also after a restart.

use std::{
    sync::Weak,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::{error::ReapError, passes, server::SharedState, share::Process};

/// The pause after a start, and after a failure.
const PAUSE: Duration = Duration::from_secs(60);
/// The longest time between two notes of the time. They tell a jump of the clock from idleness.
const NOTE_TIME: Duration = Duration::from_secs(3600);

/// The result of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The work done, in the unit of the process's pace.
    pub work: u64,
    /// The pass is over.
    pub is_last: bool,
}

impl Step {
    /// A step without work.
    pub const LAST: Step = Step { work: 0, is_last: true };
}

/// The time that this much work takes at that rate.
pub(crate) fn rate(work: u64, per_second: u64) -> Duration {
    Duration::from_secs_f64(work as f64 / per_second.max(1) as f64)
}

/// The thread's alarm clock.
#[derive(Debug, Default)]
pub(crate) struct Crawler {
    state: Mutex<CrawlerAlarm>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct CrawlerAlarm {
    woken: bool,
    stopped: bool,
}

impl Crawler {
    /// Wakes the thread: discovery has work.
    pub fn wake(&self) {
        self.state.lock().woken = true;
        self.rung.notify_all();
    }

    /// Ends the thread after its current step.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.rung.notify_all();
    }

    /// Sleeps until `until`. Returns whether it was woken; `None`: it was stopped.
    fn sleep(&self, until: Instant) -> Option<bool> {
        let mut state = self.state.lock();
        while !state.stopped && !state.woken && !self.rung.wait_until(&mut state, until).timed_out() {}
        (!state.stopped).then(|| std::mem::take(&mut state.woken))
    }
}

/// Runs the thread. It does not keep the server alive.
pub(crate) fn run(server: &Weak<SharedState>, crawler: &Crawler) {
    let Some(begun) = server.upgrade() else { return };
    let mut due = [Process::Discovery, Process::Expirer, Process::Scrub].map(|process| {
        let pause = if process == Process::Discovery { Duration::ZERO } else { PAUSE };
        let first = begun.due_in(process).max(pause.min(begun.interval(process)));
        (Instant::now() + first, process)
    });
    drop(begun);
    let mut noted = Instant::now();
    loop {
        let next = due.iter_mut().min();
        let Some((when, process)) = next else { return };
        let woken = match crawler.sleep((*when).min(noted + NOTE_TIME)) {
            Some(woken) => woken,
            None => return,
        };
        let Some(server) = server.upgrade() else { return };
        if noted.elapsed() >= NOTE_TIME {
            noted = Instant::now();
            // A failure shows at the next write.
            let _ = server.database.write("noting the time", |_| Ok(()));
        }
        if woken {
            due[0] = (Instant::now(), Process::Discovery);
        } else if *when <= Instant::now() {
            *when = Instant::now() + server.work(*process);
        }
    }
}

impl SharedState {
    /// Does one step. Returns the pause until the next.
    fn work(&self, process: Process) -> Duration {
        // A request may have done a pass meanwhile.
        let due_in = self.due_in(process);
        if !due_in.is_zero() {
            return due_in;
        }
        let pace = &self.settings.pace;
        let (step, per_second) = match process {
            Process::Discovery => (self.discover_some(), pace.shares_per_second),
            Process::Scrub => (self.scrub_some().map_err(ReapError::from), pace.scrub_bytes_per_second),
            Process::Expirer | Process::Reaper => {
                (self.expire_some().map_err(ReapError::from), pace.leases_per_second)
            }
        };
        match step {
            Ok(Step { is_last: true, .. }) => self.interval(process),
            Ok(step) => rate(step.work, per_second.into()),
            Err(error) => {
                tracing::warn!(%error, ?process, "trying again later");
                PAUSE
            }
        }
    }

    /// The time from the end of a pass to the next.
    fn interval(&self, process: Process) -> Duration {
        match process {
            // Discovery waits until it is woken; this is nearly forever.
            Process::Discovery => Duration::from_secs(1 << 30),
            Process::Scrub => self.settings.pace.scrub_every,
            Process::Expirer | Process::Reaper => self.settings.pace.expire_every,
        }
    }

    /// The time until the next step of a process is due, by its last pass.
    pub(crate) fn due_in(&self, process: Process) -> Duration {
        if process == Process::Discovery {
            return Duration::ZERO;
        }
        let last = self.database.read("looking for the last pass", |c| passes::last(c, process));
        let Some(ended) = last.ok().flatten().and_then(|last| last.ended_at) else { return Duration::ZERO };
        let now = i64::try_from((self.settings.clock)()).unwrap_or(i64::MAX);
        let since = u64::try_from(now.saturating_sub(ended)).unwrap_or(0);
        Duration::from_secs(self.interval(process).as_secs().saturating_sub(since))
    }
}
