//! What one log entry holds: a time, and the inputs that came while the entry before it was on its
//! way to the disk.

use bytes::Bytes;
use directory::Input;
use lease::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::Arc;
use wire::{Version, Versions};

/// How an encoding begins that is of [`Version::OLDEST`]; those of later ones begin with the
/// version. The time and the digest follow in 8 bytes each, little-endian, then inputs in postcard
/// until the end.
const OLDEST: u8 = 2;

/// An entry's inputs and the time at which they happen. Encoded once, when proposed; cheap to
/// clone.
#[derive(Clone)]
pub struct Batch {
    pub(super) now: Time,
    /// Of the state that the proposer had come to before ([`directory::Directory::digest`]).
    /// Whoever comes to another stops: replicas that differ are worse than one less.
    pub(super) digest: u64,
    /// Or the version that they are of, which this program does not know. Whoever is to apply them
    /// stops; until then they are kept and passed on as they are.
    pub(super) inputs: Result<Arc<Vec<Input>>, Version>,
    encoded: Bytes,
}

/// Bytes before the first input: the version, the time, the digest.
const HEADER: usize = 17;

/// An input and its encoding, waiting to be proposed.
pub(super) struct Waiting {
    pub(super) input: Input,
    /// Behind the place of a header: most entries hold one input, and nothing is copied then.
    encoded: Vec<u8>,
}

impl Waiting {
    pub(super) fn new(input: Input) -> Waiting {
        let encoded = postcard::to_extend(&input, vec![0; HEADER])
            .expect("an input is plain data, its sequences know their lengths");
        Waiting { input, encoded }
    }

    /// Bytes that it takes.
    pub(super) fn len(&self) -> usize {
        self.encoded.len()
    }

    #[cfg(test)]
    pub(super) fn of_bytes(bytes: usize) -> Waiting {
        Waiting { input: Input::Tick, encoded: vec![0; bytes] }
    }
}

impl Batch {
    /// Proposed in a cluster of this version.
    pub(super) fn new(now: Time, digest: u64, version: Version, mut waiting: Vec<Waiting>) -> Batch {
        let (mut encoded, others) = match waiting.split_first_mut() {
            Some((first, others)) => (std::mem::take(&mut first.encoded), others),
            None => (vec![0; HEADER], &mut [][..]),
        };
        encoded.reserve_exact(others.iter().map(Waiting::len).sum());
        others.iter().for_each(|waiting| encoded.extend_from_slice(&waiting.encoded[HEADER..]));
        let (header, _) = encoded.split_at_mut(HEADER);
        header[0] = if version == Version::OLDEST { OLDEST } else { version.0 as u8 };
        header[1..9].copy_from_slice(&now.0.to_le_bytes());
        header[9..].copy_from_slice(&digest.to_le_bytes());
        let inputs = Ok(Arc::new(waiting.into_iter().map(|waiting| waiting.input).collect()));
        Batch { now, digest, inputs, encoded: encoded.into() }
    }

    /// Bytes of its encoding.
    pub(super) fn len(&self) -> usize {
        self.encoded.len()
    }

    fn decode(encoded: &[u8]) -> Option<Batch> {
        let (version, rest) = encoded.split_first()?;
        let version = match *version {
            OLDEST => Version::OLDEST,
            version => Some(Version(version.into())).filter(|version| *version > Version::OLDEST)?,
        };
        let encoded = Bytes::copy_from_slice(encoded);
        if !Versions::KNOWN.know(version) {
            return Some(Batch { now: Time::default(), digest: 0, inputs: Err(version), encoded });
        }
        let (now, rest) = rest.split_first_chunk()?;
        let (digest, mut rest) = rest.split_first_chunk()?;
        let mut inputs = Vec::new();
        while !rest.is_empty() {
            let (input, after) = postcard::take_from_bytes(rest).ok()?;
            inputs.push(input);
            rest = after;
        }
        let (now, digest) = (Time(u64::from_le_bytes(*now)), u64::from_le_bytes(*digest));
        Some(Batch { now, digest, inputs: Ok(Arc::new(inputs)), encoded })
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

    fn batch(version: Version) -> Batch {
        let (machine, session) = (wire::MachineId(3), Some(lease::SessionId(2)));
        let inputs = [Input::Tick, Input::Open { machine, incarnation: 9, session, connection: 4 }];
        let waiting = inputs.iter().map(|input| Waiting::new(input.clone())).collect();
        Batch::new(Time(77), 5, version, waiting)
    }

    #[test]
    fn encodes_and_decodes() {
        for (version, first) in [(Version::OLDEST, 2), (Version::NEWEST, 6)] {
            let batch = batch(version);
            let back: Batch = postcard::from_bytes(&postcard::to_allocvec(&batch).unwrap()).unwrap();
            assert_eq!((back.now, back.digest, &back.inputs), (Time(77), 5, &batch.inputs));
            assert_eq!((&back.encoded, back.encoded[0]), (&batch.encoded, first));
        }
    }

    #[test]
    fn what_is_of_a_later_version_is_kept_as_it_is_and_says_so() {
        let later = Version::NEWEST.next();
        let mut encoded = batch(later).encoded.to_vec();
        encoded.extend([0xff; 9]);
        let kept = Batch::decode(&encoded).unwrap();
        assert_eq!((kept.inputs, kept.encoded.to_vec()), (Err(later), encoded));
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let [mut earlier, mut other] = [[0; 17]; 2].map(|bytes| bytes.to_vec());
        (earlier[0], other[0]) = (OLDEST - 1, OLDEST);
        other.push(0xff);
        for bytes in [&[][..], &[OLDEST], &earlier, &other] {
            let bytes = postcard::to_allocvec(bytes).unwrap();
            assert!(postcard::from_bytes::<Batch>(&bytes).is_err());
        }
    }
}
