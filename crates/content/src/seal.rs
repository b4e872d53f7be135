//! Sealing and opening of pieces: AES-256-GCM under the file's key, and BLAKE3 of the ciphertext.
//!
//! The hash is checked first. So only the check that fails tells damaged bytes from a wrong key;
//! both are [`Damaged`].

use bytes::Bytes;
use namespace::INLINE_SEAL_BYTES;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce as RingNonce, UnboundKey};

/// A file's key.
pub type Key = [u8; 32];
/// A number that is never used twice under one key.
pub type Nonce = [u8; 12];
/// BLAKE3 of a piece's ciphertext.
pub type Hash = [u8; 32];

/// Bytes that the ciphertext of a piece has beyond the plain bytes: the authentication tag.
pub const TAG_BYTES: usize = 16;

/// The reason why a piece could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// The ciphertext does not have its hash.
    #[error("the ciphertext does not have the hash that its extent records")]
    Hash,
    /// The ciphertext was not sealed with this key and nonce.
    #[error("the ciphertext was not sealed with this key and nonce")]
    Seal,
    /// The file has no key, or an extent reaches beyond its piece.
    #[error("the extent does not fit its piece, or its file has no key")]
    Extent,
}

/// A file's key, expanded once for many pieces.
pub struct Cipher(LessSafeKey);

impl Cipher {
    /// Expands `key`.
    pub fn new(key: &Key) -> Cipher {
        // ring refuses only keys of the wrong length, which the type excludes.
        Cipher(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("a key of 32 bytes")))
    }

    /// Appends the ciphertext of `plain` to `out`, and returns its hash. A piece is far below the
    /// cipher's limit of 64 GiB.
    pub fn seal_into(&self, nonce: &Nonce, plain: &[u8], out: &mut Vec<u8>) -> Hash {
        out.reserve(plain.len() + TAG_BYTES);
        let start = out.len();
        self.append(nonce, plain, out);
        blake3::hash(&out[start..]).into()
    }

    fn append(&self, nonce: &Nonce, plain: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(plain);
        let sealed = &mut out[start..];
        let tag = self
            .0
            .seal_in_place_separate_tag(RingNonce::assume_unique_for_key(*nonce), Aad::empty(), sealed)
            .expect("a piece is below 64 GiB");
        out.extend_from_slice(tag.as_ref());
    }

    /// Opens `ciphertext` in place. The plain bytes are at its front.
    pub fn open_in_place<'a>(
        &self,
        nonce: &Nonce,
        hash: &Hash,
        ciphertext: &'a mut [u8],
    ) -> Result<&'a mut [u8], Damaged> {
        if blake3::hash(ciphertext) != *hash {
            return Err(Damaged::Hash);
        }
        self.unseal(nonce, ciphertext)
    }

    fn unseal<'a>(&self, nonce: &Nonce, ciphertext: &'a mut [u8]) -> Result<&'a mut [u8], Damaged> {
        self.0
            .open_in_place(RingNonce::assume_unique_for_key(*nonce), Aad::empty(), ciphertext)
            .map_err(|_| Damaged::Seal)
    }
}

/// Seals one piece.
pub fn seal(key: &Key, nonce: &Nonce, plain: &[u8]) -> (Vec<u8>, Hash) {
    let mut out = Vec::with_capacity(plain.len() + TAG_BYTES);
    let hash = Cipher::new(key).seal_into(nonce, plain, &mut out);
    (out, hash)
}

/// Opens one piece in the buffer of its ciphertext.
pub fn open(key: &Key, nonce: &Nonce, hash: &Hash, mut ciphertext: Vec<u8>) -> Result<Vec<u8>, Damaged> {
    let length = Cipher::new(key).open_in_place(nonce, hash, &mut ciphertext)?.len();
    ciphertext.truncate(length);
    Ok(ciphertext)
}

/// Seals content that is in the metadata whole: the nonce, and the ciphertext. It needs no hash:
/// the rows have checksums, and the tag authenticates the bytes.
pub(crate) fn seal_whole(key: &Key, nonce: &Nonce, plain: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(plain.len() + INLINE_SEAL_BYTES);
    sealed.extend_from_slice(nonce);
    Cipher::new(key).append(nonce, plain, &mut sealed);
    sealed
}

/// Opens content that is in the metadata whole; there may be none.
pub fn open_whole(key: Option<&Key>, sealed: &[u8]) -> Result<Bytes, Damaged> {
    if sealed.is_empty() {
        return Ok(Bytes::new());
    }
    let (key, (nonce, ciphertext)) = key.zip(sealed.split_first_chunk()).ok_or(Damaged::Extent)?;
    let mut plain = ciphertext.to_vec();
    let length = Cipher::new(key).unseal(nonce, &mut plain)?.len();
    plain.truncate(length);
    Ok(plain.into())
}

/// Seals the pieces of a share. Returns the bytes to store, and the hash of each piece's ciphertext
/// in order.
pub fn seal_share<'a>(
    key: &Key,
    pieces: impl Iterator<Item = (Nonce, &'a Bytes)> + Clone,
) -> (Vec<u8>, Vec<Hash>) {
    let cipher = Cipher::new(key);
    let mut out = Vec::with_capacity(pieces.clone().map(|(_, plain)| plain.len() + TAG_BYTES).sum());
    let hashes = pieces.map(|(nonce, plain)| cipher.seal_into(&nonce, plain, &mut out)).collect();
    (out, hashes)
}
