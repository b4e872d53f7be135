//! AES in CBC mode with ciphertext stealing and an initial vector of zeros: the last two blocks
//! change places, and the last may be short (RFC 3962 §5, CBC-CS3 of NIST SP 800-38A).

use super::BLOCK;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt};
use aes::{Aes128, Aes256};
use cmac::KeyInit;

/// An expanded key.
pub(super) enum Aes {
    Short(Aes128),
    Long(Aes256),
}

impl Aes {
    /// Expands a key of 16 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Aes {
        match key.len() {
            16 => Aes::Short(Aes128::new_from_slice(key).expect("16 bytes")),
            _ => Aes::Long(Aes256::new_from_slice(key).expect("a key has 16 or 32 bytes")),
        }
    }

    pub(super) fn encrypt(&self, block: &mut [u8; BLOCK]) {
        let mut array = Array::from(*block);
        match self {
            Aes::Short(aes) => aes.encrypt_block(&mut array),
            Aes::Long(aes) => aes.encrypt_block(&mut array),
        }
        *block = array.into();
    }

    fn decrypt(&self, block: &mut [u8; BLOCK]) {
        let mut array = Array::from(*block);
        match self {
            Aes::Short(aes) => aes.decrypt_block(&mut array),
            Aes::Long(aes) => aes.decrypt_block(&mut array),
        }
        *block = array.into();
    }
}

fn xor(block: &mut [u8; BLOCK], other: &[u8]) {
    block.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}

/// Returns a block that begins with the bytes and ends with zeros.
fn padded(bytes: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..bytes.len()].copy_from_slice(bytes);
    block
}

/// Encrypts in place. There is a block at least.
pub(super) fn encrypt(key: &[u8], bytes: &mut [u8]) {
    assert!(bytes.len() >= BLOCK, "a confounder is a block");
    let (aes, mut previous) = (Aes::new(key), [0; BLOCK]);
    let whole = bytes.len().div_ceil(BLOCK) - 1;
    let (front, last) = bytes.split_at_mut(whole * BLOCK);
    for chunk in front.chunks_exact_mut(BLOCK) {
        xor(&mut previous, chunk);
        aes.encrypt(&mut previous);
        chunk.copy_from_slice(&previous);
    }
    let mut block = padded(last);
    xor(&mut block, &previous);
    aes.encrypt(&mut block);
    match front.last_chunk_mut::<BLOCK>() {
        None => last.copy_from_slice(&block),
        Some(before) => {
            last.copy_from_slice(&before[..last.len()]);
            *before = block;
        }
    }
}

/// Decrypts in place. There is a block at least.
pub(super) fn decrypt(key: &[u8], bytes: &mut [u8]) {
    assert!(bytes.len() >= BLOCK, "what is shorter is refused before");
    let aes = Aes::new(key);
    let whole = bytes.len().div_ceil(BLOCK) - 1;
    let (front, last) = bytes.split_at_mut(whole * BLOCK);
    if let Some(before) = front.last_chunk_mut::<BLOCK>() {
        // The block that was encrypted last gives the plain end, and the end of the block before.
        let mut block = *before;
        aes.decrypt(&mut block);
        before[..last.len()].copy_from_slice(last);
        before[last.len()..].copy_from_slice(&block[last.len()..]);
        last.iter_mut().zip(block).for_each(|(byte, other)| *byte ^= other);
    } else {
        let mut block = padded(last);
        aes.decrypt(&mut block);
        last.copy_from_slice(&block);
    }
    let mut previous = [0; BLOCK];
    for chunk in front.chunks_exact_mut(BLOCK) {
        let sealed = padded(chunk);
        let mut block = sealed;
        aes.decrypt(&mut block);
        xor(&mut block, &previous);
        chunk.copy_from_slice(&block);
        previous = sealed;
    }
}
