//! Opening a log: its segments are read from the oldest on, and every change is done again.

use super::index::{FramePlace, GroupIndex};
use super::segment::Segment;
use super::segments::Segments;
use super::{LogError, LogRecord, decode_sized};
use crate::disk::Disk;
use crate::group_id::GroupId;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

type Groups = BTreeMap<GroupId, GroupIndex>;

/// Opens the files of the log in `dir`. Returns them with the logs of all groups. The file `mark`
/// notes how far the log is durable.
pub(super) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    segment_bytes: u64,
    mark: Option<&Path>,
) -> Result<(Segments, Groups), LogError> {
    let (mut segments, first_frames) = Segments::list(disk, dir, segment_bytes)?;
    let (mut groups, mut retired) = (Groups::new(), BTreeMap::new());
    let last = first_frames.last().copied();
    for first in first_frames {
        load(&mut segments, &mut groups, first, Some(first) == last, &mut retired)?;
    }
    if let Some(mark) = mark {
        segments.open_mark(mark)?;
    }
    if groups.values().any(GroupIndex::lacks_entries) {
        return Err(segments.damaged("entries are missing"));
    }
    // Only now: files of a damaged log stay as they are.
    segments.retire(retired)?;
    Ok((segments, groups))
}

/// Loads the segment that begins with frame `first`. Segments that turn out to be out of service go
/// to `retired`.
fn load(
    segments: &mut Segments,
    groups: &mut Groups,
    first: u64,
    is_last: bool,
    retired: &mut BTreeMap<u64, Segment>,
) -> Result<(), LogError> {
    if first != segments.next_frame {
        // A power cut came while older segments were being retired, in any order. If one of them
        // was still needed, `lacks_entries` shows it.
        groups.values_mut().for_each(GroupIndex::loses_segments);
        retired.append(&mut segments.in_service);
    }
    let Some((segment, scan)) = segments.scan(first, is_last)? else { return Ok(()) };
    let is_oldest = segments.in_service.is_empty();
    let file = segments.path(first);
    for (place, body) in scan.frames {
        let damaged = |what| LogError::Damaged { file: file.clone(), at: place.at, what };
        let at = FramePlace { segment: first, frame: segments.next_frame, place };
        let records = decode_sized(&body).ok_or_else(|| damaged("a frame does not decode"))?;
        for (record, bytes) in records {
            match record {
                LogRecord::Begin(begun) => {
                    for (group, begun) in begun {
                        groups.entry(group).or_default().begins(begun, is_oldest);
                    }
                }
                LogRecord::Of(group, change) => {
                    groups.entry(group).or_default().redo(change, bytes, at).map_err(damaged)?;
                }
            }
        }
        segments.next_frame += 1;
    }
    segments.in_service.insert(first, segment);
    Ok(())
}
