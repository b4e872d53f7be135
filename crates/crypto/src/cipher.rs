//! Sealing: AES-256-GCM.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce as RingNonce, UnboundKey};

/// A key that seals and opens.
pub type Key = [u8; 32];
/// A number that is never used twice under one key.
pub type Nonce = [u8; 12];

/// Bytes by which a ciphertext is longer than its plaintext: the authentication tag.
pub const TAG_BYTES: usize = 16;

/// Bytes that cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ciphertext was not sealed with this key and nonce")]
pub struct NotSealed;

/// A key, expanded once for many pieces.
pub struct Cipher(LessSafeKey);

impl Cipher {
    /// Expands this key.
    pub fn new(key: &Key) -> Cipher {
        // ring refuses keys of the wrong length only, which the type excludes.
        Cipher(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("a key of 32 bytes")))
    }

    /// Appends the ciphertext of `plain`, which is shorter than 64 GiB, to `out`.
    pub fn seal(&self, nonce: &Nonce, plain: &[u8], out: &mut Vec<u8>) {
        out.reserve(plain.len() + TAG_BYTES);
        let start = out.len();
        out.extend_from_slice(plain);
        let sealed = &mut out[start..];
        let tag = self
            .0
            .seal_in_place_separate_tag(RingNonce::assume_unique_for_key(*nonce), Aad::empty(), sealed)
            .expect("shorter than 64 GiB");
        out.extend_from_slice(tag.as_ref());
    }

    /// Opens `ciphertext` in place. Returns its front, the plaintext.
    pub fn open<'a>(&self, nonce: &Nonce, ciphertext: &'a mut [u8]) -> Result<&'a mut [u8], NotSealed> {
        self.0
            .open_in_place(RingNonce::assume_unique_for_key(*nonce), Aad::empty(), ciphertext)
            .map_err(|_| NotSealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = [7; 32];
    const NONCE: Nonce = [9; 12];

    fn seal(key: &Key, nonce: &Nonce, plain: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        Cipher::new(key).seal(nonce, plain, &mut out);
        out.split_off(b"before".len())
    }

    fn open(key: &Key, nonce: &Nonce, mut ciphertext: Vec<u8>) -> Result<Vec<u8>, NotSealed> {
        Cipher::new(key).open(nonce, &mut ciphertext).map(|plain| plain.to_vec())
    }

    /// Sealed bytes stay readable with any library: test case 14 of the algorithm's specification.
    #[test]
    fn it_is_aes_256_gcm() {
        let ciphertext = seal(&[0; 32], &[0; 12], &[0; 16]);
        let expected = [
            0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e, 0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18,
            0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0, 0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19,
        ];
        assert_eq!(ciphertext, expected);
    }

    proptest! {
        #[test]
        fn opens_to_what_was_sealed(plain: Vec<u8>, key: Key, nonce: Nonce) {
            let ciphertext = seal(&key, &nonce, &plain);
            prop_assert_eq!(ciphertext.len(), plain.len() + TAG_BYTES);
            prop_assert_eq!(open(&key, &nonce, ciphertext), Ok(plain));
        }

        #[test]
        fn nothing_else_opens(plain in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, bit in 0..8u8) {
            let mut ciphertext = seal(&KEY, &NONCE, &plain);
            prop_assert_eq!(open(&[8; 32], &NONCE, ciphertext.clone()), Err(NotSealed));
            prop_assert_eq!(open(&KEY, &[8; 12], ciphertext.clone()), Err(NotSealed));
            let at = at.index(ciphertext.len());
            prop_assert_eq!(open(&KEY, &NONCE, ciphertext[..at].to_vec()), Err(NotSealed));
            ciphertext[at] ^= 1 << bit;
            prop_assert_eq!(open(&KEY, &NONCE, ciphertext), Err(NotSealed));
        }
    }
}
