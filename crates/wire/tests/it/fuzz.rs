//! Arbitrary bytes from a wire either are a message or are none. They cost their reader no more
//! than their frame allows.
//!
//! More cases: `PROPTEST_CASES=1000000`, as `.ci/soak` has it.

use crate::samples::{Message, samples};
use lease::{Label, Lease, Released};
use namespace::{Effect, Entry, Error, Extent, Link};
use proptest::prelude::*;
use proptest::sample::Index;
use serde::Serialize;
use std::sync::LazyLock;
use wire::{FileGrant, LOG_ENTRIES_MAX, LogEntry, ToServer};

static ENCODED: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| samples().iter().map(|(_, message)| message.encode(wire::Versions::KNOWN)).collect());

/// The damage that a lying peer, a bad cable or a bug does to a frame.
#[derive(Clone, Debug)]
enum Damage {
    Cut(Index),
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    /// The end of another message in place of its own.
    Splice(Index, Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    // The largest number that an encoding has, and lengths beyond any frame.
    let numbers = prop_oneof![
        Just(vec![0xff; 9]),
        Just([&[0xff; 9][..], &[1]].concat()),
        Just(vec![0xff, 0xff, 0xff, 0x7f]),
        prop::collection::vec(any::<u8>(), 1..12),
    ];
    let index = any::<Index>;
    prop_oneof![
        index().prop_map(Damage::Cut),
        (index(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (index(), numbers).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (index(), index()).prop_map(|(from, to)| Damage::Remove(from, to)),
        (index(), index(), index()).prop_map(|(at, other, from)| Damage::Splice(at, other, from)),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |index: &Index, bytes: &[u8]| index.index(bytes.len() + 1);
        match self {
            Damage::Cut(at) => bytes.truncate(place(at, bytes)),
            Damage::Set(at, byte) => {
                let at = place(at, bytes);
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Damage::Insert(at, more) => {
                let at = place(at, bytes);
                drop(bytes.splice(at..at, more.iter().copied()));
            }
            Damage::Remove(from, to) => {
                let (from, to) = (place(from, bytes), place(to, bytes));
                drop(bytes.drain(from.min(to)..from.max(to)));
            }
            Damage::Splice(at, other, from) => {
                bytes.truncate(place(at, bytes));
                let other = other.get(&ENCODED);
                bytes.extend_from_slice(&other[place(from, other)..]);
            }
        }
    }
}

/// Every message that is read is written again as the same bytes.
fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    for message in Message::decode_as_any(bytes) {
        prop_assert!(
            Message::decode_as_any(&message.encode(wire::Versions::KNOWN)).contains(&message),
            "{message:?}"
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes)?;
    }

    #[test]
    fn a_damaged_message_is_another_or_none(damages in prop::collection::vec(damage(), 1..4)) {
        // Every message of every kind, each time.
        for encoded in ENCODED.iter() {
            let mut bytes = encoded.clone();
            damages.iter().for_each(|damage| damage.apply(&mut bytes));
            check(&bytes)?;
        }
    }
}

#[test]
fn a_message_that_is_cut_short_is_none() {
    for (name, message) in samples() {
        let whole = message.encode(wire::Versions::KNOWN);
        for length in 0..whole.len() {
            assert!(!Message::decode_as_any(&whole[..length]).contains(&message), "{name}");
        }
    }
}

/// The memory that an element of a list may take, as a multiple of its bytes in a frame. A frame
/// has 16 MiB at most.
const MEMORY_PER_BYTE: usize = 32;

fn is_bounded<T: Serialize>(smallest: &T) {
    let (memory, frame) = (size_of::<T>(), wire::encode(smallest).len());
    assert!(memory <= frame * MEMORY_PER_BYTE, "{}: {memory} for {frame}", std::any::type_name::<T>());
}

#[test]
fn what_a_frame_makes_its_reader_allocate_is_bounded() {
    let (root, label) = (ident::FileId::root(), Label::new(b"a").unwrap());
    let entry = Entry { file: root.clone(), kind: namespace::FileKind::Regular, ino: 1, position: 1 };
    let place = namespace::Place::Inline(bytes::Bytes::new());
    let piece = namespace::Piece { length: 0, nonce: [0; 12], hash: [0; 32], place };
    let (field, keep) = (lease::Field::Attributes, None::<lease::Kind>);
    let values = wire::Values::default();
    is_bounded(&Lease::new(root.clone(), field.clone(), lease::Kind::Read));
    is_bounded(&Released { file: root.clone(), field: field.clone(), keep });
    is_bounded(&(field, keep));
    is_bounded(&Extent { offset: 0, length: 0, skip: 0, piece });
    is_bounded(&(0u64, 0u64));
    is_bounded(&(0u64, Error::NotFound));
    is_bounded(&Ok::<(), Error>(()));
    is_bounded(&(namespace::ShareId([0; 16]), 0u32));
    is_bounded(&namespace::ShareId([0; 16]));
    is_bounded(&0u8);
    is_bounded(&0u32);
    is_bounded(&label);
    is_bounded(&root);
    is_bounded(&(label.clone(), entry));
    is_bounded(&(label.clone(), Vec::<u8>::new()));
    // These only come from the server, which could harm its clients in worse ways: memory for links
    // is set aside for as many as there are bytes left.
    assert!(size_of::<Link>() <= 2 * MEMORY_PER_BYTE);
    assert!(
        size_of::<Effect>()
            <= 3 * MEMORY_PER_BYTE * wire::encode(&Effect::Death { file: root.clone() }).len()
    );
    let (fields, excluded, excluded_xattrs) = (Vec::new(), Vec::new(), Vec::new());
    is_bounded(&FileGrant { file: root, whole: false, fields, excluded, excluded_xattrs, values });
    // Entries of a log are the exception, so they are counted.
    let log =
        |count| ToServer::Log { answer: true, first: 1, entries: vec![LogEntry::Release(Vec::new()); count] };
    let (fits, does_not) = (log(LOG_ENTRIES_MAX), log(LOG_ENTRIES_MAX + 1));
    assert_eq!(wire::decode(&wire::encode(&fits)), Ok(fits));
    assert!(wire::decode::<ToServer>(&wire::encode(&does_not)).is_err());
}
