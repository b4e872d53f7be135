//! Keys of RFC 8009, derived by KDF-HMAC-SHA2 (§3).

use super::{EncryptionType, KeyPurpose};
use ring::hmac::{HMAC_SHA256, HMAC_SHA384, Key, sign};

/// Returns the key of a purpose. One block of the function is enough for each.
pub(super) fn derive(kind: EncryptionType, key: &[u8], usage: u32, purpose: KeyPurpose) -> Vec<u8> {
    let (algorithm, length) = match (kind, purpose) {
        (EncryptionType::Aes256Sha384, KeyPurpose::Encryption) => (HMAC_SHA384, 32),
        (EncryptionType::Aes256Sha384, _) => (HMAC_SHA384, 24),
        _ => (HMAC_SHA256, 16),
    };
    let mut input = 1_u32.to_be_bytes().to_vec();
    input.extend(usage.to_be_bytes());
    input.extend([purpose as u8, 0]);
    input.extend((length as u32 * 8).to_be_bytes());
    sign(&Key::new(algorithm, key), &input).as_ref()[..length].to_vec()
}
