//! The changes that a host keeps for the user, because they could not be applied.

use ident::FileId;
use lease::Label;
use namespace::{Error, Operation};

/// The changes for the host to keep for the user.
#[derive(Clone, Debug)]
pub struct Salvage {
    /// Whether all of it is from a session that is over. Otherwise the server refused these
    /// changes, and the session goes on.
    pub cut_off: bool,
    /// The changes in their order, with content after the operations.
    pub items: Vec<Lost>,
}

/// One change that could not be applied.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The file that the change concerns most. For an operation on a name, this is the file of that
    /// name (bound or to be bound), or else the directory.
    pub file: FileId,
    /// The path of the file, as far as this client knew.
    pub path: KnownPath,
    /// The other path that an operation names: where the file was before a rename, or another name
    /// of what was linked.
    pub from: Option<KnownPath>,
    /// The change.
    pub what: LostWhat,
}

/// A path, as far as it is known. A path that is known completely begins at the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// The directory (or the file itself) that the labels begin at.
    pub from: FileId,
    /// The labels from there on.
    pub labels: Vec<Label>,
}

/// The kind of a lost change.
#[derive(Clone, Debug)]
pub enum LostWhat {
    /// An operation that was done here.
    Operation {
        /// The operation.
        operation: Box<Operation>,
        /// The server's refusal, or [`Error::CutOff`] if the operation never got an answer.
        error: Error,
    },
    /// Content that was written here.
    Content {
        /// The size of the file here.
        size: u64,
        /// Written ranges that were not applied: offsets and bytes. The host gathers bytes in
        /// shares as for a read. The leases on these shares stay until the next start.
        ranges: Vec<(u64, content::ReadPart)>,
    },
}
