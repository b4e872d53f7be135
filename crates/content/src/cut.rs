//! Cutting extents: the parts that remain when a range is overwritten.

use std::ops::Range;

use namespace::Extent;

/// Returns the first byte after `extent`.
pub(crate) fn end_of(extent: &Extent) -> u64 {
    extent.offset.saturating_add(u64::from(extent.length))
}

/// Returns the parts of `extent` before and after `range`.
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

/// Returns the part of `extent` in `range`.
pub(crate) fn inside(extent: Extent, range: &Range<u64>) -> Option<Extent> {
    if end_of(&extent) <= range.start || extent.offset >= range.end {
        return None;
    }
    Some(tail_of(head_of(extent, range.end), range.start))
}

/// Returns the part before `end`. The extent must begin before `end`.
fn head_of(mut extent: Extent, end: u64) -> Extent {
    let room = end.saturating_sub(extent.offset);
    extent.length = extent.length.min(u32::try_from(room).unwrap_or(u32::MAX));
    extent
}

/// Returns the part from `start` on. The extent must end after `start`.
fn tail_of(mut extent: Extent, start: u64) -> Extent {
    let gone = u32::try_from(start.saturating_sub(extent.offset)).unwrap_or(u32::MAX);
    extent.offset = extent.offset.max(start);
    extent.skip = extent.skip.saturating_add(gone);
    extent.length = extent.length.saturating_sub(gone);
    extent
}
