//! What a publication does to the rows of a file's extents.

use std::collections::BTreeMap;
use std::ops::Range;

use namespace::{ContentChange, Extent, ShareId};

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

/// Why a publication from the wire makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Inline content above the limit, or longer than the size.
    #[error("inline content is too long")]
    Inline,
    /// An extent that is empty, out of order, beyond the size, or does not fit its piece.
    #[error("an extent is out of order or does not fit")]
    Extent,
    /// A punched range that overflows.
    #[error("a punched range overflows")]
    Punch,
}

/// Whether `change` can be applied to a file that has `size` afterwards.
pub fn check(change: &ContentChange, size: u64) -> Result<(), Malformed> { unimplemented!() }
/// The ranges whose rows [`edit`] must be given: each row that reaches into one of them.
pub fn affected(change: &ContentChange) -> Vec<Range<u64>> { unimplemented!() }
/// What `change` does to the rows `existing` (in order; at least those that [`affected`] asks for).
pub fn edit(existing: impl IntoIterator<Item = Extent>, change: &ContentChange) -> Edit { unimplemented!() }
/// Replaces `range` in the rows `overlapping` by `put`, which lies in it.
pub fn replace_range(overlapping: Vec<Extent>, range: Range<u64>, put: &[Extent]) -> Edit { unimplemented!() }
