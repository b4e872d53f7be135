//! Changes to content above the published layer.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use crate::SHARE_BYTES_MAX;
use crate::chunk::{COPY_BELOW, Chunk};

/// Changes above a lower layer. The lower layer is cut at `truncate_to`, and each run replaces its
/// range.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    /// Runs by offset, without overlap; none is empty.
    runs: BTreeMap<u64, DirtyRun>,
    truncate_to: Option<u64>,
    bytes: u64,
}

/// The new content of a range.
#[derive(Debug)]
pub(crate) enum DirtyRun {
    /// These bytes.
    Data(Chunk),
    /// A hole of this length.
    Hole(u64),
}

impl DirtyRun {
    fn length(&self) -> u64 {
        match self {
            DirtyRun::Data(chunk) => chunk.len() as u64,
            DirtyRun::Hole(length) => *length,
        }
    }

    /// Returns the part after the first `at` bytes.
    fn tail(&self, at: u64) -> DirtyRun {
        match self {
            // `at` lies within the run, which is in memory.
            DirtyRun::Data(chunk) => DirtyRun::Data(chunk.tail(at as usize)),
            DirtyRun::Hole(length) => DirtyRun::Hole(length - at),
        }
    }

    fn truncate(&mut self, length: u64) {
        match self {
            DirtyRun::Data(chunk) => chunk.truncate(length as usize),
            DirtyRun::Hole(old) => *old = length.min(*old),
        }
    }
}

impl Overlay {
    /// Returns whether it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.truncate_to.is_none()
    }

    /// Returns its bytes of data.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of runs.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns the offset at which the lower layer is cut.
    pub(crate) fn truncate_to(&self) -> Option<u64> {
        self.truncate_to
    }

    /// Returns the runs in order of offset.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, &DirtyRun)> {
        self.runs.iter().map(|(offset, run)| (*offset, run))
    }

    /// Returns runs, and the ranges between them where the lower layer shows (`None`), in order and
    /// without gaps.
    pub(crate) fn parts(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, Option<(&DirtyRun, u64)>)> {
        let before = self.runs.range(..range.start).next_back();
        let before = before.filter(|(offset, run)| *offset + run.length() > range.start);
        let mut runs =
            self.runs.range(before.map_or(range.start, |(offset, _)| *offset)..range.end).peekable();
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let from = at;
            let run = runs.next_if(|(offset, _)| **offset <= from);
            at = match (run, runs.peek()) {
                (Some((offset, run)), _) => range.end.min(offset + run.length()),
                (None, Some((offset, _))) => **offset,
                (None, None) => range.end,
            };
            Some((from..at, run.map(|(offset, run)| (run, from - offset))))
        })
    }

    /// Writes `data`. Small writes that follow or overwrite each other gather in one buffer, which
    /// ends where a share would. So each byte is copied once, and once more while the buffer grows.
    /// Pieces are cut from the buffer without a copy.
    pub(crate) fn write(&mut self, mut offset: u64, mut data: Bytes) {
        if data.len() >= COPY_BELOW {
            self.clear(offset..offset.saturating_add(data.len() as u64));
            return self.insert(offset, DirtyRun::Data(Chunk::new(data)));
        }
        while !data.is_empty() {
            let room = SHARE_BYTES_MAX - (offset % SHARE_BYTES_MAX as u64) as usize;
            let part = data.split_to(room.min(data.len()));
            let length = part.len() as u64;
            self.write_small(offset, part);
            offset = offset.saturating_add(length);
        }
    }

    /// Writes data that does not cross a multiple of a share's size.
    fn write_small(&mut self, offset: u64, data: Bytes) {
        let end = offset.saturating_add(data.len() as u64);
        let limit = SHARE_BYTES_MAX as u64;
        let (start, held) = match self.runs.range(..=offset).next_back() {
            Some((start, DirtyRun::Data(Chunk::Own(held)))) if start / limit == offset / limit => {
                (*start, held.len())
            }
            _ => (u64::MAX, 0),
        };
        let Some(at) = offset.checked_sub(start).map(|at| at as usize).filter(|at| *at <= held) else {
            self.clear(offset..end);
            return self.insert(offset, DirtyRun::Data(Chunk::Own(data.to_vec())));
        };
        let overwritten = data.len().min(held - at);
        self.clear(start + held as u64..end);
        if let Some(DirtyRun::Data(Chunk::Own(bytes))) = self.runs.get_mut(&start) {
            let (over, more) = data.split_at(overwritten);
            bytes[at..at + overwritten].copy_from_slice(over);
            if bytes.capacity() < bytes.len() + more.len() {
                // The buffer grows to a share in few steps, since each step copies its bytes.
                let room = SHARE_BYTES_MAX - (start % limit) as usize;
                let length = room.min(bytes.capacity().saturating_mul(4)).max(bytes.len() + more.len());
                bytes.reserve_exact(length - bytes.len());
            }
            bytes.extend_from_slice(more);
            self.bytes += more.len() as u64;
        }
    }

    /// Makes a hole. `beneath` is the size of the lower layer.
    pub(crate) fn hole(&mut self, range: Range<u64>, beneath: u64) {
        self.clear(range.clone());
        // The lower layer has nothing from there on.
        let end = range.end.min(beneath).min(self.truncate_to.unwrap_or(u64::MAX));
        if range.start < end {
            self.insert(range.start, DirtyRun::Hole(end - range.start));
        }
    }

    /// Drops everything from `size` on. `beneath` is the size of the lower layer.
    pub(crate) fn truncate(&mut self, size: u64, beneath: u64) {
        self.clear(size..u64::MAX);
        if size < self.truncate_to.unwrap_or(beneath) {
            self.truncate_to = Some(size);
        }
    }

    /// Merges the changes of `upper`, the overlay above this one.
    pub(crate) fn cover(&mut self, upper: Overlay) {
        if let Some(size) = upper.truncate_to {
            self.truncate(size, u64::MAX);
        }
        for (offset, run) in upper.runs {
            self.clear(offset..offset + run.length());
            self.insert(offset, run);
        }
    }

    /// Freezes all runs, so that their bytes are shared without a copy.
    pub(crate) fn freeze(&mut self) {
        for run in self.runs.values_mut() {
            if let DirtyRun::Data(chunk) = run {
                let own = std::mem::replace(chunk, Chunk::Own(Vec::new()));
                *chunk = Chunk::Shared(own.freeze());
            }
        }
    }

    fn insert(&mut self, offset: u64, run: DirtyRun) {
        if let DirtyRun::Data(chunk) = &run {
            self.bytes += chunk.len() as u64;
        }
        self.runs.insert(offset, run);
    }

    fn remove(&mut self, offset: u64) -> Option<DirtyRun> {
        let run = self.runs.remove(&offset)?;
        if let DirtyRun::Data(chunk) = &run {
            self.bytes -= chunk.len() as u64;
        }
        Some(run)
    }

    /// Drops the runs, and parts of runs, in `range`.
    fn clear(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.runs.range(..range.start).next_back();
        let mut hit =
            before.filter(|(offset, run)| *offset + run.length() > range.start).map(|(offset, _)| *offset);
        loop {
            let next =
                hit.take().or_else(|| self.runs.range(range.clone()).next().map(|(offset, _)| *offset));
            let Some(offset) = next else { return };
            let Some(mut run) = self.remove(offset) else { return };
            let end = offset + run.length();
            if end > range.end {
                self.insert(range.end, run.tail(range.end - offset));
            }
            if offset < range.start {
                run.truncate(range.start - offset);
                self.insert(offset, run);
            }
        }
    }
}
