//! What [`crate::FileContent`] hands out, and how a host gathers what was read.

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
    /// `length` bytes from byte `skip` of what a piece of a share holds once it is opened.
    Piece {
        /// The share.
        share: ShareId,
        /// Where the ciphertext begins in it.
        at: u32,
        /// Plain bytes of the whole piece; its ciphertext has [`crate::TAG_BYTES`] more.
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
    /// How many bytes of the file it gives.
    pub fn length(&self) -> usize {
        match self {
            ReadPart::Bytes(bytes) => bytes.len(),
            ReadPart::Zeros(length) | ReadPart::Piece { length, .. } => *length as usize,
        }
    }
}

/// Gathers the bytes of `parts`; `open` gives the whole opened piece of a [`ReadPart::Piece`].
///
/// A piece shorter than the part says counts as damaged: `open` is asked to name that error through
/// `damaged`.
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

/// Why content cannot be read yet, or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The server must be asked for extents from `from` on: [`crate::FileContent::learn`].
    #[error("extents from {from} on are not known yet")]
    NeedExtents {
        /// Offset of the first unknown byte that matters.
        from: u64,
    },
    /// A piece in the metadata is not what its hash says, or the key is missing.
    #[error(transparent)]
    Damaged(#[from] crate::Damaged),
}

/// The fields of `namespace::Operation::Publish` but the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// One more than the version before.
    pub version: u64,
    /// Length in bytes.
    pub size: u64,
    /// When content last changed.
    pub mtime: Timestamp,
    /// When anything of content last changed.
    pub ctime: Timestamp,
    /// What changes.
    pub change: ContentChange,
}

/// A share to seal and store: then [`crate::FileContent::stored`] or
/// [`crate::FileContent::upload_failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadPlan {
    /// Names it among the uploads of this file.
    pub id: u64,
    /// The share to make.
    pub share: ShareId,
    /// The file's key.
    pub key: Key,
    /// Their ciphertexts stand in the share one after the other.
    pub pieces: Vec<PlannedPiece>,
}

/// A piece of an [`UploadPlan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedPiece {
    /// Its nonce.
    pub nonce: Nonce,
    /// Where it belongs in the file.
    pub offset: u64,
    /// What it holds.
    pub plain: Bytes,
}

/// What a flush comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing was dirty.
    Nothing,
    /// Log this.
    Publish(Publish),
    /// Store these; their publication comes out of [`crate::FileContent::stored`].
    Upload(Vec<UploadPlan>),
    /// Ready, but its publication must come after that of uploads under way: out of
    /// [`crate::FileContent::stored`], too.
    Queued,
}

/// What a stored upload sets free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// To log, in this order.
    pub publishes: Vec<Publish>,
    /// Stored shares that no publication will reference: let their leases go.
    pub unused: Vec<ShareId>,
}
