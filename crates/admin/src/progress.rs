//! The progress of a request, and remarks. The command line has the words.

use backup::BackupProgress;
use serde::{Deserialize, Serialize};

/// How far a machine is with a request. Machines are named as the request names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ControlProgress {
    /// The machine is asked to serve.
    AskedToServe {
        /// The machine.
        machine: String,
    },
    /// The machine learns what the servers have.
    Behind {
        /// The machine.
        machine: String,
        /// Log entries that it lacks; all if absent.
        entries: Option<u64>,
    },
    /// The machine serves.
    Serves {
        /// The machine.
        machine: String,
    },
    /// A server that was drained keeps content again.
    KeepsAgain {
        /// The machine.
        machine: String,
    },
    /// The machine is no server any more.
    Removed {
        /// The machine.
        machine: String,
    },
    /// A server is drained.
    Draining {
        /// The machine.
        machine: String,
        /// Shares that are left there, if that is known.
        left: Option<u64>,
        /// Shares that other servers still fetch.
        missing: u64,
    },
    /// The server keeps nothing that others do not.
    Drained {
        /// The machine.
        machine: String,
    },
    /// Another server of the directory was made. Its group gets members.
    ServerFounded {
        /// Its number.
        server: u16,
    },
    /// A region is handed over.
    Delegating {
        /// The region's identifier.
        region: String,
        /// The server that has it.
        from: u16,
        /// The next server.
        to: u16,
    },
    /// Another authority certifies machines.
    AuthorityRenewed,
    /// The former authority's invitations are void. Its backups have its key.
    AuthorityReplaced,
    /// Rows of the server's state are checked.
    CheckedRows {
        /// How many.
        rows: u64,
    },
    /// Content is checked.
    CheckedContent {
        /// Pieces.
        pieces: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// Rows and log are read.
    ScrubbedRows {
        /// Bytes.
        bytes: u64,
    },
    /// Shares are read.
    ScrubbedShares {
        /// How many.
        shares: u64,
        /// Those of them that are damaged.
        damaged: u64,
    },
    /// The references of files are compared with the stored shares.
    Comparing,
    /// A backup is being made, so nothing that it may need goes.
    Held,
    /// Shares are exported or imported.
    Parcelled {
        /// How many.
        shares: u64,
        /// Bytes of their bodies.
        bytes: u64,
    },
    /// A backup is made.
    Backup {
        /// How far it is.
        at: BackupProgress,
    },
}

/// A remark on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlNote {
    /// The server lacks changes that were made on the machine: the answer leaves them out.
    NotFlushed,
}
