//! The reaper deletes unleased shares. It commits the state going, then deletes the file durably,
//! then removes the row. It works in bounded batches, retries failures with growing pauses, and
//! sleeps while nothing is queued.
//!
//! Every operation that makes shares going reports them to the reaper. So the queue in memory has
//! every going share.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use namespace::ShareId;
use parking_lot::{Condvar, Mutex};

use crate::{
    crawler::rate,
    error::{DatabaseError, ReapError},
    passes,
    server::SharedState,
    shelf::Withheld,
    transitions,
};

/// The most shares that are deleted together.
const BATCH: usize = 256;
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// The queue, and the thread's alarm clock.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    queue: Mutex<TaskQueue>,
    alarm: Condvar,
    /// Held during a pass: one at a time.
    pass: Mutex<()>,
}

#[derive(Debug, Default)]
struct TaskQueue {
    chores: VecDeque<ReaperChore>,
    /// Shares that only the database knows may be due.
    woken: bool,
    stopped: bool,
}

#[derive(Debug)]
struct ReaperChore {
    what: ReaperTask,
    failures: u32,
    not_before: Option<Instant>,
}

#[derive(Debug)]
enum ReaperTask {
    /// Remove the remains of an upload.
    Abandoned { upload: i64, ids: Vec<ShareId> },
    /// Delete these going shares.
    Delete(Vec<ShareId>),
}

impl ReaperTask {
    fn due(self) -> ReaperChore {
        ReaperChore { what: self, failures: 0, not_before: None }
    }
}

impl ReaperChore {
    /// Queues a retry after a pause that doubles with each failure.
    fn later(what: ReaperTask, failures: u32) -> ReaperChore {
        ReaperChore { what, failures, not_before: Some(Instant::now() + pause(failures)) }
    }
}

fn pause(failures: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE_MAX)
}

impl Reaper {
    /// Queues a failed upload.
    pub fn abandon(&self, upload: i64, ids: Vec<ShareId>) {
        self.add(ReaperTask::Abandoned { upload, ids });
    }

    /// Queues going shares.
    pub fn delete(&self, ids: &[ShareId]) {
        for batch in ids.chunks(BATCH) {
            self.add(ReaperTask::Delete(batch.to_vec()));
        }
    }

    /// Wakes the thread: a share may have become due.
    pub fn wake(&self) {
        self.queue.lock().woken = true;
        self.alarm.notify_all();
    }

    /// Ends the thread after its current batch.
    pub fn stop(&self) {
        self.queue.lock().stopped = true;
        self.alarm.notify_all();
    }

    fn add(&self, what: ReaperTask) {
        self.queue.lock().chores.push_back(what.due());
        self.wake();
    }

    /// Takes the chores that are due (all of them, if pauses do not count).
    fn take(&self, pauses_count: bool) -> Vec<ReaperChore> {
        let now = Instant::now();
        let queue = &mut *self.queue.lock();
        queue.woken = false;
        let (due, later) = mem::take(&mut queue.chores)
            .into_iter()
            .partition(|chore| !pauses_count || chore.not_before.is_none_or(|t| t <= now));
        queue.chores = later;
        Vec::from_iter::<VecDeque<ReaperChore>>(due)
    }

    fn is_stopped(&self) -> bool {
        self.queue.lock().stopped
    }

    /// Sleeps until it is woken or a chore is due, and no longer than `longest` if that is given.
    /// `false`: it was stopped.
    fn sleep(&self, longest: Option<Duration>) -> bool {
        let until = longest.and_then(|longest| Instant::now().checked_add(longest));
        let mut queue = self.queue.lock();
        loop {
            if queue.stopped {
                return false;
            }
            let chore = queue.chores.iter().map(|c| c.not_before.unwrap_or_else(Instant::now)).min();
            let until = [until, chore].into_iter().flatten().min();
            if queue.woken || until.is_some_and(|t| t <= Instant::now()) {
                return true;
            }
            match until {
                Some(until) => drop(self.alarm.wait_until(&mut queue, until)),
                None => self.alarm.wait(&mut queue),
            }
        }
    }
}

/// Runs the thread. It does not keep the server alive.
pub(crate) fn run(server: &Weak<SharedState>, reaper: &Reaper) {
    let mut failures = 0;
    loop {
        let Some(server) = server.upgrade() else { return };
        let longest = match server.reap(true).and_then(|()| Ok(server.next_due()?)) {
            Ok(next_due) => {
                failures = 0;
                next_due
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, "deleting shares: trying again later");
                Some(pause(failures))
            }
        };
        drop(server);
        if !reaper.sleep(longest) {
            return;
        }
    }
}

impl SharedState {
    /// Deletes all shares that are due. Failed deletions stay queued.
    pub(crate) fn reap(&self, pauses_count: bool) -> Result<(), ReapError> {
        let _pass = self.reaper.pass.lock();
        let mut failed = Ok(());
        for chore in self.reaper.take(pauses_count) {
            if let Err(error) = self.carry_out(chore) {
                failed = Err(error);
            }
        }
        failed?;
        // A share that is unleased in a damaged database may have lost its leases.
        while !self.reaper.is_stopped() && !self.database.suspicion().is_raised() {
            let going = self.doom()?;
            if going.is_empty() {
                break;
            }
            let pause = rate(going.len() as u64, self.settings.pace.deletions_per_second.into());
            self.carry_out(ReaperTask::Delete(going).due())?;
            if pauses_count && !self.reaper.sleep(Some(pause)) {
                break;
            }
        }
        Ok(())
    }

    /// The time until the next unleased share is past its grace period.
    fn next_due(&self) -> Result<Option<Duration>, DatabaseError> {
        let since = self.database.read("looking for unleased shares", transitions::next_unleased)?;
        let now = (self.settings.clock)();
        Ok(since.map(|since| {
            let due = u64::try_from(since).unwrap_or(0).saturating_add(self.settings.grace.as_secs());
            Duration::from_secs(due.saturating_sub(now))
        }))
    }

    fn doom(&self) -> Result<Vec<ShareId>, DatabaseError> {
        let grace = i64::try_from(self.settings.grace.as_secs()).unwrap_or(i64::MAX);
        let shelf = self.shelf.clone();
        self.database.write_then(
            "marking shares for deletion",
            move |tx| transitions::doom(tx, grace, BATCH),
            move |going| shelf.withhold(going, Withheld::Going),
        )
    }

    fn carry_out(&self, chore: ReaperChore) -> Result<(), ReapError> {
        let ReaperChore { what, failures, .. } = chore;
        let ids = match what {
            ReaperTask::Delete(ids) => ids,
            ReaperTask::Abandoned { upload, ids } => match self.clear_abandoned(upload, &ids) {
                Ok(going) => going,
                Err(error) => {
                    self.postpone(ReaperTask::Abandoned { upload, ids }, failures);
                    return Err(error);
                }
            },
        };
        self.delete(ids, failures)
    }

    fn clear_abandoned(&self, upload: i64, ids: &[ShareId]) -> Result<Vec<ShareId>, ReapError> {
        self.backend.discard(upload, ids)?;
        Ok(self.settle_abandoned(upload, ids)?)
    }

    /// Deletes files, then rows. A file that cannot be deleted does not hold up the others.
    fn delete(&self, mut ids: Vec<ShareId>, failures: u32) -> Result<(), ReapError> {
        let _turn = self.file_locks.take(&ids);
        let mut stuck = Vec::new();
        let mut failed = Ok(());
        for (id, error) in self.backend.delete(&ids) {
            stuck.push(id);
            failed = Err(ReapError::Disk(error));
        }
        ids.retain(|id| !stuck.contains(id));
        if let Err(error) = self.forget(&ids) {
            stuck.append(&mut ids);
            failed = Err(error);
        }
        if !stuck.is_empty() {
            self.postpone(ReaperTask::Delete(stuck), failures);
        }
        failed
    }

    fn forget(&self, deleted: &[ShareId]) -> Result<(), ReapError> {
        if deleted.is_empty() {
            return Ok(());
        }
        let (ids, shelf): (Arc<[ShareId]>, _) = (deleted.into(), self.shelf.clone());
        let gone = ids.clone();
        self.database.write_then(
            "removing deleted shares",
            move |tx| {
                passes::note_reaped(tx, ids.len())?;
                transitions::forget(tx, &ids)
            },
            move |()| shelf.release(&gone),
        )?;
        Ok(())
    }

    fn postpone(&self, what: ReaperTask, failures: u32) {
        self.reaper.queue.lock().chores.push_back(ReaperChore::later(what, failures.saturating_add(1)));
    }
}
