//! Publications in the log that the server has not acknowledged.

use super::ack_queue::{AckQueue, UnackedFiles};
use ident::FileId;
use namespace::ShareId;
use rustc_hash::FxHashSet;

/// Published but unacknowledged bytes in shares at which the log is flushed. The host keeps all of
/// these bytes too. No other place has them for this client if its session ends.
const UNSETTLED_BYTES: u64 = 32 << 20;

/// A publication that the server has not acknowledged.
#[derive(Debug)]
pub(crate) struct Publication {
    pub file: FileId,
    pub shares: FxHashSet<ShareId>,
    /// The bytes in `shares`.
    pub bytes: u64,
}

/// All of them, in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Publications {
    queue: AckQueue<Publication>,
    files: UnackedFiles,
    /// Bytes in their shares. The host keeps the bytes, too, until the server has the publication.
    bytes: u64,
}

impl Publications {
    /// Adds a publication, which is the last entry of the log.
    pub fn push(&mut self, sequence: u64, publication: Publication) {
        self.bytes += publication.bytes;
        self.files.push(sequence, &publication.file);
        self.queue.push(sequence, publication);
    }

    /// Removes the first of them, if the server has the log up to its entry.
    pub fn acknowledge(&mut self, up_to: u64) -> Option<Publication> {
        self.files.acknowledge(up_to);
        let (_, publication) = self.queue.pop(up_to)?;
        self.bytes -= publication.bytes;
        Some(publication)
    }

    /// Whether a publication of `file` is among them.
    pub fn has(&self, file: &FileId) -> bool {
        self.files.has(file)
    }

    /// The bytes in their shares.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether these are so many that the log is to be flushed.
    pub fn are_many(&self) -> bool {
        self.bytes >= UNSETTLED_BYTES
    }
}
