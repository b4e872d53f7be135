//! Signatures of messages (MS-SMB2 §3.1.4.1).

use super::{Gmac, are_equal};
use aes::Aes128;
use cmac::{Cmac, KeyInit, Mac};
use ring::hmac::{self, HMAC_SHA256};

/// An algorithm of signatures, with its number in SMB2_SIGNING_CAPABILITIES (§2.2.3.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum SigningAlgorithm {
    /// HMAC-SHA256, of SMB 2.
    HmacSha256 = 0,
    /// AES-128-CMAC.
    AesCmac = 1,
    /// AES-128-GMAC.
    AesGmac = 2,
}

/// The key of a session that signs, expanded once for many messages.
pub enum SigningKey {
    /// For HMAC-SHA256.
    Hmac(hmac::Key),
    /// For AES-CMAC.
    Cmac(Box<Cmac<Aes128>>),
    /// For AES-GMAC.
    Gmac(Box<Gmac>),
}

impl SigningKey {
    /// Expands a key.
    pub fn new(algorithm: SigningAlgorithm, key: &[u8; 16]) -> SigningKey {
        match algorithm {
            SigningAlgorithm::HmacSha256 => SigningKey::Hmac(hmac::Key::new(HMAC_SHA256, key)),
            SigningAlgorithm::AesCmac => SigningKey::Cmac(Box::new(Cmac::new(key.into()))),
            SigningAlgorithm::AesGmac => SigningKey::Gmac(Box::new(Gmac::new(key))),
        }
    }

    /// Returns the signature of a message whose signature field is zero. The message is unchanged
    /// after that. The nonce counts for GMAC alone. One nonce is for one message of one side.
    pub fn sign(&self, message: &mut [u8], nonce: [u8; 12]) -> [u8; 16] {
        let mut signature = [0; 16];
        match self {
            SigningKey::Hmac(key) => signature.copy_from_slice(&hmac::sign(key, message).as_ref()[..16]),
            SigningKey::Cmac(key) => {
                let mut mac = Cmac::clone(key);
                mac.update(message);
                signature.copy_from_slice(&mac.finalize().into_bytes());
            }
            SigningKey::Gmac(key) => signature = key.tag(message, nonce),
        }
        signature
    }

    /// Returns whether this is the message's signature.
    pub fn is_signed(&self, message: &mut [u8], nonce: [u8; 12], signature: &[u8; 16]) -> bool {
        are_equal(&self.sign(message, nonce), signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    /// RFC 4493 §4.
    #[test]
    fn cmac_is_that_of_rfc_4493() {
        let key = bytes("2b7e151628aed2a6abf7158809cf4f3c").try_into().unwrap();
        let mut message = bytes(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
        );
        let key = SigningKey::new(SigningAlgorithm::AesCmac, &key);
        for (length, mac) in [
            (0, "bb1d6929e95937287fa37d129b756746"),
            (16, "070a16b46b4d4144f79bdd9dd04a287c"),
            (40, "dfa66747de9ae63030ca32611497c827"),
            (64, "51f0bebf7e3b9d92fc49741779363cfe"),
        ] {
            assert_eq!(key.sign(&mut message[..length], [0; 12]).to_vec(), bytes(mac));
        }
    }

    #[test]
    fn each_algorithm_sees_a_changed_bit_and_gmac_a_changed_nonce() {
        use SigningAlgorithm::{AesCmac, AesGmac, HmacSha256};
        for algorithm in [HmacSha256, AesCmac, AesGmac] {
            let key = SigningKey::new(algorithm, &[7; 16]);
            let mut message = (0..100).collect::<Vec<u8>>();
            let signature = key.sign(&mut message, [1; 12]);
            assert!(key.is_signed(&mut message, [1; 12], &signature));
            assert_eq!(key.is_signed(&mut message, [2; 12], &signature), algorithm != AesGmac);
            for bit in 0..message.len() * 8 {
                message[bit / 8] ^= 1 << (bit % 8);
                assert!(!key.is_signed(&mut message, [1; 12], &signature));
                message[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
