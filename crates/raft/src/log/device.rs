//! The log of a machine: those of all its groups, in the same segments.
//!
//! Changes of all groups gather in one batch. A caller that needs its own to be durable writes the
//! whole batch, as one frame with one fdatasync. Changes that come meanwhile are the next batch.
//! With one group the caller writes at once, which costs no wake-up of another thread. With
//! several, one thread beside writes for all who wait, and the groups' thread goes on.
//!
//! A segment goes when no group has an entry in it. A group that holds up the oldest one has a
//! checkpoint due ([`RaftLog::is_due`]). A group that writes nothing is not woken for that: its few
//! entries are copied into the next segment.

use super::index::{FramePlace, GroupIndex, LogChange, Noted};
use super::recent::bytes_of;
use super::segment::Frame;
use super::segments::Segments;
use super::{LogError, LogRecord, RaftLog, decode, forward, invalid, recovery};
use crate::disk::Disk;
use crate::group_id::GroupId;
use crate::runtime::Runtime;
use crate::types::GroupEntry;
use openraft::async_runtime::AsyncRuntime;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of changes that wait until something rests on them. More are written anyway.
pub(super) const WAITING_BYTES_MAX: usize = 1 << 20;

/// Bytes of entries that all groups together keep in memory. Older ones are read from the disk: a
/// member that is so far behind waits for other things.
const RECENT_BYTES_MAX: usize = 16 << 20;

/// A flush waits for other groups that are about to write, at most this part of the time that the
/// last one took.
const GATHERS: u32 = 4;
/// The longest wait for them.
const GATHERS_MAX: Duration = Duration::from_millis(1);

/// A waiter for a flush.
pub(super) type FlushWaiter = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// The log of a machine.
pub(crate) struct LogDevice {
    pub(super) dir: PathBuf,
    /// Held while a frame is written. It is locked before `state`.
    pub(super) segments: Mutex<Segments>,
    pub(super) state: Mutex<LogState>,
    /// Whether the last frame found no room on the disk.
    pub(super) full: Arc<AtomicBool>,
}

/// The groups, and the changes that are not durable yet.
#[derive(Default)]
pub(super) struct LogState {
    pub(super) groups: BTreeMap<GroupId, GroupIndex>,
    /// The groups that this process has opened.
    open: BTreeSet<GroupId>,
    waiting: LogBatch,
    /// How many changes were put since it was opened, and how many of them are durable.
    put: u64,
    durable: u64,
    /// Waiters, each with the number of changes that it waits for.
    waiters: Vec<(u64, FlushWaiter)>,
    /// Whether a thread writes for them.
    is_flushing: bool,
    /// An error after which nothing is written any more.
    pub(super) broken: Option<LogError>,
    pub(super) flushes: u64,
    /// How many batches were taken.
    taken: u64,
    /// How many groups have put something since, and had for the last batch.
    groups_waiting: usize,
    groups_flushed: usize,
    /// How long the last flush took.
    took: Duration,
    /// The files, as the last flush left them.
    files: LogFiles,
}

/// The content of the next frame.
#[derive(Default)]
struct LogBatch {
    frame: Frame,
    noted: Vec<(GroupId, Noted)>,
    /// Groups whose known starts are written with it, as they are then.
    starts: BTreeSet<GroupId>,
}

#[derive(Clone, Copy, Default)]
struct LogFiles {
    bytes: u64,
    oldest: u64,
    newest: u64,
    spares: usize,
}

impl LogFiles {
    fn of(segments: &Segments) -> LogFiles {
        let first = |segment: Option<&u64>| segment.copied().unwrap_or_default();
        LogFiles {
            bytes: segments.bytes(),
            oldest: first(segments.in_service.keys().next()),
            newest: first(segments.in_service.keys().next_back()),
            spares: segments.spares(),
        }
    }
}

impl LogState {
    /// Returns a group's log, which may be new.
    pub(super) fn group(&mut self, group: GroupId) -> &mut GroupIndex {
        self.groups.entry(group).or_default()
    }

    /// Takes the changes that wait.
    fn take(&mut self) -> Result<LogBatch, postcard::Error> {
        let mut batch = mem::take(&mut self.waiting);
        self.taken += 1;
        self.groups_flushed = mem::take(&mut self.groups_waiting);
        for group in mem::take(&mut batch.starts) {
            let starts = self.group(group).starts.lock().clone();
            batch.add(&LogRecord::Of(group, LogChange::Starts(starts)), 0)?;
            batch.noted.push((group, Noted::Starts));
        }
        Ok(batch)
    }

    /// Counts a change that a group has put.
    fn counts(&mut self, group: GroupId) {
        self.put += 1;
        let round = self.taken + 1;
        if mem::replace(&mut self.group(group).put_in, round) != round {
            self.groups_waiting += 1;
        }
    }

    /// Puts a batch that was not written before the changes that came meanwhile.
    fn put_back(&mut self, mut batch: LogBatch) {
        let later = mem::take(&mut self.waiting);
        if !later.noted.is_empty() {
            batch.frame.extend(later.frame.body());
        }
        batch.noted.extend(later.noted);
        batch.starts.extend(later.starts);
        self.waiting = batch;
    }
}

impl LogBatch {
    fn add(&mut self, record: &LogRecord, bytes: usize) -> Result<(), postcard::Error> {
        self.frame = mem::take(&mut self.frame).with(record, bytes)?;
        Ok(())
    }
}

impl LogDevice {
    /// Opens the log in `dir`, or begins one with segments of `segment_bytes` (an oversized batch
    /// gets a larger one). Reserves disk space for `keep_bytes` of log. The rest of a frame that a
    /// power cut left unacknowledged is dropped. The file `mark` notes how far the log is durable,
    /// and a log that ends before that is damaged.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
        keep_bytes: u64,
        mark: Option<&Path>,
    ) -> Result<Arc<LogDevice>, LogError> {
        let (mut segments, groups) = recovery::open(disk, dir, segment_bytes, mark)?;
        if let Err(error) = segments.reserve(keep_bytes) {
            tracing::warn!(%error, "no space can be set aside for the log");
        }
        let begins = segments.in_service.is_empty();
        let state = LogState { groups, files: LogFiles::of(&segments), ..LogState::default() };
        let (state, segments) = (Mutex::new(state), Mutex::new(segments));
        let device = LogDevice { dir: dir.to_owned(), segments, state, full: Arc::default() };
        if begins {
            device.segments.lock().draw_key()?;
            device.state.lock().put = 1;
            device.flush()?;
        }
        Ok(Arc::new(device))
    }

    /// Opens the log of a group, once in a process.
    pub(crate) fn group(self: &Arc<Self>, group: GroupId) -> RaftLog {
        let mut state = self.state.lock();
        assert!(state.open.insert(group), "{group:?} is open already");
        let was_there = state.groups.contains_key(&group);
        let index = state.group(group);
        let (recent, starts) = (index.recent.clone(), index.starts.clone());
        drop(state);
        RaftLog { device: self.clone(), group, recent, starts, was_there }
    }

    pub(super) fn closes(&self, group: GroupId) {
        self.state.lock().open.remove(&group);
    }

    /// Returns whether the log of the group is open.
    pub(crate) fn is_open(&self, group: GroupId) -> bool {
        self.state.lock().open.contains(&group)
    }

    /// Returns whether something that was put is not durable yet.
    pub(super) fn waits(&self) -> bool {
        let state = self.state.lock();
        state.durable < state.put
    }

    /// Returns whether several groups are open: a flush of one keeps others waiting.
    pub(super) fn is_shared(&self) -> bool {
        self.state.lock().open.len() > 1
    }

    /// Puts a change of a group. It is durable after the next flush.
    pub(super) fn put(&self, group: GroupId, change: LogChange, noted: Noted) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let put = state.waiting.add(&LogRecord::Of(group, change), 0);
        put.map_err(|e| invalid(&self.dir, &e))?;
        state.waiting.noted.push((group, noted));
        state.counts(group);
        Ok(())
    }

    /// Puts the known starts of members, as they are when they are written.
    pub(super) fn put_starts(&self, group: GroupId) {
        let mut state = self.state.lock();
        state.waiting.starts.insert(group);
        state.counts(group);
    }

    /// Puts entries of a group, which must follow its last one.
    pub(super) fn append(
        &self,
        group: GroupId,
        entries: impl IntoIterator<Item = GroupEntry>,
    ) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let recent_bytes = RECENT_BYTES_MAX / state.open.len().max(1);
        for entry in entries {
            let index = state.group(group);
            let last = index.waiting.back().or(index.spots.back().map(|spot| &spot.log_id));
            let follows = last.is_none_or(|last| last.index + 1 == entry.log_id.index);
            assert!(
                follows,
                "entry {:?} does not follow {last:?}: entries are found by their distance",
                entry.log_id
            );
            let (log_id, bytes) = (entry.log_id, bytes_of(&entry));
            let record = LogRecord::Of(group, LogChange::Append(entry));
            state.waiting.add(&record, bytes).map_err(|e| invalid(&self.dir, &e))?;
            state.waiting.noted.push((group, Noted::Append(log_id, bytes as u32)));
            state.counts(group);
            let index = state.group(group);
            index.waiting.push_back(log_id);
            if let LogRecord::Of(_, LogChange::Append(entry)) = record {
                index.recent.lock().add(entry, recent_bytes);
            }
        }
        Ok(())
    }

    /// Returns whether more waits than should.
    pub(super) fn is_heavy(&self) -> bool {
        self.state.lock().waiting.frame.body().len() >= WAITING_BYTES_MAX
    }

    /// Makes everything that was put so far durable. After an error it still waits.
    pub(super) fn flush(&self) -> Result<(), LogError> {
        let wanted = self.state.lock().put;
        let mut segments = self.segments.lock();
        let (mut batch, put) = {
            let mut state = self.state.lock();
            // Another caller has written it meanwhile.
            if state.durable >= wanted {
                return Ok(());
            }
            if let Some(error) = &state.broken {
                return Err(error.clone());
            }
            (state.take().map_err(|e| invalid(&self.dir, &e))?, state.put)
        };
        let begun = Instant::now();
        let written = self.write(&mut segments, &mut batch);
        self.note_full(&written);
        let mut state = self.state.lock();
        state.took = begun.elapsed();
        let place = match written {
            Ok(place) => place,
            Err(error) => {
                state.put_back(batch);
                if !error.lacks_room() {
                    state.broken = Some(error.clone());
                }
                return Err(error);
            }
        };
        state.durable = put;
        state.flushes += 1;
        for (group, noted) in batch.noted {
            state.group(group).note(noted, place);
        }
        if state.waiting.noted.is_empty() {
            state.waiting.frame = batch.frame.again(WAITING_BYTES_MAX);
        }
        let mut retired = Ok(());
        // A purge frees segments, and so does an entry that begins one after all others are purged.
        let needed = state.groups.values().filter_map(GroupIndex::oldest).min().unwrap_or(place.segment);
        if state.files.oldest < needed {
            drop(state);
            retired = segments.retire_before(needed);
            state = self.state.lock();
        }
        state.files = LogFiles::of(&segments);
        retired
    }

    /// Calls `waiter` when everything that was put so far is durable, on a thread that may wait for
    /// the disk. One thread writes for all waiters.
    pub(super) fn flush_beside(self: &Arc<Self>, waiter: FlushWaiter) {
        let mut state = self.state.lock();
        let put = state.put;
        state.waiters.push((put, waiter));
        if mem::replace(&mut state.is_flushing, true) {
            return;
        }
        let is_shared = state.open.len() > 1;
        drop(state);
        self.clone().begin_flush(is_shared);
    }

    /// Flushes on a thread that may wait for the disk. With several groups it first waits for
    /// others that are about to write.
    fn begin_flush(self: Arc<Self>, is_shared: bool) {
        if !is_shared {
            return Runtime::beside(move || self.flush_for_waiters());
        }
        drop(Runtime::spawn(async move {
            self.gather().await;
            Runtime::beside(move || self.flush_for_waiters());
        }));
    }

    /// Waits until as many groups have put something as have for the last flush, so that one flush
    /// is for all of them. Otherwise half of them would wait for each other's flush in turn.
    async fn gather(&self) {
        let begun = Instant::now();
        loop {
            let (groups, before, took) = {
                let state = self.state.lock();
                (state.groups_waiting, state.groups_flushed, state.took)
            };
            if groups >= before || begun.elapsed() > (took / GATHERS).min(GATHERS_MAX) {
                return;
            }
            // Each task that is ready goes on once, and tokio looks for messages.
            tokio::task::yield_now().await;
        }
    }

    fn flush_for_waiters(self: Arc<Self>) {
        loop {
            let flushed = self.flush();
            let mut state = self.state.lock();
            let durable = state.durable;
            let (told, wait): (Vec<_>, Vec<_>) = mem::take(&mut state.waiters)
                .into_iter()
                .partition(|(put, _)| *put <= durable || flushed.is_err());
            state.is_flushing = !wait.is_empty();
            state.waiters = wait;
            let (ends, is_shared) = (!state.is_flushing, state.open.len() > 1);
            drop(state);
            for (put, waiter) in told {
                waiter(if put <= durable { Ok(()) } else { flushed.clone() });
            }
            if ends {
                return;
            }
            if is_shared {
                return self.begin_flush(true);
            }
        }
    }

    /// Writes a batch as one frame. If there is no room for it, nothing changes.
    fn write(&self, segments: &mut Segments, batch: &mut LogBatch) -> Result<FramePlace, LogError> {
        let body_len = batch.frame.body().len();
        if segments.fits(body_len) {
            return segments.append(&mut batch.frame);
        }
        let (mut first, copied) = self.beginning(segments, body_len).map_err(|e| invalid(&self.dir, &e))?;
        first.extend(batch.frame.body());
        let place = segments.append_first(&mut first)?;
        batch.noted.splice(0..0, copied);
        Ok(place)
    }

    /// Makes the beginning of a segment's first frame: the state of all groups, so that older
    /// segments can go, and the entries of idle ones.
    fn beginning(
        &self,
        segments: &Segments,
        bytes: usize,
    ) -> Result<(Frame, Vec<(GroupId, Noted)>), postcard::Error> {
        let (begun, idle) = {
            let state = self.state.lock();
            let begun = state.groups.iter().map(|(group, index)| (*group, index.begun())).collect();
            (LogRecord::Begin(begun), forward::idle(&state.groups, segments))
        };
        let mut frame = Frame::default().with(&begun, bytes)?;
        let mut copied = Vec::new();
        for (group, spots) in idle {
            // A group with entries that cannot be read finds them itself.
            let Some(entries) = forward::entries(segments, group, &spots) else { continue };
            frame = frame.with(&LogRecord::Of(group, LogChange::Copied(entries)), 0)?;
            let noted = spots.iter().map(|spot| (spot.log_id, spot.bytes)).collect();
            copied.push((group, Noted::Copied(noted)));
        }
        Ok((frame, copied))
    }

    fn note_full<T>(&self, written: &Result<T, LogError>) {
        let full = matches!(written, Err(error) if error.lacks_room());
        if self.full.swap(full, Relaxed) != full {
            match full {
                true => tracing::error!("the disk is full: the server's log waits for room"),
                false => tracing::warn!("the server's log waits for room no longer"),
            }
        }
    }

    /// Reads a group's entry at `index` from the disk.
    pub(super) fn read(&self, group: GroupId, index: u64) -> Result<Option<GroupEntry>, LogError> {
        let waits =
            |state: &mut LogState| state.group(group).waiting.iter().any(|log_id| log_id.index == index);
        if waits(&mut self.state.lock()) {
            self.flush()?;
        }
        // No segment is retired between these two.
        let segments = self.segments.lock();
        let Some(spot) = self.state.lock().group(group).spot(index) else { return Ok(None) };
        let records = decode(&segments.read(spot.at)?);
        let records = records.ok_or_else(|| segments.damaged("a frame does not decode"))?;
        Ok(records.into_iter().find_map(|record| match record {
            LogRecord::Of(of, change) if of == group => change.entry(index),
            _ => None,
        }))
    }

    /// Rereads from the disk the segment after the one whose first frame is `after`. Returns its
    /// first frame and its size in bytes. No other call writes meanwhile, as long as the disk takes
    /// for a segment.
    pub(super) fn reread(&self, after: Option<u64>) -> Result<Option<(u64, usize)>, LogError> {
        self.segments.lock().reread(after)
    }

    /// Returns the bytes that the next start would read, when everything is written.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.state.lock();
        state.files.bytes + state.waiting.frame.body().len() as u64
    }

    /// Returns whether a group's first entry is in the oldest segment.
    pub(super) fn holds_up(&self, group: GroupId) -> bool {
        let mut state = self.state.lock();
        let LogFiles { oldest, newest, .. } = state.files;
        state.group(group).oldest().unwrap_or(newest) == oldest
    }

    /// Returns whether another segment exists for when this one is full. It reserves one if the
    /// disk has room. With several groups it does not wait for a write that is under way: the
    /// caller asks again.
    pub(super) fn has_spare(&self) -> bool {
        if self.state.lock().files.spares > 0 {
            return true;
        }
        let segments = if self.is_shared() { self.segments.try_lock() } else { Some(self.segments.lock()) };
        let Some(mut segments) = segments else { return false };
        let reserved = segments.reserve_one();
        self.state.lock().files = LogFiles::of(&segments);
        reserved.is_ok()
    }
}
