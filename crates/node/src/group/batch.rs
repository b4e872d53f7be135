//! What one log entry holds: a time, and the inputs that came while the entry before it was on its way to the disk.

use bytes::Bytes;
use directory::Input;
use lease::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::Arc;

/// Version of the encoding: this byte, the time and the digest in 8 bytes each, little-endian, then inputs in postcard until the end.
const VERSION: u8 = 2;

/// An entry's inputs and the time at which they happen. Encoded once, when proposed; cheap to clone.
#[derive(Clone)]
pub struct Batch {
    pub(super) now: Time,
    /// Of the state that the proposer had come to before ([`directory::Directory::digest`]). Whoever comes to another stops: replicas that differ are worse than one less.
    pub(super) digest: u64,
    pub(super) inputs: Arc<Vec<Input>>,
    encoded: Bytes,
}

/// An input and its encoding, waiting to be proposed.
pub(super) struct Waiting {
    pub(super) input: Input,
    pub(super) encoded: Vec<u8>,
}

impl Waiting {
    pub(super) fn new(input: Input) -> Waiting {
        let encoded =
            postcard::to_allocvec(&input).expect("an input is plain data, its sequences know their lengths");
        Waiting { input, encoded }
    }
}

impl Batch {
    pub(super) fn new(now: Time, digest: u64, waiting: Vec<Waiting>) -> Batch {
        let bytes = waiting.iter().map(|waiting| waiting.encoded.len()).sum::<usize>();
        let mut encoded = Vec::with_capacity(17 + bytes);
        encoded.push(VERSION);
        encoded.extend_from_slice(&now.0.to_le_bytes());
        encoded.extend_from_slice(&digest.to_le_bytes());
        waiting.iter().for_each(|waiting| encoded.extend_from_slice(&waiting.encoded));
        let inputs = Arc::new(waiting.into_iter().map(|waiting| waiting.input).collect());
        Batch { now, digest, inputs, encoded: encoded.into() }
    }

    /// Bytes of its encoding.
    pub(super) fn len(&self) -> usize {
        self.encoded.len()
    }

    fn decode(encoded: &[u8]) -> Option<Batch> {
        let (&VERSION, rest) = encoded.split_first()? else { return None };
        let (now, rest) = rest.split_first_chunk()?;
        let (digest, mut rest) = rest.split_first_chunk()?;
        let mut inputs = Vec::new();
        while !rest.is_empty() {
            let (input, after) = postcard::take_from_bytes(rest).ok()?;
            inputs.push(input);
            rest = after;
        }
        let (now, digest) = (Time(u64::from_le_bytes(*now)), u64::from_le_bytes(*digest));
        Some(Batch { now, digest, inputs: Arc::new(inputs), encoded: Bytes::copy_from_slice(encoded) })
    }
}

impl Serialize for Batch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.encoded)
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Batch, D::Error> {
        struct Encoded;
        impl de::Visitor<'_> for Encoded {
            type Value = Batch;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an encoded batch")
            }
            fn visit_bytes<E: de::Error>(self, encoded: &[u8]) -> Result<Batch, E> {
                Batch::decode(encoded).ok_or_else(|| E::custom("not a batch of this version"))
            }
        }
        deserializer.deserialize_bytes(Encoded)
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} inputs, {} bytes)", self.inputs.len(), self.encoded.len())
    }
}

impl std::fmt::Display for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_and_decodes() {
        let (machine, session) = (wire::MachineId(3), Some(lease::SessionId(2)));
        let inputs = [Input::Tick, Input::Open { machine, incarnation: 9, session, connection: 4 }];
        let waiting = inputs.iter().map(|input| Waiting::new(input.clone())).collect();
        let batch = Batch::new(Time(77), 5, waiting);
        let bytes = postcard::to_allocvec(&batch).unwrap();
        let back: Batch = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((back.now, back.digest, back.inputs.as_slice()), (Time(77), 5, inputs.as_slice()));
        assert_eq!(back.encoded, batch.encoded);
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let [mut later, mut other] = [[0; 17]; 2].map(|bytes| bytes.to_vec());
        (later[0], other[0]) = (VERSION + 1, VERSION);
        other.push(0xff);
        for bytes in [&[][..], &[VERSION], &later, &other] {
            let bytes = postcard::to_allocvec(bytes).unwrap();
            assert!(postcard::from_bytes::<Batch>(&bytes).is_err());
        }
    }
}
