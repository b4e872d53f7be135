//! The group's log on this machine's disk: entries, the vote, and the point up to which entries
//! were purged.
//!
//! Every change is one frame (see [`segment`]), durable when the call returns. Entries are the
//! exception: they wait in memory until something rests on them ([`RaftLog::sync`]), and then go in one
//! frame with one fdatasync. So a frame is still written only when all before it are durable.
//!
//! The name of a segment is the number of its first frame. That frame begins with the vote and the
//! purge mark as they were, so that older segments can go. Purged segments are kept for reuse, and
//! space for the first ones is reserved at the start. So a disk that others have filled up does not
//! stop the log.
//!
//! The crate raft-log is not used for three reasons. It extends its files (twice the device's bytes
//! and time for each fdatasync). It hands every flush to another thread (two wake-ups across
//! cores). It does not open again when a power cut has left part of an unacknowledged write behind
//! a gap.

mod mark;
mod recent;
mod segment;
#[cfg(test)]
mod tests;

pub(super) use recent::{Recent, bytes_of};

use super::starts::Starts;
use super::types::{GroupEntry, LogId, Vote};
use crate::disk::Disk;
use crate::store::lacks_room;
use mark::{Extent, Mark};
use os::is_lost;
use parking_lot::Mutex;
use segment::{BODY_BYTES_MAX, Frame, Segment, SegmentKey, SegmentPlace};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Purged segments kept for reuse: about as many as the log has between two checkpoints.
const SPARES_MAX: usize = 8;
/// Bytes of entries that wait until something rests on them. More are written anyway.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// The reason why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk failed.
    #[error("{doing} {file}: {cause}", file = file.display())]
    File {
        /// The operation that failed.
        doing: &'static str,
        /// The file.
        file: PathBuf,
        /// Why it failed.
        cause: io::Error,
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
    /// The state when the segment was begun.
    Begin {
        vote: Option<Vote>,
        purged: Option<LogId>,
        last: Option<LogId>,
        starts: Starts,
    },
    Vote(Vote),
    Append(GroupEntry),
    /// Removes the entries after this one.
    Truncate(Option<LogId>),
    /// Removes the entries up to this one.
    Purge(LogId),
    /// The known starts of members.
    Starts(Starts),
}

/// The place of an entry.
#[derive(Clone, Copy, Debug)]
struct Spot {
    log_id: LogId,
    /// The first frame of its segment.
    segment: u64,
    frame: u64,
    place: SegmentPlace,
}

/// The log of one member.
pub(super) struct RaftLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    key: SegmentKey,
    /// Segments by number of their first frame. The last one is written to.
    segments: BTreeMap<u64, Segment>,
    /// Numbers in the names of the segments kept for reuse.
    spares: Vec<u64>,
    /// Reserved space for segments that were never in service.
    reserves: Vec<PathBuf>,
    next_frame: u64,
    /// Number of flushes since it was opened.
    flushes: u64,
    /// Whether the last frame found no room on the disk.
    full: Arc<AtomicBool>,
    vote: Option<Vote>,
    purged: Option<LogId>,
    starts: Arc<Mutex<Starts>>,
    /// Notes beside the directory how far the log is durable.
    mark: Option<Mark>,
    spots: VecDeque<Spot>,
    /// Entries that are not written yet: their frame and their ids. They follow those of `spots`.
    waiting: (Frame, Vec<LogId>),
    recent: Arc<Mutex<Recent>>,
    was_there: bool,
    /// Used while opening: entries below this index were in segments that are gone. They must turn
    /// out to be purged.
    gone_below: u64,
}

impl RaftLog {
    /// Opens the log in `dir`, or begins one with segments of `segment_bytes` (an oversized batch
    /// gets a larger one). Reserves disk space for `keep_bytes` of log. The rest of a frame that a
    /// power cut left unacknowledged is dropped. The file `mark` notes how far the log is durable,
    /// and a log that ends before that is damaged.
    pub(super) fn on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
        keep_bytes: u64,
        mark: Option<&Path>,
    ) -> Result<RaftLog, LogError> {
        disk.make_dir(dir).map_err(|e| failed("creating", dir, e))?;
        let LogFiles { segments: first_frames, spares, reserves } =
            list(&*disk, dir).map_err(|e| failed("listing", dir, e))?;
        let mut log = RaftLog {
            disk,
            dir: dir.to_owned(),
            segment_bytes,
            key: [0; 32],
            segments: BTreeMap::new(),
            spares,
            reserves,
            next_frame: 1,
            flushes: 0,
            full: Arc::default(),
            vote: None,
            purged: None,
            starts: Arc::default(),
            mark: None,
            spots: VecDeque::new(),
            waiting: Default::default(),
            recent: Arc::default(),
            was_there: false,
            gone_below: 0,
        };
        let (last, mut retired) = (first_frames.last().copied(), BTreeMap::new());
        for first in first_frames {
            log.load(first, Some(first) == last, &mut retired)?;
        }
        let said = match mark {
            Some(path) => {
                let (mark, said) = Mark::open(&*log.disk, path).map_err(|e| failed("opening", path, e))?;
                log.mark = Some(mark);
                said
            }
            None => None,
        };
        if let Some(said) = said {
            let is = Extent::of(&log.key, log.next_frame);
            if is.name != said.name || is.next_frame < said.next_frame {
                let what = "it ends before what was durable once: segments are missing, cut off, or older than they were";
                return Err(LogError::Damaged { file: log.dir, at: 0, what });
            }
        }
        if log.gone_below > next_index(log.purged) {
            return Err(LogError::Damaged { file: log.dir, at: 0, what: "entries are missing" });
        }
        // Only now: files of a damaged log stay as they are.
        log.retire_all(retired)?;
        if let Err(error) = log.reserve(keep_bytes) {
            tracing::warn!(%error, "no space can be set aside for the log");
        }
        log.was_there = !log.segments.is_empty();
        if !log.was_there {
            log.begin()?;
        }
        Ok(log)
    }

    /// Returns whether the log existed before it was opened.
    pub(super) fn was_there(&self) -> bool {
        self.was_there
    }

    /// Returns the known starts of members. A change is durable with the next [`RaftLog::save_starts`],
    /// segment or purge.
    pub(super) fn starts(&self) -> Arc<Mutex<Starts>> {
        self.starts.clone()
    }

    /// Makes the known starts of members durable.
    pub(super) fn save_starts(&mut self) -> Result<(), LogError> {
        let starts = self.starts.lock().clone();
        self.write_record(&LogRecord::Starts(starts))
    }

    pub(super) fn vote(&self) -> Option<Vote> {
        self.vote
    }

    pub(super) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    /// Returns the last entry, or the last purged one if there is none.
    pub(super) fn last(&self) -> Option<LogId> {
        self.waiting.1.last().copied().or_else(|| self.durable())
    }

    /// Returns the last durable entry, or the last purged one if there is none.
    pub(super) fn durable(&self) -> Option<LogId> {
        self.spots.back().map(|spot| spot.log_id).or(self.purged)
    }

    /// Returns the bytes that the next start would read, when waiting entries are written.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.end).sum::<u64>() + self.waiting.0.body().len() as u64
    }

    /// Returns the number of frames made durable since it was opened, one fdatasync each.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Returns the flag for writes that wait for room on the disk. A reader of the flag need not
    /// wait for the writer.
    pub(super) fn full(&self) -> Arc<AtomicBool> {
        self.full.clone()
    }

    pub(super) fn save_vote(&mut self, vote: Vote) -> Result<(), LogError> {
        self.write_record(&LogRecord::Vote(vote))?;
        self.vote = Some(vote);
        Ok(())
    }

    /// Appends entries, which must follow the last one. They are durable after the next
    /// [`RaftLog::sync`]. Until then a crash leaves the log without them.
    pub(super) fn append(&mut self, entries: impl IntoIterator<Item = GroupEntry>) -> Result<(), LogError> {
        for entry in entries {
            let last = self.waiting.1.last().or(self.spots.back().map(|spot| &spot.log_id));
            let follows = last.is_none_or(|last| last.index + 1 == entry.log_id.index);
            assert!(
                follows,
                "entry {:?} does not follow {last:?}: entries are found by their distance",
                entry.log_id
            );
            let (log_id, bytes, record) = (entry.log_id, bytes_of(&entry), LogRecord::Append(entry));
            let frame = std::mem::take(&mut self.waiting.0);
            self.waiting.0 = frame.with(&record, bytes).map_err(|e| self.invalid(&e))?;
            self.waiting.1.push(log_id);
            if let LogRecord::Append(entry) = record {
                self.recent.lock().add(entry);
            }
        }
        if self.waiting.0.body().len() >= WAITING_BYTES_MAX { self.sync() } else { Ok(()) }
    }

    /// Makes all entries durable. After an error they still wait.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        let (mut records, log_ids) = std::mem::take(&mut self.waiting);
        if log_ids.is_empty() {
            return Ok(());
        }
        let (segment, frame, place) = match self.write(&mut records) {
            Ok(written) => written,
            Err(error) => {
                self.waiting = (records, log_ids);
                return Err(error);
            }
        };
        self.spots.extend(log_ids.into_iter().map(|log_id| Spot { log_id, segment, frame, place }));
        self.waiting.0 = records.again(WAITING_BYTES_MAX);
        Ok(())
    }

    /// Removes the entries after `keep`.
    pub(super) fn truncate(&mut self, keep: Option<LogId>) -> Result<(), LogError> {
        self.write_record(&LogRecord::Truncate(keep))?;
        self.forget_after(keep);
        Ok(())
    }

    /// Removes the entries up to `upto`, and retires segments that hold no entry any more.
    pub(super) fn purge(&mut self, upto: LogId) -> Result<(), LogError> {
        self.sync()?;
        let frame = Frame::default().with(&LogRecord::Starts(self.starts.lock().clone()), 0);
        let frame = frame.and_then(|frame| frame.with(&LogRecord::Purge(upto), 0));
        self.write(&mut frame.map_err(|e| self.invalid(&e))?)?;
        self.forget_upto(upto);
        self.retire()
    }

    /// Returns the latest entries, so that they can be read while others are made durable.
    pub(super) fn recent(&self) -> Arc<Mutex<Recent>> {
        self.recent.clone()
    }

    /// Reads the entry at `index` from the disk.
    pub(super) fn read(&mut self, index: u64) -> Result<Option<GroupEntry>, LogError> {
        if self.waiting.1.iter().any(|log_id| log_id.index == index) {
            self.sync()?;
        }
        let Some(first) = self.spots.front().map(|spot| spot.log_id.index) else { return Ok(None) };
        let Some(spot) = index.checked_sub(first).and_then(|at| self.spots.get(at as usize)) else {
            return Ok(None);
        };
        let file = self.path(spot.segment);
        let damaged = |what| LogError::Damaged { file: file.clone(), at: spot.place.at, what };
        let segment = self.segments.get(&spot.segment).ok_or_else(|| damaged("the segment is missing"))?;
        let body = segment.read(spot.frame, spot.place).map_err(|e| failed("reading", &file, e))?;
        let records = body.and_then(|body| decode(&body)).ok_or_else(|| damaged("the frame has changed"))?;
        let mut entries = records.into_iter().filter_map(|record| match record {
            LogRecord::Append(entry) => Some(entry),
            _ => None,
        });
        Ok(entries.find(|entry| entry.log_id.index == index))
    }

    /// Rereads from the disk the segment after the one whose first frame is `after`. Returns its
    /// first frame and its size in bytes. No other call writes meanwhile, as long as the disk takes
    /// for a segment.
    pub(super) fn reread(&mut self, after: Option<u64>) -> Result<Option<(u64, usize)>, LogError> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let Some((first, segment)) = self.segments.range(behind).next() else { return Ok(None) };
        let file = self.path(*first);
        match segment.reread(*first).map_err(|e| failed("reading", &file, e))? {
            Some(at) => Err(LogError::Damaged { file, at, what: "a frame cannot be read" }),
            None => Ok(Some((*first, segment.end as usize))),
        }
    }

    /// Returns the indices of the entries.
    pub(super) fn indices(&self) -> std::ops::Range<u64> {
        let first = self.spots.front().map(|spot| spot.log_id).or(self.waiting.1.first().copied());
        let first = first.map_or(0, |log_id| log_id.index);
        first..first + (self.spots.len() + self.waiting.1.len()) as u64
    }

    /// Writes a change, and all entries before it.
    fn write_record(&mut self, record: &LogRecord) -> Result<(), LogError> {
        self.sync()?;
        let mut frame = Frame::default().with(record, 0).map_err(|e| self.invalid(&e))?;
        self.write(&mut frame).map(drop)
    }

    /// Writes one frame, and returns its segment, number and place. If there is no room for it,
    /// nothing changes.
    fn write(&mut self, records: &mut Frame) -> Result<(u64, u64, SegmentPlace), LogError> {
        let written = self.write_frame(records);
        let full = matches!(&written, Err(error) if error.lacks_room());
        if self.full.swap(full, Relaxed) != full {
            match full {
                true => tracing::error!("the disk is full: the server's log waits for room"),
                false => tracing::warn!("the server's log waits for room no longer"),
            }
        }
        written
    }

    fn write_frame(&mut self, records: &mut Frame) -> Result<(u64, u64, SegmentPlace), LogError> {
        let (mut first, mut frame) = (Frame::default(), records);
        let fits =
            self.segments.last_entry().is_some_and(|segment| segment.get().has_room(frame.body().len()));
        if !fits {
            let (vote, purged, last) = (self.vote, self.purged, self.last());
            let starts = self.starts.lock().clone();
            let begin = LogRecord::Begin { vote, purged, last, starts };
            first = first.with(&begin, frame.body().len()).map_err(|e| self.invalid(&e))?;
            first.extend(frame.body());
            frame = &mut first;
        }
        if frame.body().len() > BODY_BYTES_MAX {
            return Err(self.invalid(&"the batch is too large"));
        }
        if !fits {
            self.enter(frame.body().len())?;
        }
        let number = self.next_frame;
        let Some(mut segment) = self.segments.last_entry() else {
            return Err(failed("writing", &self.dir, io::ErrorKind::NotFound.into()));
        };
        let first = *segment.key();
        let place = segment.get_mut().append(number, frame);
        let place = place.map_err(|e| failed("writing", &self.path(first), e))?;
        self.next_frame += 1;
        self.flushes += 1;
        self.note_extent(!fits);
        Ok((first, number, place))
    }

    /// Notes how far the log is durable. With `durably`, the note survives a power cut. A failed
    /// note changes nothing.
    fn note_extent(&mut self, durably: bool) {
        let extent = Extent::of(&self.key, self.next_frame);
        let Some(mark) = &mut self.mark else { return };
        let set = mark.set(extent).and_then(|()| if durably { mark.sync() } else { Ok(()) });
        if let Err(error) = set
            && !lacks_room(&error)
        {
            tracing::warn!(%error, "how far the server's log reaches could not be noted");
        }
    }

    fn invalid(&self, cause: &dyn std::fmt::Display) -> LogError {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, cause.to_string());
        failed("encoding for", &self.dir, cause)
    }

    /// Reserves disk space, as far as there is any. Without it the log works until the disk is
    /// full.
    fn reserve(&mut self, keep_bytes: u64) -> io::Result<()> {
        let wanted = keep_bytes.div_ceil(self.segment_bytes) as usize;
        let there = self.segments.len() + self.spares.len() + self.reserves.len();
        for number in 0..wanted.saturating_sub(there) {
            let path = self.dir.join(format!("{:020}-{number}.reserve", self.next_frame));
            Segment::reserve(&*self.disk, &path, self.segment_bytes)?;
            self.reserves.push(path);
        }
        Ok(())
    }

    /// Returns whether another segment exists for when this one is full. It reserves one if the
    /// disk has room.
    pub(super) fn has_spare(&mut self) -> bool {
        let one_more = (self.segments.len() as u64 + 1) * self.segment_bytes;
        !self.spares.is_empty() || !self.reserves.is_empty() || self.reserve(one_more).is_ok()
    }

    /// Begins a log in an empty directory.
    fn begin(&mut self) -> Result<(), LogError> {
        if self.key == [0; 32] {
            let mut random =
                File::open("/dev/urandom").map_err(|e| failed("opening", Path::new("/dev/urandom"), e))?;
            let read = io::Read::read_exact(&mut random, &mut self.key);
            read.map_err(|e| failed("reading", Path::new("/dev/urandom"), e))?;
        }
        self.write(&mut Frame::default()).map(drop)
    }

    /// Puts a segment with room for a body of `body_len` bytes in service. Its first frame will be
    /// the next one.
    fn enter(&mut self, body_len: usize) -> Result<(), LogError> {
        let path = self.path(self.next_frame);
        let entered = || -> io::Result<Segment> {
            while let Some(spare) = self.spares.pop() {
                let spare = self.dir.join(spare_name(spare));
                // A segment with another key is left from a log that was never begun.
                match Segment::open(&*self.disk, &spare)? {
                    Some(segment) if segment.key() == self.key && segment.has_room(body_len) => {
                        self.disk.rename(&spare, &path)?;
                        return Ok(segment);
                    }
                    _ => self.disk.remove(&spare)?,
                }
            }
            let reserve = self.reserves.pop().unwrap_or_else(|| self.dir.join("next.reserve"));
            Segment::create(&*self.disk, &path, &reserve, self.key, self.segment_bytes, body_len)
        }();
        let segment = entered.map_err(|e| failed("creating", &path, e))?;
        self.sync_dir()?;
        self.segments.insert(self.next_frame, segment);
        Ok(())
    }

    /// Retires segments that hold no entry, except the one that is written to.
    fn retire(&mut self) -> Result<(), LogError> {
        let (Some(&written), oldest) =
            (self.segments.keys().next_back(), self.spots.front().map(|spot| spot.segment))
        else {
            return Ok(());
        };
        let needed = self.segments.split_off(&oldest.unwrap_or(written).min(written));
        self.remove(needed)
    }

    /// Retires all segments but `needed`.
    fn remove(&mut self, needed: BTreeMap<u64, Segment>) -> Result<(), LogError> {
        let retired = std::mem::replace(&mut self.segments, needed);
        self.retire_all(retired)
    }

    /// Retires these segments: keeps them for reuse, or removes them.
    fn retire_all(&mut self, retired: BTreeMap<u64, Segment>) -> Result<(), LogError> {
        for (first, segment) in retired {
            let path = self.path(first);
            if segment.bytes == self.segment_bytes && self.spares.len() < SPARES_MAX {
                self.disk
                    .rename(&path, &self.dir.join(spare_name(first)))
                    .map_err(|e| failed("retiring", &path, e))?;
                self.spares.push(first);
            } else {
                self.disk.remove(&path).map_err(|e| failed("removing", &path, e))?;
            }
        }
        Ok(())
    }

    /// Loads the segment that begins with frame `first`. Segments that turn out to be out of
    /// service go to `retired`.
    fn load(
        &mut self,
        first: u64,
        is_last: bool,
        retired: &mut BTreeMap<u64, Segment>,
    ) -> Result<(), LogError> {
        let file = self.path(first);
        let damaged = |at, what| LogError::Damaged { file: file.clone(), at, what };
        if first != self.next_frame {
            // A power cut came while older segments were being retired, in any order. If one of
            // them was still needed, `gone_below` shows it.
            self.spots.clear();
            self.gone_below = 0;
            retired.append(&mut self.segments);
        }
        let segment = Segment::open(&*self.disk, &file).map_err(|e| failed("opening", &file, e))?;
        let mut segment = segment.ok_or_else(|| damaged(0, "not a segment of this version"))?;
        self.key = segment.key();
        let scan = segment.scan(first).map_err(|e| failed("reading", &file, e))?;
        if let Some(at) = scan.damaged_at {
            return Err(damaged(at, "a frame cannot be read, but a later one can"));
        }
        if scan.frames.is_empty() {
            // A power cut came before its first frame was durable.
            if !is_last {
                return Err(damaged(segment.end, "it has no frame, but is not the last"));
            }
            self.disk
                .rename(&file, &self.dir.join(spare_name(first)))
                .map_err(|e| failed("retiring", &file, e))?;
            self.spares.push(first);
            self.next_frame = first;
            return Ok(());
        }
        self.next_frame = first;
        for (place, body) in scan.frames {
            let records = decode(&body).ok_or_else(|| damaged(place.at, "a frame does not decode"))?;
            for record in records {
                self.redo(record, first, place).map_err(|what| damaged(place.at, what))?;
            }
            self.next_frame += 1;
        }
        self.segments.insert(first, segment);
        Ok(())
    }

    fn redo(&mut self, record: LogRecord, segment: u64, place: SegmentPlace) -> Result<(), &'static str> {
        match record {
            LogRecord::Begin { vote, purged, last, starts } => {
                self.vote = vote;
                *self.starts.lock() = starts;
                purged.into_iter().for_each(|upto| self.forget_upto(upto));
                if self.segments.is_empty() {
                    self.gone_below = next_index(last);
                }
            }
            LogRecord::Vote(vote) => self.vote = Some(vote),
            LogRecord::Append(entry) => {
                // In the oldest segment the purge mark may be behind. Later purges were in segments
                // that are gone.
                if entry.log_id.index != next_index(self.last()).max(self.gone_below) {
                    return Err("entries are missing");
                }
                let frame = self.next_frame;
                self.spots.push_back(Spot { log_id: entry.log_id, segment, frame, place });
            }
            LogRecord::Truncate(keep) => {
                self.gone_below = self.gone_below.min(next_index(keep));
                self.forget_after(keep);
            }
            LogRecord::Purge(upto) => self.forget_upto(upto),
            LogRecord::Starts(starts) => *self.starts.lock() = starts,
        }
        Ok(())
    }

    fn forget_after(&mut self, keep: Option<LogId>) {
        let end = next_index(keep);
        while self.spots.back().is_some_and(|spot| spot.log_id.index >= end) {
            self.spots.pop_back();
        }
        self.recent.lock().forget_from(end);
    }

    fn forget_upto(&mut self, upto: LogId) {
        while self.spots.front().is_some_and(|spot| spot.log_id.index <= upto.index) {
            self.spots.pop_front();
        }
        self.recent.lock().forget_before(upto.index + 1);
        self.purged = self.purged.max(Some(upto));
    }

    fn path(&self, first: u64) -> PathBuf {
        self.dir.join(format!("{first:020}.log"))
    }

    fn sync_dir(&self) -> Result<(), LogError> {
        self.disk.sync_dir(&self.dir).map_err(|e| failed("syncing", &self.dir, e))
    }
}

fn spare_name(number: u64) -> String {
    format!("{number:020}.spare")
}

fn failed(doing: &'static str, file: &Path, cause: io::Error) -> LogError {
    LogError::File { doing, file: file.to_owned(), cause }
}

/// The files of the log's directory.
#[derive(Default)]
struct LogFiles {
    /// Numbers of the segments in service, in order.
    segments: Vec<u64>,
    spares: Vec<u64>,
    reserves: Vec<PathBuf>,
}

fn list(disk: &dyn Disk, dir: &Path) -> io::Result<LogFiles> {
    let mut files = LogFiles::default();
    for name in disk.list(dir)? {
        let number = |suffix| name.strip_suffix(suffix).and_then(|number: &str| number.parse().ok());
        if let Some(first) = number(".log") {
            files.segments.push(first);
        } else if let Some(spare) = number(".spare") {
            files.spares.push(spare);
        } else if name.ends_with(".reserve") {
            files.reserves.push(dir.join(&name));
        }
    }
    files.segments.sort_unstable();
    Ok(files)
}

fn next_index(log_id: Option<LogId>) -> u64 {
    log_id.map_or(0, |log_id| log_id.index + 1)
}

fn decode(mut body: &[u8]) -> Option<Vec<LogRecord>> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let (record, rest) = postcard::take_from_bytes(body).ok()?;
        records.push(record);
        body = rest;
    }
    Some(records)
}
