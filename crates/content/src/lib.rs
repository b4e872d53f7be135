//! File content as pure transforms: extents, dirty data, encryption, packing.
//!
//! Nothing here touches a disk, a clock or a source of randomness: the owner passes times and a
//! generator in, stores the shares that [`FileContent`] plans, and logs the publications that it
//! hands out.

mod chunk;
mod code;
mod cut;
mod extents;
mod file;
mod flight;
mod flush;
mod fold;
mod overlay;
mod placement;
mod plan;
mod read;
mod seal;

pub use code::{Segment, kept, segments, spread_of, whole};
pub use extents::{ExtentMap, Span, SpanContent};
pub use file::FileContent;
pub use placement::{COPIES, place, place_fragments, room};
pub use plan::{Done, Flush, PlannedPiece, Publish, ReadPart, Unreadable, UploadPlan, assemble};
pub use seal::{Cipher, Damaged, Hash, Key, Nonce, TAG_BYTES, open, open_whole, seal, seal_share};

/// Plain bytes of a piece at most; pieces do not cross multiples of it in the file, so that
/// rewriting replaces whole pieces.
pub const PIECE_BYTES_MAX: u32 = 128 << 10;

/// Plain bytes of a share at most (each piece adds [`TAG_BYTES`] to what is stored).
pub const SHARE_BYTES_MAX: usize = 1 << 20;

/// Pieces of a share at most: bounds the tags' part of it when pieces are tiny.
pub const SHARE_PIECES_MAX: usize = 1024;

/// Dirty bytes up to which a flush publishes them inline that nobody waits for: what would go
/// inline as a whole file may as well as a part of one, since a share for it costs more.
pub const LAZY_BYTES_MAX: u64 = namespace::INLINE_BYTES_MAX as u64;
/// The same, where another machine waits for them, which is not to wait for shares.
pub const URGENT_BYTES_MAX: u64 = 64 << 10;
/// The same, where a program waits until they are durable: shares take several flushes of disks one
/// after the other, a publication one. More than [`URGENT_BYTES_MAX`], since whoever has the file
/// open can fold them later.
pub const SYNCED_BYTES_MAX: u64 = 256 << 10;

/// Inline bytes pending of one file from which on they should be folded into shares; at twice that,
/// no flush adds to them.
pub const FOLD_BYTES: u64 = 4 << 20;

/// Size of a file at most: what fits a signed 64-bit offset.
pub const SIZE_MAX: u64 = i64::MAX as u64;
