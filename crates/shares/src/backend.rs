//! The store of share files: the seam between the share server and its storage.
//!
//! The lease database is always on the local disk. A backend knows whole shares only. It need not
//! rename, nor list cheaply, nor list the present state. Its duties: a placed share is durable and
//! reads as it was placed, a deleted share is durably gone, and nothing else changes any share.

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
pub(crate) struct OpenedShare {
    /// The header, or as much of it as the file has.
    pub head: Vec<u8>,
    /// The length of the whole file in bytes.
    pub length: u64,
    pub bytes: Box<dyn ReadAt>,
}

/// The bytes of one file.
pub(crate) trait ReadAt: Debug + Send + Sync {
    /// Up to `length` bytes from `at` on; fewer only at the end of the file.
    fn read_at(&self, at: u64, length: usize) -> io::Result<Vec<u8>>;
}

/// The storage of share files. Operations block, and many threads may call them at once. No two
/// callers change the same share at once (`file_locks`).
pub(crate) trait Backend: Debug + Send + Sync {
    /// Does the part of an upload that may happen before its rows are durable. No file is in its
    /// place afterwards, whatever happens.
    fn stage(&self, upload: i64, files: &[ShareFile]) -> Result<(), DiskError>;
    /// Puts staged files in their places, replacing existing ones, and returns when all are
    /// durable. On an error some files are there, whole, or may appear later. Staged files are then
    /// removed.
    fn place(&self, upload: i64, files: &[ShareFile]) -> Result<(), DiskError>;
    /// Removes files that were staged and not placed. It succeeds if there are none.
    fn discard(&self, upload: i64, ids: &[ShareId]) -> Result<(), DiskError>;
    /// Deletes files and returns those that may still be there. All others are durably gone or were
    /// missing.
    fn delete(&self, ids: &[ShareId]) -> Vec<(ShareId, DiskError)>;
    /// Finds a share's file.
    fn open(&self, id: &ShareId) -> Result<OpenedShare, DiskError>;
    /// Opens many files and answers in their order.
    fn open_many(&self, ids: &[ShareId]) -> Vec<Result<OpenedShare, DiskError>> {
        ids.iter().map(|id| self.open(id)).collect()
    }
    /// Shows `take` all of a share's file, in order, as it is stored. Cached bytes do not count.
    fn read_through(&self, id: &ShareId, take: &mut dyn FnMut(&[u8])) -> Result<(), DiskError>;
    /// Whether the files are on this machine's disk.
    fn is_local(&self) -> bool;
    /// Lists names among the shares whose ids begin with `prefix`. The list may lack present files
    /// and may hold deleted ones.
    fn list(&self, prefix: u8) -> Result<Vec<String>, DiskError>;
}
