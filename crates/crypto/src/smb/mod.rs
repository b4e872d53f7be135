//! The cryptography of SMB: keys, signatures and encryption of messages (MS-SMB2 §3.1.4), and the
//! old algorithms of NTLM (MS-NLMP §3.3, §3.4).

mod derive;
mod encryption;
mod gmac;
mod ntlm;
mod signing;

pub use derive::{PreauthHash, derive_key};
pub use encryption::{Forged, MessageCipher, MessageCipherKind};
pub use gmac::Gmac;
pub use ntlm::{hmac_md5, hmac_md5_is, md5, nt_hash, rc4};
pub use signing::{SigningAlgorithm, SigningKey};

/// Returns whether two byte strings are equal, in a time that depends on their lengths alone.
pub fn are_equal(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && std::hint::black_box(difference) == 0
}
