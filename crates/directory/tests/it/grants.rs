//! The extent of grants beyond the request, and its savings.

use crate::support::*;
use directory::{PAGE, Policy};
use ident::FileId;
use lease::{Field, Granularity, Kind, SessionId};
use namespace::FileKind;
use wire::{AskMode, LogEntry};

const ROOT: FileId = FileId::root();

/// A world with `count` files in the root, on which no session has leases.
fn with_files(policy: Policy, count: u64) -> (World, SessionId) {
    let mut world = World::new();
    let maker = world.open(1, 1);
    world.take_root(maker);
    let mut entries = Vec::new();
    let mut block = (0, 0);
    for i in 0..count {
        if block.0 == block.1 {
            world.send(maker, wire::ToServer::Reserve { dir: ROOT });
            let Some(wire::ToClient::Reserved { first, end, .. }) = world.told(maker).pop() else { panic!() };
            block = (first, end);
        }
        if i % 4000 == 0 {
            world.send(maker, wire::ToServer::ReserveInodes { known: u64::MAX });
            let Some(wire::ToClient::ReservedInodes { first, .. }) = world.told(maker).pop() else {
                panic!()
            };
            world.next_inode(maker, first);
        }
        let op = world.create(maker, &ROOT, &format!("file{i}"), FileKind::Regular, block.0);
        block.0 += 1;
        entries.push(update(op));
    }
    for chunk in entries.chunks(1000) {
        assert_eq!(world.log(maker, chunk.to_vec()), []);
    }
    world.send(maker, wire::ToServer::Goodbye);
    let session = world.open(2, 1);
    world.messages = 0;
    world.server = world.server.clone().with_policy(policy);
    (world, session)
}

#[test]
fn one_lookup_brings_a_small_directory_and_all_its_files() {
    let (mut world, session) = with_files(Policy::default(), 20);
    let grants = world.granted(session, lookup(&ROOT, "file7"), AskMode::Lease);
    assert!(grants[0].whole);
    assert_eq!(grants[0].values.children.len(), 20);
    assert_eq!(grants[0].values.children_up_to, Some(u64::MAX));
    assert_eq!(grants.len(), 21);
    assert!(grants.iter().all(|grant| grant.whole && grant.values.attributes.is_some()));
}

#[test]
fn a_page_at_a_time_brings_a_large_directory() {
    let count = PAGE as u64 * 2 + 10;
    let (mut world, session) = with_files(Policy::default(), count);
    let (mut after, mut seen, mut pages) = (0, Vec::new(), 0);
    while after != u64::MAX {
        let grants = world.granted(session, list(&ROOT), AskMode::Page { after });
        let values = &grants[0].values;
        assert!(values.children.iter().all(|(_, entry)| entry.position > after));
        seen.extend(values.children.iter().map(|(label, _)| label.clone()));
        assert_eq!(grants.len(), values.children.len() + 1, "each entry comes with its file");
        after = values.children_up_to.expect("contiguous from the start");
        pages += 1;
    }
    assert_eq!((seen.len() as u64, pages), (count, 3));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len() as u64, count);
}

#[test]
fn a_lookup_in_a_large_directory_brings_those_that_follow() {
    let (mut world, session) = with_files(Policy::default(), PAGE as u64 + 10);
    let grants = world.granted(session, lookup(&ROOT, "file500"), AskMode::Lease);
    let values = &grants[0].values;
    assert_eq!(values.children_up_to, None, "not contiguous from the start");
    assert_eq!(values.children[0].0, label("file500"));
    assert_eq!(values.children[1].0, label("file501"));
    assert!(values.children.len() > 100 && grants.len() == values.children.len() + 1);
    // A missing label is named in the grant, so that it is known to be unused though not all pages
    // are there.
    let (mut world, session) = with_files(Policy::default(), PAGE as u64 + 10);
    world.now = world.now.after_ms(60_000);
    let other = world.open(3, 1);
    world.granted(other, stat(&ROOT), AskMode::Lease);
    let number = world.ask(session, lookup(&ROOT, "none"), vec![], AskMode::Lease);
    world.yields(other);
    let grants = world.grants(session, number).unwrap();
    assert!(grants[0].fields.iter().any(|(field, _)| *field == Field::Child(label("none"))));
    assert!(grants[0].fields.iter().any(|(field, _)| *field == Field::Children));
}

#[test]
fn an_infinite_lease_leaves_out_what_others_hold() {
    let (mut world, session) = with_files(Policy { generous: false, ..Policy::default() }, 5);
    let other = world.open(3, 1);
    let wants = vec![want(&ROOT, Field::Child(label("file1")), Kind::Write)];
    world.ask(other, lookup(&ROOT, "file1"), wants, AskMode::Lease);
    world.told(other);
    world.server = world.server.clone().with_policy(Policy::default());
    let grants = world.granted(session, lookup(&ROOT, "file2"), AskMode::Lease);
    assert_eq!(grants[0].excluded, [label("file1")]);
    let names: Vec<_> = grants[0].values.children.iter().map(|(label, _)| label.clone()).collect();
    assert!(names.contains(&label("file2")) && !names.contains(&label("file1")), "{names:?}");
    // A request that needs all labels needs that one too.
    let number = world.ask(session, list(&ROOT), vec![], AskMode::Lease);
    assert_eq!(world.recalled(other), [released(&ROOT, Field::Child(label("file1")), Some(Kind::Read))]);
    world.release(other, vec![released(&ROOT, Field::Child(label("file1")), Some(Kind::Read))]);
    let grants = world.grants(session, number).unwrap();
    assert_eq!(grants[0].values.children.len(), 5);
}

/// Stats each of 20 files, as a client that has just seen nothing; the number of messages.
fn stats(policy: Policy) -> usize {
    let (mut world, session) = with_files(policy, 20);
    let mut known: Vec<FileId> = Vec::new();
    let mut labels = Vec::new();
    for i in 0..20 {
        let name = format!("file{i}");
        let mut learn = |grants: Vec<wire::FileGrant>, known: &mut Vec<FileId>| {
            for grant in grants {
                if grant.values.attributes.is_some() && grant.values.content.is_some() {
                    known.push(grant.file.clone());
                }
                labels.extend(grant.values.children);
            }
            labels.iter().find(|(label, _)| *label == self::label(&name)).map(|(_, entry)| entry.file.clone())
        };
        let file = match learn(Vec::new(), &mut known) {
            Some(file) => file,
            None => {
                let grants = world.granted(session, lookup(&ROOT, &name), AskMode::Lease);
                learn(grants, &mut known).expect("it is there")
            }
        };
        if !known.contains(&file) {
            world.granted(session, stat(&file), AskMode::Lease);
        }
    }
    world.messages
}

#[test]
fn generous_grants_save_messages() {
    let (generous, narrow) =
        (stats(Policy::default()), stats(Policy { generous: false, ..Policy::default() }));
    assert!(generous < narrow, "{generous} against {narrow}");
    // A lookup brings the leases for the next question, also where grants are not generous.
    assert_eq!((generous, narrow), (2, 40));
}

/// Makes a directory and 20 files in it; the number of messages.
fn creates(birthright: bool) -> usize {
    let mut world = World::with_policy(Policy { birthright, ..Policy::default() });
    let session = world.open(1, 1);
    let n = world.take_root(session);
    world.messages = 0;
    let dir = world.create(session, &ROOT, "dir", FileKind::Directory, n);
    let dir_id = made(&dir);
    assert_eq!(world.update(session, dir), Ok(()));
    let files: Vec<_> =
        (1..=20).map(|i| world.create(session, &dir_id, &format!("{i}"), FileKind::Regular, i)).collect();
    if !birthright {
        world.granted(session, files[0].clone(), AskMode::Lease);
    }
    for op in files {
        let file = made(&op);
        assert_eq!(world.update(session, op), Ok(()));
        if !birthright {
            world.ask(session, stat(&file), vec![want(&file, Field::Content, Kind::Write)], AskMode::Lease);
            world.told(session);
        }
        let content = inline(&[1; 10]);
        assert_eq!(world.log(session, vec![update(publish(&file, 1, 10, content))]), []);
    }
    world.messages
}

#[test]
fn the_creators_birthright_saves_messages() {
    let (with, without) = (creates(true), creates(false));
    assert!(with < without, "{with} against {without}");
    assert_eq!(without - with, 2 * 21);
}

#[test]
fn whoever_waits_gets_before_anybody_gets_more() {
    let (mut world, a) = with_files(Policy::default(), 5);
    let (b, c) = (world.open(3, 1), world.open(4, 1));
    world.granted(a, stat(&ROOT), AskMode::Lease);
    let wants = vec![want(&ROOT, Field::Attributes, Kind::Write)];
    let first = world.ask(b, stat(&ROOT), wants.clone(), AskMode::Lease);
    let second = world.ask(c, stat(&ROOT), wants, AskMode::Lease);
    world.yields(a);
    let grants = world.grants(b, first).unwrap();
    assert_eq!(
        grants[0].fields,
        [(Field::Attributes, Kind::Write), (Field::Times, Kind::Read)],
        "no more than that"
    );
    world.log(b, vec![LogEntry::Release(vec![released(&ROOT, Field::Attributes, None)])]);
    assert!(world.grants(c, second).is_some());
}

#[test]
fn what_is_held_is_not_granted_again_unless_it_is_missed() {
    let (mut world, a) = with_files(Policy::default(), 5);
    let b = world.open(3, 1);
    world.granted(b, lookup(&ROOT, "file0"), AskMode::Lease);
    let asks = |world: &mut World, operation, wants| {
        let number = world.ask(a, operation, wants, AskMode::Lease);
        world.yields(b);
        world.grants(a, number).unwrap().swap_remove(0)
    };
    let first = asks(&mut world, lookup(&ROOT, "file1"), Vec::new());
    let child = |name| Field::Child(label(name));
    assert_eq!(first.fields, [(Field::Attributes, Kind::Read), (child("file1"), Kind::Read)]);
    let second = asks(&mut world, lookup(&ROOT, "file2"), Vec::new());
    assert_eq!(second.fields, [(child("file2"), Kind::Read)]);
    assert!(second.values.attributes.is_some(), "the value may be what was missing");
    let again = vec![want(&ROOT, Field::Attributes, Kind::Read)];
    let third = asks(&mut world, lookup(&ROOT, "file2"), again);
    assert_eq!(third.fields, [(Field::Attributes, Kind::Read)]);
    assert_eq!(third.values.told, [label("file2")]);
}

/// A control for Farsite §8.3.3: while one session may change a file, no other holds anything of
/// it, not even fields that the two would never both touch.
#[test]
fn with_a_single_lease_for_each_file_a_writer_is_alone() {
    let (mut world, a) = with_files(Policy { granularity: Granularity::Files, ..Policy::default() }, 5);
    let b = world.open(3, 1);
    world.granted(a, lookup(&ROOT, "file0"), AskMode::Lease);
    let read = world.ask(b, lookup(&ROOT, "file1"), Vec::new(), AskMode::Lease);
    assert!(world.yields(a) > 5);
    let grants = world.grants(b, read).unwrap();
    assert!(grants[0].fields.iter().all(|(_, kind)| *kind == Kind::Read), "{:?}", grants[0].fields);
    assert!(grants[0].fields.contains(&(Field::Children, Kind::Read)));
    assert_eq!(grants[0].values.children.len(), 5);
    // Both read, until one is to change something.
    let write = world.ask(b, unlink(&ROOT, "file1", false), Vec::new(), AskMode::Lease);
    let recalled = world.recalled(a);
    assert!(recalled.iter().any(|it| it.file == ROOT && it.field == Field::Children && it.keep.is_none()));
    world.log(a, releasing(recalled));
    let grants = world.grants(b, write).unwrap();
    assert!(grants[0].fields.iter().all(|(_, kind)| *kind == Kind::Write), "{:?}", grants[0].fields);
    assert!(grants[0].fields.contains(&(Field::Xattrs, Kind::Write)));
}

/// A client that looks a name up comes back for the file, which another client may replace
/// meanwhile, again and again. So all of the file is granted at one time.
#[test]
fn a_lookup_is_granted_the_file_with_its_name() {
    let (mut world, a) = with_files(Policy::default(), 5);
    let b = world.open(3, 1);
    let grants = world.granted(b, lookup(&ROOT, "file1"), AskMode::Lease);
    let named = grants[0].values.children.iter().find(|(name, _)| *name == label("file1")).unwrap();
    let file = named.1.file.clone();
    let number = world.ask(a, lookup(&ROOT, "file1"), Vec::new(), AskMode::Lease);
    while world.yields(b) > 0 {}
    let grants = world.grants(a, number).unwrap();
    let of_file = grants.iter().find(|grant| grant.file == file).unwrap();
    for field in [Field::Attributes, Field::Content, Field::Handles] {
        assert!(of_file.whole || of_file.fields.iter().any(|(granted, _)| *granted == field), "{of_file:?}");
    }
    assert!(of_file.values.attributes.is_some() && of_file.values.content.is_some());
}

#[test]
fn values_are_told_in_turn_and_nothing_is_granted() {
    let (mut world, a) = with_files(Policy::default(), 5);
    let (b, c) = (world.open(3, 1), world.open(4, 1));
    world.granted(b, lookup(&ROOT, "file1"), AskMode::Lease);
    let wants = vec![want(&ROOT, Field::Child(label("file1")), Kind::Write)];
    let first = world.ask(a, lookup(&ROOT, "file1"), Vec::new(), AskMode::Values);
    let second = world.ask(c, lookup(&ROOT, "file1"), wants, AskMode::Lease);
    while world.yields(b) > 0 {}
    let told = world.told(a);
    let values = told.iter().find_map(|message| match message {
        wire::ToClient::Reported { number, values, .. } if *number == first => Some(values),
        _ => None,
    });
    let values = values.unwrap_or_else(|| panic!("{told:?}"));
    assert_eq!((values.len(), values[0].values.children.len()), (2, 1));
    assert!(values[1].values.attributes.is_some() && values[1].values.content.is_some());
    assert!(world.grants(c, second).is_some(), "the next has not to wait for what was only told");
    assert_eq!(world.recalled(a), []);
}
