//! How far a backup is, or a restore.

use serde::{Deserialize, Serialize};

/// How far a backup is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BackupProgress {
    /// The server lacks changes of the last seconds that were made on its machine.
    NotFlushed,
    /// Rows and shares are copied.
    Copied {
        /// Rows.
        rows: u64,
        /// Shares to which they refer.
        shares: u64,
        /// Those of them that are copied anew.
        new_shares: u64,
        /// Bytes of these.
        new_bytes: u64,
    },
    /// Other hosts have deleted content that was to be copied: another attempt begins.
    Again,
    /// Backups that are not kept any more are removed.
    Pruning,
}

/// How far a restore is, of everything or of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreProgress {
    /// Rows and shares are restored.
    Restored {
        /// Rows.
        rows: u64,
        /// Shares.
        shares: u64,
        /// Bytes of these.
        bytes: u64,
    },
    /// All shares are restored.
    Finishing,
    /// Rows are read, to find a file.
    RowsRead {
        /// How many.
        rows: usize,
    },
    /// Files are extracted.
    Extracted {
        /// How many.
        files: u64,
        /// Bytes of their content.
        bytes: u64,
    },
}
