//! Bounded reading of little-endian fields, and writing them.

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed: {0}")]
pub struct Malformed(pub &'static str);

/// A place in a byte string, from which fields are read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins at the first byte.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Begins at a byte of the message.
    pub fn at(bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { bytes, at }
    }

    /// Returns the place.
    pub fn place(&self) -> usize {
        self.at
    }

    /// Returns the bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    /// Takes the next bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed("a length is too large"))?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed("it ends early"))?;
        self.at = end;
        Ok(taken)
    }

    /// Takes an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Takes a byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    /// Takes two bytes.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes four bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes eight bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns a buffer of the whole byte string by offset and length. An empty one may have any
    /// offset.
    pub fn buffer(bytes: &'a [u8], offset: usize, length: usize) -> Result<&'a [u8], Malformed> {
        if length == 0 {
            return Ok(&[]);
        }
        Reader::at(bytes, offset).take(length)
    }
}

/// Fields at the end of a byte string.
pub trait Writer {
    /// Appends a byte.
    fn u8(&mut self, value: u8);
    /// Appends two bytes.
    fn u16(&mut self, value: u16);
    /// Appends four bytes.
    fn u32(&mut self, value: u32);
    /// Appends eight bytes.
    fn u64(&mut self, value: u64);
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);
    /// Appends zeros up to a multiple of `unit`, counted from `start`.
    fn pad(&mut self, start: usize, unit: usize);
    /// Replaces four bytes.
    fn set_u32(&mut self, at: usize, value: u32);
    /// Replaces two bytes.
    fn set_u16(&mut self, at: usize, value: u16);
}

impl Writer for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn pad(&mut self, start: usize, unit: usize) {
        let length = (self.len() - start).next_multiple_of(unit);
        self.resize(start + length, 0);
    }

    fn set_u32(&mut self, at: usize, value: u32) {
        self[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn set_u16(&mut self, at: usize, value: u16) {
        self[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
}

/// Returns the UTF-16 of a text, as bytes.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Returns the code units of UTF-16 in bytes.
pub(crate) fn units(bytes: &[u8]) -> Result<Vec<u16>, Malformed> {
    if !bytes.len().is_multiple_of(2) {
        return Err(Malformed("a text has half a character"));
    }
    Ok(bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect())
}

/// Returns the text of UTF-16 in bytes.
pub fn text_of(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf16(&units(bytes)?).map_err(|_| Malformed("a text has half a surrogate pair"))
}
