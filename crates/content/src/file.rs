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

/// The content of one file: what is published, and above it what is being uploaded and what is
/// dirty.
///
/// Published means handed out as a [`crate::Publish`]: whoever logs those in order, under the
/// content's write lease, makes the server's state follow this one's. A flush makes a *flight*: a
/// consistent state of the whole content, which is published when all of its shares are stored and
/// every flight before it has been.
#[derive(Debug)]
pub struct FileContent {
    pub(crate) base: Base,
    /// The head that the server has once everything handed out is applied.
    pub(crate) published: ContentHead,
    /// What is shown now, and the file's key even before it is published.
    pub(crate) head: ContentHead,
    pub(crate) dirty: Overlay,
    /// Whether `dirty`, size or times changed since the last flush.
    pub(crate) changed: bool,
    /// Oldest first.
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) fold: Option<Fold>,
    pub(crate) flushes: u64,
    /// The first flush whose data became dirty again, until the next flush takes it.
    pub(crate) undone: Option<u64>,
    pub(crate) next_upload: u64,
    /// Uploads under way whose data no longer counts on them.
    pub(crate) abandoned: BTreeMap<u64, ShareId>,
    pub(crate) nonces: Nonces,
    /// The file's policy, as far as it is known.
    pub(crate) spread: Spread,
}

/// Published content.
#[derive(Debug)]
pub(crate) enum Base {
    /// These bytes, and zeros up to the size.
    Inline(Bytes),
    /// Inline content that cannot be opened: whoever reads it is told, until it is written anew.
    Damaged(Damaged),
    /// Extents, as far as they are known.
    Extents(ExtentMap),
}

impl FileContent {
    /// Content as the server gave it: the sealed inline content, or extents that are complete below
    /// an offset; if neither, it has extents of which nothing is known yet. Never give neither for
    /// a file whose content is inline: the next publication would end it.
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

    /// Content of a file that was just born: zeros, if it has a size at all.
    pub fn empty(head: ContentHead) -> FileContent {
        FileContent::new(head, Some(Vec::new()), None)
    }

    /// From now on, what is stored is spread so.
    pub fn set_spread(&mut self, spread: Spread) {
        self.spread = spread;
    }

    /// The head as it is to be shown now; version and key are those of the last publication handed
    /// out, `occupied` is a good guess.
    pub fn head(&self) -> ContentHead {
        ContentHead { key: self.published.key, ..self.head }
    }

    /// Length in bytes now.
    pub fn size(&self) -> u64 {
        self.head.size
    }

    /// Whether a flush would hand something out.
    pub fn is_dirty(&self) -> bool {
        self.changed
    }

    /// Whether everything has been handed out as publications: nothing dirty, nothing under way.
    /// Folds do not count.
    pub fn is_settled(&self) -> bool {
        !self.changed && self.flights.is_empty()
    }

    /// Bytes written that are in no flush yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// Ranges written, or made holes, that are in no flush yet.
    pub fn dirty_runs(&self) -> usize {
        self.dirty.len()
    }

    /// Bytes held in memory because they are not published: dirty, or being uploaded.
    pub fn held_bytes(&self) -> u64 {
        self.dirty.bytes() + self.flights.iter().map(|flight| flight.overlay.bytes()).sum::<u64>()
    }

    /// Bytes of inline pieces, of those extents that are known here, that wait to be folded into
    /// shares.
    pub fn pending_inline_bytes(&self) -> u64 {
        match &self.base {
            Base::Inline(_) | Base::Damaged(_) => 0,
            Base::Extents(map) => map.inline_bytes(),
        }
    }

    /// Writes, within [`SIZE_MAX`]. Large data is kept as it is, not copied.
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

    /// The range reads as zeros afterwards; with `grow`, the file reaches to its end at least.
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

    /// Sets the times; the next flush publishes them. The time of the last status change never goes
    /// back.
    pub fn set_mtime(&mut self, mtime: Timestamp, ctime: Timestamp) {
        self.head.mtime = mtime;
        // A clock that is behind another machine's must not hide that something has changed.
        self.head.ctime = if ctime < self.head.ctime { self.head.ctime.next() } else { ctime };
        self.changed = true;
    }

    /// Takes the times and the version of a head that an operation of its own (not a publication)
    /// gave this file, and that is logged. Flights that are published after it leave those times as
    /// they are.
    pub fn adopt(&mut self, head: &ContentHead) {
        let times = (head.mtime, head.ctime);
        (self.published.mtime, self.published.ctime) = times;
        (self.head.mtime, self.head.ctime) = times;
        (self.published.version, self.head.version) = (head.version, head.version);
        for flight in &mut self.flights {
            (flight.head.mtime, flight.head.ctime) = times;
        }
    }

    /// Extents that the server says are all there is in `from..to`; what is known here already
    /// stays.
    pub fn learn(&mut self, from: u64, to: u64, extents: Vec<Extent>) {
        if let Base::Extents(map) = &mut self.base {
            map.learn(from, to, extents);
        }
    }

    /// Size of what lies below the dirty data.
    pub(crate) fn size_beneath(&self) -> u64 {
        self.flights.back().map_or(self.published.size, |flight| flight.head.size)
    }

    fn touch(&mut self, wall: Timestamp) {
        self.set_mtime(wall, wall);
    }
}
