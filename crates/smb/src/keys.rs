//! The keys of a session (MS-SMB2 §3.3.5.5.3): signing and encrypting messages.

use crate::wire::negotiate::Dialect;
use crate::wire::{Flags, HEADER_BYTES, Header, TRANSFORM_BYTES, TransformHeader};
use crypto::smb::{
    Forged, MessageCipher, MessageCipherKind, PreauthHash, SigningAlgorithm, SigningKey, derive_key,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SIGNATURE_AT: usize = 48;
const FLAGS_AT: usize = 16;

/// The keys of a session.
pub struct SessionKeys {
    signing: SigningKey,
    ciphers: Option<Ciphers>,
}

struct Ciphers {
    seals: MessageCipher,
    opens: MessageCipher,
    /// The next nonce. None is used twice: the number of messages of a session has 64 bits.
    nonce: AtomicU64,
}

impl SessionKeys {
    /// Derives the keys.
    pub fn new(
        session_key: &[u8; 16],
        dialect: Dialect,
        signing: SigningAlgorithm,
        cipher: Option<MessageCipherKind>,
        hash: &PreauthHash,
    ) -> SessionKeys {
        let derive = |old: (&str, &str), new: &str, length: usize| {
            let mut key = vec![0; length];
            match dialect {
                Dialect::V3_1_1 => derive_key(session_key, new.as_bytes(), hash.as_bytes(), &mut key),
                _ => derive_key(session_key, old.0.as_bytes(), old.1.as_bytes(), &mut key),
            }
            key
        };
        let signing_key = if dialect.is_3() {
            let key = derive(("SMB2AESCMAC\0", "SmbSign\0"), "SMBSigningKey\0", 16);
            key.try_into().expect("16 bytes")
        } else {
            *session_key
        };
        let ciphers = cipher.map(|kind| {
            let key =
                |old, new| MessageCipher::new(kind, &derive(("SMB2AESCCM\0", old), new, kind.key_bytes()));
            Ciphers {
                seals: key("ServerOut\0", "SMBS2CCipherKey\0"),
                opens: key("ServerIn \0", "SMBC2SCipherKey\0"),
                nonce: AtomicU64::new(0),
            }
        });
        SessionKeys { signing: SigningKey::new(signing, &signing_key), ciphers }
    }

    /// Returns whether messages can be encrypted.
    pub fn can_encrypt(&self) -> bool {
        self.ciphers.is_some()
    }

    /// Signs a message in place (§3.1.4.1).
    pub fn sign(&self, message: &mut [u8]) {
        message[FLAGS_AT] |= Flags::SIGNED as u8;
        message[SIGNATURE_AT..HEADER_BYTES].fill(0);
        let Ok(header) = Header::parse(message) else { return };
        let signature = self.signing.sign(message, header.nonce());
        message[SIGNATURE_AT..HEADER_BYTES].copy_from_slice(&signature);
    }

    /// Returns whether the message has the signature of the session's client. The field is zero
    /// afterwards.
    pub fn is_signed(&self, header: &Header, message: &mut [u8]) -> bool {
        message[SIGNATURE_AT..HEADER_BYTES].fill(0);
        self.signing.is_signed(message, header.nonce(), &header.signature)
    }

    /// Encrypts an answer (§3.1.4.3).
    pub fn seal(&self, session_id: u64, message: &[u8]) -> Option<Vec<u8>> {
        let ciphers = self.ciphers.as_ref()?;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&ciphers.nonce.fetch_add(1, Relaxed).to_le_bytes());
        let mut header = TransformHeader { tag: [0; 16], nonce, size: message.len() as u32, session_id };
        let mut out = Vec::with_capacity(TRANSFORM_BYTES + message.len());
        header.emit(&mut out);
        let (front, _) = out.split_at(TRANSFORM_BYTES);
        let aad = TransformHeader::aad(front).to_vec();
        out.extend_from_slice(message);
        header.tag = ciphers.seals.seal(&nonce, &aad, &mut out[TRANSFORM_BYTES..]);
        out[4..20].copy_from_slice(&header.tag);
        Some(out)
    }

    /// Decrypts a request in place. The message follows the header.
    pub fn open(&self, header: &TransformHeader, message: &mut [u8]) -> Result<(), Forged> {
        let ciphers = self.ciphers.as_ref().ok_or(Forged)?;
        let (front, sealed) = message.split_at_mut(TRANSFORM_BYTES);
        ciphers.opens.open(&header.nonce, TransformHeader::aad(front), sealed, &header.tag)
    }
}
