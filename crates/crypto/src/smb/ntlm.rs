//! The algorithms of NTLM. They are weak, and the protocol knows no others: a password of few bits
//! can be found by whoever sees an exchange.

use super::are_equal;
use hmac::{Hmac, KeyInit, Mac};
use md4::{Digest, Md4};
use md5::Md5;
use rc4::{Rc4, StreamCipher};

/// Returns the MD4 of a password in UTF-16: NTOWFv1 (MS-NLMP §3.3.1).
pub fn nt_hash(password: &str) -> [u8; 16] {
    let bytes = password.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    Md4::digest(bytes).into()
}

/// Returns the MD5 of the parts together.
pub fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut digest = Md5::new();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize().into()
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Md5> {
    let mut mac = <Hmac<Md5> as KeyInit>::new_from_slice(key).expect("a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// Returns the HMAC-MD5 of the parts together.
pub fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    mac(key, parts).finalize().into_bytes().into()
}

/// Returns whether `proof` is the HMAC-MD5 of the parts, in constant time.
pub fn hmac_md5_is(key: &[u8], parts: &[&[u8]], proof: &[u8; 16]) -> bool {
    are_equal(&hmac_md5(key, parts), proof)
}

/// Encrypts or decrypts 16 bytes with RC4, under a key of one message.
pub fn rc4(key: &[u8; 16], mut bytes: [u8; 16]) -> [u8; 16] {
    let mut cipher = <Rc4 as KeyInit>::new_from_slice(key).expect("a key of 16 bytes");
    cipher.apply_keystream(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MS-NLMP §4.2.2.1.2 and §4.2.4.1.1: user "User", domain "Domain", password "Password".
    #[test]
    fn the_examples_of_ms_nlmp_come_out() {
        let hash = nt_hash("Password");
        assert_eq!(
            hash,
            [0xa4, 0xf4, 0x9c, 0x40, 0x65, 0x10, 0xbd, 0xca, 0xb6, 0x82, 0x4e, 0xe7, 0xc3, 0x0f, 0xd8, 0x52]
        );
        let name = "USERDomain".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let key = hmac_md5(&hash, &[&name]);
        assert_eq!(
            key,
            [0x0c, 0x86, 0x8a, 0x40, 0x3b, 0xfd, 0x7a, 0x93, 0xa3, 0x00, 0x1e, 0xf2, 0x2e, 0xf0, 0x2e, 0x3f]
        );
        assert!(hmac_md5_is(&hash, &[&name], &key));
        assert!(!hmac_md5_is(&hash, &[&name[1..]], &key));
    }

    /// MS-NLMP §4.2.4.2.3: the session key 55…55 under the key exchange key of the example.
    #[test]
    fn the_session_key_of_the_example_is_exchanged() {
        let base =
            [0x8d, 0xe4, 0x0c, 0xca, 0xdb, 0xc1, 0x4a, 0x82, 0xf1, 0x5c, 0xb0, 0xad, 0x0d, 0xe9, 0x5c, 0xa3];
        let sent =
            [0xc5, 0xda, 0xd2, 0x54, 0x4f, 0xc9, 0x79, 0x90, 0x94, 0xce, 0x1c, 0xe9, 0x0b, 0xc9, 0xd0, 0x3e];
        assert_eq!(rc4(&base, [0x55; 16]), sent);
        assert_eq!(rc4(&base, sent), [0x55; 16]);
    }
}
