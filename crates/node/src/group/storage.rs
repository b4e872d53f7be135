//! The log as openraft drives it.
//!
//! A lone voter has nobody to promise anything to by storing an entry: it may apply it at once, and makes it durable before anything that rests on it leaves
//! ([`super::machine::StateMachine`]). So an entry that nobody is told of costs no flush. That blocks the group's thread for one fdatasync instead of handing it to
//! another thread and back, which would cost two wake-ups across cores. What is proposed meanwhile waits and becomes the next batch.

use super::log::Log;
use super::raft::{Entry, LogId, Types, Vote};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// openraft's handle on the log.
#[derive(Clone)]
pub(super) struct LogStorage {
    pub(super) log: Arc<Mutex<Log>>,
}

/// Openraft asks for all that is committed; entries of up to a batch each are read this many at a time.
const READ_MAX: u64 = 64;

impl RaftLogReader<Types> for LogStorage {
    async fn try_get_log_entries<R>(&mut self, range: R) -> io::Result<Vec<Entry>>
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let mut log = self.log.lock();
        let there = log.indices();
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
        let wanted = start.max(there.start)..end.min(there.end);
        wanted.filter_map(|index| log.take(index).transpose()).map(|entry| Ok(entry?)).collect()
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.try_get_log_entries(start..end.min(start + READ_MAX)).await
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
        Ok(self.log.lock().save_vote(*vote)?)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let appended = self.log.lock().append(entries);
        callback.io_completed(appended.map_err(io::Error::from));
        Ok(())
    }

    async fn truncate_after(&mut self, keep: Option<LogId>) -> io::Result<()> {
        Ok(self.log.lock().truncate(keep)?)
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        Ok(self.log.lock().purge(upto)?)
    }
}
