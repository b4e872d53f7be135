//! A run of dirty bytes in memory.

use std::ops::Range;

use bytes::Bytes;

/// Runs smaller than this are copied rather than kept as a part of somebody's larger buffer, which
/// would stay in memory whole.
pub(crate) const COPY_BELOW: usize = 64 << 10;

/// A run of dirty bytes.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// Grows, and is overwritten in place.
    Own(Vec<u8>),
    /// Given by a large write, or handed out to an upload: never changes.
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

    /// The bytes of `range`, clipped to what there is.
    pub(crate) fn slice(&self, range: Range<usize>) -> Bytes {
        let range = range.start.min(self.len())..range.end.min(self.len());
        match self {
            Chunk::Shared(bytes) => bytes.slice(range),
            Chunk::Own(bytes) => Bytes::copy_from_slice(bytes.get(range).unwrap_or_default()),
        }
    }

    /// Drops what follows the first `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        match self {
            Chunk::Own(bytes) => bytes.truncate(length),
            Chunk::Shared(bytes) if length < COPY_BELOW => {
                *self = Chunk::Own(bytes.get(..length).unwrap_or(bytes).to_vec());
            }
            Chunk::Shared(bytes) => bytes.truncate(length),
        }
    }

    /// What follows the first `from` bytes.
    pub(crate) fn tail(&self, from: usize) -> Chunk {
        Chunk::new(self.slice(from..self.len()))
    }

    /// Gives its bytes away for good, without copying them.
    pub(crate) fn freeze(self) -> Bytes {
        match self {
            Chunk::Own(bytes) => Bytes::from(bytes),
            Chunk::Shared(bytes) => bytes,
        }
    }
}
