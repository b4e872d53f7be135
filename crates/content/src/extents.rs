//! The known extents of a file.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, btree_map, btree_set};
use std::iter::Peekable;
use std::ops::Range;

use namespace::{ContentChange, Extent, Place};

use crate::cut::{end_of, inside, outside};

/// A map of a file's extents: holes, extents, and explicit gaps of which nothing is known.
///
/// Extents overlap neither each other nor a gap. The rest is holes. A map that is filled at once
/// takes about 100 bytes an extent.
#[derive(Clone, Debug, Default)]
pub struct ExtentMap {
    extents: BTreeSet<ByOffset>,
    /// The gaps, from start to end.
    unknown: BTreeMap<u64, u64>,
    occupied: u64,
    /// Offsets of the extents whose piece is inline. They are few, and are found here without a
    /// search through all extents.
    inline: BTreeSet<u64>,
    inline_bytes: u64,
}

/// An extent that is ordered by its offset. A map would hold every offset twice.
#[derive(Clone, Debug)]
struct ByOffset(Extent);

impl Borrow<u64> for ByOffset {
    fn borrow(&self) -> &u64 {
        &self.0.offset
    }
}

impl PartialEq for ByOffset {
    fn eq(&self, other: &ByOffset) -> bool {
        self.0.offset == other.0.offset
    }
}

impl Eq for ByOffset {}

impl PartialOrd for ByOffset {
    fn partial_cmp(&self, other: &ByOffset) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByOffset {
    fn cmp(&self, other: &ByOffset) -> std::cmp::Ordering {
        self.0.offset.cmp(&other.0.offset)
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Content of the span.
    pub what: SpanContent<'a>,
}

/// The content of a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanContent<'a> {
    /// Not known here: the server has to be asked.
    Unknown,
    /// Zeros.
    Hole,
    /// Bytes of the extent's piece, from `skip` on.
    Extent {
        /// The extent. It may begin before the span and end after it.
        extent: &'a Extent,
        /// Bytes of the opened piece before the span's first.
        skip: u32,
    },
}

impl ExtentMap {
    /// Makes the map of a file that is one hole.
    pub fn whole_hole() -> ExtentMap {
        ExtentMap::default()
    }

    /// Makes a map of extents that are known below `complete_below`. Nothing is known from there
    /// on.
    pub fn new(extents: Vec<Extent>, complete_below: u64) -> ExtentMap {
        let unknown = BTreeMap::from([(0, u64::MAX)]);
        let mut map = ExtentMap { unknown, ..ExtentMap::default() };
        map.learn(0, complete_below, extents);
        map
    }

    /// Replaces the range of `extent`. An extent that is empty or overflows does nothing.
    pub fn put(&mut self, extent: Extent) {
        let range = extent.offset..end_of(&extent);
        if extent.offset.checked_add(u64::from(extent.length)).is_some() && !range.is_empty() {
            self.clear(&range);
            self.insert(extent);
        }
    }

    /// Makes a hole.
    pub fn punch(&mut self, offset: u64, length: u64) {
        self.clear(&(offset..offset.saturating_add(length)));
    }

    /// Drops everything from `size` on, which is then a known hole.
    pub fn truncate(&mut self, size: u64) {
        self.clear(&(size..u64::MAX));
    }

    /// Fills the unknown gaps of `from..to`. `extents` is complete there, and may reach beyond.
    /// Known parts stay, since they may be newer than the page.
    pub fn learn(&mut self, from: u64, to: u64, extents: Vec<Extent>) {
        let gaps = self.close(&(from..to));
        let sound = |extent: &Extent| {
            extent.length > 0 && extent.offset.checked_add(u64::from(extent.length)).is_some()
        };
        if let ([gap], true) = (gaps.as_slice(), self.extents.is_empty()) {
            // One collect packs the set densely.
            let fitting = extents.into_iter().filter(sound).filter_map(|extent| inside(extent, gap));
            let learnt: BTreeSet<ByOffset> = fitting.map(ByOffset).collect();
            learnt.iter().for_each(|extent| self.count(&extent.0, true));
            self.extents = learnt;
            return;
        }
        for extent in extents.into_iter().filter(sound) {
            let first = gaps.partition_point(|gap| gap.end <= extent.offset);
            let hit = gaps.iter().skip(first).take_while(|gap| gap.start < end_of(&extent));
            for part in hit.filter_map(|gap| inside(extent.clone(), gap)) {
                self.insert(part);
            }
        }
    }

    /// Applies a publication.
    pub fn apply(&mut self, change: &ContentChange) {
        match change {
            ContentChange::None => {}
            ContentChange::Inline { .. } => self.truncate(0),
            ContentChange::Extents { truncate_to, punch, put, .. } => {
                if let Some(size) = truncate_to {
                    self.truncate(*size);
                }
                for (offset, length) in punch {
                    self.punch(*offset, *length);
                }
                for extent in put {
                    self.put(extent.clone());
                }
            }
        }
    }

    /// Returns the spans of `offset..offset + length`, in order and without gaps.
    pub fn spans(&self, offset: u64, length: u64) -> impl Iterator<Item = Span<'_>> {
        let end = offset.saturating_add(length);
        let before = self.extents.range(..offset).next_back().filter(|extent| end_of(&extent.0) > offset);
        let gap_before = self.unknown.range(..offset).next_back().filter(|(_, end)| **end > offset);
        Spans {
            extents: self.extents.range(before.map_or(offset, |extent| extent.0.offset)..).peekable(),
            unknown: self.unknown.range(gap_before.map_or(offset, |(start, _)| *start)..).peekable(),
            at: offset,
            end,
        }
    }

    /// Returns the known extents in order.
    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.extents.iter().map(|extent| &extent.0)
    }

    /// Returns the bytes that known extents occupy.
    pub fn occupied(&self) -> u64 {
        self.occupied
    }

    /// Returns the known extents whose piece is inline, in order.
    pub fn inline_extents(&self) -> impl Iterator<Item = &Extent> {
        self.inline.iter().filter_map(|offset| self.extents.get(offset)).map(|extent| &extent.0)
    }

    /// Returns the number of inline extents.
    pub fn inline_pieces(&self) -> usize {
        self.inline.len()
    }

    /// Returns the plain bytes of the inline pieces. A piece counts whole, even if its extent shows
    /// only a part.
    pub fn inline_bytes(&self) -> u64 {
        self.inline_bytes
    }

    /// Makes `range` a known hole.
    fn clear(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.close(range);
        let before =
            self.extents.range(..range.start).next_back().filter(|extent| end_of(&extent.0) > range.start);
        let mut hit = before.map(|extent| extent.0.offset);
        loop {
            let next =
                hit.take().or_else(|| self.extents.range(range.clone()).next().map(|extent| extent.0.offset));
            let Some(ByOffset(extent)) = next.and_then(|offset| self.extents.take(&offset)) else { return };
            self.count(&extent, false);
            let (left, right) = outside(extent, range);
            for rest in [left, right].into_iter().flatten() {
                self.insert(rest);
            }
        }
    }

    /// Makes `range` known, and returns the gaps that it had.
    fn close(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut closed = Vec::new();
        if range.is_empty() {
            return closed;
        }
        let before = self.unknown.range(..range.start).next_back().filter(|(_, end)| **end > range.start);
        let first = before.map_or(range.start, |(start, _)| *start);
        let hit: Vec<(u64, u64)> =
            self.unknown.range(first..range.end).map(|(start, end)| (*start, *end)).collect();
        for (start, end) in hit {
            self.unknown.remove(&start);
            if start < range.start {
                self.unknown.insert(start, range.start);
            }
            if end > range.end {
                self.unknown.insert(range.end, end);
            }
            closed.push(start.max(range.start)..end.min(range.end));
        }
        closed
    }

    fn insert(&mut self, extent: Extent) {
        if let Some(ByOffset(replaced)) = self.extents.take(&extent.offset) {
            self.count(&replaced, false);
        }
        self.count(&extent, true);
        self.extents.insert(ByOffset(extent));
    }

    fn count(&mut self, extent: &Extent, more: bool) {
        let piece = match extent.piece.place {
            Place::Inline(_) if more => self.inline.insert(extent.offset).then_some(extent.piece.length),
            Place::Inline(_) => self.inline.remove(&extent.offset).then_some(extent.piece.length),
            Place::Share { .. } => None,
        };
        let changes = [(&mut self.occupied, extent.length), (&mut self.inline_bytes, piece.unwrap_or(0))];
        for (total, by) in changes {
            *total = if more { total.saturating_add(by.into()) } else { total.saturating_sub(by.into()) };
        }
    }
}

struct Spans<'a> {
    extents: Peekable<btree_set::Range<'a, ByOffset>>,
    unknown: Peekable<btree_map::Range<'a, u64, u64>>,
    at: u64,
    end: u64,
}

impl<'a> Iterator for Spans<'a> {
    type Item = Span<'a>;

    fn next(&mut self) -> Option<Span<'a>> {
        if self.at >= self.end {
            return None;
        }
        let offset = self.at;
        // Extents overlap only by the server's mistake. They must not lead backwards.
        while self.extents.next_if(|extent| end_of(&extent.0) <= offset).is_some() {}
        let extent = self.extents.peek().map(|extent| &extent.0);
        let gap = self.unknown.peek().map(|(start, end)| **start..**end);
        let (end, what) = match (extent, gap) {
            (Some(extent), _) if extent.offset <= offset => {
                self.extents.next();
                // The difference is less than the extent's length, which is 32 bits.
                let skip = extent.skip.saturating_add((offset - extent.offset) as u32);
                (end_of(extent), SpanContent::Extent { extent, skip })
            }
            (_, Some(gap)) if gap.start <= offset => {
                self.unknown.next();
                (gap.end, SpanContent::Unknown)
            }
            (extent, gap) => {
                let next = extent.map_or(u64::MAX, |extent| extent.offset);
                (next.min(gap.map_or(u64::MAX, |gap| gap.start)), SpanContent::Hole)
            }
        };
        self.at = end.min(self.end);
        Some(Span { offset, length: self.at - offset, what })
    }
}
