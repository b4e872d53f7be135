//! File content as pure transforms: extents, dirty data, encryption, packing.
//!
//! Nothing here touches a disk, a clock or a source of randomness. The owner passes in times and a
//! generator. It stores the shares that [`FileContent`] plans, and logs the publications that it
//! returns.

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

pub use code::{Segment, segments, spread_of, stored_parts, whole};
pub use crypto::{Key, Nonce, TAG_BYTES};
pub use extents::{ExtentMap, Span, SpanContent};
pub use file::FileContent;
pub use placement::{COPIES, place, place_fragments, room};
pub use plan::{Done, Flush, PlannedPiece, Publish, ReadPart, Unreadable, UploadPlan, assemble};
pub use seal::{Damaged, Hash, Upload, open, open_whole, seal, seal_share};

/// The most plain bytes of a piece. Pieces do not cross multiples of it in the file, so that
/// rewriting replaces whole pieces.
pub const PIECE_BYTES_MAX: u32 = 128 << 10;

/// The most plain bytes of a share. Each piece adds [`TAG_BYTES`] to the stored size.
pub const SHARE_BYTES_MAX: usize = 1 << 20;

/// The most pieces of a share. It bounds the tags' part of a share when pieces are tiny.
pub const SHARE_PIECES_MAX: usize = 1024;

/// Dirty bytes up to which a flush publishes inline, if no program or machine waits for it. A whole
/// file of that size is inline, too, and a share for so little costs more.
pub const LAZY_BYTES_MAX: u64 = namespace::INLINE_BYTES_MAX as u64;
/// The same limit for a flush that another machine waits for: that machine is not to wait for
/// shares.
pub const URGENT_BYTES_MAX: u64 = 64 << 10;
/// The same limit for a flush whose durability a program waits for. Shares take several disk
/// flushes one after the other, a publication takes one. The limit is above [`URGENT_BYTES_MAX`],
/// since the client that has the file open can fold these bytes later.
pub const SYNCED_BYTES_MAX: u64 = 256 << 10;

/// Pending inline bytes of one file from which on they should be folded into shares. At twice that,
/// no flush adds to them.
pub const FOLD_BYTES: u64 = 4 << 20;

/// The largest size of a file: a signed 64-bit offset.
pub const SIZE_MAX: u64 = i64::MAX as u64;
