//! The content of one log entry: a time, and the inputs that came while the entry before was
//! written.

use bytes::Bytes;
use directory::Input;
use lease::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::Arc;
use wire::{Version, Versions};

/// An entry's inputs and the time at which they happen. Encoded once, when proposed; cheap to
/// clone.
///
/// The encoding begins with the version, one byte. The time and the digest follow in 8 bytes each,
/// little-endian, then inputs in postcard until the end.
#[derive(Clone)]
pub struct Batch {
    pub(super) now: Time,
    /// The digest of the proposer's state before the entry ([`directory::Directory::digest`]). A
    /// member with another digest stops: replicas that differ are worse than one member less.
    pub(super) digest: u64,
    /// Of the cluster when it was proposed.
    version: Version,
    /// None if they are of a version after this program's, and in a form of its own: they are kept
    /// and passed on as they are.
    pub(super) inputs: Option<Arc<Vec<Input>>>,
    encoded: Bytes,
}

/// Bytes before the first input: the version, the time, the digest.
const HEADER: usize = 17;

/// An input and its encoding, waiting to be proposed.
pub(super) struct WaitingInput {
    pub(super) input: Input,
    /// Encoded behind room for a header. Most entries hold one input, and then nothing is copied.
    encoded: Vec<u8>,
}

impl WaitingInput {
    pub(super) fn new(input: Input) -> WaitingInput {
        let encoded = postcard::to_extend(&input, vec![0; HEADER])
            .expect("an input is plain data, its sequences know their lengths");
        WaitingInput { input, encoded }
    }

    /// Returns the bytes of its encoding.
    pub(super) fn len(&self) -> usize {
        self.encoded.len()
    }

    #[cfg(test)]
    pub(super) fn of_bytes(bytes: usize) -> WaitingInput {
        WaitingInput { input: Input::Tick, encoded: vec![0; bytes] }
    }
}

impl Batch {
    /// Makes a batch in a cluster of this version.
    pub(super) fn new(now: Time, digest: u64, version: Version, mut waiting: Vec<WaitingInput>) -> Batch {
        let (mut encoded, others) = match waiting.split_first_mut() {
            Some((first, others)) => (std::mem::take(&mut first.encoded), others),
            None => (vec![0; HEADER], &mut [][..]),
        };
        encoded.reserve_exact(others.iter().map(WaitingInput::len).sum());
        others.iter().for_each(|waiting| encoded.extend_from_slice(&waiting.encoded[HEADER..]));
        let (header, _) = encoded.split_at_mut(HEADER);
        header[0] = version.0 as u8;
        header[1..9].copy_from_slice(&now.0.to_le_bytes());
        header[9..].copy_from_slice(&digest.to_le_bytes());
        let inputs = Some(Arc::new(waiting.into_iter().map(|waiting| waiting.input).collect()));
        Batch { now, digest, version, inputs, encoded: encoded.into() }
    }

    /// Returns the bytes of its encoding.
    pub(super) fn len(&self) -> usize {
        self.encoded.len()
    }

    /// Returns the inputs, if a program that knows these versions knows the batch's version.
    /// Otherwise returns that version.
    pub(super) fn into_inputs(self, known: Versions) -> Result<Vec<Input>, Version> {
        let inputs = self.inputs.filter(|_| known.know(self.version));
        inputs.map(Arc::unwrap_or_clone).ok_or(self.version)
    }

    fn decode(encoded: &[u8]) -> Option<Batch> {
        let (version, rest) = encoded.split_first()?;
        let version = Version((*version).into());
        let (now, digest, inputs) = match read(rest) {
            Some((now, digest, inputs)) => (now, digest, Some(Arc::new(inputs))),
            None if version > Version::NEWEST => Default::default(),
            None => return None,
        };
        let encoded = Bytes::copy_from_slice(encoded);
        (version >= Version::OLDEST).then_some(Batch { now, digest, version, inputs, encoded })
    }
}

/// Reads the part of an encoding behind the version.
fn read(rest: &[u8]) -> Option<(Time, u64, Vec<Input>)> {
    let (now, rest) = rest.split_first_chunk()?;
    let (digest, mut rest) = rest.split_first_chunk()?;
    let mut inputs = Vec::new();
    while !rest.is_empty() {
        let (input, after) = postcard::take_from_bytes(rest).ok()?;
        inputs.push(input);
        rest = after;
    }
    Some((Time(u64::from_le_bytes(*now)), u64::from_le_bytes(*digest), inputs))
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
        let inputs = self.inputs.as_ref().map_or(0, |inputs| inputs.len());
        write!(f, "Batch({inputs} inputs, {} bytes)", self.encoded.len())
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

    const NEXT: Version = Version::NEWEST.next();

    fn batch(version: Version) -> Batch {
        let (machine, session) = (wire::MachineId(3), Some(lease::SessionId(2)));
        let greeting = wire::GreetingNumber::default();
        let open = Input::Open { machine, incarnation: 9, greeting, session, connection: 4, version };
        let waiting = [Input::Tick, open].map(WaitingInput::new).into();
        Batch::new(Time(77), 5, version, waiting)
    }

    #[test]
    fn encodes_and_decodes() {
        for (version, first) in [(Version(1), 1), (NEXT, 2)] {
            let batch = batch(version);
            let back: Batch = postcard::from_bytes(&postcard::to_allocvec(&batch).unwrap()).unwrap();
            assert_eq!((back.now, back.digest), (Time(77), 5));
            assert_eq!((&back.encoded, back.encoded[0]), (&batch.encoded, first));
            let inputs = |batch: Batch| batch.into_inputs(Versions::WITH_NEXT).unwrap();
            assert_eq!(inputs(back), inputs(batch));
        }
    }

    #[test]
    fn what_is_of_a_later_version_is_kept_as_it_is_and_not_applied() {
        assert_eq!(batch(NEXT).into_inputs(Versions::KNOWN), Err(NEXT));
        // And in a form of its own.
        let mut encoded = batch(NEXT).encoded.to_vec();
        encoded.extend([0xff; 9]);
        let kept = Batch::decode(&encoded).unwrap();
        assert_eq!(kept.encoded, encoded);
        assert_eq!(kept.into_inputs(Versions::KNOWN), Err(NEXT));
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let [mut earlier, mut other] = [[0u8; HEADER]; 2].map(|bytes| bytes.to_vec());
        (earlier[0], other[0]) = (0, 1);
        other.push(0xff);
        for bytes in [&[][..], &[1], &earlier, &other] {
            let bytes = postcard::to_allocvec(bytes).unwrap();
            assert!(postcard::from_bytes::<Batch>(&bytes).is_err());
        }
    }
}
