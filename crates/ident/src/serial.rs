//! Identifiers in messages and rows: their bytes, checked on reading.

use crate::{BITS_MAX, FileId};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;
use std::fmt;

impl Serialize for FileId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for FileId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileId, D::Error> {
        deserializer.deserialize_bytes(Bytes)
    }
}

struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = FileId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an identifier's bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<FileId, E> {
        FileId::from_bytes(bytes).map_err(E::custom)
    }

    /// Reads a list of numbers, which formats without bytes of their own (JSON) write.
    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<FileId, A::Error> {
        let mut bytes: SmallVec<[u8; 32]> = SmallVec::new();
        while let Some(byte) = numbers.next_element()? {
            if bytes.len() == BITS_MAX / 8 {
                return Err(A::Error::invalid_length(bytes.len() + 1, &self));
            }
            bytes.push(byte);
        }
        self.visit_bytes(&bytes)
    }
}
