//! Publications of new content.

use super::case::{Case, Decided};
use crate::{
    Answer, ContentChange, ContentHead, Effect, Error, Extent, FileKind, INLINE_BYTES_MAX, Knowledge, Piece,
    Place, Timestamp,
};
use ident::FileId;
use lease::Kind;
use serde::{Deserialize, Serialize};

/// The most plain bytes in one piece.
pub const PIECE_BYTES_MAX: u32 = 1 << 20;
/// The most plain bytes in a piece that stands in the metadata.
pub const INLINE_PIECE_BYTES_MAX: u32 = 128 << 10;
/// Bytes that sealing adds (the tag of AES-GCM).
pub const SEAL_BYTES: u32 = 16;
/// Bytes that sealing adds to a whole content in the metadata, with its nonce.
pub const INLINE_SEAL_BYTES: usize = 12 + SEAL_BYTES as usize;

/// The largest file, in bytes. Offsets of system calls are signed.
const SIZE_MAX: u64 = i64::MAX as u64;

/// New content, under the content's write lease. The user's right to write was decided when the
/// file was opened (POSIX checks then, and only then), so only the lease counts here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publish {
    pub file: FileId,
    pub version: u64,
    pub size: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub change: ContentChange,
}

impl Publish {
    /// Publishes content.
    ///
    /// The new head's `occupied` is exact for inline content (its plain size), and for
    /// [`ContentChange::None`]. With [`ContentChange::Extents`] it is the *old* value. The executor
    /// of the effect adds the bytes that the extents' rows gain. It subtracts the bytes that they
    /// lose, and the inline content that goes.
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Publish { file, version, size, mtime, ctime, change } = self;
        let (version, size) = (*version, *size);
        if size > SIZE_MAX {
            return Err(Error::TooBig.into());
        }
        // The attributes may be leased to other clients by now. A writer of content need not hold
        // them.
        if case.kind(file)? != FileKind::Regular {
            return Err(Error::Invalid.into());
        }
        let old = case.content(file, Kind::Write)?;
        if old.version.checked_add(1) != Some(version) || !makes_sense(&old, size, change) {
            return Err(Error::Invalid.into());
        }
        let (occupied, key) = match change {
            ContentChange::Inline { key, .. } => (size, old.key.or(*key)),
            ContentChange::Extents { key, .. } => (old.occupied, old.key.or(*key)),
            ContentChange::None => (old.occupied, old.key),
        };
        let head = ContentHead { size, mtime: *mtime, ctime: old.ctime.max(*ctime), version, occupied, key };
        case.effects.push(Effect::Content { file: file.clone(), head, change: change.clone() });
        Ok(Answer::Nothing)
    }
}

fn makes_sense(old: &ContentHead, size: u64, change: &ContentChange) -> bool {
    match change {
        ContentChange::Inline { sealed, key } => {
            let seal = if size == 0 { 0 } else { INLINE_SEAL_BYTES as u64 };
            size <= INLINE_BYTES_MAX as u64
                && sealed.len() as u64 == size + seal
                && is_key(old, key.as_ref(), !sealed.is_empty())
        }
        // Growth makes a hole. A publication that shrinks must say so, or content would stay beyond
        // the end.
        ContentChange::None => size >= old.size,
        ContentChange::Extents { truncate_to, punch, put, key } => {
            let cut = match truncate_to {
                Some(smallest) => *smallest <= size,
                None => size >= old.size,
            };
            let key = is_key(old, key.as_ref(), !put.is_empty());
            cut && key && punch.iter().all(|(offset, length)| is_range(*offset, *length)) && fit(put, size)
        }
    }
}

/// Whether a change may carry this key of the file. A key never changes, and must be there if the
/// change `seals` anything.
fn is_key(old: &ContentHead, new: Option<&[u8; 32]>, seals: bool) -> bool {
    match (&old.key, new) {
        (Some(old), Some(new)) => old == new,
        (None, None) => !seals,
        _ => true,
    }
}

fn is_range(offset: u64, length: u64) -> bool {
    length > 0 && offset.checked_add(length).is_some_and(|end| end <= SIZE_MAX)
}

/// Whether the extents are in order, without overlap, and within the size.
fn fit(extents: &[Extent], size: u64) -> bool {
    let mut end = 0;
    extents.iter().all(|extent| {
        let begins = extent.offset >= end;
        let Some(extent_end) = extent.offset.checked_add(extent.length.into()) else { return false };
        end = extent_end;
        begins && end <= size && extent.length > 0 && holds(&extent.piece, extent.skip, extent.length)
    })
}

/// Whether the piece is valid, and has the bytes `skip..skip + length`.
fn holds(piece: &Piece, skip: u32, length: u32) -> bool {
    let inside = skip.checked_add(length).is_some_and(|end| end <= piece.length);
    let sealed = piece.length.saturating_add(SEAL_BYTES);
    inside
        && piece.length <= PIECE_BYTES_MAX
        && match &piece.place {
            Place::Inline(ciphertext) => {
                piece.length <= INLINE_PIECE_BYTES_MAX && ciphertext.len() as u64 == u64::from(sealed)
            }
            Place::Share { at, .. } => at.checked_add(sealed).is_some(),
        }
}
