//! Sessions: their ends, and restarts of the server.

use crate::support::*;
use directory::{Directory, INODE_BLOCK, Input, Misdeed, TERM_MS};
use ident::FileId;
use lease::{Field, Kind, Lease, SessionId};
use namespace::FileKind;
use wire::{AskMode, EnrolError, MachineId, Rights, ToClient, ToServer};

const ROOT: FileId = FileId::root();

#[test]
fn a_session_begins_with_inode_numbers_and_room() {
    let mut world = World::new();
    world.input(connects(1, None, 0));
    let session = *world.inbox.keys().next().unwrap();
    let told = world.told(session);
    let [ToClient::Opened { inodes, allowance, term_ms, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((inodes.1 - inodes.0, *term_ms), (INODE_BLOCK, TERM_MS));
    assert!(allowance.0 > 0 && allowance.1 > 0);
    world.send(session, ToServer::ReserveInodes { known: inodes.1 });
    assert_eq!(
        world.told(session),
        [ToClient::ReservedInodes { first: inodes.1, end: inodes.1 + INODE_BLOCK }]
    );
}

#[test]
fn a_newer_incarnation_ends_the_older_session_at_once() {
    let mut world = World::new();
    let old = world.open(1, 1);
    world.take_root(old);
    let new = world.open(1, 2);
    assert_eq!(world.told(old), [ToClient::Fenced]);
    // Its leases are free, and its updates are refused.
    world.take_root(new);
    world.send(
        old,
        ToServer::Log { answer: true, first: 1, entries: vec![update(unlink(&ROOT, "a", false))] },
    );
    assert_eq!(world.told(old), [ToClient::Fenced]);
    // Late messages of an older incarnation change nothing.
    world.input(connects(1, None, 0));
    assert_eq!(world.server.status(world.now).sessions, 1);
    assert_eq!(world.told(new), []);
}

#[test]
fn a_lapsed_session_is_courteous_until_somebody_needs_its_leases() {
    let mut world = World::new();
    let (idle, other) = (world.open(1, 1), world.open(2, 1));
    world.take_root(idle);
    world.now = world.now.after_ms(TERM_MS + 1);
    world.input(Input::Tick);
    assert_eq!(world.told(idle), []);
    assert_eq!(world.server.status(world.now).lapsed, 2);
    world.take_root(other);
    assert_eq!(world.told(idle), [ToClient::Fenced]);
}

#[test]
fn a_session_that_lapses_while_it_is_waited_for_is_fenced() {
    let mut world = World::new();
    let (idle, other) = (world.open(1, 1), world.open(2, 1));
    world.take_root(idle);
    let number = world.ask(other, stat(&ROOT), vec![], AskMode::Lease);
    assert_eq!(world.recalled(idle).len(), 2);
    world.now = world.now.after_ms(TERM_MS + 1);
    world.input(Input::Tick);
    assert_eq!(world.told(idle), [ToClient::Fenced]);
    assert!(world.grants(other, number).is_some());
}

#[test]
fn a_recall_that_is_never_answered_ends_the_session_though_it_is_renewed() {
    let mut world = World::new();
    let other = world.open(2, 1);
    // The time that others wait: hardly any the second time, until the first is forgotten.
    for (start, pause_ms, least_ms, most_ms) in [
        (1, 0, 89_000, 92_000),
        (2, 0, 4_000, 7_000),
        (3, 59 * 60_000, 4_000, 7_000),
        (4, 61 * 60_000, 89_000, 92_000),
    ] {
        world.now = world.now.after_ms(pause_ms);
        world.send(other, ToServer::Renew);
        let deaf = world.open(1, start);
        world.told(other);
        let wants = vec![Lease::new(ROOT, Field::Attributes, Kind::Write)];
        let number = world.ask(deaf, stat(&ROOT), wants, AskMode::Lease);
        while world.yields(other) > 0 {}
        assert!(world.grants(deaf, number).is_some());
        let number = world.ask(other, stat(&ROOT), vec![], AskMode::Lease);
        let waited = waits(&mut world, &[deaf, other], |world| world.grants(other, number).is_some(), |_| {});
        assert!((least_ms..most_ms).contains(&waited), "start {start}: {waited} ms");
        assert_eq!(world.server.misdeeds().last(), Some(&(deaf, Misdeed::RecallIgnored)));
    }
}

#[test]
fn who_works_on_its_answer_is_waited_for_longer_and_not_for_ever() {
    let mut world = World::new();
    let (slow, other) = (world.open(1, 1), world.open(2, 1));
    let n = world.take_root(slow);
    let create = world.create(slow, &ROOT, "f", FileKind::Regular, n);
    let file = made(&create);
    assert_eq!(world.update(slow, create), Ok(()));
    let number = world.ask(other, stat(&ROOT), vec![], AskMode::Lease);
    let mut version = 0;
    let publishes = |world: &mut World| {
        version += 1;
        assert_eq!(world.update(slow, publish(&file, version, 1, inline(b"x"))), Ok(()));
    };
    let waited = waits(&mut world, &[slow, other], |world| world.grants(other, number).is_some(), publishes);
    assert!((299_000..303_000).contains(&waited), "{waited} ms");
}

/// The same with a report, which recalls no lease.
#[test]
fn a_flush_that_is_never_answered_ends_the_session_too() {
    let mut world = World::new();
    let (deaf, other) = (world.open(1, 1), world.open(2, 1));
    world.take_root(deaf);
    let number = world.ask(other, stat(&ROOT), vec![], AskMode::Report);
    let reported =
        |message: &ToClient| matches!(message, ToClient::Reported { number: n, .. } if *n == number);
    let waited = waits(&mut world, &[deaf, other], |world| world.told(other).iter().any(reported), |_| {});
    assert!((89_000..92_000).contains(&waited), "{waited} ms");
    assert_eq!(world.server.misdeeds(), [(deaf, Misdeed::RecallIgnored)]);
}

/// The time until `comes`, while these sessions renew, and `meanwhile` is done every second.
fn waits(
    world: &mut World,
    renew: &[SessionId],
    mut comes: impl FnMut(&mut World) -> bool,
    mut meanwhile: impl FnMut(&mut World),
) -> u64 {
    let began = world.now;
    while !comes(world) {
        assert!(world.now.ms_since(began) < 20 * 60_000, "for ever");
        world.now = world.now.after_ms(1_000);
        renew.iter().for_each(|session| world.send(*session, ToServer::Renew));
        meanwhile(world);
        world.input(Input::Tick);
    }
    world.now.ms_since(began)
}

#[test]
fn a_new_leader_takes_all_sessions_as_just_renewed_and_sends_again() {
    let mut world = World::new();
    let (holder, other) = (world.open(1, 1), world.open(2, 1));
    world.take_root(holder);
    let number = world.ask(other, stat(&ROOT), vec![], AskMode::Lease);
    let recalled = world.recalled(holder);
    // The server restarts much later.
    world.server.checkpoint(&mut world.store);
    world.server = Directory::open(&world.store, wire::Versions::KNOWN).unwrap();
    world.now = world.now.after_ms(10 * TERM_MS);
    world.input(Input::Lead);
    world.input(Input::Tick);
    assert_eq!(world.recalled(holder), recalled);
    world.release(holder, recalled);
    assert!(world.grants(other, number).is_some());
}

#[test]
fn what_a_checkpoint_writes_is_the_whole_state() {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    let n = world.take_root(a);
    let op = world.create(a, &ROOT, "file", FileKind::Regular, n);
    world.update(a, op).unwrap();
    world.ask(b, stat(&ROOT), vec![], AskMode::Lease);
    world.ask(b, lookup(&ROOT, "file"), vec![], AskMode::Report);
    world.server.checkpoint(&mut world.store);
    let mut reopened = Directory::open(&world.store, wire::Versions::KNOWN).unwrap();
    assert_eq!(reopened.digest(), world.server.digest());
    // From here both do the same.
    let recalled = released(&ROOT, Field::Attributes, Some(Kind::Read));
    let entries = vec![wire::LogEntry::Release(vec![recalled])];
    let input = Input::Message { session: a, message: ToServer::Log { answer: true, first: 2, entries } };
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let mut store = world.store.clone();
    world.server.handle(world.now, input.clone(), &mut world.store, &mut one).unwrap();
    reopened.handle(world.now, input, &mut store, &mut other).unwrap();
    assert_eq!(one, other);
    assert_eq!(world.server.digest(), reopened.digest());
    world.server.checkpoint(&mut world.store);
    reopened.checkpoint(&mut store);
    assert_eq!(world.store, store);
}

#[test]
fn a_restored_state_has_no_sessions_and_gives_no_number_that_may_have_been_given() {
    let mut world = World::new();
    let (session, other) = (world.open(1, 1), world.open(2, 1));
    let n = world.take_root(session);
    let create = world.create(session, &ROOT, "a", FileKind::Regular, n);
    let file = made(&create);
    world.update(session, create).unwrap();
    world.returns(session, &file, None, true);
    let token = [9; 32];
    world.input(Input::Invite { token, rights: Rights::FULL, at: 0, until: 10 });
    let at = 1_800_000_000;
    world.input(Input::Restored { at });
    assert_eq!(world.server.status(world.now).sessions, 0);
    // A surviving client cannot go on, not even by a number that was given after the backup.
    let late = SessionId(other.0 + 1);
    let open = connects(2, Some(late), 0);
    world.input(open);
    let begun = *world.inbox.keys().next_back().unwrap();
    assert!(begun.0 > at && begun != late);
    let told = world.told(begun);
    let [ToClient::Opened { inodes, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert!(inodes.0 > at);
    let enrol = |token| Input::Enrol { token, name: "late".to_owned(), key: [1; 32], at: 0, connection: 0 };
    world.input(enrol(token));
    assert_eq!(world.enrolled.pop().unwrap(), Err(EnrolError::UnknownToken));
    assert!(world.enrol(Rights::FULL).unwrap() > MachineId(at));
    // Restored once more, in the same second: no number is reserved twice.
    world.input(Input::Restored { at });
    world.input(Input::Lead);
    world.settle();
    assert_eq!(world.server.resolve(&world.store, b"/a"), Some(file));
}
