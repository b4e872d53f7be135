//! The results of [`crate::FileContent`], and how a host assembles a read.

use bytes::Bytes;
use namespace::{ContentChange, ShareId, Timestamp};

use crate::{Hash, Key, Nonce};

/// A part of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPart {
    /// Bytes at hand.
    Bytes(Bytes),
    /// Zeros.
    Zeros(u32),
    /// `length` bytes from byte `skip` of an opened piece of a share.
    Piece {
        /// The share.
        share: ShareId,
        /// Offset of the ciphertext in the share.
        at: u32,
        /// Plain bytes of the whole piece. Its ciphertext has [`crate::TAG_BYTES`] more.
        piece_length: u32,
        /// Its nonce.
        nonce: Nonce,
        /// BLAKE3 of its ciphertext.
        hash: Hash,
        /// The file's key.
        key: Key,
        /// Bytes to skip.
        skip: u32,
        /// Bytes wanted.
        length: u32,
    },
}

impl ReadPart {
    /// Returns the bytes of the file that it gives.
    pub fn length(&self) -> usize {
        match self {
            ReadPart::Bytes(bytes) => bytes.len(),
            ReadPart::Zeros(length) | ReadPart::Piece { length, .. } => *length as usize,
        }
    }
}

/// Assembles the bytes of `parts`. `open` returns the whole opened piece of a [`ReadPart::Piece`].
///
/// # Errors
/// Errors of `open`. A piece shorter than its part says counts as damaged, and `damaged` names that
/// error.
pub fn assemble<E>(
    parts: &[ReadPart],
    mut open: impl FnMut(&ReadPart) -> Result<Bytes, E>,
    damaged: impl Fn() -> E,
) -> Result<Vec<u8>, E> {
    let mut out = Vec::with_capacity(parts.iter().map(ReadPart::length).sum());
    for part in parts {
        match part {
            ReadPart::Bytes(bytes) => out.extend_from_slice(bytes),
            ReadPart::Zeros(length) => out.resize(out.len() + *length as usize, 0),
            ReadPart::Piece { skip, length, .. } => {
                let plain = open(part)?;
                let (from, to) = (*skip as usize, *skip as usize + *length as usize);
                out.extend_from_slice(plain.get(from..to).ok_or_else(&damaged)?);
            }
        }
    }
    Ok(out)
}

/// The reason why content cannot be read yet, or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The server must be asked for extents from `from` on: [`crate::FileContent::learn`].
    #[error("extents from {from} on are not known yet")]
    NeedExtents {
        /// Offset of the first unknown byte that matters.
        from: u64,
    },
    /// A piece in the metadata does not have its hash, or the key is missing.
    #[error(transparent)]
    Damaged(#[from] crate::Damaged),
}

/// The fields of `namespace::Operation::Publish` except the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The version before, plus one.
    pub version: u64,
    /// Length in bytes.
    pub size: u64,
    /// When content last changed.
    pub mtime: Timestamp,
    /// When anything of content last changed.
    pub ctime: Timestamp,
    /// The change of the content.
    pub change: ContentChange,
}

/// A share to seal and store. Afterwards [`crate::FileContent::stored`] or
/// [`crate::FileContent::upload_failed`] is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadPlan {
    /// Number of the upload, unique in this file.
    pub id: u64,
    /// The share to make.
    pub share: ShareId,
    /// The file's key.
    pub key: Key,
    /// The pieces, whose ciphertexts stand in the share one after the other.
    pub pieces: Vec<PlannedPiece>,
}

/// A piece of an [`UploadPlan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedPiece {
    /// Its nonce.
    pub nonce: Nonce,
    /// Offset in the file.
    pub offset: u64,
    /// Plain bytes of the piece.
    pub plain: Bytes,
}

/// The result of a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing was dirty.
    Nothing,
    /// A publication to log.
    Publish(Publish),
    /// Shares to store. [`crate::FileContent::stored`] returns their publication.
    Upload(Vec<UploadPlan>),
    /// Ready, but earlier uploads must be published first. [`crate::FileContent::stored`] returns
    /// this publication, too.
    Queued,
}

/// The result of a stored upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Publications to log, in this order.
    pub publishes: Vec<Publish>,
    /// Stored shares that no publication will reference. The leases on them are to be released.
    pub unused: Vec<ShareId>,
}
