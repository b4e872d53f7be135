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
    /// The faults, in words.
    pub faults: Vec<String>,
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
