//! Files, fields, operations, and the one pure function that decides them.

#![allow(missing_docs, reason = "fields of operations are documented once, on the enums")]

mod attributes;
mod knowledge;
mod operation;
mod verdict;

pub use attributes::{Attributes, ContentHead, Cred, Entry, FileKind, Link, Links, Times, Timestamp};
pub use knowledge::{Known, Knowledge};
pub use operation::{
    AttributeChange, ContentChange, Extent, NewFile, Operation, Piece, Place, RenameMode, SetTime, ShareId, XattrMode,
};
pub use verdict::{Answer, Effect, Effects, Error, Stat, Verdict};

/// Content up to this many bytes lives in the metadata.
pub const INLINE_BYTES_MAX: usize = 4096;
