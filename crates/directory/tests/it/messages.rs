//! No message is longer than a frame may be, whatever files there are. `World` checks the length of
//! each message, in all other tests too.

use crate::support::*;
use ident::FileId;
use lease::{Field, Kind, Label, SessionId};
use namespace::{
    Cred, Error, FileKind, Operation, Place, XATTR_BYTES_MAX, XATTRS_BYTES_MAX, XattrMode, operation,
};
use proptest::prelude::*;
use wire::{AskMode, ToClient, ToServer};

const PIECE: u32 = 128 << 10;

fn set(file: &FileId, name: &str, bytes: usize) -> Operation {
    let (file, name, value) = (file.clone(), Label::attribute(name.as_bytes()).unwrap(), vec![b'v'; bytes]);
    Operation::SetXattr(operation::SetXattr {
        file,
        name,
        value,
        mode: XattrMode::Set,
        cred: Cred::default(),
        time: at(20),
    })
}

/// A file of the next name in the root, with so many bytes of attributes, and so many pieces of
/// content in the metadata.
fn make(world: &mut World, session: SessionId, n: u64, attributes: usize, pieces: u32) -> FileId {
    let operation = world.create(session, &FileId::root(), &format!("{n:0>255}"), FileKind::Regular, n);
    let file = made(&operation);
    assert_eq!(world.update(session, operation), Ok(()));
    for at in (0..attributes).step_by(XATTR_BYTES_MAX) {
        let value = XATTR_BYTES_MAX.min(attributes - at) - 32;
        assert_eq!(world.update(session, set(&file, &format!("user.{at}"), value)), Ok(()));
    }
    if pieces == 0 {
        let inline = inline(&[b'c'; 4096]);
        assert_eq!(world.update(session, publish(&file, 1, 4096, inline)), Ok(()));
    }
    for i in 0..pieces {
        let mut put = extent(u64::from(i * PIECE), PIECE, share(1));
        put.piece.place = Place::Inline(vec![0; PIECE as usize + 16].into());
        let size = u64::from((i + 1) * PIECE);
        let publish = publish(&file, u64::from(i) + 1, size, extents(vec![put], i == 0));
        assert_eq!(world.update(session, publish), Ok(()));
    }
    file
}

/// Looks at everything of a file that can be asked for.
fn look_at(world: &mut World, session: SessionId, file: &FileId) {
    let fields = [Field::Attributes, Field::Content, Field::Parent, Field::Xattrs, Field::Locks];
    for mode in [AskMode::Report, AskMode::Lease, AskMode::LeaseOrReport] {
        let wants = fields.iter().map(|field| want(file, field.clone(), Kind::Read)).collect();
        world.ask(session, stat(file), wants, mode);
    }
    world.told(session);
}

/// The pieces of a file, as its reader asks for them.
fn pieces_of(world: &mut World, session: SessionId, file: &FileId) -> usize {
    let (mut from, mut pieces) = (0, 0);
    while from != u64::MAX {
        world.send(session, ToServer::Extents { number: 1, file: file.clone(), from });
        let Some(ToClient::Extents { to, extents, .. }) = world.told(session).pop() else { panic!() };
        assert!(to > from, "it goes on");
        pieces += extents.len();
        from = to;
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn whatever_there_is_in_a_directory(
        attributes in prop::collection::vec(prop_oneof![Just(0usize), 1000usize..60_000, 200_000usize..262_000], 200..400),
        pieces in prop::collection::vec(0u32..200, 1..3),
    ) {
        let mut world = World::new();
        world.checks = false;
        let writer = world.open(1, 1);
        let first = world.take_root(writer);
        world.send(writer, ToServer::Allow { held: (0, 0), want: (1 << 34, 100_000), replaces: 0 });
        world.told(writer);
        let sizes = attributes.iter().map(|bytes| (*bytes, 0)).chain(pieces.iter().map(|pieces| (0, *pieces)));
        let files: Vec<(FileId, u32)> = (first..)
            .zip(sizes)
            .map(|(n, (bytes, pieces))| (make(&mut world, writer, n, bytes, pieces), pieces))
            .collect();
        world.send(writer, ToServer::Goodbye);
        let reader = world.open(2, 1);
        world.ask(reader, list(&FileId::root()), Vec::new(), AskMode::Report);
        world.told(reader);
        let listed = world.granted(reader, list(&FileId::root()), AskMode::Lease);
        prop_assert!(listed.len() > 1, "some come along");
        for (file, pieces) in files.iter().rev().take(8) {
            look_at(&mut world, reader, file);
            prop_assert_eq!(pieces_of(&mut world, reader, file), *pieces as usize);
        }
    }
}

#[test]
fn a_file_has_so_many_bytes_of_attributes_and_no_more() {
    let mut world = World::new();
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let file = make(&mut world, session, n, XATTRS_BYTES_MAX - 1000, 0);
    assert_eq!(world.update(session, set(&file, "user.more", 2000)), Err(Error::NoSpace));
    assert_eq!(world.update(session, set(&file, "user.0", 10)), Ok(()), "less is always allowed");
    assert_eq!(world.update(session, set(&file, "user.more", 2000)), Ok(()));
}
