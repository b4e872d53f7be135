//! The log of a machine's groups on its disk: entries, votes, and the points up to which entries
//! were purged.
//!
//! [`LogDevice`] is the log of the machine, and [`RaftLog`] that of one group in it. Changes wait
//! in memory until something rests on them ([`RaftLog::sync`]), and then go in one frame with one
//! fdatasync (see [`segment`]). So a frame is still written only when all before it are durable.
//!
//! The first frame of a segment begins with the votes and the purge marks of all groups as they
//! were, so that older segments can go.
//!
//! The crate raft-log is not used for three reasons. It extends its files (twice the device's bytes
//! and time for each fdatasync). It hands every flush to another thread (two wake-ups across
//! cores). It does not open again when a power cut has left part of an unacknowledged write behind
//! a gap.

mod device;
mod forward;
mod index;
mod mark;
mod recent;
mod recovery;
mod segment;
mod segments;
#[cfg(test)]
mod tests;

pub(crate) use device::LogDevice;
pub(super) use recent::{Recent, bytes_of};

use super::group_id::GroupId;
use super::runtime::Runtime;
use super::starts::Starts;
use super::types::{GroupEntry, LogId, Vote};
use crate::store::lacks_room;
use index::{LogChange, Noted, SegmentStart};
use openraft::async_runtime::AsyncRuntime;
use os::is_lost;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::oneshot;

/// The reason why the log cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The disk failed.
    #[error("{doing} {file}: {cause}", file = file.display())]
    File {
        /// The operation that failed.
        doing: &'static str,
        /// The file.
        file: PathBuf,
        /// Why it failed.
        cause: Arc<io::Error>,
    },
    /// A frame that was durable once cannot be read.
    #[error("{file} is damaged at byte {at}: {what}", file = file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Byte offset in the file.
        at: u64,
        /// The kind of damage.
        what: &'static str,
    },
}

impl LogError {
    /// Returns whether the disk is full.
    pub(crate) fn lacks_room(&self) -> bool {
        matches!(self, LogError::File { cause, .. } if lacks_room(cause))
    }

    /// Returns whether written data is lost.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            LogError::Damaged { .. } => true,
            LogError::File { cause, .. } => is_lost(cause),
        }
    }
}

impl From<LogError> for io::Error {
    fn from(error: LogError) -> io::Error {
        io::Error::other(error)
    }
}

/// A record of a frame's body.
#[derive(Debug, Serialize, Deserialize)]
enum LogRecord {
    /// The state of all groups when the segment was begun.
    Begin(BTreeMap<GroupId, SegmentStart>),
    /// A change of one group.
    Of(GroupId, LogChange),
}

/// The log of one group's member.
pub(super) struct RaftLog {
    device: Arc<LogDevice>,
    group: GroupId,
    recent: Arc<Mutex<Recent>>,
    starts: Arc<Mutex<Starts>>,
    was_there: bool,
}

impl RaftLog {
    /// Returns whether the group had a log before it was opened.
    pub(super) fn was_there(&self) -> bool {
        self.was_there
    }

    /// Returns the known starts of members. A change is durable with the next segment, purge, or
    /// [`RaftLog::save_starts`].
    pub(super) fn starts(&self) -> Arc<Mutex<Starts>> {
        self.starts.clone()
    }

    /// Returns the durable vote.
    pub(super) fn vote(&self) -> Option<Vote> {
        self.device.state.lock().group(self.group).vote
    }

    pub(super) fn purged(&self) -> Option<LogId> {
        self.device.state.lock().group(self.group).purged
    }

    /// Returns the last entry, or the last purged one if there is none.
    pub(super) fn last(&self) -> Option<LogId> {
        self.device.state.lock().group(self.group).last()
    }

    /// Returns the last durable entry, or the last purged one if there is none.
    pub(super) fn durable(&self) -> Option<LogId> {
        self.device.state.lock().group(self.group).durable()
    }

    /// Returns the indices of the entries.
    pub(super) fn indices(&self) -> Range<u64> {
        self.device.state.lock().group(self.group).indices()
    }

    /// Returns the bytes of all groups that the next start would read, when waiting changes are
    /// written.
    pub(super) fn bytes(&self) -> u64 {
        self.device.bytes()
    }

    /// Returns whether the group has a checkpoint due: the log has more than `bytes_max` bytes, and
    /// this group holds up its oldest segment.
    pub(super) fn is_due(&self, bytes_max: u64) -> bool {
        self.device.bytes() >= bytes_max && self.device.holds_up(self.group)
    }

    /// Returns the number of frames made durable since the log was opened, one fdatasync each.
    pub(super) fn flushes(&self) -> u64 {
        self.device.state.lock().flushes
    }

    /// Returns the flag for writes that wait for room on the disk. A reader of the flag need not
    /// wait for the writer.
    pub(super) fn full(&self) -> Arc<AtomicBool> {
        self.device.full.clone()
    }

    /// Returns whether another segment exists for when this one is full. It reserves one if the
    /// disk has room.
    pub(super) fn has_spare(&self) -> bool {
        self.device.has_spare()
    }

    /// Puts the known starts of members. As every change, they are durable after the next
    /// [`RaftLog::sync`]. Until then a crash may leave the log without them.
    pub(super) fn save_starts(&self) {
        self.device.put_starts(self.group);
    }

    /// Puts a vote.
    pub(super) fn save_vote(&self, vote: Vote) -> Result<(), LogError> {
        self.device.put(self.group, LogChange::Vote(vote), Noted::Vote(vote))
    }

    /// Puts entries, which must follow the last one.
    pub(super) fn append(&self, entries: impl IntoIterator<Item = GroupEntry>) -> Result<(), LogError> {
        self.device.append(self.group, entries)
    }

    /// Puts the removal of the entries after `keep`.
    pub(super) fn truncate(&self, keep: Option<LogId>) -> Result<(), LogError> {
        self.device.put(self.group, LogChange::Truncate(keep), Noted::Truncate(keep))
    }

    /// Puts the removal of the entries up to `upto`, with the known starts of members. When the
    /// removal is durable, segments without any group's entries are retired.
    pub(super) fn purge(&self, upto: LogId) -> Result<(), LogError> {
        self.device.put_starts(self.group);
        self.device.put(self.group, LogChange::Purge(upto), Noted::Purge(upto))
    }

    /// Returns whether so much waits that it is to be written even if nothing rests on it.
    pub(super) fn is_heavy(&self) -> bool {
        self.device.is_heavy()
    }

    /// Makes everything that was put durable, on this thread. After an error it still waits.
    pub(super) fn sync(&self) -> Result<(), LogError> {
        self.device.flush()
    }

    /// Makes everything that was put durable. If other groups would have to wait, a thread beside
    /// does it.
    pub(super) async fn flushed(&self) -> Result<(), LogError> {
        if !self.device.is_shared() {
            return self.sync();
        }
        let (tell, told) = oneshot::channel();
        self.flush_beside(move |flushed| drop(tell.send(flushed)));
        // The runtime drops the work of a thread only at its end.
        told.await.unwrap_or_else(|_| self.sync())
    }

    /// Calls `then` when everything that was put is durable, on a thread that may wait for the
    /// disk.
    pub(super) fn flush_beside(&self, then: impl FnOnce(Result<(), LogError>) + Send + 'static) {
        self.device.flush_beside(Box::new(then));
    }

    /// Returns whether other groups are open in the same log.
    pub(super) fn is_shared(&self) -> bool {
        self.device.is_shared()
    }

    /// Returns the latest entries, so that they can be read while others are made durable.
    pub(super) fn recent(&self) -> Arc<Mutex<Recent>> {
        self.recent.clone()
    }

    /// Reads the entry at `index` from the disk.
    pub(super) fn read(&self, index: u64) -> Result<Option<GroupEntry>, LogError> {
        self.device.read(self.group, index)
    }

    /// Reads the entry at `index` likewise. If other groups would have to wait for the disk, a
    /// thread beside reads.
    pub(super) async fn read_beside(self: &Arc<Self>, index: u64) -> Result<Option<GroupEntry>, LogError> {
        if !self.is_shared() {
            return self.read(index);
        }
        let log = self.clone();
        // The runtime drops the work of a thread only at its end.
        let read = Runtime::spawn_blocking(move || log.read(index)).await;
        read.unwrap_or_else(|cause| Err(failed("reading", &self.device.dir, cause)))
    }

    /// Returns whether something that was put is not durable yet.
    pub(super) fn waits(&self) -> bool {
        self.device.waits()
    }

    /// Returns the error after which nothing is written any more.
    pub(super) fn broken(&self) -> Option<LogError> {
        self.device.state.lock().broken.clone()
    }

    /// Rereads from the disk the segment after the one whose first frame is `after`. Returns its
    /// first frame and its size in bytes.
    pub(super) fn reread(&self, after: Option<u64>) -> Result<Option<(u64, usize)>, LogError> {
        self.device.reread(after)
    }
}

impl Drop for RaftLog {
    fn drop(&mut self) {
        self.device.closes(self.group);
    }
}

fn failed(doing: &'static str, file: &Path, cause: io::Error) -> LogError {
    LogError::File { doing, file: file.to_owned(), cause: Arc::new(cause) }
}

fn invalid(dir: &Path, cause: &dyn std::fmt::Display) -> LogError {
    failed("encoding for", dir, io::Error::new(io::ErrorKind::InvalidInput, cause.to_string()))
}

fn decode(body: &[u8]) -> Option<Vec<LogRecord>> {
    decode_sized(body).map(|records| records.into_iter().map(|(record, _)| record).collect())
}

/// Decodes the records of a frame, each with its size in bytes.
fn decode_sized(mut body: &[u8]) -> Option<Vec<(LogRecord, u32)>> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let (record, rest) = postcard::take_from_bytes(body).ok()?;
        records.push((record, (body.len() - rest.len()) as u32));
        body = rest;
    }
    Some(records)
}
