//! The log as openraft drives it.
//!
//! In a group of several, a member's answer says that an entry is durable here. So the member makes
//! it durable at once. A follower does that on the spot, which costs no wake-up of another thread.
//! The leader does it on another thread, while the entry is on its way to the others, which make it
//! durable at the same time. So does a follower on a machine with several groups, whose thread goes
//! on with the others.
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
    log: Arc<RaftLog>,
    recent: Arc<Mutex<Recent>>,
    /// Whether this is the group's only member. A learner, too, makes it one of several: a crash
    /// here must not undo what the learner has applied.
    alone: Arc<AtomicBool>,
    standing: Arc<Mutex<Standing>>,
    queue: Arc<ProposalQueue>,
    alarm: Alarm,
}

/// Makes everything in the log durable. It waits as long as the disk is full, unless the member
/// ends: the member answers nothing until there is room, and the others go on without it.
pub(super) async fn when_there_is_room(log: &RaftLog, queue: &ProposalQueue) -> Result<(), LogError> {
    loop {
        match log.flushed().await {
            Err(error) if error.lacks_room() && !queue.is_ending() => tokio::time::sleep(LOOK).await,
            flushed => return flushed,
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
        log: Arc<RaftLog>,
        alone: Arc<AtomicBool>,
        standing: Arc<Mutex<Standing>>,
        queue: Arc<ProposalQueue>,
        alarm: Alarm,
    ) -> LogStorage {
        let recent = log.recent();
        LogStorage { log, recent, alone, standing, queue, alarm }
    }

    async fn sync(&self) -> io::Result<()> {
        Ok(when_there_is_room(&self.log, &self.queue).await?)
    }

    /// Writes entries on which nothing rests yet, if there are many. On a full disk they wait on.
    async fn write_what_is_heavy(&self) -> Result<(), LogError> {
        if !self.log.is_heavy() {
            return Ok(());
        }
        match self.log.flushed().await {
            Err(error) if error.lacks_room() => Ok(()),
            flushed => flushed,
        }
    }

    /// Makes all appended entries durable, on a thread that may wait for the disk.
    fn sync_beside(&self, callback: IOFlushed<Types>) {
        let storage = self.clone();
        self.log.flush_beside(move |flushed| match flushed {
            Err(error) if error.lacks_room() => {
                drop(Runtime::spawn(async move { callback.io_completed(storage.sync().await) }));
            }
            flushed => callback.io_completed(flushed.map_err(io::Error::from)),
        });
    }

    /// Reads an entry from the disk.
    async fn read_from_disk(&self, index: u64) -> Result<Option<GroupEntry>, LogError> {
        loop {
            match self.log.read_beside(index).await {
                // It waits to be written.
                Err(error) if error.lacks_room() && !self.queue.is_ending() => {
                    tokio::time::sleep(LOOK).await;
                }
                read => return read,
            }
        }
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
                    let entry = match self.read_from_disk(index).await {
                        Err(error) if !error.lacks_room() => {
                            self.alarm.disk_failed(&error, error.is_damage())
                        }
                        entry => entry?,
                    };
                    let there = self.log.indices();
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
        Ok(self.log.vote())
    }
}

impl RaftLogStorage<Types> for LogStorage {
    type LogReader = LogStorage;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        Ok(LogState { last_purged_log_id: self.log.purged(), last_log_id: self.log.last() })
    }

    async fn get_log_reader(&mut self) -> LogStorage {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.log.save_vote(*vote)?;
        self.sync().await
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
        if let Err(error) = self.log.append(entries) {
            callback.io_completed(Err(error.into()));
            return Ok(());
        }
        let beside = self.standing.lock().leads || self.log.is_shared();
        if several && !was_alone && beside {
            self.sync_beside(callback);
            return Ok(());
        }
        let synced = match several {
            true => self.sync().await,
            false => self.write_what_is_heavy().await.map_err(io::Error::from),
        };
        if several && was_alone && synced.is_ok() {
            // Only now: until this point outputs rest on entries that no other member has.
            self.alone.store(false, SeqCst);
        }
        callback.io_completed(synced);
        Ok(())
    }

    async fn truncate_after(&mut self, keep: Option<LogId>) -> io::Result<()> {
        self.log.truncate(keep)?;
        self.sync().await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.log.purge(upto)?;
        self.sync().await
    }
}
