//! Where the files of shares are kept: the seam between the share server and what it stores them
//! on.
//!
//! The lease database is always on the local disk. Whatever is behind this seam knows whole shares
//! only: it need not rename, list cheaply or list what is there this moment. What it must do: a
//! share that was placed is durable and read as it was placed, one that was deleted is durably
//! gone, and nothing else changes any share.

use std::{fmt::Debug, io};

use bytes::Bytes;
use namespace::ShareId;

use crate::{error::DiskError, header::HEADER_BYTES};

/// A share's file to be stored: its header, then its body in parts.
#[derive(Clone, Debug)]
pub(crate) struct ShareFile {
    pub id: ShareId,
    pub header: [u8; HEADER_BYTES],
    pub parts: Vec<Bytes>,
}

/// A share's file that was found.
#[derive(Debug)]
pub(crate) struct Opened {
    /// As much of a header as there is.
    pub head: Vec<u8>,
    /// Bytes of the whole file.
    pub length: u64,
    pub bytes: Box<dyn ReadAt>,
}

/// The bytes of one file.
pub(crate) trait ReadAt: Debug + Send + Sync {
    /// Up to `length` bytes from `at` on; fewer only at the end of the file.
    fn read_at(&self, at: u64, length: usize) -> io::Result<Vec<u8>>;
}

/// See the module. Operations block, and may be called by many threads at once; nobody calls two
/// that change the same share at once (`file_locks`).
pub(crate) trait Backend: Debug + Send + Sync {
    /// What of an upload can be done before its rows are durable: whatever happens, nothing of it
    /// is in its place.
    fn stage(&self, upload: i64, files: &[ShareFile]) -> Result<(), DiskError>;
    /// Puts staged files in their places, over what is there; returns when all are durable. On an
    /// error some are there, whole, or come to be there later; what was staged is cleared away.
    fn place(&self, upload: i64, files: &[ShareFile]) -> Result<(), DiskError>;
    /// Clears away what was staged and not placed; success if there is nothing.
    fn discard(&self, upload: i64, ids: &[ShareId]) -> Result<(), DiskError>;
    /// Deletes files, and tells which may still be there. All others are durably gone, or were not
    /// there.
    fn delete(&self, ids: &[ShareId]) -> Vec<(ShareId, DiskError)>;
    /// Finds a share's file.
    fn open(&self, id: &ShareId) -> Result<Opened, DiskError>;
    /// Finds many, and answers in their order.
    fn open_many(&self, ids: &[ShareId]) -> Vec<Result<Opened, DiskError>> {
        ids.iter().map(|id| self.open(id)).collect()
    }
    /// Shows `take` all of a share's file, in order: what is stored, whatever of it is in memory.
    fn read_through(&self, id: &ShareId, take: &mut dyn FnMut(&[u8])) -> Result<(), DiskError>;
    /// Whether they are on this machine's disk.
    fn is_local(&self) -> bool;
    /// Names among the shares whose ids begin with `prefix`. Some may be lacking that are there,
    /// and some there that are gone.
    fn list(&self, prefix: u8) -> Result<Vec<String>, DiskError>;
}
