//! Keys made of a session key (MS-SMB2 §3.1.4.2), and the hash that binds them to the messages of
//! the negotiation (§3.1.4.4.1).

use ring::digest::{SHA512, digest};
use ring::hmac::{self, HMAC_SHA256};

/// Fills `out`, which has 16 or 32 bytes, with a key: SP800-108 in counter mode with HMAC-SHA256
/// and a counter of 32 bits. Label and context have their terminating zeros already.
pub fn derive_key(key: &[u8], label: &[u8], context: &[u8], out: &mut [u8]) {
    assert!(out.len() <= 32, "one block of the function is enough");
    let mut context_of_hmac = hmac::Context::with_key(&hmac::Key::new(HMAC_SHA256, key));
    context_of_hmac.update(&1_u32.to_be_bytes());
    context_of_hmac.update(label);
    context_of_hmac.update(&[0]);
    context_of_hmac.update(context);
    context_of_hmac.update(&(out.len() as u32 * 8).to_be_bytes());
    let block = context_of_hmac.sign();
    out.copy_from_slice(&block.as_ref()[..out.len()]);
}

/// The preauthentication integrity hash: SHA-512 over the messages so far.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PreauthHash([u8; 64]);

impl PreauthHash {
    /// The hash before the first message.
    pub const START: PreauthHash = PreauthHash([0; 64]);

    /// Takes in a message.
    pub fn update(&mut self, message: &[u8]) {
        let mut context = ring::digest::Context::new(&SHA512);
        context.update(&self.0);
        context.update(message);
        self.0.copy_from_slice(context.finish().as_ref());
    }

    /// Returns the hash, the context of [`derive_key`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the SHA-512 of the bytes.
    pub fn of(bytes: &[u8]) -> PreauthHash {
        let mut hash = PreauthHash::START;
        hash.0.copy_from_slice(digest(&SHA512, bytes).as_ref());
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<const N: usize>(text: &str) -> [u8; N] {
        let mut bytes = [0; N];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap();
        }
        bytes
    }

    /// "SMB 2 and SMB 3 security in Windows 10", appendix: the keys of SMB 3.0.
    #[test]
    fn the_published_keys_come_out() {
        let session: [u8; 16] = key("7CD451825D0450D235424E44BA6E78CC");
        let derived = |label: &str, context: &str| {
            let mut out = [0; 16];
            derive_key(&session, label.as_bytes(), context.as_bytes(), &mut out);
            out
        };
        assert_eq!(derived("SMB2AESCMAC\0", "SmbSign\0"), key("0B7E9C5CAC36C0F6EA9AB275298CEDCE"));
        assert_eq!(derived("SMB2AESCCM\0", "ServerIn \0"), key("FAD27796665B313EBB578F388632B4F7"));
        assert_eq!(derived("SMB2AESCCM\0", "ServerOut\0"), key("B0F0427F7CEB416D1D9DCC0CD4F99447"));
        assert_eq!(derived("SMB2APP\0", "SmbRpc\0"), key("BB23A4575AA26C721AF525AF15A87B4F"));
    }

    #[test]
    fn the_hash_depends_on_every_message_and_their_order() {
        let hash = |messages: &[&[u8]]| {
            let mut hash = PreauthHash::START;
            messages.iter().for_each(|message| hash.update(message));
            hash.as_bytes().to_vec()
        };
        assert_ne!(hash(&[b"a", b"b"]), hash(&[b"b", b"a"]));
        assert_ne!(hash(&[b"a", b"b"]), hash(&[b"ab"]));
        let first = [&[0; 64][..], b"a"].concat();
        assert_eq!(hash(&[b"a"]), PreauthHash::of(&first).as_bytes());
    }
}
