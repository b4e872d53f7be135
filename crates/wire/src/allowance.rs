//! How much of a session's allowance each update costs. Client and server count alike, so this is
//! the one place that says so.

use namespace::{ContentChange, INLINE_BYTES_MAX, Operation, operation};

/// Bytes that a file's metadata takes at most, with names of usual length: the amount that a create
/// sets aside.
pub const FILE_BYTES: u64 = 1024;
/// Bytes that a stored extent takes beside its content.
pub const EXTENT_BYTES: u64 = 256;

/// Content is cut into pieces of about this size (`content::PIECE_BYTES_MAX`).
const PIECE_BYTES: u64 = 128 << 10;
/// Bytes that a session may use beyond its allowance when nothing else is left. They cover costs
/// that cannot be known when a write is accepted (folding, a retried update). The host keeps back
/// at least as much from the free space that it reports.
pub const GRACE_BYTES: u64 = 16 << 20;

/// Bytes and files that `operation` uses up. An operation that frees space costs nothing: deleting
/// always works.
pub fn cost(operation: &Operation) -> (u64, u64) {
    match operation {
        Operation::Create(operation::Create { new, .. }) => (FILE_BYTES + new.spec.target.len() as u64, 1),
        Operation::Link { .. } => (FILE_BYTES, 0),
        Operation::Rename(operation::Rename { whiteout: Some(_), .. }) => (FILE_BYTES, 1),
        Operation::SetXattr(operation::SetXattr { value, .. }) => (EXTENT_BYTES + value.len() as u64, 0),
        Operation::Publish(operation::Publish { change, .. }) => (content(change), 0),
        _ => (0, 0),
    }
}

fn content(change: &ContentChange) -> u64 {
    match change {
        ContentChange::None => 0,
        ContentChange::Inline { sealed, .. } => sealed.len() as u64,
        ContentChange::Extents { put, .. } => {
            put.iter().map(|extent| EXTENT_BYTES + u64::from(extent.length)).sum()
        }
    }
}

/// Bytes to set aside for writing `length` bytes into a file of `size`. This is at least the cost
/// of publishing them, however they are cut into pieces. It includes existing inline content, which
/// is published again with any change.
pub fn cost_of_write(size: u64, length: u64) -> u64 {
    let pieces = length / PIECE_BYTES + 2;
    let inline = if size <= INLINE_BYTES_MAX as u64 { size } else { 0 };
    length + pieces * EXTENT_BYTES + inline
}
