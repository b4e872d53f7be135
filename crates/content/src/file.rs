//! The content of one file, as its writer or reader knows it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use namespace::{ContentHead, Extent, ShareId, Spread, Timestamp};

use crate::flight::{Flight, Nonces};
use crate::fold::Fold;
use crate::overlay::Overlay;
use crate::seal::open_whole;
use crate::{Damaged, ExtentMap, SIZE_MAX};

/// The content of one file: the published content, and above it uploads under way and dirty data.
///
/// Published content was returned as a [`crate::Publish`]. If its receiver logs publications in
/// order, under the content's write lease, the server's state follows this one. A flush makes a
/// *flight*: a consistent state of the whole content. A flight is published when all of its shares
/// are stored, and every flight before it is published.
#[derive(Debug)]
pub struct FileContent {
    pub(crate) base: Base,
    /// The head that the server has when it has applied all publications.
    pub(crate) published: ContentHead,
    /// The head shown now. It holds the file's key even before that is published.
    pub(crate) head: ContentHead,
    pub(crate) dirty: Overlay,
    /// Whether `dirty`, size or times changed since the last flush.
    pub(crate) changed: bool,
    /// Flights, oldest first.
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) fold: Option<Fold>,
    pub(crate) flushes: u64,
    /// The first flush whose data became dirty again, until the next flush takes that data.
    pub(crate) undone: Option<u64>,
    pub(crate) next_upload: u64,
    /// Uploads under way that no flight needs any more.
    pub(crate) abandoned: BTreeMap<u64, ShareId>,
    pub(crate) nonces: Nonces,
    /// The file's policy, as far as known.
    pub(crate) spread: Spread,
}

/// Published content.
#[derive(Debug)]
pub(crate) enum Base {
    /// These bytes, and zeros up to the size.
    Inline(Bytes),
    /// Inline content that cannot be opened. Readers get the error until the content is written
    /// anew.
    Damaged(Damaged),
    /// Extents, as far as known.
    Extents(ExtentMap),
}

impl FileContent {
    /// Makes content from the server's answer: the sealed inline content, or extents that are
    /// complete below an offset. With neither, the content has extents of which nothing is known
    /// yet. A file with inline content must never be made with neither: its next publication would
    /// end that content.
    pub fn new(
        head: ContentHead,
        inline: Option<Vec<u8>>,
        extents: Option<(Vec<Extent>, u64)>,
    ) -> FileContent {
        let base = match (inline, extents) {
            (Some(sealed), _) => match open_whole(head.key.as_ref(), &sealed) {
                Ok(mut bytes) => {
                    bytes.truncate(usize::try_from(head.size).unwrap_or(usize::MAX));
                    Base::Inline(bytes)
                }
                Err(why) => Base::Damaged(why),
            },
            (None, extents) => {
                let (extents, complete_below) = extents.unwrap_or_default();
                let mut map = ExtentMap::new(extents, complete_below);
                map.truncate(head.size);
                Base::Extents(map)
            }
        };
        FileContent {
            base,
            published: head,
            head,
            dirty: Overlay::default(),
            changed: false,
            flights: VecDeque::new(),
            fold: None,
            flushes: 0,
            undone: None,
            next_upload: 0,
            abandoned: BTreeMap::new(),
            nonces: Nonces::default(),
            spread: Spread::Usual,
        }
    }

    /// Makes the content of a new file: zeros, if it has a size at all.
    pub fn empty(head: ContentHead) -> FileContent {
        FileContent::new(head, Some(Vec::new()), None)
    }

    /// Sets how shares are spread from now on.
    pub fn set_spread(&mut self, spread: Spread) {
        self.spread = spread;
    }

    /// Returns the head to show now. Version and key are those of the last publication returned;
    /// `occupied` is an estimate.
    pub fn head(&self) -> ContentHead {
        ContentHead { key: self.published.key, ..self.head }
    }

    /// Returns the length in bytes now.
    pub fn size(&self) -> u64 {
        self.head.size
    }

    /// Returns whether a flush would have something to publish.
    pub fn is_dirty(&self) -> bool {
        self.changed
    }

    /// Returns whether all changes were returned as publications: nothing is dirty or under way.
    /// Folds do not count.
    pub fn is_settled(&self) -> bool {
        !self.changed && self.flights.is_empty()
    }

    /// Returns the bytes written that are in no flush yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// Returns the number of ranges, written or made holes, that are in no flush yet.
    pub fn dirty_runs(&self) -> usize {
        self.dirty.len()
    }

    /// Returns the bytes held in memory until they are published: dirty data, and uploads under
    /// way.
    pub fn held_bytes(&self) -> u64 {
        self.dirty.bytes() + self.flights.iter().map(|flight| flight.overlay.bytes()).sum::<u64>()
    }

    /// Returns the bytes of inline pieces that wait to be folded into shares, as far as extents are
    /// known here.
    pub fn pending_inline_bytes(&self) -> u64 {
        match &self.base {
            Base::Inline(_) | Base::Damaged(_) => 0,
            Base::Extents(map) => map.inline_bytes(),
        }
    }

    /// Writes, within [`SIZE_MAX`]. Large data is kept as given, not copied.
    pub fn write(&mut self, offset: u64, mut data: Bytes, wall: Timestamp) {
        let room = SIZE_MAX.saturating_sub(offset);
        data.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        self.head.occupied =
            (self.head.occupied + data.len() as u64).saturating_sub(self.occupied_in(offset..end));
        self.dirty.write(offset, data);
        self.head.size = self.head.size.max(end);
        self.touch(wall);
    }

    /// Sets the size, at most [`SIZE_MAX`].
    pub fn truncate(&mut self, size: u64, wall: Timestamp) {
        let size = size.min(SIZE_MAX);
        if size < self.head.size {
            self.head.occupied = self.head.occupied.saturating_sub(self.occupied_in(size..self.head.size));
            self.dirty.truncate(size, self.size_beneath());
        }
        self.head.size = size;
        self.touch(wall);
    }

    /// Makes a hole within the size.
    pub fn punch(&mut self, offset: u64, length: u64, wall: Timestamp) {
        self.zero(offset, length, false, wall);
    }

    /// Makes the range read as zeros. With `grow`, the file reaches at least to its end.
    pub fn zero(&mut self, offset: u64, length: u64, grow: bool, wall: Timestamp) {
        let end = offset.saturating_add(length).min(SIZE_MAX);
        if offset >= end {
            return;
        }
        let inside: Range<u64> = offset..end.min(self.head.size);
        if !inside.is_empty() {
            self.head.occupied = self.head.occupied.saturating_sub(self.occupied_in(inside.clone()));
            self.dirty.hole(inside, self.size_beneath());
        }
        if grow {
            self.head.size = self.head.size.max(end);
        }
        self.touch(wall);
    }

    /// Sets the times, which the next flush publishes. The time of the last status change never
    /// goes back.
    pub fn set_mtime(&mut self, mtime: Timestamp, ctime: Timestamp) {
        self.head.mtime = mtime;
        // A clock that is behind another machine's must not hide a change.
        self.head.ctime = if ctime < self.head.ctime { self.head.ctime.next() } else { ctime };
        self.changed = true;
    }

    /// Takes times and version from the head that a logged operation, not a publication, gave this
    /// file. Flights that are published later leave those times as they are.
    pub fn adopt(&mut self, head: &ContentHead) {
        let times = (head.mtime, head.ctime);
        (self.published.mtime, self.published.ctime) = times;
        (self.head.mtime, self.head.ctime) = times;
        (self.published.version, self.head.version) = (head.version, head.version);
        for flight in &mut self.flights {
            (flight.head.mtime, flight.head.ctime) = times;
        }
    }

    /// Learns the extents of `from..to`, complete as the server says. Parts that are known already
    /// stay.
    pub fn learn(&mut self, from: u64, to: u64, extents: Vec<Extent>) {
        if let Base::Extents(map) = &mut self.base {
            map.learn(from, to, extents);
        }
    }

    /// Returns the size of the layer below the dirty data.
    pub(crate) fn size_beneath(&self) -> u64 {
        self.flights.back().map_or(self.published.size, |flight| flight.head.size)
    }

    fn touch(&mut self, wall: Timestamp) {
        self.set_mtime(wall, wall);
    }
}
