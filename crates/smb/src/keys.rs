//! The keys of a session and of its channels (MS-SMB2 §3.3.5.5.3): encrypting and signing messages.

use crate::wire::negotiate::Dialect;
use crate::wire::{Flags, HEADER_BYTES, Header, TRANSFORM_BYTES, TransformHeader};
use crypto::smb::{
    Forged, MessageCipher, MessageCipherKind, PreauthHash, SigningAlgorithm, SigningKey, derive_key,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SIGNATURE_AT: usize = 48;
const FLAGS_AT: usize = 16;

/// The result of a logon, from which keys come: its key, and all that was said before.
#[derive(Clone, Copy)]
pub struct Secret<'a> {
    /// The key on which both sides have agreed.
    pub session_key: &'a [u8; 16],
    /// All of it, which may be longer.
    pub full_session_key: &'a [u8],
    /// The dialect of the connection.
    pub dialect: Dialect,
    /// The hash of the negotiation and the logon.
    pub hash: &'a PreauthHash,
}

impl Secret<'_> {
    /// Derives a key from labels: `old` with its context before 3.1.1, `new` since. A key of more
    /// than 16 bytes comes from the full session key.
    fn derive(&self, old: (&str, &str), new: &str, key: &mut [u8]) {
        let secret = if key.len() > 16 { self.full_session_key } else { self.session_key };
        match self.dialect {
            Dialect::V3_1_1 => derive_key(secret, new.as_bytes(), self.hash.as_bytes(), key),
            _ => derive_key(secret, old.0.as_bytes(), old.1.as_bytes(), key),
        }
    }
}

/// The key by which messages of a session are signed on one of its connections.
pub struct ChannelKey(SigningKey);

impl ChannelKey {
    /// Derives the key.
    pub fn new(secret: Secret<'_>, algorithm: SigningAlgorithm) -> ChannelKey {
        let mut key = *secret.session_key;
        if secret.dialect.is_3() {
            secret.derive(("SMB2AESCMAC\0", "SmbSign\0"), "SMBSigningKey\0", &mut key);
        }
        ChannelKey(SigningKey::new(algorithm, &key))
    }

    /// Signs a message in place (§3.1.4.1).
    pub fn sign(&self, message: &mut [u8]) {
        message[FLAGS_AT] |= Flags::SIGNED as u8;
        message[SIGNATURE_AT..HEADER_BYTES].fill(0);
        let Ok(header) = Header::parse(message) else { return };
        let signature = self.0.sign(message, header.nonce());
        message[SIGNATURE_AT..HEADER_BYTES].copy_from_slice(&signature);
    }

    /// Returns whether the message has the signature of the channel's client.
    pub fn is_signed(&self, header: &Header, message: &mut [u8]) -> bool {
        message[SIGNATURE_AT..HEADER_BYTES].fill(0);
        let is_signed = self.0.is_signed(message, header.nonce(), &header.signature);
        message[SIGNATURE_AT..HEADER_BYTES].copy_from_slice(&header.signature);
        is_signed
    }
}

/// The keys by which messages of a session are encrypted on all of its connections.
pub struct EncryptionKeys {
    seals: MessageCipher,
    opens: MessageCipher,
    /// The next nonce. None is used twice: the number of messages of a session has 64 bits.
    nonce: AtomicU64,
}

impl EncryptionKeys {
    /// Derives the keys.
    pub fn new(secret: Secret<'_>, kind: MessageCipherKind) -> EncryptionKeys {
        let cipher = |old, new| {
            let mut key = vec![0; kind.key_bytes()];
            secret.derive(("SMB2AESCCM\0", old), new, &mut key);
            MessageCipher::new(kind, &key)
        };
        EncryptionKeys {
            seals: cipher("ServerOut\0", "SMBS2CCipherKey\0"),
            opens: cipher("ServerIn \0", "SMBC2SCipherKey\0"),
            nonce: AtomicU64::new(0),
        }
    }

    /// Encrypts an answer in place (§3.1.4.3). Its first [`TRANSFORM_BYTES`] are room for the
    /// header.
    pub fn seal(&self, session_id: u64, out: &mut [u8]) {
        let (front, message) = out.split_at_mut(TRANSFORM_BYTES);
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.nonce.fetch_add(1, Relaxed).to_le_bytes());
        let mut header = TransformHeader { tag: [0; 16], nonce, size: message.len() as u32, session_id };
        let mut bytes = Vec::with_capacity(TRANSFORM_BYTES);
        header.emit(&mut bytes);
        header.tag = self.seals.seal(&nonce, TransformHeader::aad(&bytes), message);
        bytes.clear();
        header.emit(&mut bytes);
        front.copy_from_slice(&bytes);
    }

    /// Decrypts a request in place. The message follows the header.
    pub fn open(&self, header: &TransformHeader, message: &mut [u8]) -> Result<(), Forged> {
        let (front, sealed) = message.split_at_mut(TRANSFORM_BYTES);
        self.opens.open(&header.nonce, TransformHeader::aad(front), sealed, &header.tag)
    }
}
