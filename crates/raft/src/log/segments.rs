//! The files of a log: segments in service, segments kept for reuse, and reserved space.
//!
//! The name of a segment is the number of its first frame. Retired segments are kept for reuse, and
//! space for the first ones is reserved at the start. So a disk that others have filled up does not
//! stop the log.

use super::index::FramePlace;
use super::mark::{Extent, Mark};
use super::segment::{BODY_BYTES_MAX, Frame, Scan, Segment, SegmentKey};
use super::{LogError, failed, invalid};
use crate::disk::Disk;
use crate::store::lacks_room;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Retired segments kept for reuse: about as many as the log has between two checkpoints.
pub(super) const SPARES_MAX: usize = 8;

/// The segments of one log.
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) segment_bytes: u64,
    pub(super) key: SegmentKey,
    /// Segments by number of their first frame. The last one is written to.
    pub(super) in_service: BTreeMap<u64, Segment>,
    /// Numbers in the names of the segments kept for reuse.
    spares: Vec<u64>,
    /// Reserved space for segments that were never in service.
    reserves: Vec<PathBuf>,
    pub(super) next_frame: u64,
    /// Notes beside the directory how far the log is durable.
    mark: Option<Mark>,
}

impl Segments {
    /// Lists the files in `dir`. Also returns the numbers of the segments in service, in order.
    pub(super) fn list(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
    ) -> Result<(Segments, Vec<u64>), LogError> {
        disk.make_dir(dir).map_err(|e| failed("creating", dir, e))?;
        let (mut first_frames, mut spares, mut reserves) = (Vec::new(), Vec::new(), Vec::new());
        for name in disk.list(dir).map_err(|e| failed("listing", dir, e))? {
            let number = |suffix| name.strip_suffix(suffix).and_then(|number: &str| number.parse().ok());
            if let Some(first) = number(".log") {
                first_frames.push(first);
            } else if let Some(spare) = number(".spare") {
                spares.push(spare);
            } else if name.ends_with(".reserve") {
                reserves.push(dir.join(&name));
            }
        }
        first_frames.sort_unstable();
        let (in_service, dir) = (BTreeMap::new(), dir.to_owned());
        let segments = Segments {
            disk,
            dir,
            segment_bytes,
            key: [0; 32],
            in_service,
            spares,
            reserves,
            next_frame: 1,
            mark: None,
        };
        Ok((segments, first_frames))
    }

    /// Reads the segment that begins with frame `first`. None if a power cut came before its first
    /// frame was durable, as it can only to the last one.
    pub(super) fn scan(&mut self, first: u64, is_last: bool) -> Result<Option<(Segment, Scan)>, LogError> {
        let file = self.path(first);
        let damaged = |at, what| LogError::Damaged { file: file.clone(), at, what };
        let segment = Segment::open(&*self.disk, &file).map_err(|e| failed("opening", &file, e))?;
        let mut segment = segment.ok_or_else(|| damaged(0, "not a segment of this version"))?;
        self.key = segment.key();
        let scan = segment.scan(first).map_err(|e| failed("reading", &file, e))?;
        if let Some(at) = scan.damaged_at {
            return Err(damaged(at, "a frame cannot be read, but a later one can"));
        }
        self.next_frame = first;
        if !scan.frames.is_empty() {
            return Ok(Some((segment, scan)));
        }
        if !is_last {
            return Err(damaged(segment.end, "it has no frame, but is not the last"));
        }
        self.disk
            .rename(&file, &self.dir.join(spare_name(first)))
            .map_err(|e| failed("retiring", &file, e))?;
        self.spares.push(first);
        // Trap: the frame of that number goes into the segment before. If the name came back after
        // a power cut, that segment would pass for one of an older log.
        self.sync_dir()?;
        Ok(None)
    }

    /// Opens the mark in the file `path`. A log that ends before its mark is damaged.
    pub(super) fn open_mark(&mut self, path: &Path) -> Result<(), LogError> {
        let (mark, said) = Mark::open(&*self.disk, path).map_err(|e| failed("opening", path, e))?;
        self.mark = Some(mark);
        let is = Extent::of(&self.key, self.next_frame);
        if said.is_some_and(|said| is.name != said.name || is.next_frame < said.next_frame) {
            return Err(self.damaged(
                "it ends before what was durable once: segments are missing, cut off, or older than they were",
            ));
        }
        Ok(())
    }

    /// Reserves disk space for `bytes` of log, as far as there is any. Without it the log works
    /// until the disk is full.
    pub(super) fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let wanted = bytes.div_ceil(self.segment_bytes) as usize;
        let there = self.in_service.len() + self.spares();
        for number in 0..wanted.saturating_sub(there) {
            let path = self.dir.join(format!("{:020}-{number}.reserve", self.next_frame));
            Segment::reserve(&*self.disk, &path, self.segment_bytes)?;
            self.reserves.push(path);
        }
        Ok(())
    }

    /// Reserves space for one more segment.
    pub(super) fn reserve_one(&mut self) -> io::Result<()> {
        self.reserve((self.in_service.len() as u64 + 1) * self.segment_bytes)
    }

    /// Returns the number of segments that need no room on the disk to enter service.
    pub(super) fn spares(&self) -> usize {
        self.spares.len() + self.reserves.len()
    }

    /// Returns the bytes that the next start would read.
    pub(super) fn bytes(&self) -> u64 {
        self.in_service.values().map(|segment| segment.end).sum()
    }

    /// Draws the key of a log that begins.
    pub(super) fn draw_key(&mut self) -> Result<(), LogError> {
        if self.key == [0; 32] {
            let mut random =
                File::open("/dev/urandom").map_err(|e| failed("opening", Path::new("/dev/urandom"), e))?;
            let read = io::Read::read_exact(&mut random, &mut self.key);
            read.map_err(|e| failed("reading", Path::new("/dev/urandom"), e))?;
        }
        Ok(())
    }

    /// Returns whether a frame with a body of `body_len` fits behind the last one, in a segment
    /// that has begun.
    pub(super) fn fits(&self, body_len: usize) -> bool {
        let last = self.in_service.values().next_back();
        last.is_some_and(|segment| !segment.is_empty() && segment.has_room(body_len))
    }

    /// Writes a frame behind the last one, and waits until it is durable. If there is no room for
    /// it, nothing changes.
    pub(super) fn append(&mut self, frame: &mut Frame) -> Result<FramePlace, LogError> {
        let Some(mut segment) = self.in_service.last_entry() else {
            return Err(failed("writing", &self.dir, io::ErrorKind::NotFound.into()));
        };
        let (first, begins) = (*segment.key(), segment.get().is_empty());
        let place = segment.get_mut().append(self.next_frame, frame);
        let place = place.map_err(|e| failed("writing", &self.path(first), e))?;
        let place = FramePlace { segment: first, frame: self.next_frame, place };
        self.next_frame += 1;
        self.note_extent(begins);
        Ok(place)
    }

    /// Writes a frame as the first one of a segment.
    pub(super) fn append_first(&mut self, frame: &mut Frame) -> Result<FramePlace, LogError> {
        let body_len = frame.body().len();
        if body_len > BODY_BYTES_MAX {
            return Err(invalid(&self.dir, &"the batch is too large"));
        }
        let last = self.in_service.values().next_back();
        // The last one is empty if its first frame found no room.
        if !last.is_some_and(|segment| segment.is_empty() && segment.has_room(body_len)) {
            self.enter(body_len)?;
        }
        self.append(frame)
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
        self.in_service.insert(self.next_frame, segment);
        Ok(())
    }

    /// Makes the names of the segments durable.
    fn sync_dir(&self) -> Result<(), LogError> {
        self.disk.sync_dir(&self.dir).map_err(|e| failed("syncing", &self.dir, e))
    }

    /// Retires the segments before `oldest`, except the one that is written to.
    pub(super) fn retire_before(&mut self, oldest: u64) -> Result<(), LogError> {
        let Some(&written) = self.in_service.keys().next_back() else { return Ok(()) };
        let needed = self.in_service.split_off(&oldest.min(written));
        let retired = std::mem::replace(&mut self.in_service, needed);
        self.retire(retired)
    }

    /// Retires these segments: keeps them for reuse, or removes them.
    pub(super) fn retire(&mut self, retired: BTreeMap<u64, Segment>) -> Result<(), LogError> {
        for (first, segment) in retired {
            let path = self.path(first);
            // A spare may have the same number: one that entered service before, and whose first
            // frame a power cut took.
            let is_kept = segment.bytes == self.segment_bytes
                && self.spares.len() < SPARES_MAX
                && !self.spares.contains(&first);
            if is_kept {
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

    /// Reads a frame's body again.
    pub(super) fn read(&self, at: FramePlace) -> Result<Vec<u8>, LogError> {
        let file = self.path(at.segment);
        let damaged = |what| LogError::Damaged { file: file.clone(), at: at.place.at, what };
        let segment = self.in_service.get(&at.segment);
        let segment = segment.ok_or_else(|| damaged("the segment is missing"))?;
        let body = segment.read(at.frame, at.place).map_err(|e| failed("reading", &file, e))?;
        body.ok_or_else(|| damaged("the frame has changed"))
    }

    /// Rereads from the disk the segment after the one whose first frame is `after`. Returns its
    /// first frame and its size in bytes.
    pub(super) fn reread(&self, after: Option<u64>) -> Result<Option<(u64, usize)>, LogError> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let Some((first, segment)) = self.in_service.range(behind).next() else { return Ok(None) };
        let file = self.path(*first);
        match segment.reread(*first).map_err(|e| failed("reading", &file, e))? {
            Some(at) => Err(LogError::Damaged { file, at, what: "a frame cannot be read" }),
            None => Ok(Some((*first, segment.end as usize))),
        }
    }

    /// Makes the error for damage of the log as a whole.
    pub(super) fn damaged(&self, what: &'static str) -> LogError {
        LogError::Damaged { file: self.dir.clone(), at: 0, what }
    }

    pub(super) fn path(&self, first: u64) -> PathBuf {
        self.dir.join(format!("{first:020}.log"))
    }
}

fn spare_name(number: u64) -> String {
    format!("{number:020}.spare")
}
