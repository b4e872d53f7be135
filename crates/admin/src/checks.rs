//! The results of looks through everything.

use serde::{Deserialize, Serialize};

/// The result of a check.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FsckReport {
    /// The number of rows of the server's state.
    pub rows: u64,
    /// The number of pieces of content, in shares or inline.
    pub pieces: usize,
    /// The bytes of these pieces.
    pub bytes: u64,
    /// The number of shares.
    pub shares: usize,
    /// The faults.
    pub faults: Vec<FsckFault>,
}

/// A fault that a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FsckFault {
    /// The server's rows contradict each other, or cannot be read.
    Rows {
        /// The contradiction.
        why: String,
    },
    /// A piece of content that is kept with its file does not match its hash.
    InlinePiece {
        /// Its bytes.
        bytes: usize,
    },
    /// Content that is kept with its file cannot be opened.
    InlineContent {
        /// The size of the file.
        bytes: u64,
        /// The error.
        why: String,
    },
    /// A share cannot be put together.
    Share {
        /// The share.
        share: String,
        /// The error.
        why: String,
    },
    /// A fragment of a share is damaged.
    Fragment {
        /// The fragment.
        share: String,
        /// The error.
        why: String,
    },
    /// A piece of content does not match its hash.
    PieceDamaged {
        /// Its share.
        share: String,
        /// Its place in the share.
        at: u32,
    },
    /// A piece of content cannot be read.
    PieceUnread {
        /// Its share.
        share: String,
        /// Its place in the share.
        at: u32,
        /// The error.
        why: String,
    },
    /// The server's account has no lease on a share that files refer to.
    Unleased {
        /// The share.
        share: String,
    },
    /// The leases of a share cannot be read.
    LeasesUnread {
        /// The share.
        share: String,
        /// The error.
        why: String,
    },
    /// A share is leased, and nothing refers to it.
    Unreferenced {
        /// The share.
        share: String,
    },
    /// The stored shares cannot be listed.
    SharesUnlisted {
        /// The error.
        why: String,
    },
}

/// How the passes through everything stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// When the last whole pass through small files, rows and log ended, UTC seconds.
    pub ended: Option<u64>,
    /// Bytes that the pass under way has read.
    pub bytes: Option<u64>,
    /// When the last whole pass through the shares ended, UTC seconds.
    pub shares_ended: Option<u64>,
    /// Shares that the pass under way has looked at.
    pub shares_examined: Option<u64>,
    /// Shares that the last pass, under way or over, has found damaged or missing.
    pub found: u64,
    /// Shares that are known to be damaged or missing now.
    pub damaged: u64,
}
