//! A run of dirty bytes in memory.

use std::ops::Range;

use bytes::Bytes;

/// Runs smaller than this are copied. Otherwise a small run would keep a larger buffer in memory
/// whole.
pub(crate) const COPY_BELOW: usize = 64 << 10;

/// A run of dirty bytes.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// A buffer that grows, and is overwritten in place.
    Own(Vec<u8>),
    /// Bytes of a large write, or of an upload: they never change.
    Shared(Bytes),
}

impl Chunk {
    pub(crate) fn new(data: Bytes) -> Chunk {
        if data.len() < COPY_BELOW { Chunk::Own(data.to_vec()) } else { Chunk::Shared(data) }
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Chunk::Own(bytes) => bytes,
            Chunk::Shared(bytes) => bytes,
        }
    }

    /// Returns the bytes of `range`, clipped to the run.
    pub(crate) fn slice(&self, range: Range<usize>) -> Bytes {
        let range = range.start.min(self.len())..range.end.min(self.len());
        match self {
            Chunk::Shared(bytes) => bytes.slice(range),
            Chunk::Own(bytes) => Bytes::copy_from_slice(&bytes[range]),
        }
    }

    /// Drops the bytes after the first `length`.
    pub(crate) fn truncate(&mut self, length: usize) {
        match self {
            Chunk::Own(bytes) => bytes.truncate(length),
            Chunk::Shared(bytes) if length < COPY_BELOW => {
                *self = Chunk::Own(bytes.get(..length).unwrap_or(bytes).to_vec());
            }
            Chunk::Shared(bytes) => bytes.truncate(length),
        }
    }

    /// Returns the bytes after the first `from`.
    pub(crate) fn tail(&self, from: usize) -> Chunk {
        Chunk::new(self.slice(from..self.len()))
    }

    /// Turns the run into bytes that never change, without a copy.
    pub(crate) fn freeze(self) -> Bytes {
        match self {
            Chunk::Own(bytes) => Bytes::from(bytes),
            Chunk::Shared(bytes) => bytes,
        }
    }
}
