//! Folding: inline extents move into shares, many at a time.

use std::collections::BTreeMap;

use namespace::{ContentChange, Extent, Place, ShareId};
use rand_core::Rng;

use crate::extents::SpanContent;
use crate::file::{Base, FileContent};
use crate::flight::{Sent, pack, pieces};
use crate::flush::abandon;
use crate::overlay::Overlay;
use crate::read::open_inline;
use crate::{Cipher, Done, ExtentMap, Hash, Nonce, UploadPlan};

/// A fold under way. The content does not change by it. An inline extent that is overwritten
/// meanwhile loses its folded copy.
#[derive(Debug)]
pub(crate) struct Fold {
    /// The folded pieces: from the offset to the nonce, which identifies the piece.
    sources: BTreeMap<u64, Nonce>,
    uploads: Vec<Sent>,
}

impl Fold {
    pub(crate) fn has(&self, upload: u64) -> bool {
        self.uploads.iter().any(|sent| sent.id == upload)
    }

    /// Returns the parts of `folded` that still replace the same inline pieces in `map`.
    fn current(&self, folded: &Extent, map: &ExtentMap) -> Vec<Extent> {
        let mut parts: Vec<Extent> = Vec::new();
        for span in map.spans(folded.offset, u64::from(folded.length)) {
            let SpanContent::Extent { extent, .. } = span.what else { continue };
            let source = self.sources.range(..=span.offset).next_back();
            if source.is_none_or(|(_, nonce)| *nonce != extent.piece.nonce)
                || !matches!(extent.piece.place, Place::Inline(_))
            {
                continue;
            }
            // Spans lie within the folded extent, whose length is 32 bits.
            let (skip, length) = ((span.offset - folded.offset) as u32, span.length as u32);
            match parts.last_mut() {
                Some(last) if last.skip + last.length == skip => last.length += length,
                _ => parts.push(Extent { offset: span.offset, length, skip, piece: folded.piece.clone() }),
            }
        }
        parts
    }
}

impl FileContent {
    /// Plans to move up to `limit` bytes of inline pieces into shares, in the order of the file.
    /// Returns nothing if a fold is under way or nothing is pending. Neighbours become one piece.
    /// [`FileContent::stored`] returns the publication.
    pub fn fold(&mut self, limit: u64, rng: &mut dyn Rng) -> Vec<UploadPlan> {
        let (None, Base::Extents(map), Some(key)) = (&self.fold, &self.base, self.published.key) else {
            return Vec::new();
        };
        let cipher = Cipher::new(&key);
        let mut folded = Overlay::default();
        let mut sources = BTreeMap::new();
        for extent in map.inline_extents() {
            if folded.bytes() >= limit {
                break;
            }
            // A damaged piece stays where it is, so that its reader gets the error.
            let Ok(plain) = open_inline(&cipher, extent) else { continue };
            let (from, to) = (extent.skip as usize, extent.skip as usize + extent.length as usize);
            if to <= plain.len() {
                folded.write(extent.offset, plain.slice(from..to));
                sources.insert(extent.offset, extent.piece.nonce);
            }
        }
        folded.freeze();
        let plans = pack(&key, pieces(&folded), self.spread, &mut self.next_upload, &mut self.nonces, rng);
        if !plans.is_empty() {
            self.fold = Some(Fold { sources, uploads: plans.iter().map(Sent::from).collect() });
        }
        plans
    }

    /// Returns whether a fold is under way.
    pub fn is_folding(&self) -> bool {
        self.fold.is_some()
    }

    /// Gives up a fold that is under way, because another client may soon change the pieces that it
    /// moves. Returns the shares that were stored for it in vain.
    pub fn stop_folding(&mut self) -> Vec<ShareId> {
        let mut unused = Vec::new();
        if let Some(fold) = self.fold.take() {
            abandon(fold.uploads, None, &mut self.abandoned, &mut unused);
        }
        unused
    }

    pub(crate) fn fold_stored(&mut self, upload: u64, hashes: Vec<Hash>) -> Done {
        let mut unused: Vec<ShareId> = Vec::new();
        let Some(mut fold) = self.fold.take() else { return Done::default() };
        if let Some(sent) = fold.uploads.iter_mut().find(|sent| sent.id == upload) {
            if sent.len() != hashes.len() {
                unused.push(sent.share);
                abandon(fold.uploads, Some(upload), &mut self.abandoned, &mut unused);
                return Done { publishes: Vec::new(), unused };
            }
            sent.hashes = Some(hashes);
        }
        if fold.uploads.iter().any(|sent| sent.hashes.is_none()) {
            self.fold = Some(fold);
            return Done::default();
        }
        let mut put: Vec<Extent> = Vec::new();
        for sent in &fold.uploads {
            let before = put.len();
            if let Base::Extents(map) = &self.base {
                sent.extents().for_each(|folded| put.extend(fold.current(&folded, map)));
            }
            if put.len() == before {
                unused.push(sent.share);
            }
        }
        if put.is_empty() {
            return Done { publishes: Vec::new(), unused };
        }
        let change = ContentChange::Extents { truncate_to: None, punch: Vec::new(), put, key: None };
        Done { publishes: vec![self.publish(self.published, change, None)], unused }
    }

    pub(crate) fn fold_failed(&mut self, upload: u64) -> Vec<ShareId> {
        let mut unused = Vec::new();
        if let Some(fold) = self.fold.take() {
            abandon(fold.uploads, Some(upload), &mut self.abandoned, &mut unused);
        }
        unused
    }
}
