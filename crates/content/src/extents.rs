//! What is known of a file's extents.

use namespace::{ContentChange, Extent};

/// What is known of a file's extents: holes, extents, and explicit gaps of which nothing is known.
#[derive(Clone, Debug, Default)]
pub struct ExtentMap {}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// Where it begins in the file.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
    /// What is there.
    pub what: What<'a>,
}

/// What is in a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// Nobody has said yet.
    Unknown,
    /// Zeros.
    Hole,
    /// Bytes of the extent's piece from `skip` on.
    Extent {
        /// The extent; it may begin before the span and end after it.
        extent: &'a Extent,
        /// Bytes of the opened piece before the span's first.
        skip: u32,
    },
}

impl ExtentMap {
    /// A file that is one hole.
    pub fn whole_hole() -> ExtentMap { unimplemented!() }
    /// Extents known below `complete_below`; nothing is known from there on.
    pub fn new(extents: Vec<Extent>, complete_below: u64) -> ExtentMap { unimplemented!() }
    /// Replaces what `extent`'s range had.
    pub fn put(&mut self, extent: Extent) { unimplemented!() }
    /// Makes a hole.
    pub fn punch(&mut self, offset: u64, length: u64) { unimplemented!() }
    /// Drops everything from `size` on.
    pub fn truncate(&mut self, size: u64) { unimplemented!() }
    /// Fills the unknown gaps of `from..to`.
    pub fn learn(&mut self, from: u64, to: u64, extents: Vec<Extent>) { unimplemented!() }
    /// Applies a publication.
    pub fn apply(&mut self, change: &ContentChange) { unimplemented!() }
    /// What is in `offset..offset + length`.
    pub fn spans(&self, offset: u64, length: u64) -> impl Iterator<Item = Span<'_>> { std::iter::empty() }
    /// Bytes that known extents occupy.
    pub fn occupied(&self) -> u64 { unimplemented!() }
    /// Known inline pieces.
    pub fn inline_pieces(&self) -> u64 { unimplemented!() }
    /// Plain bytes of them.
    pub fn inline_bytes(&self) -> u64 { unimplemented!() }
}
