//! Dialects and the contexts of NEGOTIATE (MS-SMB2 §2.2.3.1).

use super::bodies::NegotiateRequest;
use super::cursor::{Malformed, Reader, Writer};
use super::header::HEADER_BYTES;

/// A dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
#[allow(missing_docs, reason = "the names are the numbers")]
pub enum Dialect {
    V2_0_2 = 0x202,
    V2_1 = 0x210,
    V3_0 = 0x300,
    V3_0_2 = 0x302,
    V3_1_1 = 0x311,
}

impl Dialect {
    /// The answer to an SMB 1 negotiate that offers "SMB 2.???".
    pub const WILDCARD: u16 = 0x2ff;
    /// All, the newest first.
    pub const ALL: [Dialect; 5] =
        [Dialect::V3_1_1, Dialect::V3_0_2, Dialect::V3_0, Dialect::V2_1, Dialect::V2_0_2];

    /// Returns whether it is of SMB 3.
    pub fn is_3(self) -> bool {
        self >= Dialect::V3_0
    }
}

/// The numbers of contexts.
pub mod context {
    /// SMB2_PREAUTH_INTEGRITY_CAPABILITIES.
    pub const PREAUTH: u16 = 1;
    /// SMB2_ENCRYPTION_CAPABILITIES.
    pub const ENCRYPTION: u16 = 2;
    /// SMB2_SIGNING_CAPABILITIES.
    pub const SIGNING: u16 = 8;
    /// SMB2_POSIX_EXTENSIONS_AVAILABLE.
    pub const POSIX: u16 = 0x100;
}

/// The identifier of the POSIX extensions, in the negotiate context and in creates.
pub const POSIX_GUID: [u8; 16] =
    [0x93, 0xad, 0x25, 0x50, 0x9c, 0xb4, 0x11, 0xe7, 0xb4, 0x23, 0x83, 0xde, 0x96, 0x8b, 0xcd, 0x7c];

/// A request's dialects and contexts, as far as they count here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The numbers of dialects.
    pub dialects: Vec<u16>,
    /// Hash algorithms. No context: none. 1 is SHA-512.
    pub hashes: Option<Vec<u16>>,
    /// Ciphers, in the client's order.
    pub ciphers: Option<Vec<u16>>,
    /// Signing algorithms, in the client's order.
    pub signing: Option<Vec<u16>>,
    /// The POSIX extensions are wanted.
    pub posix: bool,
}

/// The most contexts that a request may have.
const CONTEXTS_MAX: u16 = 32;
/// The most dialects.
const DIALECTS_MAX: u16 = 64;

impl Offer {
    /// Parses the variable part of a request.
    pub fn parse(message: &[u8], fixed: &NegotiateRequest) -> Result<Offer, Malformed> {
        if fixed.dialect_count == 0 || fixed.dialect_count > DIALECTS_MAX {
            return Err(Malformed("the number of dialects is none that there can be"));
        }
        let mut reader = Reader::at(message, HEADER_BYTES + usize::from(NegotiateRequest::SIZE));
        let mut offer = Offer {
            dialects: (0..fixed.dialect_count).map(|_| reader.u16()).collect::<Result<_, _>>()?,
            ..Offer::default()
        };
        if offer.dialects.contains(&(Dialect::V3_1_1 as u16)) {
            offer.parse_contexts(message, fixed)?;
        }
        Ok(offer)
    }

    fn parse_contexts(&mut self, message: &[u8], fixed: &NegotiateRequest) -> Result<(), Malformed> {
        if fixed.context_count > CONTEXTS_MAX {
            return Err(Malformed("there are too many contexts"));
        }
        let mut at = fixed.context_offset as usize;
        for _ in 0..fixed.context_count {
            let mut reader = Reader::at(message, at);
            let (kind, length) = (reader.u16()?, reader.u16()?);
            reader.u32()?;
            let data = reader.take(usize::from(length))?;
            at = reader.place().next_multiple_of(8);
            match kind {
                context::PREAUTH => set_once(&mut self.hashes, parse_preauth(data)?)?,
                context::ENCRYPTION => set_once(&mut self.ciphers, parse_numbers(data)?)?,
                context::SIGNING => set_once(&mut self.signing, parse_numbers(data)?)?,
                context::POSIX => self.posix = data == POSIX_GUID,
                _ => {}
            }
        }
        Ok(())
    }
}

fn set_once(field: &mut Option<Vec<u16>>, numbers: Vec<u16>) -> Result<(), Malformed> {
    match field.replace(numbers) {
        None => Ok(()),
        Some(_) => Err(Malformed("a context is there twice")),
    }
}

fn parse_preauth(data: &[u8]) -> Result<Vec<u16>, Malformed> {
    let mut reader = Reader::new(data);
    let (count, salt) = (reader.u16()?, reader.u16()?);
    let hashes = (0..count).map(|_| reader.u16()).collect::<Result<Vec<u16>, _>>()?;
    reader.take(usize::from(salt))?;
    if hashes.is_empty() { Err(Malformed("a context is empty")) } else { Ok(hashes) }
}

fn parse_numbers(data: &[u8]) -> Result<Vec<u16>, Malformed> {
    let mut reader = Reader::new(data);
    let numbers = (0..reader.u16()?).map(|_| reader.u16()).collect::<Result<Vec<u16>, _>>()?;
    if numbers.is_empty() { Err(Malformed("a context is empty")) } else { Ok(numbers) }
}

/// Appends a context. The one before is padded to 8 bytes from the header already.
pub fn emit_context(out: &mut Vec<u8>, kind: u16, data: &[u8]) {
    out.u16(kind);
    out.u16(data.len() as u16);
    out.u32(0);
    out.put(data);
}

/// Returns the data of the preauthentication context: SHA-512 and a salt.
pub fn preauth_data(salt: &[u8; 32]) -> Vec<u8> {
    let mut data = Vec::with_capacity(38);
    data.u16(1);
    data.u16(salt.len() as u16);
    data.u16(1);
    data.put(salt);
    data
}

/// Returns the data of a context that lists numbers.
pub fn numbers_data(numbers: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    data.u16(numbers.len() as u16);
    numbers.iter().for_each(|number| data.u16(*number));
    data
}
