//! What was done here and could not be applied at the server: nothing of it is dropped silently (design.md, "Contract to users").

use ident::FileId;
use lease::Label;
use namespace::{Error, Operation};

/// See the module.
#[derive(Clone, Debug)]
pub struct Salvage {
    /// Whether all of it is from a session that is over; otherwise the server refused what is here, and the session goes on.
    pub cut_off: bool,
    /// In the order in which it was done; content after the operations.
    pub items: Vec<Lost>,
}

/// One thing that could not be applied.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The file that it concerns most: of an operation on a name the one that the name is bound to or was to be bound to, if that is known, or the
    /// directory.
    pub file: FileId,
    /// Where that is, as far as this client knew.
    pub path: KnownPath,
    /// What it is.
    pub what: LostWhat,
}

/// A path, as far as it is known: it begins at the root if all of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// The directory (or the file itself) that the labels begin at.
    pub from: FileId,
    /// Labels from there.
    pub labels: Vec<Label>,
}

/// What was lost.
#[derive(Clone, Debug)]
pub enum LostWhat {
    /// An operation that was done here.
    Operation {
        /// The operation.
        operation: Box<Operation>,
        /// Why the server refused it; [`Error::CutOff`] if nobody asked it any more.
        error: Error,
    },
    /// Content that was written here.
    Content {
        /// The size of the file as it was here.
        size: u64,
        /// What was written and not applied: offsets, and the bytes. The host gathers those that are in a share, as for a read; that share's lease is not let
        /// go before the next start.
        ranges: Vec<(u64, content::Part)>,
    },
}
