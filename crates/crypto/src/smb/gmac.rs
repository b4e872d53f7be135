//! AES-128-GMAC (NIST SP 800-38D): the tag of AES-GCM over a message that stays in the clear.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// A message from this length on is hashed as ciphertext is.
const LONG: usize = 4 << 10;

/// The polynomial of GHASH without its highest term, in GHASH's order of bits (§6.3).
const REDUCTION: u128 = 0xe1 << 120;

/// A key, expanded once for many messages.
pub struct Gmac {
    cipher: LessSafeKey,
    /// The hash subkey: the encryption of a block of zeros (§7.1).
    subkey: u128,
}

impl Gmac {
    /// Expands a key.
    pub fn new(key: &[u8; 16]) -> Gmac {
        let mut block = [0; 16].into();
        Aes128::new(key.into()).encrypt_block(&mut block);
        let cipher = UnboundKey::new(&AES_128_GCM, key).expect("a key of 16 bytes");
        Gmac { cipher: LessSafeKey::new(cipher), subkey: u128::from_be_bytes(block.into()) }
    }

    /// Returns the tag of a message, which is unchanged after that.
    pub(super) fn tag(&self, message: &mut [u8], nonce: [u8; 12]) -> [u8; 16] {
        if message.len() < LONG {
            return self.seal(nonce, message, &mut []);
        }
        // `ring` hashes data that is only authenticated a block at a time, and ciphertext much
        // faster. Two encryptions under one nonce cancel out: the second one's ciphertext is the
        // message. No ciphertext leaves this function.
        self.seal(nonce, &[], message);
        let tag = self.seal(nonce, &[], message);
        // The last block of the hash has the lengths of both kinds of data, and the message is of
        // the other kind (§7.1, step 5).
        let bits = message.len() as u128 * 8;
        let difference = times_public(self.subkey, bits << 64 | bits);
        (u128::from_be_bytes(tag) ^ difference).to_be_bytes()
    }

    fn seal(&self, nonce: [u8; 12], authenticated: &[u8], message: &mut [u8]) -> [u8; 16] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.cipher.seal_in_place_separate_tag(nonce, Aad::from(authenticated), message);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(tag.expect("shorter than 64 GiB").as_ref());
        bytes
    }
}

/// The product in GHASH's field (§6.3). The time depends on `public` alone.
fn times_public(mut secret: u128, public: u128) -> u128 {
    let mut product = 0;
    for bit in 0..128 {
        if public << bit >> 127 == 1 {
            product ^= secret;
        }
        secret = secret >> 1 ^ (REDUCTION & (secret & 1).wrapping_neg());
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The tag as SP 800-38D says, with the message as data that is only authenticated.
    fn plain(gmac: &Gmac, message: &[u8], nonce: [u8; 12]) -> [u8; 16] {
        gmac.seal(nonce, message, &mut [])
    }

    #[test]
    fn the_lengths_about_the_limit_have_the_tag_of_the_standard() {
        let gmac = Gmac::new(&[3; 16]);
        for length in [0, 1, 15, 16, LONG - 1, LONG, LONG + 1, LONG + 15, LONG + 16, 70_000, 1 << 20] {
            let message = (0..length).map(|at| (at * 7 % 251) as u8).collect::<Vec<u8>>();
            let mut signed = message.clone();
            assert_eq!(gmac.tag(&mut signed, [5; 12]), plain(&gmac, &message, [5; 12]), "{length}");
            assert_eq!(signed, message);
        }
    }

    proptest! {
        #[test]
        fn any_key_and_message_have_the_tag_of_the_standard(
            key: [u8; 16], nonce: [u8; 12], more in prop::collection::vec(any::<u8>(), 0..100), byte: u8,
        ) {
            let gmac = Gmac::new(&key);
            let message = [vec![byte; LONG - 50], more].concat();
            let mut signed = message.clone();
            prop_assert_eq!(gmac.tag(&mut signed, nonce), plain(&gmac, &message, nonce));
            prop_assert_eq!(signed, message);
        }
    }
}
