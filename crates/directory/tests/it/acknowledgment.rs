//! How a client hears how far its log has come without a message for that alone.

use crate::support::*;
use directory::Input;
use ident::FileId;
use lease::{Field, Kind, SessionId};
use namespace::FileKind;
use wire::{AskMode, LogEntry, ToClient};

const ROOT: FileId = FileId::root();

/// Two machines.
fn two() -> (World, SessionId, SessionId) {
    let mut world = World::new();
    let sessions = (world.open(1, 1), world.open(2, 1));
    (world, sessions.0, sessions.1)
}

fn release(world: &mut World, session: SessionId, field: Field) {
    world.send_log(session, releasing(vec![released(&ROOT, field, None)]), false);
}

/// The messages to `session` other than recalls.
fn said(world: &mut World, session: SessionId) -> Vec<ToClient> {
    world.told(session).into_iter().filter(|message| !matches!(message, ToClient::Recall { .. })).collect()
}

#[test]
fn an_answer_to_the_only_request_says_that_the_log_before_it_was_taken_in() {
    let (mut world, session, _) = two();
    world.take_root(session);
    release(&mut world, session, Field::Attributes);
    assert_eq!(world.told(session), []);
    world.ask(session, stat(&ROOT), vec![want(&ROOT, Field::Attributes, Kind::Read)], AskMode::Lease);
    let told = world.told(session);
    assert!(matches!(told.as_slice(), [ToClient::Granted { .. }]), "{told:?}");
    world.input(Input::Tick);
    assert_eq!(world.told(session), [], "it was said");
}

/// Otherwise the client would mistake the answer to its earlier request for one given before the
/// server saw its later release. It would then ignore a grant there of the released lease.
#[test]
fn what_came_after_a_request_that_waits_is_acknowledged_before_any_answer() {
    let (mut world, session, other) = two();
    let integer = world.take_root(session);
    let create = world.create(session, &ROOT, "file", FileKind::Regular, integer);
    let file = made(&create);
    assert_eq!(world.log(session, vec![update(create)]), []);
    let of_root = [Field::Attributes, Field::Times].map(|field| released(&ROOT, field, None));
    world.send_log(session, releasing(of_root.into()), false);
    world.ask(other, stat(&ROOT), vec![want(&ROOT, Field::Attributes, Kind::Write)], AskMode::Lease);
    assert!(matches!(world.told(other).as_slice(), [ToClient::Granted { .. }]));
    world.ask(session, stat(&ROOT), vec![], AskMode::Lease);
    assert_eq!(said(&mut world, session), [], "the other one has to release first");
    world.send_log(session, releasing(vec![released(&file, Field::Attributes, None)]), false);
    world.ask(session, stat(&file), vec![], AskMode::Lease);
    let told = said(&mut world, session);
    let both = [ToClient::Applied { up_to: 3, rejected: vec![], forgotten: 0 }];
    assert!(told.starts_with(&both) && told.len() == 2, "{told:?}");
    // The same holds of entries after the first request and before its answer.
    release(&mut world, session, Field::Parent);
    assert_eq!(said(&mut world, session), []);
    assert!(world.yields(other) > 0);
    let told = said(&mut world, session);
    assert!(
        matches!(told.as_slice(), [ToClient::Applied { up_to: 4, .. }, ToClient::Granted { .. }]),
        "{told:?}"
    );
}

/// Neither lasts alone: after a crash no client would miss them. But a client that has heard that
/// its log was taken in begins with the entry after that.
#[test]
fn what_was_said_to_be_taken_in_lasts() {
    let (mut world, session, _) = two();
    world.take_root(session);
    world.send_log(session, vec![LogEntry::Flushed { number: 0 }], false);
    assert!(!world.server.lasts());
    world.ask(session, stat(&ROOT), vec![], AskMode::Report);
    assert!(world.server.lasts());
    let told = world.told(session);
    assert!(matches!(told.as_slice(), [ToClient::Reported { .. }]), "{told:?}");
    world.ask(session, stat(&ROOT), vec![], AskMode::Report);
    assert!(!world.server.lasts());
}
