//! The cryptography of Kerberos 5: encryption and checksums with AES (RFC 3962, RFC 8009). DES and
//! RC4 are not here, so nothing can fall back to them.

mod cts;
mod sha1;
mod sha2;
#[cfg(test)]
mod tests;

use crate::smb::are_equal;
use std::fmt;

const BLOCK: usize = 16;

/// A number that keeps keys of different purposes apart (RFC 4120 §7.5.1, RFC 4121 §2).
pub type KeyUsage = u32;

/// An encryption type, with its number (RFC 3962 §7, RFC 8009 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum EncryptionType {
    /// aes128-cts-hmac-sha1-96.
    Aes128Sha1 = 17,
    /// aes256-cts-hmac-sha1-96.
    Aes256Sha1 = 18,
    /// aes128-cts-hmac-sha256-128.
    Aes128Sha256 = 19,
    /// aes256-cts-hmac-sha384-192.
    Aes256Sha384 = 20,
}

impl EncryptionType {
    /// Returns the type of a number, if it is one of these.
    pub fn of(number: i32) -> Option<EncryptionType> {
        use EncryptionType::{Aes128Sha1, Aes128Sha256, Aes256Sha1, Aes256Sha384};
        [Aes128Sha1, Aes256Sha1, Aes128Sha256, Aes256Sha384].into_iter().find(|kind| *kind as i32 == number)
    }

    /// Returns the length of a key, bytes.
    pub fn key_bytes(self) -> usize {
        match self {
            EncryptionType::Aes128Sha1 | EncryptionType::Aes128Sha256 => 16,
            EncryptionType::Aes256Sha1 | EncryptionType::Aes256Sha384 => 32,
        }
    }

    /// Returns the length of a checksum, bytes.
    fn checksum_bytes(self) -> usize {
        match self {
            EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => 12,
            EncryptionType::Aes128Sha256 => 16,
            EncryptionType::Aes256Sha384 => 24,
        }
    }
}

/// The purpose of a key that is derived for a usage (RFC 3961 §5.3).
#[derive(Clone, Copy)]
#[repr(u8)]
enum KeyPurpose {
    Checksum = 0x99,
    Encryption = 0xaa,
    Integrity = 0x55,
}

/// Bytes that another key has encrypted, or that were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another key has encrypted it, or it was changed")]
pub struct OtherKey;

/// A key of Kerberos, of a principal or a session. No log shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptionKey {
    kind: EncryptionType,
    bytes: Vec<u8>,
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey({:?}, ..)", self.kind)
    }
}

impl EncryptionKey {
    /// Makes a key of bytes, if their number is right.
    pub fn new(kind: EncryptionType, bytes: &[u8]) -> Option<EncryptionKey> {
        (bytes.len() == kind.key_bytes()).then(|| EncryptionKey { kind, bytes: bytes.to_vec() })
    }

    /// Returns the type.
    pub fn kind(&self) -> EncryptionType {
        self.kind
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn derive(&self, usage: KeyUsage, purpose: KeyPurpose) -> Vec<u8> {
        match self.kind {
            EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => {
                sha1::derive(&self.bytes, usage, purpose as u8)
            }
            EncryptionType::Aes128Sha256 | EncryptionType::Aes256Sha384 => {
                sha2::derive(self.kind, &self.bytes, usage, purpose)
            }
        }
    }

    /// Returns the checksum that goes with encrypted bytes. RFC 3962 takes it of the plain bytes,
    /// RFC 8009 of the encrypted ones behind the initial vector.
    fn integrity(&self, usage: KeyUsage, plain: &[u8], sealed: &[u8]) -> Vec<u8> {
        let key = self.derive(usage, KeyPurpose::Integrity);
        match self.kind {
            EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => self.hash(&key, &[plain]),
            EncryptionType::Aes128Sha256 | EncryptionType::Aes256Sha384 => {
                self.hash(&key, &[&[0; BLOCK], sealed])
            }
        }
    }

    fn hash(&self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        use ring::hmac::{Context, HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256, HMAC_SHA384, Key};
        let algorithm = match self.kind {
            EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            EncryptionType::Aes128Sha256 => HMAC_SHA256,
            EncryptionType::Aes256Sha384 => HMAC_SHA384,
        };
        let mut context = Context::with_key(&Key::new(algorithm, key));
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref()[..self.kind.checksum_bytes()].to_vec()
    }

    /// Encrypts bytes. The confounder is random, and of one message.
    pub fn encrypt(&self, usage: KeyUsage, confounder: [u8; BLOCK], message: &[u8]) -> Vec<u8> {
        let plain = [&confounder, message].concat();
        let mut sealed = plain.clone();
        cts::encrypt(&self.derive(usage, KeyPurpose::Encryption), &mut sealed);
        let integrity = self.integrity(usage, &plain, &sealed);
        sealed.extend(integrity);
        sealed
    }

    /// Decrypts bytes that nobody has changed.
    pub fn decrypt(&self, usage: KeyUsage, message: &[u8]) -> Result<Vec<u8>, OtherKey> {
        let end = message.len().checked_sub(self.kind.checksum_bytes()).ok_or(OtherKey)?;
        let (sealed, integrity) = message.split_at(end);
        if sealed.len() < BLOCK {
            return Err(OtherKey);
        }
        let mut plain = sealed.to_vec();
        cts::decrypt(&self.derive(usage, KeyPurpose::Encryption), &mut plain);
        if !are_equal(&self.integrity(usage, &plain, sealed), integrity) {
            return Err(OtherKey);
        }
        Ok(plain.split_off(BLOCK))
    }

    /// Returns the checksum of the parts together (RFC 3961 §5.4).
    pub fn checksum(&self, usage: KeyUsage, parts: &[&[u8]]) -> Vec<u8> {
        self.hash(&self.derive(usage, KeyPurpose::Checksum), parts)
    }
}
