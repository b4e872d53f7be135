//! Bytes from the disk are input.

use crate::support::*;
use directory::{Directory, Fault, Input, MemoryStore, MoveReason, Moved, Violation};
use ident::{FileId, ServerId};
use namespace::{FileKind, Operation, operation};
use proptest::prelude::*;
use wire::{AskMode, ToServer};

const ROOT: FileId = FileId::root();
/// Tables of the state, behind the region and in it.
const BEYOND: [u8; 5] = [0x20, 0x21, 0x23, 0x24, 0x30];
const STATE: std::ops::RangeInclusive<u8> = 0x10..=0x14;
/// The table of work on shares, behind the region.
const UNSETTLED: u8 = 0x22;
/// The tables about the placement of regions, which say nothing that a server goes by.
const PLACEMENT: std::ops::RangeInclusive<u8> = 0x35..=0x37;
/// The region's indices.
const INDICES: std::ops::RangeInclusive<u8> = 0x15..=0x18;

/// Whether the key is of a row that a server reads when it starts.
fn is_of_state(key: &[u8]) -> bool {
    let of_region = key[0] == 0 && STATE.contains(&key[1]);
    of_region || BEYOND.into_iter().any(|table| is_beyond(key, table))
}

/// Whether the key is of a row of this table behind the region.
fn is_beyond(key: &[u8], table: u8) -> bool {
    key.starts_with(&[&[0xff; 8], [table].as_slice()].concat())
}

/// A store with a bit of everything in it, and a session that holds all of it.
fn filled() -> (World, lease::SessionId, FileId) {
    let mut world = World::new();
    world.input(Input::Found { number: 1, founder: 1 });
    world.input(Input::Found { number: 2, founder: 300 });
    let (file, moved) = (ROOT.child(2), Moved { to: ServerId(1), at: 300, why: MoveReason::Balance });
    world.input(Input::Pin { file: file.clone(), pinned: true });
    world.input(Input::Moved { region: file, moved: Some(moved) });
    world.input(Input::Balance { on: false });
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let dir = world.create(session, &ROOT, "dir", FileKind::Directory, n);
    let file = world.create(session, &made(&dir), "file", FileKind::Regular, 1);
    let (dir_id, file_id) = (made(&dir), made(&file));
    let content = extents(vec![extent(0, 100, share(1)), extent(100, 50, share(2))], true);
    let xattr = Operation::SetXattr(operation::SetXattr {
        file: file_id.clone(),
        name: lease::Label::attribute(b"user.name").unwrap(),
        value: vec![1, 2, 3],
        mode: namespace::XattrMode::Set,
        cred: namespace::Cred::default(),
        time: at(50),
    });
    let entries = vec![update(dir), update(file), update(publish(&file_id, 1, 150, content)), update(xattr)];
    assert_eq!(world.log(session, entries), []);
    world.server.checkpoint(&mut world.store);
    (world, session, dir_id)
}

/// Reads all rows, one way or another; whether anything was found corrupt.
fn read_all(store: MemoryStore, session: lease::SessionId, dir: &FileId) -> bool {
    let mut store = store;
    let Ok(mut server) = Directory::open(&store, wire::Versions::KNOWN) else { return true };
    let found = !violations(&server, &store).is_empty();
    let mut corrupt = false;
    let operations =
        [lookup(&ROOT, "dir"), lookup(dir, "file"), list(dir), stat(dir), unlink(dir, "file", false)];
    for (number, operation) in (0..).zip(operations) {
        let message = ToServer::Ask { number, operation, wants: vec![], mode: AskMode::Ship };
        let mut out = Vec::new();
        corrupt |= server
            .handle(lease::Time(5000), Input::Message { session, message }, &mut store, &mut out)
            .is_err();
        assert!(!corrupt || out.is_empty(), "nothing leaves a server that stops");
        if corrupt {
            break;
        }
    }
    found || corrupt
}

#[test]
fn a_sound_store_reads_well() {
    let (world, session, dir) = filled();
    assert!(!read_all(world.store, session, &dir));
}

#[test]
fn every_row_that_goes_missing_is_missed() {
    let (world, ..) = filled();
    for key in world.store.rows.keys() {
        // That work is due on a share is known by nothing else, nor are pins and moves.
        if is_beyond(key, UNSETTLED) || PLACEMENT.into_iter().any(|table| is_beyond(key, table)) {
            continue;
        }
        let mut store = world.store.clone();
        store.rows.remove(key);
        let found = match is_of_state(key) {
            true => Directory::open(&store, wire::Versions::KNOWN).is_err(),
            false => !violations(&world.server, &store).is_empty(),
        };
        assert!(found, "{}", key.escape_ascii());
    }
}

/// Every index row follows from other rows.
#[test]
fn every_index_row_too_many_is_found() {
    let (world, _, dir) = filled();
    let dead = dir.child(900);
    for table in INDICES {
        for file in [&dir, &dead] {
            let sub = match table {
                0x17 => vec![9; 16],
                0x18 => [&7u64.to_be_bytes(), file.as_bytes()].concat(),
                _ => file.as_bytes().to_vec(),
            };
            let mut store = world.store.clone();
            let row = if table == 0x17 { store.rows.get(&share_row(1)).unwrap().clone() } else { vec![] };
            assert_eq!(store.rows.insert([&[0, table], sub.as_slice()].concat(), row), None);
            assert!(!violations(&world.server, &store).is_empty(), "{table:#x} {file}");
        }
    }
}

/// The key of the index row of a share.
fn share_row(n: u8) -> Vec<u8> {
    [&[0, 0x17], share(n).0.as_slice()].concat()
}

#[test]
fn a_row_that_is_cut_short_is_found() {
    let (world, ..) = filled();
    for (key, value) in &world.store.rows {
        // Content that is its own bytes has no form to break; inline content is counted.
        if value.is_empty() || value == &[1, 2, 3] {
            continue;
        }
        let mut store = world.store.clone();
        store.rows.insert(key.clone(), value[..value.len() - 1].to_vec());
        let found = match is_of_state(key) {
            true => Directory::open(&store, wire::Versions::KNOWN).is_err(),
            false => !violations(&world.server, &store).is_empty(),
        };
        assert!(found, "{} {}", key.escape_ascii(), value.escape_ascii());
    }
}

/// A server stops that is asked for the content, and answers with none.
#[test]
fn inline_content_whose_row_is_missing_is_not_taken_for_an_empty_file() {
    let mut world = World::new();
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let mut link = world.create(session, &ROOT, "link", FileKind::Symlink, n);
    let Operation::Create(operation::Create { new, .. }) = &mut link else { panic!("{link:?}") };
    new.spec.target = b"target".to_vec();
    let file = made(&link);
    world.update(session, link).unwrap();
    let key = world.store.rows.iter().find(|(_, row)| row.as_slice() == b"target").unwrap().0.clone();
    world.store.rows.remove(&key);
    let operation = Operation::ReadLink(operation::ReadLink { file });
    let message = ToServer::Ask { number: 1, operation, wants: vec![], mode: AskMode::Ship };
    let mut out = Vec::new();
    let input = Input::Message { session, message };
    let answered = world.server.handle(lease::Time(5000), input, &mut world.store, &mut out);
    assert!(matches!(answered, Err(Fault::Corrupt(_))) && out.is_empty(), "{answered:?}: {out:?}");
}

#[test]
fn a_row_of_no_file_is_found() {
    let (mut world, ..) = filled();
    let stray = FileId::root().child(77);
    let key = [stray.as_bytes(), &[2]].concat();
    world.store.rows.insert(key, vec![1]);
    let tag = 2;
    assert_eq!(violations(&world.server, &world.store), [Violation::RowWithoutRecord { file: stray, tag }]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_make_it_panic(at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let (world, session, dir) = filled();
        let mut store = world.store;
        let key = at.get(&store.rows.keys().cloned().collect::<Vec<_>>()).clone();
        store.rows.insert(key, bytes);
        read_all(store, session, &dir);
    }

    #[test]
    fn no_flipped_bit_makes_it_panic(row in any::<prop::sample::Index>(), byte in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (world, session, dir) = filled();
        let mut store = world.store;
        let key = row.get(&store.rows.keys().cloned().collect::<Vec<_>>()).clone();
        if let Some(value) = store.rows.get_mut(&key).filter(|value| !value.is_empty()) {
            let at = byte.index(value.len());
            value[at] ^= 1 << bit;
        }
        read_all(store, session, &dir);
    }

    #[test]
    fn no_keys_make_it_panic(key in prop::collection::vec(any::<u8>(), 1..30), value in prop::collection::vec(any::<u8>(), 0..30)) {
        let (world, session, dir) = filled();
        let mut store = world.store;
        store.rows.insert(key, value);
        read_all(store, session, &dir);
    }
}

/// The rows of the state are few, and hold what the server takes for granted everywhere.
#[test]
fn no_flipped_bit_of_the_state_makes_it_panic() {
    let (world, session, dir) = filled();
    let state: Vec<_> = world.store.rows.iter().filter(|(key, _)| key[0] == 0xff).collect();
    assert!(state.len() > 5, "{}", state.len());
    for (key, value) in state {
        for bit in 0..value.len() * 8 {
            let mut store = world.store.clone();
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            store.rows.insert(key.clone(), flipped);
            read_all(store, session, &dir);
        }
    }
}
