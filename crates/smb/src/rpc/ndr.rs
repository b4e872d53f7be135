//! NDR, as far as srvsvc needs it (C706 §14).

use crate::wire::{Malformed, Reader, Writer, text_of};

/// The longest text of a request.
const TEXT_MAX: u32 = 1024;

/// An answer's stub.
#[derive(Default)]
pub(super) struct Ndr {
    bytes: Vec<u8>,
    pointers: u32,
}

impl Ndr {
    pub(super) fn u32(&mut self, value: u32) {
        self.bytes.u32(value);
    }

    /// Puts a pointer that is not null. Its referent comes later.
    pub(super) fn pointer(&mut self) {
        self.pointers += 1;
        self.bytes.u32(0x2_0000 + 4 * self.pointers);
    }

    /// Puts a text that a pointer points to: lengths, UTF-16 and a zero.
    pub(super) fn text(&mut self, text: &str) {
        let units = text.encode_utf16().chain([0]).collect::<Vec<u16>>();
        self.bytes.u32(units.len() as u32);
        self.bytes.u32(0);
        self.bytes.u32(units.len() as u32);
        units.iter().for_each(|unit| self.bytes.u16(*unit));
        self.bytes.pad(0, 4);
    }

    /// Puts the operation's result, and returns the stub.
    pub(super) fn end(mut self, result: u32) -> Vec<u8> {
        self.bytes.u32(result);
        self.bytes
    }
}

/// Takes a text with its lengths.
pub(super) fn read_text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let (_, _, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if count > TEXT_MAX {
        return Err(Malformed("a text is too long"));
    }
    let bytes = reader.take(count as usize * 2)?;
    let end = reader.place().next_multiple_of(4);
    reader.take((end - reader.place()).min(reader.rest().len()))?;
    Ok(text_of(bytes)?.trim_end_matches('\0').to_owned())
}
