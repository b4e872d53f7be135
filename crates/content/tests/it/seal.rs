//! Sealed bytes open, and no others do.

use bytes::Bytes;
use content::{Damaged, TAG_BYTES, open, seal, seal_share};
use proptest::prelude::*;

const KEY: [u8; 32] = [7; 32];
const NONCE: [u8; 12] = [9; 12];

proptest! {
    #[test]
    fn opens_to_what_was_sealed(plain: Vec<u8>, key: [u8; 32], nonce: [u8; 12]) {
        let (ciphertext, hash) = seal(&key, &nonce, &plain);
        prop_assert_eq!(ciphertext.len(), plain.len() + TAG_BYTES);
        prop_assert_eq!(open(&key, &nonce, &hash, ciphertext), Ok(plain));
    }

    #[test]
    fn a_flipped_bit_is_damage(plain in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, bit in 0..8u8) {
        let (mut ciphertext, hash) = seal(&KEY, &NONCE, &plain);
        let at = at.index(ciphertext.len());
        ciphertext[at] ^= 1 << bit;
        prop_assert_eq!(open(&KEY, &NONCE, &hash, ciphertext.clone()), Err(Damaged::Hash));
        // An attacker who can also rewrite the hash still cannot forge the tag.
        let forged = blake3::hash(&ciphertext).into();
        prop_assert_eq!(open(&KEY, &NONCE, &forged, ciphertext), Err(Damaged::Seal));
    }
}

#[test]
fn another_key_nonce_or_length_is_damage() {
    let (ciphertext, hash) = seal(&KEY, &NONCE, b"plain");
    assert_eq!(open(&[8; 32], &NONCE, &hash, ciphertext.clone()), Err(Damaged::Seal));
    assert_eq!(open(&KEY, &[8; 12], &hash, ciphertext.clone()), Err(Damaged::Seal));
    assert_eq!(open(&KEY, &NONCE, &hash, ciphertext[..20].to_vec()), Err(Damaged::Hash));
    let short = vec![1; TAG_BYTES - 1];
    let hash = blake3::hash(&short).into();
    assert_eq!(open(&KEY, &NONCE, &hash, short), Err(Damaged::Seal));
}

#[test]
fn a_share_is_its_pieces_one_after_the_other() {
    let plain = [Bytes::from_static(b"first"), Bytes::from_static(b""), Bytes::from_static(b"third")];
    let nonces = [[1; 12], [2; 12], [3; 12]];
    let (share, hashes) = seal_share(&KEY, nonces.into_iter().zip(&plain));
    let mut at = 0;
    for ((nonce, hash), plain) in nonces.iter().zip(&hashes).zip(&plain) {
        let end = at + plain.len() + TAG_BYTES;
        assert_eq!(open(&KEY, nonce, hash, share[at..end].to_vec()).as_deref(), Ok(&plain[..]));
        at = end;
    }
    assert_eq!((at, hashes.len()), (share.len(), 3));
}
