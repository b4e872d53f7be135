//! The client's side of signing and encrypting (MS-SMB2 §3.1.4.1, §3.1.4.3), with the algorithms
//! that Windows 11 prefers: AES-128-GMAC and AES-128-GCM.

use crypto::smb::{MessageCipher, MessageCipherKind, PreauthHash, SigningAlgorithm, SigningKey, derive_key};
use smb::wire::{Flags, HEADER_BYTES, Header, TRANSFORM_BYTES, TRANSFORM_PROTOCOL, TransformHeader};
use std::io;

/// The signing algorithm that a client offers.
pub(super) const SIGNING: u16 = SigningAlgorithm::AesGmac as u16;
/// The cipher that a client offers.
pub(super) const CIPHER: u16 = MessageCipherKind::Aes128Gcm as u16;

/// How messages of a session are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Signed,
    Encrypted,
}

impl Way {
    /// The way's name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Signed => "signed",
            Way::Encrypted => "encrypted",
        }
    }
}

/// The keys of a session.
pub(super) enum Keys {
    /// There is no session yet.
    None,
    Signing(SigningKey),
    Encryption {
        seals: MessageCipher,
        opens: MessageCipher,
        nonce: u64,
    },
}

impl Keys {
    /// Derives the keys.
    pub(super) fn new(way: Way, session_key: &[u8; 16], hash: &PreauthHash) -> Keys {
        let derived = |label: &str| {
            let mut key = [0; 16];
            derive_key(session_key, label.as_bytes(), hash.as_bytes(), &mut key);
            key
        };
        let cipher = |label| MessageCipher::new(MessageCipherKind::Aes128Gcm, &derived(label));
        match way {
            Way::Signed => {
                Keys::Signing(SigningKey::new(SigningAlgorithm::AesGmac, &derived("SMBSigningKey\0")))
            }
            Way::Encrypted => Keys::Encryption {
                seals: cipher("SMBC2SCipherKey\0"),
                opens: cipher("SMBS2CCipherKey\0"),
                nonce: 0,
            },
        }
    }

    /// Protects a request.
    pub(super) fn protect(&mut self, header: &Header, mut message: Vec<u8>) -> Vec<u8> {
        match self {
            Keys::None => message,
            Keys::Signing(key) => {
                message[16] |= Flags::SIGNED as u8;
                let signature = key.sign(&mut message, header.nonce());
                message[48..HEADER_BYTES].copy_from_slice(&signature);
                message
            }
            Keys::Encryption { seals, nonce, .. } => {
                *nonce += 1;
                let mut field = [0; 16];
                field[..8].copy_from_slice(&nonce.to_le_bytes());
                let size = message.len() as u32;
                let mut transform =
                    TransformHeader { tag: [0; 16], nonce: field, size, session_id: header.session_id };
                let mut front = Vec::with_capacity(TRANSFORM_BYTES + message.len());
                transform.emit(&mut front);
                transform.tag = seals.seal(&field, TransformHeader::aad(&front), &mut message);
                front.clear();
                transform.emit(&mut front);
                front.extend_from_slice(&message);
                front
            }
        }
    }

    /// Decrypts an answer, if it is encrypted.
    pub(super) fn open(&self, message: &mut Vec<u8>) -> io::Result<()> {
        let Keys::Encryption { opens, .. } = self else { return Ok(()) };
        if !message.starts_with(&TRANSFORM_PROTOCOL) {
            return Ok(());
        }
        let transform = TransformHeader::parse(message).map_err(io::Error::other)?;
        let (front, sealed) = message.split_at_mut(TRANSFORM_BYTES);
        opens
            .open(&transform.nonce, TransformHeader::aad(front), sealed, &transform.tag)
            .map_err(io::Error::other)?;
        message.drain(..TRANSFORM_BYTES);
        Ok(())
    }
}
