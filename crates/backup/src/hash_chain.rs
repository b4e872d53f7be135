//! A file of frames. Each frame has a hash that covers the one before it.
//!
//! So no frame can be changed, left out or moved. A cut-off end is seen if the last frame says that
//! it is the last.
//!
//! ```text
//! file     magic (8) · format (u32 LE) · frames
//! frame    length (u32 LE) · a value in postcard
//!          · BLAKE3 of the hash before, the length and the value
//! ```
//!
//! The hash before the first frame is that of the bytes before it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// The limit of a frame's length, bytes: no frame is this long.
const FRAME_MAX: u32 = 1 << 30;

/// Why such a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It begins as no such file.
    #[error("it is something else")]
    Foreign,
    /// A newer version wrote it.
    #[error("it has format {0}")]
    Version(u32),
    /// Its end is missing.
    #[error("it is cut off")]
    CutOff,
    /// A frame is not what was written.
    #[error("a part of it does not match its hash")]
    Hash,
    /// A frame is of another type.
    #[error("a part of it cannot be read")]
    Code,
    /// It goes on behind the last frame.
    #[error("there is something behind its end")]
    Behind,
}

/// Writes such a file.
pub struct Writer<W> {
    out: W,
    before: crypto::Hash,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file: writes its magic and format.
    pub fn new(mut out: W, magic: &[u8; 8], format: u32) -> io::Result<Writer<W>> {
        let beginning = [magic.as_slice(), &format.to_le_bytes()].concat();
        out.write_all(&beginning)?;
        Ok(Writer { out, before: crypto::hash(&beginning), bytes: 0 })
    }

    /// Writes the next frame.
    pub fn frame(&mut self, value: &impl Serialize) -> io::Result<()> {
        let frame = postcard::to_allocvec(value).map_err(io::Error::other)?;
        let length = u32::try_from(frame.len()).ok().filter(|length| *length < FRAME_MAX);
        let length = length.ok_or(io::ErrorKind::FileTooLarge)?.to_le_bytes();
        self.before = hash(&self.before, &length, &frame);
        self.bytes += frame.len() as u64;
        self.out.write_all(&length)?;
        self.out.write_all(&frame)?;
        self.out.write_all(self.before.as_bytes())
    }

    /// Ends the file. Returns the output, and the approximate number of bytes written.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.out.flush()?;
        Ok((self.out, self.bytes))
    }
}

/// Reads such a file.
pub struct Reader<R> {
    from: R,
    before: crypto::Hash,
}

impl<R: Read> Reader<R> {
    /// Reads the magic and the format, which come before the frames.
    pub fn new(mut from: R, magic: &[u8; 8], known: u32) -> Result<Reader<R>, ChainError> {
        let (found, format) = (bytes::<8>(&mut from)?, bytes::<4>(&mut from)?);
        if found != *magic {
            return Err(ChainError::Foreign);
        }
        match u32::from_le_bytes(format) {
            format if format == known => {}
            other => return Err(ChainError::Version(other)),
        }
        let before = crypto::hash(&[found.as_slice(), &format].concat());
        Ok(Reader { from, before })
    }

    /// Reads the next frame.
    pub fn frame<T: DeserializeOwned>(&mut self) -> Result<T, ChainError> {
        let length = bytes::<4>(&mut self.from)?;
        let count = u32::from_le_bytes(length);
        if count >= FRAME_MAX {
            return Err(ChainError::Hash);
        }
        // No memory is reserved for a length that may be wrong.
        let mut frame = Vec::new();
        self.from.by_ref().take(count.into()).read_to_end(&mut frame)?;
        if frame.len() != count as usize {
            return Err(ChainError::CutOff);
        }
        let known = bytes::<32>(&mut self.from)?;
        self.before = hash(&self.before, &length, &frame);
        if self.before != known {
            return Err(ChainError::Hash);
        }
        match postcard::take_from_bytes(&frame) {
            Ok((value, [])) => Ok(value),
            _ => Err(ChainError::Code),
        }
    }

    /// Checks that the last frame read was the last of the file.
    pub fn end(&mut self) -> Result<(), ChainError> {
        match self.from.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(ChainError::Behind),
        }
    }
}

fn hash(before: &crypto::Hash, length: &[u8; 4], frame: &[u8]) -> crypto::Hash {
    let mut hasher = crypto::Hasher::new();
    hasher.update(before.as_bytes()).update(length).update(frame).finalize()
}

fn bytes<const N: usize>(from: &mut impl Read) -> Result<[u8; N], ChainError> {
    let mut bytes = [0; N];
    match from.read_exact(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ChainError::CutOff),
        Err(error) => Err(error.into()),
    }
}
