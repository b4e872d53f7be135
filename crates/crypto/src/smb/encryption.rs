//! Encryption of messages (MS-SMB2 §3.1.4.3).

use aes::{Aes128, Aes256};
use ccm::aead::AeadInOut;
use ccm::consts::{U11, U16};
use ccm::{Ccm, KeyInit};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, Tag, UnboundKey};

/// A cipher, with its number in SMB2_ENCRYPTION_CAPABILITIES (§2.2.3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum MessageCipherKind {
    /// AES-128-CCM, the one of SMB 3.0.
    Aes128Ccm = 1,
    /// AES-128-GCM.
    Aes128Gcm = 2,
    /// AES-256-CCM.
    Aes256Ccm = 3,
    /// AES-256-GCM.
    Aes256Gcm = 4,
}

impl MessageCipherKind {
    /// All, the quickest first.
    pub const ALL: [MessageCipherKind; 4] = [
        MessageCipherKind::Aes128Gcm,
        MessageCipherKind::Aes256Gcm,
        MessageCipherKind::Aes128Ccm,
        MessageCipherKind::Aes256Ccm,
    ];

    /// Returns the bytes of a key.
    pub const fn key_bytes(self) -> usize {
        match self {
            MessageCipherKind::Aes128Ccm | MessageCipherKind::Aes128Gcm => 16,
            MessageCipherKind::Aes256Ccm | MessageCipherKind::Aes256Gcm => 32,
        }
    }

    /// Returns the bytes of a nonce, which stand at the front of the field of 16.
    pub const fn nonce_bytes(self) -> usize {
        match self {
            MessageCipherKind::Aes128Ccm | MessageCipherKind::Aes256Ccm => 11,
            MessageCipherKind::Aes128Gcm | MessageCipherKind::Aes256Gcm => 12,
        }
    }
}

/// A message that the key's owner did not encrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message was not encrypted with this key and nonce")]
pub struct Forged;

/// A key of one direction, expanded once for many messages.
pub struct MessageCipher(Expanded);

enum Expanded {
    Gcm(Box<LessSafeKey>),
    Ccm128(Box<Ccm<Aes128, U16, U11>>),
    Ccm256(Box<Ccm<Aes256, U16, U11>>),
}

impl MessageCipher {
    /// Expands a key.
    ///
    /// # Panics
    /// If the key has not [`MessageCipherKind::key_bytes`].
    pub fn new(kind: MessageCipherKind, key: &[u8]) -> MessageCipher {
        const LENGTH: &str = "a key of the cipher's length";
        let gcm = |algorithm: &'static Algorithm| {
            Expanded::Gcm(Box::new(LessSafeKey::new(UnboundKey::new(algorithm, key).expect(LENGTH))))
        };
        MessageCipher(match kind {
            MessageCipherKind::Aes128Gcm => gcm(&AES_128_GCM),
            MessageCipherKind::Aes256Gcm => gcm(&AES_256_GCM),
            MessageCipherKind::Aes128Ccm => {
                Expanded::Ccm128(Box::new(Ccm::new_from_slice(key).expect(LENGTH)))
            }
            MessageCipherKind::Aes256Ccm => {
                Expanded::Ccm256(Box::new(Ccm::new_from_slice(key).expect(LENGTH)))
            }
        })
    }

    /// Encrypts in place, and returns the authentication tag. `nonce` is the whole field of the
    /// header, and is never used twice under one key.
    pub fn seal(&self, nonce: &[u8; 16], aad: &[u8], message: &mut [u8]) -> [u8; 16] {
        const LENGTH: &str = "shorter than 4 GiB";
        let (gcm, ccm) = nonces(nonce);
        match &self.0 {
            Expanded::Gcm(key) => {
                let tag = key.seal_in_place_separate_tag(gcm, Aad::from(aad), message).expect(LENGTH);
                let mut field = [0; 16];
                field.copy_from_slice(tag.as_ref());
                field
            }
            Expanded::Ccm128(key) => {
                key.encrypt_inout_detached((&ccm).into(), aad, message.into()).expect(LENGTH).into()
            }
            Expanded::Ccm256(key) => {
                key.encrypt_inout_detached((&ccm).into(), aad, message.into()).expect(LENGTH).into()
            }
        }
    }

    /// Decrypts in place.
    pub fn open(
        &self,
        nonce: &[u8; 16],
        aad: &[u8],
        message: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), Forged> {
        let (gcm, ccm) = nonces(nonce);
        match &self.0 {
            Expanded::Gcm(key) => key
                .open_in_place_separate_tag(gcm, Aad::from(aad), Tag::from(*tag), message, 0..)
                .map(drop)
                .map_err(|_| Forged),
            Expanded::Ccm128(key) => {
                key.decrypt_inout_detached((&ccm).into(), aad, message.into(), tag.into()).map_err(|_| Forged)
            }
            Expanded::Ccm256(key) => {
                key.decrypt_inout_detached((&ccm).into(), aad, message.into(), tag.into()).map_err(|_| Forged)
            }
        }
    }
}

fn nonces(field: &[u8; 16]) -> (Nonce, [u8; 11]) {
    let (mut gcm, mut ccm) = ([0; 12], [0; 11]);
    gcm.copy_from_slice(&field[..12]);
    ccm.copy_from_slice(&field[..11]);
    (Nonce::assume_unique_for_key(gcm), ccm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cipher_opens_what_it_sealed_and_nothing_else() {
        for kind in MessageCipherKind::ALL {
            let cipher = MessageCipher::new(kind, &vec![7; kind.key_bytes()]);
            let plain = (0..100).collect::<Vec<u8>>();
            let mut sealed = plain.clone();
            let tag = cipher.seal(&[9; 16], b"header", &mut sealed);
            assert_ne!(sealed, plain);
            let mut opened = sealed.clone();
            cipher.open(&[9; 16], b"header", &mut opened, &tag).unwrap();
            assert_eq!(opened, plain);
            for bit in 0..sealed.len() * 8 {
                let mut damaged = sealed.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(cipher.open(&[9; 16], b"header", &mut damaged, &tag), Err(Forged));
            }
            let other = |nonce: [u8; 16], aad: &[u8], tag: [u8; 16]| {
                cipher.open(&nonce, aad, &mut sealed.clone(), &tag)
            };
            assert_eq!(other([8; 16], b"header", tag), Err(Forged));
            assert_eq!(other([9; 16], b"headr", tag), Err(Forged));
            assert_eq!(other([9; 16], b"header", [0; 16]), Err(Forged));
        }
    }
}
