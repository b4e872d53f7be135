//! Entries of idle groups, which are copied forward so that the oldest segment can go.

use super::index::{GroupIndex, LogChange, Spot};
use super::segments::Segments;
use super::{LogRecord, decode};
use crate::group_id::GroupId;
use crate::types::GroupEntry;
use std::collections::BTreeMap;

/// So many segments in service are a long log.
const LONG_SEGMENTS: usize = 4;

/// Returns the entries of idle groups that hold up the oldest segment of a long log. They take no
/// more than half a segment. A group with more has a checkpoint due, as has one that has written
/// something in the newest segment.
pub(super) fn idle(groups: &BTreeMap<GroupId, GroupIndex>, segments: &Segments) -> Vec<(GroupId, Vec<Spot>)> {
    let mut in_service = segments.in_service.keys();
    let (Some(oldest), Some(newest)) = (in_service.next(), in_service.next_back()) else { return Vec::new() };
    if segments.in_service.len() < LONG_SEGMENTS {
        return Vec::new();
    }
    let mut room = segments.segment_bytes / 2;
    let is_idle = |index: &GroupIndex| {
        index.oldest() == Some(*oldest) && index.spots.back().is_some_and(|spot| spot.at.segment < *newest)
    };
    let held_up = groups.iter().filter(|(_, index)| is_idle(index));
    let small = held_up.filter(|(_, index)| {
        let bytes = index.spots.iter().map(|spot| u64::from(spot.bytes)).sum();
        let fits = room >= bytes;
        room -= if fits { bytes } else { 0 };
        fits
    });
    small.map(|(group, index)| (*group, index.spots.iter().copied().collect())).collect()
}

/// Reads a group's entries at these places, in order. None if one of them cannot be read.
pub(super) fn entries(segments: &Segments, group: GroupId, spots: &[Spot]) -> Option<Vec<GroupEntry>> {
    let mut entries: BTreeMap<u64, GroupEntry> = BTreeMap::new();
    let mut frame = None;
    for spot in spots {
        if frame.replace(spot.at) == Some(spot.at) {
            continue;
        }
        for record in decode(&segments.read(spot.at).ok()?)? {
            match record {
                LogRecord::Of(of, LogChange::Append(entry)) if of == group => {
                    entries.insert(entry.log_id.index, entry);
                }
                LogRecord::Of(of, LogChange::Copied(copied)) if of == group => {
                    entries.extend(copied.into_iter().map(|entry| (entry.log_id.index, entry)));
                }
                _ => {}
            }
        }
    }
    let mut entry = |spot: &Spot| entries.remove(&spot.log_id.index).filter(|it| it.log_id == spot.log_id);
    spots.iter().map(&mut entry).collect()
}
