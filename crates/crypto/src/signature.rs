//! Signatures: Ed25519, of machines, authorities and accounts.

use rcgen::{PKCS_ED25519, PublicKeyData, SignatureAlgorithm, SigningKey};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;

/// The PKCS #8 of a key, up to the seed that follows (RFC 8410, section 7).
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A signature of a message.
pub type Signature = [u8; 64];

/// The public half of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

/// The secret half of a key.
pub struct SecretKey {
    pair: Ed25519KeyPair,
    pkcs8: Vec<u8>,
}

/// Bytes that are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no Ed25519 key (PKCS #8)")]
pub struct NoKey;

impl PublicKey {
    /// Returns the public key in a certificate's subject info, as all our certificates have it.
    pub fn of_subject(info: &[u8]) -> Option<PublicKey> {
        // The key comes last (RFC 8410, section 4).
        info.last_chunk().copied().map(PublicKey)
    }

    /// Whether the secret half of this key made `signature` of the message.
    pub fn has_signed(&self, message: &[u8], signature: &Signature) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl SecretKey {
    /// Makes a key of random bytes, which must be secret.
    pub fn of_seed(seed: &[u8; 32]) -> SecretKey {
        SecretKey::read(&[&PKCS8[..], seed].concat()).expect("any seed makes a key")
    }

    /// Reads a key from PKCS #8.
    pub fn read(pkcs8: &[u8]) -> Result<SecretKey, NoKey> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).map_err(|_| NoKey)?;
        Ok(SecretKey { pair, pkcs8: pkcs8.to_vec() })
    }

    /// Returns the form that [`SecretKey::read`] reads.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// Returns its public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.pair.public_key().as_ref().try_into().expect("a public key of 32 bytes"))
    }

    /// Signs a message.
    pub fn sign(&self, message: &[u8]) -> Signature {
        self.pair.sign(message).as_ref().try_into().expect("a signature of 64 bytes")
    }
}

/// Shows no secret.
impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKey").field(&self.public()).finish()
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl PublicKeyData for SecretKey {
    fn der_bytes(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl SigningKey for SecretKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(SecretKey::sign(self, message).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys and signatures stay valid with any library: RFC 8032, section 7.1, test 2.
    #[test]
    fn it_is_ed25519() {
        let seed = [
            0x4c, 0xcd, 0x08, 0x9b, 0x28, 0xff, 0x96, 0xda, 0x9d, 0xb6, 0xc3, 0x46, 0xec, 0x11, 0x4e, 0x0f,
            0x5b, 0x8a, 0x31, 0x9f, 0x35, 0xab, 0xa6, 0x24, 0xda, 0x8c, 0xf6, 0xed, 0x4f, 0xb8, 0xa6, 0xfb,
        ];
        let public = [
            0x3d, 0x40, 0x17, 0xc3, 0xe8, 0x43, 0x89, 0x5a, 0x92, 0xb7, 0x0a, 0xa7, 0x4d, 0x1b, 0x7e, 0xbc,
            0x9c, 0x98, 0x2c, 0xcf, 0x2e, 0xc4, 0x96, 0x8c, 0xc0, 0xcd, 0x55, 0xf1, 0x2a, 0xf4, 0x66, 0x0c,
        ];
        let signature = [
            0x92, 0xa0, 0x09, 0xa9, 0xf0, 0xd4, 0xca, 0xb8, 0x72, 0x0e, 0x82, 0x0b, 0x5f, 0x64, 0x25, 0x40,
            0xa2, 0xb2, 0x7b, 0x54, 0x16, 0x50, 0x3f, 0x8f, 0xb3, 0x76, 0x22, 0x23, 0xeb, 0xdb, 0x69, 0xda,
            0x08, 0x5a, 0xc1, 0xe4, 0x3e, 0x15, 0x99, 0x6e, 0x45, 0x8f, 0x36, 0x13, 0xd0, 0xf1, 0x1d, 0x8c,
            0x38, 0x7b, 0x2e, 0xae, 0xb4, 0x30, 0x2a, 0xee, 0xb0, 0x0d, 0x29, 0x16, 0x12, 0xbb, 0x0c, 0x00,
        ];
        let key = SecretKey::of_seed(&seed);
        assert_eq!((key.public(), key.sign(b"r")), (PublicKey(public), signature));
    }

    #[test]
    fn a_key_is_read_as_it_was_made_and_no_part_of_one() {
        let key = SecretKey::of_seed(&[5; 32]);
        let again = SecretKey::read(key.pkcs8()).unwrap();
        assert_eq!((again.public(), again.pkcs8()), (key.public(), key.pkcs8()));
        for length in 0..key.pkcs8().len() {
            assert!(SecretKey::read(&key.pkcs8()[..length]).is_err(), "{length}");
        }
        assert!(!format!("{key:?}").contains("5, 5"), "{key:?}");
    }

    #[test]
    fn only_what_a_key_has_signed_is_signed_by_it() {
        let (key, other) = (SecretKey::of_seed(&[1; 32]), SecretKey::of_seed(&[2; 32]));
        let mut signature = key.sign(b"message");
        assert!(key.public().has_signed(b"message", &signature));
        assert!(!key.public().has_signed(b"another", &signature));
        assert!(!other.public().has_signed(b"message", &signature));
        signature[9] ^= 1;
        assert!(!key.public().has_signed(b"message", &signature));
    }

    #[test]
    fn a_certificate_has_the_key_that_it_is_for() {
        let key = SecretKey::of_seed(&[3; 32]).public();
        assert_eq!(PublicKey::of_subject(&key.subject_public_key_info()), Some(key));
        assert_eq!(PublicKey::of_subject(&key.0[1..]), None);
    }
}
