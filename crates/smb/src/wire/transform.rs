//! The header of an encrypted message (MS-SMB2 §2.2.41).

use super::cursor::{Malformed, Reader, Writer};

/// The bytes of the header.
pub const TRANSFORM_BYTES: usize = 52;
/// The first bytes of an encrypted message.
pub const TRANSFORM_PROTOCOL: [u8; 4] = *b"\xfdSMB";
/// The first byte that is authenticated: the nonce.
const AAD_AT: usize = 20;
const ENCRYPTED: u16 = 1;

/// The header of an encrypted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransformHeader {
    /// The authentication tag.
    pub tag: [u8; 16],
    /// The nonce's field.
    pub nonce: [u8; 16],
    /// The bytes of the message.
    pub size: u32,
    /// The session.
    pub session_id: u64,
}

impl TransformHeader {
    /// Parses the header of an encrypted message. The rest is the ciphertext.
    pub fn parse(message: &[u8]) -> Result<TransformHeader, Malformed> {
        let mut reader = Reader::new(message);
        if reader.array::<4>()? != TRANSFORM_PROTOCOL {
            return Err(Malformed("it is not encrypted"));
        }
        let (tag, nonce, size) = (reader.array()?, reader.array()?, reader.u32()?);
        reader.u16()?;
        if reader.u16()? != ENCRYPTED {
            return Err(Malformed("its transform is none that there is"));
        }
        let session_id = reader.u64()?;
        if reader.rest().len() != size as usize {
            return Err(Malformed("its size is another"));
        }
        Ok(TransformHeader { tag, nonce, size, session_id })
    }

    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put(&TRANSFORM_PROTOCOL);
        out.put(&self.tag);
        out.put(&self.nonce);
        out.u32(self.size);
        out.u16(0);
        out.u16(ENCRYPTED);
        out.u64(self.session_id);
    }

    /// Returns the part of the header that is authenticated with the message.
    pub fn aad(header: &[u8]) -> &[u8] {
        &header[AAD_AT..TRANSFORM_BYTES]
    }
}
