//! Sealing and opening pieces: encrypted under the file's key, and with a hash of the ciphertext.
//!
//! The hash is checked first. So only the check that fails tells damaged bytes from a wrong key;
//! both are [`Damaged`].

use bytes::Bytes;
use crypto::{Cipher, Key, Nonce, NotSealed, TAG_BYTES};
use namespace::{INLINE_SEAL_BYTES, ShareId};

/// Of a piece's ciphertext.
pub type Hash = [u8; 32];

// The name space counts as many bytes for a seal as one takes.
const _: () = assert!(INLINE_SEAL_BYTES == size_of::<Nonce>() + TAG_BYTES);

/// The reason why a piece could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// The ciphertext does not have its hash.
    #[error("the ciphertext does not have the hash that its extent records")]
    Hash,
    /// The ciphertext was not sealed with this key and nonce.
    #[error(transparent)]
    Seal(#[from] NotSealed),
    /// The file has no key, or an extent reaches beyond its piece.
    #[error("the extent does not fit its piece, or its file has no key")]
    Extent,
}

/// Appends the ciphertext of a piece to `out`, and hashes it.
pub(crate) fn seal_into(cipher: &Cipher, nonce: &Nonce, plain: &[u8], out: &mut Vec<u8>) -> Hash {
    let start = out.len();
    cipher.seal(nonce, plain, out);
    crypto::hash(&out[start..]).into()
}

/// Opens a piece's `ciphertext` in place; what it held is the front of it.
pub(crate) fn open_in_place<'a>(
    cipher: &Cipher,
    nonce: &Nonce,
    hash: &Hash,
    ciphertext: &'a mut [u8],
) -> Result<&'a mut [u8], Damaged> {
    if crypto::hash(ciphertext) != *hash {
        return Err(Damaged::Hash);
    }
    Ok(cipher.open(nonce, ciphertext)?)
}

/// Seals one piece.
pub fn seal(key: &Key, nonce: &Nonce, plain: &[u8]) -> (Vec<u8>, Hash) {
    let mut out = Vec::with_capacity(plain.len() + TAG_BYTES);
    let hash = seal_into(&Cipher::new(key), nonce, plain, &mut out);
    (out, hash)
}

/// Opens one piece in the buffer of its ciphertext.
pub fn open(key: &Key, nonce: &Nonce, hash: &Hash, mut ciphertext: Vec<u8>) -> Result<Vec<u8>, Damaged> {
    let length = open_in_place(&Cipher::new(key), nonce, hash, &mut ciphertext)?.len();
    ciphertext.truncate(length);
    Ok(ciphertext)
}

/// Seals content that is in the metadata whole: the nonce, and the ciphertext. It needs no hash:
/// the rows have checksums, and the tag authenticates the bytes.
pub(crate) fn seal_whole(key: &Key, nonce: &Nonce, plain: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(plain.len() + INLINE_SEAL_BYTES);
    sealed.extend_from_slice(nonce);
    Cipher::new(key).seal(nonce, plain, &mut sealed);
    sealed
}

/// Opens content that is in the metadata whole; there may be none.
pub fn open_whole(key: Option<&Key>, sealed: &[u8]) -> Result<Bytes, Damaged> {
    if sealed.is_empty() {
        return Ok(Bytes::new());
    }
    let (key, (nonce, ciphertext)) = key.zip(sealed.split_first_chunk()).ok_or(Damaged::Extent)?;
    let mut plain = ciphertext.to_vec();
    let length = Cipher::new(key).open(nonce, &mut plain)?.len();
    plain.truncate(length);
    Ok(plain.into())
}

/// Pieces of one file, to be sealed and stored as one share.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The number of this upload.
    pub upload: u64,
    /// The share to make.
    pub share: ShareId,
    /// The file's key.
    pub key: [u8; 32],
    /// Nonce and plaintext of each piece. The ciphertexts stand in the share one after the other.
    pub pieces: Vec<([u8; 12], Bytes)>,
}

/// Seals the pieces of a share. Returns the bytes to store, and the hash of each piece's ciphertext
/// in order.
pub fn seal_share<'a>(
    key: &Key,
    pieces: impl Iterator<Item = (Nonce, &'a Bytes)> + Clone,
) -> (Vec<u8>, Vec<Hash>) {
    let cipher = Cipher::new(key);
    let mut out = Vec::with_capacity(pieces.clone().map(|(_, plain)| plain.len() + TAG_BYTES).sum());
    let hashes = pieces.map(|(nonce, plain)| seal_into(&cipher, &nonce, plain, &mut out)).collect();
    (out, hashes)
}
