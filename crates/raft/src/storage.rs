//! The log as openraft drives it.
//!
//! In a group of several, a member's answer says that an entry is durable here. So the member makes
//! it durable at once. A follower does that on the spot, which costs no wake-up of another thread.
//! The leader does it on another thread, while the entry is on its way to the others, which make it
//! durable at the same time.
//!
//! A lone voter promises nothing by storing an entry. It may apply the entry at once, and makes it
//! durable before any output that rests on it leaves ([`super::machine::StateMachine`]). So an
//! entry that no output rests on costs no flush. Proposals that come meanwhile wait and become the
//! next batch.

use super::log::{LogError, RaftLog, Recent, bytes_of};
use super::queue::ProposalQueue;
use super::runtime::Runtime;
use super::standing::Standing;
use super::types::{GroupEntry, LogId, Types, Vote};
use crate::alarm::Alarm;
use crate::store::LOOK;
use openraft::async_runtime::AsyncRuntime;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// openraft's handle on the log.
#[derive(Clone)]
pub(super) struct LogStorage {
    log: Arc<Mutex<RaftLog>>,
    recent: Arc<Mutex<Recent>>,
    /// Whether this is the group's only member. A learner, too, makes it one of several: a crash
    /// here must not undo what the learner has applied.
    alone: Arc<AtomicBool>,
    standing: Arc<Mutex<Standing>>,
    queue: Arc<ProposalQueue>,
    alarm: Alarm,
}

/// Does `what` with the log, and repeats it as long as the disk is full, unless the member ends.
pub(super) async fn when_there_is_room<T>(
    log: &Mutex<RaftLog>,
    queue: &ProposalQueue,
    mut what: impl FnMut(&mut RaftLog) -> Result<T, LogError>,
) -> Result<T, LogError> {
    loop {
        let done = what(&mut log.lock());
        match done {
            Err(error) if error.lacks_room() && !queue.is_ending() => tokio::time::sleep(LOOK).await,
            done => return done,
        }
    }
}

/// Entries that are sent at a time, at most. A member that is behind gets them in frames of
/// moderate size.
const SEND_ENTRIES_MAX: u64 = 256;
/// Bytes of entries that are sent at a time, at most.
const SEND_BYTES_MAX: usize = 4 << 20;

impl LogStorage {
    /// Makes the storage of the member with this log. `alone` and `standing` are that member's.
    pub(super) fn new(
        log: Arc<Mutex<RaftLog>>,
        alone: Arc<AtomicBool>,
        standing: Arc<Mutex<Standing>>,
        queue: Arc<ProposalQueue>,
        alarm: Alarm,
    ) -> LogStorage {
        let recent = log.lock().recent();
        LogStorage { log, recent, alone, standing, queue, alarm }
    }

    /// Waits while the disk is full. The member answers nothing until there is room, and the others
    /// go on without it.
    async fn when_there_is_room<T>(
        &self,
        what: impl FnMut(&mut RaftLog) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        when_there_is_room(&self.log, &self.queue, what).await
    }

    /// Makes all appended entries durable, on a thread that may wait for the disk.
    fn sync_beside(&self, callback: IOFlushed<Types>) {
        let storage = self.clone();
        Runtime::beside(move || {
            let synced = storage.log.lock().sync();
            match synced {
                Err(error) if error.lacks_room() => drop(Runtime::spawn(async move {
                    let synced = storage.when_there_is_room(RaftLog::sync).await;
                    callback.io_completed(synced.map_err(io::Error::from));
                })),
                synced => callback.io_completed(synced.map_err(io::Error::from)),
            }
        });
    }

    /// Reads entries. The latest ones come from memory, without waiting for the disk.
    async fn read(&self, mut indices: Range<u64>, bytes_max: usize) -> io::Result<Vec<GroupEntry>> {
        let alone = self.alone.load(SeqCst);
        // A lone voter's state machine takes each entry once, and there is no other reader.
        let recent =
            |index| if alone { self.recent.lock().take(index) } else { self.recent.lock().get(index) };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some(index) = indices.next()
        {
            let entry = match recent(index) {
                Some(entry) => entry,
                None => {
                    let entry = match self.when_there_is_room(|log| log.read(index)).await {
                        Err(error) if error.is_damage() => self.alarm.raise(&error),
                        entry => entry?,
                    };
                    let there = self.log.lock().indices();
                    let Some(entry) = entry else {
                        indices = indices.start.max(there.start)..indices.end.min(there.end);
                        continue;
                    };
                    entry
                }
            };
            bytes += bytes_of(&entry);
            entries.push(entry);
        }
        Ok(entries)
    }
}

impl RaftLogReader<Types> for LogStorage {
    async fn try_get_log_entries<R>(&mut self, range: R) -> io::Result<Vec<GroupEntry>>
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start..end, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<GroupEntry>> {
        self.read(start..end.min(start + SEND_ENTRIES_MAX), SEND_BYTES_MAX).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.log.lock().vote())
    }
}

impl RaftLogStorage<Types> for LogStorage {
    type LogReader = LogStorage;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let log = self.log.lock();
        Ok(LogState { last_purged_log_id: log.purged(), last_log_id: log.last() })
    }

    async fn get_log_reader(&mut self) -> LogStorage {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        Ok(self.when_there_is_room(|log| log.save_vote(*vote)).await?)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = GroupEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let was_alone = self.alone.load(SeqCst);
        let mut several = !was_alone;
        let entries = entries.into_iter().inspect(|entry| {
            several |= matches!(&entry.payload, EntryPayload::Membership(members) if members.nodes().count() > 1);
        });
        let appended = self.log.lock().append(entries);
        match appended {
            Err(error) if !error.lacks_room() => callback.io_completed(Err(error.into())),
            _ if several && !was_alone && self.standing.lock().leads => self.sync_beside(callback),
            _ => {
                let synced = if several { self.when_there_is_room(RaftLog::sync).await } else { Ok(()) };
                if several && was_alone && synced.is_ok() {
                    // Only now: until this point outputs rest on entries that no other member has.
                    self.alone.store(false, SeqCst);
                }
                callback.io_completed(synced.map_err(io::Error::from));
            }
        }
        Ok(())
    }

    async fn truncate_after(&mut self, keep: Option<LogId>) -> io::Result<()> {
        Ok(self.when_there_is_room(|log| log.truncate(keep)).await?)
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        Ok(self.when_there_is_room(|log| log.purge(upto)).await?)
    }
}
