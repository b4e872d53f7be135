//! What a publication does to the rows of a file's extents.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use namespace::{ContentChange, Extent, Place, ShareId};

/// What to do to extent rows, keyed by offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Rows to delete; none of them is in `put`.
    pub delete: Vec<u64>,
    /// Rows to write, replacing any at the same offset.
    pub put: Vec<Extent>,
    /// By how many the rows that reference a share change; shares without change are left out.
    pub references: BTreeMap<ShareId, i64>,
    /// By how many the bytes occupied change.
    pub occupied: i64,
}

/// The ranges whose rows [`edit`] must be given: each row that reaches into one of them. In order, without overlap.
pub fn affected(change: &ContentChange) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = match change {
        ContentChange::None => Vec::new(),
        ContentChange::Inline(_) => std::iter::once(0..u64::MAX).collect(),
        ContentChange::Extents { truncate_to, punch, put, .. } => {
            let cut = truncate_to.iter().map(|size| *size..u64::MAX);
            let punched = punch.iter().map(|(offset, length)| *offset..offset.saturating_add(*length));
            cut.chain(punched).chain(put.iter().map(range_of)).collect()
        }
    };
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let touches = next.start <= range.end;
        if touches {
            range.end = range.end.max(next.end);
        }
        touches
    });
    ranges
}

/// What `change` does to the rows `existing` (at least those that [`affected`] asks for; others do not matter).
pub fn edit(existing: impl IntoIterator<Item = Extent>, change: &ContentChange) -> Edit {
    let mut rows = Rows::new(existing);
    match change {
        ContentChange::None => {}
        ContentChange::Inline(_) => rows.clear(&(0..u64::MAX)),
        ContentChange::Extents { truncate_to, punch, put, .. } => {
            if let Some(size) = truncate_to {
                rows.clear(&(*size..u64::MAX));
            }
            for (offset, length) in punch {
                rows.clear(&(*offset..offset.saturating_add(*length)));
            }
            for extent in put {
                rows.clear(&range_of(extent));
                rows.put(extent.clone());
            }
        }
    }
    rows.finish()
}

/// Replaces `range` in the rows `overlapping` by `put`, which lies in it, in order.
pub fn replace_range(overlapping: Vec<Extent>, range: Range<u64>, put: &[Extent]) -> Edit {
    let mut rows = Rows::new(overlapping);
    rows.clear(&range);
    for extent in put {
        rows.put(extent.clone());
    }
    rows.finish()
}

/// Rows being edited: those that no change has reached yet, and those that were written.
struct Rows {
    untouched: BTreeMap<u64, Extent>,
    written: BTreeMap<u64, Extent>,
    deleted: BTreeSet<u64>,
    references: BTreeMap<ShareId, i64>,
    occupied: i64,
}

impl Rows {
    fn new(existing: impl IntoIterator<Item = Extent>) -> Rows {
        Rows {
            untouched: existing.into_iter().map(|extent| (extent.offset, extent)).collect(),
            written: BTreeMap::new(),
            deleted: BTreeSet::new(),
            references: BTreeMap::new(),
            occupied: 0,
        }
    }

    fn clear(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let old = take_overlapping(&mut self.untouched, range);
        self.deleted.extend(old.iter().map(|row| row.offset));
        let new = take_overlapping(&mut self.written, range);
        for row in old.into_iter().chain(new) {
            self.count(&row, -1);
            let (left, right) = outside(row, range);
            for rest in [left, right].into_iter().flatten() {
                self.put(rest);
            }
        }
    }

    /// Writes a row where nothing is any more.
    fn put(&mut self, row: Extent) {
        self.count(&row, 1);
        self.written.insert(row.offset, row);
    }

    fn count(&mut self, row: &Extent, by: i64) {
        self.occupied += by * i64::from(row.length);
        if let Place::Share { share, .. } = row.piece.place {
            let references = self.references.entry(share).or_default();
            *references += by;
            if *references == 0 {
                self.references.remove(&share);
            }
        }
    }

    fn finish(self) -> Edit {
        let Rows { written, deleted, references, occupied, .. } = self;
        let delete = deleted.into_iter().filter(|offset| !written.contains_key(offset)).collect();
        Edit { delete, put: written.into_values().collect(), references, occupied }
    }
}

fn take_overlapping(rows: &mut BTreeMap<u64, Extent>, range: &Range<u64>) -> Vec<Extent> {
    let before = rows.range(..range.start).next_back().filter(|(_, row)| end_of(row) > range.start);
    let first = before.map_or(range.start, |(offset, _)| *offset);
    let hit: Vec<u64> = rows.range(first..range.end).map(|(offset, _)| *offset).collect();
    hit.iter().filter_map(|offset| rows.remove(offset)).collect()
}

/// First byte after `extent`.
pub(crate) fn end_of(extent: &Extent) -> u64 {
    extent.offset.saturating_add(u64::from(extent.length))
}

fn range_of(extent: &Extent) -> Range<u64> {
    extent.offset..end_of(extent)
}

/// What of `extent` lies before `range`, and what after it.
pub(crate) fn outside(extent: Extent, range: &Range<u64>) -> (Option<Extent>, Option<Extent>) {
    let left = extent.offset < range.start;
    let right = end_of(&extent) > range.end;
    match (left, right) {
        (false, false) => (None, None),
        (true, false) => (Some(head_of(extent, range.start)), None),
        (false, true) => (None, Some(tail_of(extent, range.end))),
        (true, true) => (Some(head_of(extent.clone(), range.start)), Some(tail_of(extent, range.end))),
    }
}

/// What of `extent` lies in `range`.
pub(crate) fn inside(extent: Extent, range: &Range<u64>) -> Option<Extent> {
    if end_of(&extent) <= range.start || extent.offset >= range.end {
        return None;
    }
    Some(tail_of(head_of(extent, range.end), range.start))
}

/// The part before `end`; the extent must begin before it.
fn head_of(mut extent: Extent, end: u64) -> Extent {
    let room = end.saturating_sub(extent.offset);
    extent.length = extent.length.min(u32::try_from(room).unwrap_or(u32::MAX));
    extent
}

/// The part from `start` on; the extent must end after it.
fn tail_of(mut extent: Extent, start: u64) -> Extent {
    let gone = u32::try_from(start.saturating_sub(extent.offset)).unwrap_or(u32::MAX);
    extent.offset = extent.offset.max(start);
    extent.skip = extent.skip.saturating_add(gone);
    extent.length = extent.length.saturating_sub(gone);
    extent
}
