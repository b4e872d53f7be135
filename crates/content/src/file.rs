//! The content of one file, as its writer or reader knows it.

use bytes::Bytes;
use namespace::{ContentHead, Extent, ShareId, Timestamp};
use rand_core::Rng;

use crate::{Done, Flush, Hash, Part, Unreadable, UploadPlan};

/// The content of one file: what is published, and above it what is being uploaded and what is dirty.
pub struct FileContent {
    head: ContentHead,
}

impl FileContent {
    /// Content as the server gave it: the inline bytes, or extents that are complete below an offset.
    pub fn new(head: ContentHead, inline: Option<Vec<u8>>, extents: Option<(Vec<Extent>, u64)>) -> FileContent { unimplemented!() }
    /// Content of a file that was just born.
    pub fn empty(head: ContentHead) -> FileContent { unimplemented!() }
    /// The head as it is to be shown now; its version is that of the last publication handed out.
    pub fn head(&self) -> ContentHead { self.head }
    /// Length in bytes now.
    pub fn size(&self) -> u64 { self.head.size }
    /// Whether a flush would hand something out.
    pub fn is_dirty(&self) -> bool { unimplemented!() }
    /// Whether everything has been handed out as publications: nothing dirty, nothing under way (folds aside).
    pub fn is_settled(&self) -> bool { unimplemented!() }
    /// Bytes written that are in no flush yet.
    pub fn dirty_bytes(&self) -> u64 { unimplemented!() }
    /// Bytes held in memory: dirty, and being uploaded.
    pub fn held_bytes(&self) -> u64 { unimplemented!() }
    /// Names the flush that came last; [`FileContent::passed`] of it once all of its publications are handed out.
    pub fn barrier(&self) -> u64 { unimplemented!() }
    /// Whether everything up to that flush has been handed out as publications.
    pub fn passed(&self, barrier: u64) -> bool { unimplemented!() }
    /// Writes.
    pub fn write(&mut self, offset: u64, data: Bytes, wall: Timestamp) { unimplemented!() }
    /// Sets the size.
    pub fn truncate(&mut self, size: u64, wall: Timestamp) { unimplemented!() }
    /// Makes a hole within the size.
    pub fn punch(&mut self, offset: u64, length: u64, wall: Timestamp) { unimplemented!() }
    /// Reads as zeros afterwards; `grow`: up to `offset + length` at least.
    pub fn zero(&mut self, offset: u64, length: u64, grow: bool, wall: Timestamp) { unimplemented!() }
    /// Sets the times; published by the next flush.
    pub fn set_mtime(&mut self, mtime: Timestamp, ctime: Timestamp) { unimplemented!() }
    /// Takes times and version from a head that an operation other than a publication of this content made, and logged.
    pub fn adopt(&mut self, head: &ContentHead) { unimplemented!() }
    /// Extents that the server says are all there is in `from..to`; what is known here already stays.
    pub fn learn(&mut self, from: u64, to: u64, extents: Vec<Extent>) { unimplemented!() }
    /// Appends the parts of up to `length` bytes from `offset` on, less at the end.
    pub fn read(&self, offset: u64, length: u32, parts: &mut Vec<Part>) -> Result<(), Unreadable> { unimplemented!() }
    /// The next data (or hole) at or after `offset`; `None` beyond the end.
    pub fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>, Unreadable> { unimplemented!() }
    /// Hands everything dirty out. `urgent`: somebody waits for it.
    pub fn flush(&mut self, urgent: bool, rng: &mut dyn Rng) -> Flush { unimplemented!() }
    /// An upload is stored: the hashes of its pieces in order.
    pub fn stored(&mut self, upload: u64, hashes: Vec<Hash>) -> Done { unimplemented!() }
    /// An upload could not be stored: its data is dirty again. Gives the stored shares that are of no use any more.
    pub fn upload_failed(&mut self, upload: u64) -> Vec<ShareId> { unimplemented!() }
    /// Bytes of inline pieces that wait to be folded into shares.
    pub fn pending_inline_bytes(&self) -> u64 { unimplemented!() }
    /// Plans to move up to `limit` bytes of inline pieces into shares; nothing if a fold is under way.
    pub fn fold(&mut self, limit: u64, rng: &mut dyn Rng) -> Vec<UploadPlan> { unimplemented!() }
}
