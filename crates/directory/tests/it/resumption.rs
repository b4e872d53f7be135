//! Connections break, sessions go on: some messages are repeated, no change is done twice.

use crate::support::*;
use directory::{Input, Output};
use ident::FileId;
use lease::{Field, SessionId};
use namespace::{Error, FileKind};
use wire::{AskMode, GreetingNumber, MachineId, ToClient, ToServer, Version};

const ROOT: FileId = FileId::root();

/// The machine has a new connection; the messages to its session.
fn greets(world: &mut World, machine: u64, session: SessionId, connection: u64) -> Vec<ToClient> {
    let mut out = Vec::new();
    let input = connects(machine, Some(session), connection);
    world.server.handle(world.now, input, &mut world.store, &mut out).unwrap();
    world.check();
    let opened = Output::Opened { machine: MachineId(machine), incarnation: 1, session, connection };
    assert_eq!(out.first(), Some(&opened));
    let sent = out.into_iter().skip(1).map(|output| match output {
        Output::Send { session: to, message } if to == session => message,
        other => panic!("{other:?}"),
    });
    sent.collect()
}

#[test]
fn a_session_goes_on_over_the_next_connection_with_what_it_holds() {
    let mut world = World::new();
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let create = world.create(session, &ROOT, "a", FileKind::Regular, n);
    let file = made(&create);
    world.update(session, create).unwrap();
    assert_eq!(world.update(session, unlink(&ROOT, "b", false)), Err(Error::NotFound));
    let told = greets(&mut world, 1, session, 7);
    let [ToClient::Resumed { up_to: 2, rejected, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(*rejected, [(2, Error::NotFound)]);
    // Its leases are what they were.
    world.update(session, publish(&file, 1, 1, inline(&[1]))).unwrap();
    assert_eq!(world.server.status(world.now).sessions, 1);
}

/// More refusals than the server remembers, and none of them was heard.
#[test]
fn what_was_refused_is_never_taken_for_done_however_much_that_was() {
    const COUNT: u64 = 5_000;
    let mut world = World::new();
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let create = world.create(session, &ROOT, "a", FileKind::Regular, n);
    let mut entries = vec![update(create)];
    entries.extend((0..COUNT).map(|_| update(unlink(&ROOT, "b", false))));
    entries.push(update(world.create(session, &ROOT, "c", FileKind::Regular, n + 1)));
    let rejected = world.log(session, entries.clone());
    assert_eq!(rejected.len() as u64, COUNT, "all are told at once");
    let told = greets(&mut world, 1, session, 7);
    let [ToClient::Resumed { up_to, rejected, forgotten, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(*up_to, COUNT + 2);
    let is_known = |entry: u64| rejected.iter().any(|(refused, _)| *refused == entry);
    assert!((2..=COUNT + 1).all(|entry| entry <= *forgotten || is_known(entry)));
    assert!(*forgotten < COUNT && !is_known(COUNT + 2), "what came later is known");
    let forgotten = *forgotten;
    // The same if the client sends its log again.
    for (skipped, expected) in [(0, forgotten), (forgotten - 1, forgotten), (forgotten, 0)] {
        let entries = entries[skipped as usize..].to_vec();
        world.send(session, ToServer::Log { answer: true, first: skipped + 1, entries });
        let told = world.told(session);
        let [ToClient::Applied { rejected, forgotten, .. }] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((*forgotten, rejected.len()), (expected, 4096), "{skipped}");
    }
}

#[test]
fn what_is_still_to_be_let_go_or_flushed_is_said_again() {
    let mut world = World::new();
    let (holder, other, third) = (world.open(1, 1), world.open(2, 1), world.open(3, 1));
    world.take_root(holder);
    let number = world.ask(other, stat(&ROOT), vec![], AskMode::Lease);
    world.ask(third, stat(&ROOT), vec![], AskMode::Report);
    let before: Vec<ToClient> = world.told(holder);
    let told = greets(&mut world, 1, holder, 2);
    assert!(matches!(told.first(), Some(ToClient::Resumed { .. })));
    assert_eq!(told[1..], before);
    let [_, ToClient::Recall { leases, .. }, ..] = told.as_slice() else { panic!("{told:?}") };
    world.release(holder, leases.clone());
    assert!(world.grants(other, number).is_some());
    // A session hears nothing of others' debts, and an answered recall is not repeated.
    let told = greets(&mut world, 2, other, 3);
    assert!(matches!(told.as_slice(), [ToClient::Resumed { .. }]), "{told:?}");
}

#[test]
fn a_request_that_waits_is_not_made_twice() {
    let mut world = World::new();
    let (holder, other) = (world.open(1, 1), world.open(2, 1));
    world.take_root(holder);
    let number = world.ask(other, stat(&ROOT), vec![], AskMode::Lease);
    greets(&mut world, 2, other, 2);
    world.send(other, ToServer::Ask { number, operation: stat(&ROOT), wants: vec![], mode: AskMode::Lease });
    assert_eq!(world.server.status(world.now).waiting, 1);
    world.yields(holder);
    let told = world.told(other);
    let granted = told.iter().filter(|message| matches!(message, ToClient::Granted { .. })).count();
    assert_eq!(granted, 1, "{told:?}");
}

#[test]
fn what_was_done_for_a_client_is_done_once_and_its_result_told_again() {
    let mut world = World::new();
    let session = world.open(1, 1);
    world.take_root(session);
    let create = world.create(session, &ROOT, "a", FileKind::Regular, 1);
    let number = world.ask(session, create.clone(), vec![], AskMode::Ship);
    let done = world.told(session);
    assert!(matches!(done.as_slice(), [ToClient::Shipped { result: Ok(_), .. }]), "{done:?}");
    world.restart();
    let told = greets(&mut world, 1, session, 2);
    assert_eq!(told[1..], done);
    let files = world.server.status(world.now).files;
    world.send(session, ToServer::Ask { number, operation: create, wants: vec![], mode: AskMode::Ship });
    assert_eq!(world.told(session), done);
    assert_eq!(world.server.status(world.now).files, files);
}

#[test]
fn whose_session_is_over_begins_a_new_one() {
    let mut world = World::new();
    let session = world.open(1, 1);
    world.send(session, ToServer::Goodbye);
    let open = |session| connects(1, session, 5);
    world.input(open(Some(session)));
    assert!(world.told(session).is_empty());
    // Another machine's session does not go on, nor does one of another start. A machine that has
    // not heard that a session began begins another.
    let other = world.open(2, 1);
    world.input(open(Some(other)));
    assert!(world.told(other).is_empty());
    world.input(open(None));
    assert_eq!(world.server.status(world.now).sessions, 2);
}

/// The machine goes by the session of its later greeting, and may hold its leases without another
/// word.
#[test]
fn a_greeting_that_comes_after_a_later_one_of_its_start_changes_nothing() {
    for (later, late) in [(None, None), (None, Some(SessionId(1))), (Some(SessionId(1)), None)] {
        let mut world = World::new();
        let first = world.open(1, 1);
        let session = later.unwrap_or(SessionId(first.0 + 1));
        world.input(connects(1, later.map(|_| first), 6));
        world.told(session);
        let mut out = Vec::new();
        let late = connects(1, late.map(|_| first), 5);
        world.server.handle(world.now, late, &mut world.store, &mut out).unwrap();
        assert_eq!(out, [], "{later:?}");
        world.take_root(session);
        // A copy of the machine's directory counts its own greetings.
        let greeting = GreetingNumber { drawn: 2, count: 1 };
        let (machine, incarnation, version) = (MachineId(1), 1, Version::NEWEST);
        world.input(Input::Open { machine, incarnation, greeting, session: None, connection: 7, version });
        assert!(world.told(session).contains(&ToClient::Fenced));
    }
}

#[test]
fn a_block_of_inode_numbers_that_was_lost_is_given_again() {
    let mut world = World::new();
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let create = world.create(session, &ROOT, "a", FileKind::Regular, n);
    world.send(session, ToServer::ReserveInodes { known: 0 });
    let first = world.told(session);
    let [ToClient::ReservedInodes { end, .. }] = first.as_slice() else { panic!("{first:?}") };
    let mut given = Vec::new();
    for _ in 0..20 {
        world.send(session, ToServer::ReserveInodes { known: *end });
        given.extend(world.told(session));
    }
    given.dedup();
    assert_eq!(given.len(), 1, "{given:?}");
    // So the block in use stays in use.
    world.update(session, create).unwrap();
}

#[test]
fn who_does_not_answer_is_named() {
    let mut world = World::new();
    let (silent, other) = (world.open(1, 1), world.open(2, 1));
    world.take_root(silent);
    assert_eq!(world.server.status(world.now).unresponsive, []);
    world.ask(other, stat(&ROOT), vec![], AskMode::Lease);
    world.now = world.now.after_ms(700);
    assert_eq!(world.server.status(world.now).unresponsive, [(MachineId(1), 700)]);
    world.yields(silent);
    assert_eq!(world.server.status(world.now).unresponsive, []);
}

#[test]
fn a_release_that_is_sent_again_is_let_go_once() {
    let mut world = World::new();
    let session = world.open(1, 1);
    world.take_root(session);
    let entries = releasing(vec![released(&ROOT, Field::Attributes, None)]);
    world.log(session, entries.clone());
    greets(&mut world, 1, session, 2);
    let want = vec![want(&ROOT, Field::Attributes, lease::Kind::Write)];
    world.ask(session, stat(&ROOT), want, AskMode::Lease);
    world.told(session);
    world.send(session, ToServer::Log { answer: true, first: 1, entries });
    let told = world.told(session);
    assert!(matches!(told.as_slice(), [ToClient::Applied { up_to: 1, .. }]), "{told:?}");
}

#[test]
fn whoever_could_not_hear_a_recall_has_not_ignored_it() {
    let mut world = World::new();
    let (holder, other) = (world.open(1, 1), world.open(2, 1));
    world.take_root(holder);
    world.ask(other, stat(&ROOT), vec![], AskMode::Lease);
    // The server starts again and again, and takes every session as just renewed each time.
    for _ in 0..20 {
        world.now = world.now.after_ms(directory::TERM_MS - 1);
        world.restart();
    }
    assert_eq!(world.server.misdeeds(), []);
    assert_eq!(world.server.status(world.now).sessions, 2);
}
