//! What updates use up of a session's allowance. Client and server count alike, so this is said once.

use namespace::{ContentChange, Operation, Place};

/// Bytes that the metadata of a file takes at most, names of usual length assumed: what a create sets aside.
pub const FILE_BYTES: u64 = 1024;
/// Bytes that a stored extent takes beside its content.
pub const EXTENT_BYTES: u64 = 256;

/// Bytes and files that `operation` uses up. What frees space costs nothing: deleting always works.
pub fn cost(operation: &Operation) -> (u64, u64) {
    match operation {
        Operation::Create { new, .. } => (FILE_BYTES + new.target.len() as u64, 1),
        Operation::Link { .. } => (FILE_BYTES, 0),
        Operation::SetXattr { value, .. } => (EXTENT_BYTES + value.len() as u64, 0),
        Operation::Publish { change, .. } => (content(change), 0),
        _ => (0, 0),
    }
}

fn content(change: &ContentChange) -> u64 {
    match change {
        ContentChange::None => 0,
        ContentChange::Inline(bytes) => bytes.len() as u64,
        ContentChange::Extents { put, .. } => put
            .iter()
            .map(|extent| {
                let inline = matches!(extent.piece.place, Place::Inline(_));
                // An inline piece is in the log and, until it is folded, in the store; then in a share.
                EXTENT_BYTES + u64::from(extent.length) * if inline { 2 } else { 1 }
            })
            .sum(),
    }
}
