//! Reading content: pieces fetched from shares, checked, opened, and kept for a while.

use crate::shares_server::Shares;
use bytes::Bytes;
use content::{Part, TAG_BYTES};
use lru::LruCache;
use namespace::{Error, ShareId};
use parking_lot::Mutex;

/// Opened pieces kept: what the kernel's page cache does not have is mostly read once, but small reads come in runs.
const CACHE_BYTES: usize = 32 << 20;

/// Opened pieces by where they are; a share's bytes never change.
pub struct Pieces {
    cache: Mutex<Cache>,
}

struct Cache {
    pieces: LruCache<(ShareId, u32), Bytes>,
    bytes: usize,
}

impl Pieces {
    /// Nothing yet.
    pub fn new() -> Pieces {
        Pieces { cache: Mutex::new(Cache { pieces: LruCache::unbounded(), bytes: 0 }) }
    }

    /// The bytes that `parts` stand for.
    pub fn gather(&self, shares: &Shares, parts: Vec<Part>) -> Result<Vec<Bytes>, Error> {
        parts
            .into_iter()
            .map(|part| match part {
                Part::Bytes(bytes) => Ok(bytes),
                Part::Zeros(length) => Ok(Bytes::from(vec![0; length as usize])),
                Part::Piece { skip, length, .. } => {
                    let plain = self.open(shares, &part)?;
                    let (from, to) = (skip as usize, skip as usize + length as usize);
                    if to <= plain.len() { Ok(plain.slice(from..to)) } else { Err(Error::Damaged) }
                }
            })
            .collect()
    }

    fn open(&self, shares: &Shares, part: &Part) -> Result<Bytes, Error> {
        let Part::Piece { share, at, piece_length, nonce, hash, key, length, .. } = part else {
            return Err(Error::Damaged);
        };
        if let Some(plain) = self.cache.lock().pieces.get(&(*share, *at)) {
            return Ok(plain.clone());
        }
        let ciphertext = shares.read(*share, *at, *piece_length + TAG_BYTES as u32)?;
        let plain = content::open(key, nonce, hash, ciphertext).map_err(|_| {
            tracing::error!(share = ?share, at, "a piece of content does not match its hash");
            Error::Damaged
        })?;
        let plain = Bytes::from(plain);
        // A piece that was read whole is in the kernel's cache now; only of parts will more be wanted.
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
