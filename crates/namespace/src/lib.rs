//! Files, fields, operations, and the one pure function that decides them.
//!
//! The crate cannot reach messages, stores and clocks: client and server decide alike.

#![allow(missing_docs, reason = "fields of operations are documented once, on the operations")]

mod acl;
mod attributes;
mod capabilities;
mod decide;
mod extent;
mod fold;
mod knowledge;
mod locks;
mod operand;
pub mod operation;
mod share;
mod traced;
mod verdict;

pub use attributes::{
    Attributes, ContentHead, Cred, Disposition, Entry, FileKind, Link, Links, Times, Timestamp,
};
pub use capabilities::{Capabilities, Capability};
pub use decide::{
    CAPABILITY_LABEL, INLINE_PIECE_BYTES_MAX, INLINE_SEAL_BYTES, LINKS_MAX, PIECE_BYTES_MAX, POLICY,
    POLICY_LABEL, POSITION_MAX, SEAL_BYTES, TARGET_BYTES_MAX, XATTR_BYTES_MAX, XATTR_LIST_BYTES_MAX,
    XATTRS_BYTES_MAX, decide,
};
pub use extent::{ContentChange, Extent, Piece, Place};
pub use fold::fold;
pub use knowledge::{Knowledge, Known};
pub use locks::{
    Conflict, Holder, LOCKS_MAX, Lock, LockChange, LockKind, LockRange, LockSpace, LockTable, Locks,
    NotATable,
};
pub use operand::{AttributeChange, FileSpec, NewFile, RenameMode, Replaced, SetTime, Whiteout, XattrMode};
pub use operation::Operation;
pub use share::{NoPolicy, ShareId, Spread};
pub use traced::Traced;
pub use verdict::{Answer, Effect, Effects, Error, Stat, Verdict};

/// Content up to this many bytes lives in the metadata.
pub const INLINE_BYTES_MAX: usize = 4096;
