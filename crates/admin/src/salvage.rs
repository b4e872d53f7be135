//! Changes of a machine that could not be applied, and are kept. The machine writes this data to
//! its disk, and people and programs read it there.

use namespace::{Error, FileKind};
use serde::{Deserialize, Serialize};

/// One salvage: changes that could not be applied together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Salvaged {
    /// The number that names it.
    pub number: u64,
    /// When it was kept, UTC seconds.
    pub when: u64,
    /// Whether the machine was cut off and lost its leases. Otherwise the server refused the
    /// changes.
    pub cut_off: bool,
    /// The changes are not lost yet: the machine's next start goes on with them, if its session
    /// stands by then.
    pub goes_on: bool,
    /// The lost changes, in the order in which they were made.
    pub items: Vec<SalvagedItem>,
}

/// One lost change, or lost content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvagedItem {
    /// The path of the file, as far as it was known.
    pub path: String,
    /// The file's identifier.
    pub file: String,
    /// The change, if it is not content.
    pub change: Option<SalvagedChange>,
    /// The content, if content was lost.
    pub content: Option<SalvagedContent>,
}

/// Content that was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvagedContent {
    /// The name of the file that keeps it.
    pub name: String,
    /// The size of the file as it was.
    pub size: u64,
    /// Offsets and lengths of the written bytes that are kept. The rest had been applied before.
    pub ranges: Vec<(u64, u64)>,
    /// Offsets and lengths of written bytes that could not be had any more.
    pub missing: Vec<(u64, u64)>,
    /// The content's BLAKE3.
    pub hash: String,
}

impl SalvagedContent {
    /// Whether the whole file is here.
    pub fn is_whole(&self) -> bool {
        let mut ranges = self.ranges.clone();
        ranges.sort_unstable();
        let covered =
            ranges.iter().fold(
                0,
                |end: u64, (at, length)| {
                    if *at <= end { end.max(at.saturating_add(*length)) } else { end }
                },
            );
        covered >= self.size
    }
}

/// A change that was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvagedChange {
    /// The change.
    #[serde(flatten)]
    pub what: Change,
    /// The time at which it was made here, seconds since 1970 UTC. Some changes have no time of
    /// their own.
    pub when: Option<i64>,
    /// The number of the user who made it, where that counts.
    pub user: Option<u32>,
    /// The reason why it could not be applied.
    pub why: Error,
    /// BLAKE3 of the operation, which identifies it.
    pub operation: String,
}

/// A change to the file at a path. Other paths are as the machine last knew them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call")]
pub enum Change {
    /// Make the file.
    #[serde(rename = "create")]
    Create {
        /// The kind of file.
        kind: FileKind,
        /// Permission bits, octal.
        mode: String,
        /// The target of a symbolic link.
        target: Option<String>,
        /// A device's numbers, `MAJOR:MINOR`.
        device: Option<String>,
    },
    /// Make the path one more name of a file.
    #[serde(rename = "link")]
    Link {
        /// Another name of that file.
        from: Option<String>,
    },
    /// Remove the file.
    #[serde(rename = "unlink")]
    Unlink {
        /// The file is a directory.
        directory: bool,
    },
    /// Rename another path to this one.
    #[serde(rename = "rename")]
    Rename {
        /// The other path.
        from: Option<String>,
        /// The treatment of a file that has the new name already.
        existing: Existing,
    },
    /// Set attributes; absent ones stay.
    #[serde(rename = "setattr")]
    SetAttributes {
        /// Permission bits, octal.
        mode: Option<String>,
        /// The owner's number.
        owner: Option<u32>,
        /// The group's number.
        group: Option<u32>,
        /// Access time, seconds since 1970 UTC.
        accessed: Option<i64>,
        /// Modification time, seconds since 1970 UTC.
        modified: Option<i64>,
    },
    /// Set an extended attribute.
    #[serde(rename = "setxattr")]
    SetXattr {
        /// Its name.
        attribute: String,
        /// The length of its value, bytes.
        bytes: u64,
    },
    /// Remove an extended attribute.
    #[serde(rename = "removexattr")]
    RemoveXattr {
        /// Its name.
        attribute: String,
    },
    /// Write content, of which nothing is left here.
    #[serde(rename = "write")]
    Write {
        /// The file's size after the write.
        size: u64,
    },
    /// Set whether the file goes at its last close.
    #[serde(rename = "delete on close")]
    DeleteOnClose {
        /// The file was to go.
        delete: bool,
    },
    /// Remove the file at its last close.
    #[serde(rename = "last close")]
    LastClose,
    /// Note that the file was read.
    #[serde(rename = "read")]
    Read,
    /// Lock or unlock the file.
    #[serde(rename = "lock")]
    Lock,
}

/// The treatment of a file that has a rename's new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// The file is removed.
    Replaced,
    /// The file stays, and nothing is renamed.
    Kept,
    /// Both files change places.
    Exchanged,
}
