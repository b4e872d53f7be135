//! Stored content: extents, their sealed pieces, and the change that a publication makes to them.

use crate::ShareId;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A stored piece of content: bytes `offset..offset + length` of the file.
///
/// `B` is the type of ciphertext that stands in the metadata. Code that only needs to know where
/// extents are borrows it from a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent<B = Bytes> {
    /// Place in the file, in bytes.
    pub offset: u64,
    /// Bytes of the file in it: at most the rest of the piece from `skip` on.
    pub length: u32,
    /// Bytes to skip in the opened piece. Overwriting may have left a part that does not start at
    /// its beginning.
    pub skip: u32,
    /// The sealed piece.
    pub piece: Piece<B>,
}

/// A sealed (encrypted) run of bytes: the unit of hashing, sealing and reading. `B` as of an
/// [`Extent`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece<B = Bytes> {
    /// Bytes of plain content in it. Its ciphertext is 16 longer (the authentication tag).
    pub length: u32,
    /// Nonce, never used twice under one file's key.
    pub nonce: [u8; 12],
    /// BLAKE3 of the ciphertext. Every reader checks it.
    pub hash: [u8; 32],
    /// The place of the ciphertext.
    pub place: Place<B>,
}

/// The place of a piece's ciphertext. `B` as of an [`Extent`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place<B = Bytes> {
    /// In the metadata: a small synchronous write, pending until it is folded into a share.
    Inline(B),
    /// In a share of this file, from byte `at` of it.
    Share {
        /// The share's name: random, never derived from content.
        share: ShareId,
        /// Byte offset of the ciphertext in the share.
        at: u32,
    },
}

impl<B> Place<B> {
    /// The share, if it is in one.
    pub fn share(&self) -> Option<ShareId> {
        match self {
            Place::Inline(_) => None,
            Place::Share { share, .. } => Some(*share),
        }
    }
}

/// The change that a publication makes to content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentChange {
    /// The content becomes these bytes, at most [`crate::INLINE_BYTES_MAX`]. Extents, if any, go.
    Inline {
        /// Nonce and ciphertext, [`crate::INLINE_SEAL_BYTES`] longer than the content. Empty if the
        /// content is.
        #[serde(with = "serde_bytes")]
        sealed: Vec<u8>,
        /// The file's key, in the first publication that needs one.
        key: Option<[u8; 32]>,
    },
    /// The content changes in three steps. First content beyond `truncate_to` goes (if the file was
    /// shorter in between). Then each range in `punch` becomes a hole. Then each extent replaces
    /// the content of its range. Inline content, if any, goes: the publisher has carried it over.
    Extents {
        /// The smallest size of the file since the last publication, if it ever shrank.
        truncate_to: Option<u64>,
        /// Ranges (offset, length) that are holes now.
        punch: Vec<(u64, u64)>,
        /// In order of offset, without overlap.
        put: Vec<Extent>,
        /// The file's key, in the first publication that needs one.
        key: Option<[u8; 32]>,
    },
    /// Only size and times change.
    None,
}
