//! The place of an open in the listing of its directory, from one query to the next.

use crate::pattern::Pattern;
use client::Upto;

/// How far the listing of an open has come, and what it is of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    pub(crate) pattern: Option<Pattern>,
    /// The name that a pattern without wildcards asks for.
    pub(crate) plain: Option<String>,
    /// The index of the last entry that was returned.
    pub(crate) after: u64,
    pub(crate) upto: Option<Upto>,
    /// Something was returned already.
    pub(crate) has_found: bool,
    pub(crate) is_at_end: bool,
}
