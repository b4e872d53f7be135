//! The parts of a flush: pieces, the shares that they are packed into, and their publication.

use bytes::{Bytes, BytesMut};
use namespace::{ContentChange, ContentHead, Extent, Piece, Place, ShareId, Spread};
use rand_core::Rng;

use crate::overlay::{DirtyRun, Overlay};
use crate::{
    Cipher, Hash, Key, Nonce, PIECE_BYTES_MAX, PlannedPiece, SHARE_BYTES_MAX, SHARE_PIECES_MAX, TAG_BYTES,
    UploadPlan, spread_of,
};

/// A flushed state of the content on its way to publication.
#[derive(Debug)]
pub(crate) struct Flight {
    /// The first flush whose data is in it. If earlier uploads failed, a flight has the data of
    /// several.
    pub(crate) flush: u64,
    /// The changes of the flight, frozen.
    pub(crate) overlay: Overlay,
    /// Size, times and estimate of bytes occupied, as of the flush.
    pub(crate) head: ContentHead,
    pub(crate) change: ContentChange,
    /// The plain bytes sealed in `change`, if that is the whole content.
    pub(crate) inline: Option<Bytes>,
    /// Uploads whose pieces belong in `change`. There may be none.
    pub(crate) uploads: Vec<Sent>,
}

impl Flight {
    /// Returns whether all uploads are stored.
    pub(crate) fn is_ready(&self) -> bool {
        self.uploads.iter().all(|sent| sent.hashes.is_some())
    }

    /// Returns what to publish, once the flight is ready.
    pub(crate) fn finish(mut self) -> (ContentHead, ContentChange, Option<Bytes>) {
        if let ContentChange::Extents { put, .. } = &mut self.change {
            put.extend(self.uploads.iter().flat_map(Sent::extents));
        }
        (self.head, self.change, self.inline)
    }
}

/// An upload under way, or stored.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) id: u64,
    pub(crate) share: ShareId,
    /// Offset in the file, length and nonce of each piece.
    pieces: Vec<(u64, u32, Nonce)>,
    /// The hash of each piece, once the upload is stored.
    pub(crate) hashes: Option<Vec<Hash>>,
}

impl Sent {
    /// Returns the number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the extents of its pieces, once the upload is stored.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> {
        let mut at = 0;
        self.pieces.iter().zip(self.hashes.iter().flatten()).map(move |(&(offset, length, nonce), &hash)| {
            let place = Place::Share { share: self.share, at };
            at += length + TAG_BYTES as u32;
            Extent { offset, length, skip: 0, piece: Piece { length, nonce, hash, place } }
        })
    }
}

/// The nonces of one file's key: eight random bytes drawn once, and a counter. A later session that
/// seals for the file draws others.
#[derive(Debug, Default)]
pub(crate) struct Nonces {
    prefix: Option<[u8; 8]>,
    counter: u32,
}

impl Nonces {
    pub(crate) fn next(&mut self, rng: &mut dyn Rng) -> Nonce {
        let prefix = *self.prefix.get_or_insert_with(|| {
            let mut prefix = [0; 8];
            rng.fill_bytes(&mut prefix);
            prefix
        });
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&prefix);
        nonce[8..].copy_from_slice(&self.counter.to_le_bytes());
        match self.counter.checked_add(1) {
            Some(next) => self.counter = next,
            None => *self = Nonces::default(),
        }
        nonce
    }
}

/// Cuts the data of `overlay` into contiguous pieces, none of which crosses a multiple of
/// [`PIECE_BYTES_MAX`].
pub(crate) fn pieces(overlay: &Overlay) -> Vec<(u64, Bytes)> {
    let window = u64::from(PIECE_BYTES_MAX);
    let mut done: Vec<(u64, Bytes)> = Vec::new();
    let mut parts: Vec<Bytes> = Vec::new();
    let (mut start, mut end) = (0, 0);
    for (mut offset, run) in overlay.runs() {
        let DirtyRun::Data(chunk) = run else { continue };
        let mut rest = chunk.slice(0..chunk.len());
        while !rest.is_empty() {
            let room = (window - offset % window) as usize;
            let part = rest.split_to(room.min(rest.len()));
            if offset != end || offset % window == 0 {
                done.extend(join(start, &mut parts));
                start = offset;
            }
            offset += part.len() as u64;
            end = offset;
            parts.push(part);
        }
    }
    done.extend(join(start, &mut parts));
    done
}

fn join(start: u64, parts: &mut Vec<Bytes>) -> Option<(u64, Bytes)> {
    if parts.len() > 1 {
        let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
        parts.drain(..).for_each(|part| whole.extend_from_slice(&part));
        parts.push(whole.freeze());
    }
    parts.pop().map(|whole| (start, whole))
}

/// Seals `pieces` as inline extents.
pub(crate) fn seal_inline(
    key: &Key,
    pieces: Vec<(u64, Bytes)>,
    nonces: &mut Nonces,
    rng: &mut dyn Rng,
) -> Vec<Extent> {
    let cipher = Cipher::new(key);
    let mut extents = Vec::with_capacity(pieces.len());
    for (offset, plain) in pieces {
        let nonce = nonces.next(rng);
        let mut ciphertext = Vec::with_capacity(plain.len() + TAG_BYTES);
        let hash = cipher.seal_into(&nonce, &plain, &mut ciphertext);
        // A piece is at most PIECE_BYTES_MAX long.
        let length = plain.len() as u32;
        let piece = Piece { length, nonce, hash, place: Place::Inline(ciphertext.into()) };
        extents.push(Extent { offset, length, skip: 0, piece });
    }
    extents
}

/// Packs `pieces` into shares, in order.
pub(crate) fn pack(
    key: &Key,
    pieces: Vec<(u64, Bytes)>,
    spread: Spread,
    next_upload: &mut u64,
    nonces: &mut Nonces,
    rng: &mut dyn Rng,
) -> Vec<UploadPlan> {
    let mut plans: Vec<UploadPlan> = Vec::new();
    let mut room = 0;
    for (offset, plain) in pieces {
        let full =
            plans.last().is_none_or(|plan| plan.pieces.len() >= SHARE_PIECES_MAX || plain.len() > room);
        if full {
            let mut name = [0; 16];
            rng.fill_bytes(&mut name);
            plans.push(UploadPlan { id: *next_upload, share: ShareId(name), key: *key, pieces: Vec::new() });
            *next_upload += 1;
            room = SHARE_BYTES_MAX;
        }
        room = room.saturating_sub(plain.len());
        if let Some(plan) = plans.last_mut() {
            plan.pieces.push(PlannedPiece { nonce: nonces.next(rng), offset, plain });
        }
    }
    for plan in &mut plans {
        let length = plan.pieces.iter().map(|piece| piece.plain.len() + TAG_BYTES).sum();
        plan.share = plan.share.spread_as(spread_of(spread, length));
    }
    plans
}

impl From<&UploadPlan> for Sent {
    fn from(plan: &UploadPlan) -> Sent {
        let pieces =
            plan.pieces.iter().map(|piece| (piece.offset, piece.plain.len() as u32, piece.nonce)).collect();
        Sent { id: plan.id, share: plan.share, pieces, hashes: None }
    }
}
