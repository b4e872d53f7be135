//! Reading content: pieces are fetched from shares, checked, opened, and cached for a while.

use crate::copies::Copies;
use bytes::Bytes;
use content::{ReadPart, TAG_BYTES};
use lru::LruCache;
use namespace::{Error, ShareId};
use parking_lot::Mutex;

/// Bytes of opened pieces in the cache. Most content that the kernel's page cache lacks is read
/// once, but small reads come in runs.
const CACHE_BYTES: usize = 32 << 20;

/// Opened pieces, by their place in a share. The bytes of a share never change.
pub struct Pieces {
    cache: Mutex<Cache>,
}

struct Cache {
    pieces: LruCache<(ShareId, u32), Bytes>,
    bytes: usize,
}

impl Default for Pieces {
    fn default() -> Pieces {
        Pieces { cache: Mutex::new(Cache { pieces: LruCache::unbounded(), bytes: 0 }) }
    }
}

impl Pieces {
    /// Returns the bytes that `parts` stand for. All missing pieces are fetched together.
    pub fn gather(&self, copies: &Copies, parts: Vec<ReadPart>) -> Result<Vec<Bytes>, Error> {
        let mut gathered = Vec::with_capacity(parts.len());
        let mut missing = Vec::new();
        for part in &parts {
            gathered.push(match part {
                ReadPart::Bytes(bytes) => bytes.clone(),
                ReadPart::Zeros(length) => Bytes::from(vec![0; *length as usize]),
                ReadPart::Piece { share, at, piece_length, .. } => match self.cached(*share, *at) {
                    Some(plain) => cut(&plain, part)?,
                    None => {
                        missing.push((gathered.len(), (*share, *at, *piece_length + TAG_BYTES as u32)));
                        Bytes::new()
                    }
                },
            });
        }
        let wanted: Vec<_> = missing.iter().map(|(_, wanted)| *wanted).collect();
        let part = |index: usize| missing.get(index).and_then(|(index, _)| parts.get(*index));
        let open = |index, ciphertext| self.open(part(index).ok_or(Error::Damaged)?, ciphertext);
        for ((index, _), plain) in missing.iter().zip(copies.read(&wanted, open)) {
            if let (Some(part), Some(place)) = (parts.get(*index), gathered.get_mut(*index)) {
                *place = cut(&plain?, part)?;
            }
        }
        Ok(gathered)
    }

    fn cached(&self, share: ShareId, at: u32) -> Option<Bytes> {
        self.cache.lock().pieces.get(&(share, at)).cloned()
    }

    fn open(&self, part: &ReadPart, ciphertext: Vec<u8>) -> Result<Bytes, Error> {
        let ReadPart::Piece { share, at, piece_length, nonce, hash, key, length, .. } = part else {
            return Err(Error::Damaged);
        };
        let plain = content::open(key, nonce, hash, ciphertext).map_err(|_| {
            tracing::error!(%share, at, "a piece of content does not match its hash");
            Error::Damaged
        })?;
        let plain = Bytes::from(plain);
        // A piece that was read whole is in the kernel's cache now. Only a piece that was read in
        // part is wanted again.
        if length < piece_length {
            self.keep((*share, *at), plain.clone());
        }
        Ok(plain)
    }

    fn keep(&self, place: (ShareId, u32), plain: Bytes) {
        let mut cache = self.cache.lock();
        cache.bytes += plain.len();
        if let Some(old) = cache.pieces.put(place, plain) {
            cache.bytes -= old.len();
        }
        while cache.bytes > CACHE_BYTES
            && let Some((_, old)) = cache.pieces.pop_lru()
        {
            cache.bytes -= old.len();
        }
    }
}

/// Returns the bytes of `part` out of its piece.
fn cut(plain: &Bytes, part: &ReadPart) -> Result<Bytes, Error> {
    let ReadPart::Piece { skip, length, .. } = part else { return Err(Error::Damaged) };
    let (from, to) = (*skip as usize, *skip as usize + *length as usize);
    if to <= plain.len() { Ok(plain.slice(from..to)) } else { Err(Error::Damaged) }
}
