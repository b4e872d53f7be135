//! Write-through content: a reader of each change of a small file asks the server alone.

use crate::support::*;
use directory::Directory;
use ident::FileId;
use lease::{Field, Kind, SessionId};
use namespace::{Cred, FileKind, Operation, operation};
use wire::{AskMode, LogEntry, ToClient, Versions};

const ROOT: FileId = FileId::root();

/// The writer of a file, and its reader.
struct Pair {
    world: World,
    writer: SessionId,
    reader: SessionId,
    file: FileId,
    version: u64,
}

/// Two machines, and the file that one of them has made.
fn pair() -> Pair {
    let mut world = World::new();
    let (writer, reader) = (world.open(1, 1), world.open(2, 1));
    let n = world.take_root(writer);
    let create = world.create(writer, &ROOT, "file", FileKind::Regular, n);
    let file = made(&create);
    world.update(writer, create).unwrap();
    // The reader knows the rest of the file.
    world.ask(reader, access(&file), vec![want(&file, Field::Attributes, Kind::Read)], AskMode::Lease);
    world.yields(writer);
    world.told(reader);
    Pair { world, writer, reader, file, version: 0 }
}

fn access(file: &FileId) -> Operation {
    Operation::Access(operation::Access { file: file.clone(), mask: 0, cred: Cred::default() })
}

/// The same, written through.
fn written_through() -> Pair {
    let mut pair = pair();
    for _ in 0..4 {
        pair.looks_at_a_change();
    }
    pair.looks();
    let asked = pair.world.told(pair.writer);
    let [ToClient::WriteThrough { number, file }] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(*file, pair.file);
    let answer = LogEntry::WritesThrough { number: *number, file: file.clone() };
    pair.world.send_log(pair.writer, vec![answer], false);
    pair.is_told();
    pair
}

impl Pair {
    fn change(&mut self) -> LogEntry {
        self.version += 1;
        update(publish(&self.file, self.version, 3, inline(&[self.version as u8; 3])))
    }

    fn looks(&mut self) {
        let wants = vec![want(&self.file, Field::Content, Kind::Read)];
        self.world.ask(self.reader, access(&self.file), wants, AskMode::Report);
    }

    /// The reader gets the latest written value.
    fn is_told(&mut self) {
        let told = self.world.told(self.reader);
        let [ToClient::Reported { values, .. }] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(values[0].values.content.unwrap().version, self.version);
    }

    /// The writer is asked to flush in the usual way, and does.
    fn is_asked(&mut self, pending: Vec<LogEntry>) {
        let asked = self.world.told(self.writer);
        let Some(ToClient::Flush { number, .. }) = asked.last() else { panic!("{asked:?}") };
        let flushed = LogEntry::Flushed { number: *number };
        self.world.send_log(self.writer, pending.into_iter().chain([flushed]).collect(), false);
        self.is_told();
    }

    fn looks_at_a_change(&mut self) {
        self.looks();
        let change = self.change();
        self.is_asked(vec![change]);
    }

    /// Writes through; whether that goes on.
    fn writes(&mut self) -> bool {
        let (change, wrote) = (self.change(), LogEntry::Wrote { file: self.file.clone() });
        self.world.send_log(self.writer, vec![change, wrote], false);
        let told = self.world.told(self.writer);
        let [ToClient::Heard { file, goes_on, .. }] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(*file, self.file);
        *goes_on
    }
}

#[test]
fn what_is_written_through_is_told_without_asking() {
    let mut pair = written_through();
    for transaction in 1..=5 {
        assert!(pair.writes());
        assert_eq!(pair.world.syncs, transaction, "it is made durable before anybody asks");
        pair.looks();
        pair.is_told();
        assert_eq!(pair.world.told(pair.writer), [], "nobody is asked");
    }
}

#[test]
fn who_writes_again_before_anybody_looks_writes_back_again() {
    let mut pair = written_through();
    assert!(pair.writes() && !pair.writes());
    pair.looks();
    pair.is_asked(Vec::new());
    // And a client that has not heard of that yet is owed an answer.
    assert!(!pair.writes());
}

#[test]
fn who_wants_its_lease_for_anything_else_is_told_first_that_it_writes_back() {
    let mut pair = written_through();
    let wants = vec![want(&pair.file, Field::Content, Kind::Write)];
    pair.world.ask(pair.writer, access(&pair.file), wants, AskMode::Lease);
    let told = pair.world.told(pair.writer);
    assert!(
        matches!(told.as_slice(), [ToClient::Heard { goes_on: false, .. }, .., ToClient::Granted { .. }]),
        "{told:?}"
    );
    pair.looks();
    let change = pair.change();
    pair.is_asked(vec![change]);
}

#[test]
fn over_a_new_connection_the_holder_is_asked_again() {
    let mut pair = written_through();
    pair.world.input(connects(1, Some(pair.writer), 9));
    pair.looks();
    let change = pair.change();
    pair.is_asked(vec![change]);
}

/// A silent session keeps its leases until a request needs them, which a read does not.
#[test]
fn who_writes_through_and_has_fallen_silent_keeps_its_session() {
    let mut pair = written_through();
    assert!(pair.writes());
    pair.world.now = pair.world.now.after_ms(directory::TERM_MS + 1);
    pair.looks();
    pair.is_told();
    assert_eq!(pair.world.told(pair.writer), []);
    assert!(pair.writes(), "its session goes on");
}

#[test]
fn a_new_leader_asks_again_and_one_of_the_same_state_does_not() {
    let mut pair = written_through();
    pair.world.server.checkpoint(&mut pair.world.store);
    pair.world.server = Directory::open(&pair.world.store, Versions::KNOWN).unwrap();
    pair.looks();
    pair.is_told();
    pair.world.restart();
    pair.looks();
    pair.is_asked(Vec::new());
}

#[test]
fn who_has_let_go_writes_nothing_through() {
    let mut pair = written_through();
    pair.world.release(pair.writer, vec![released(&pair.file, Field::Content, Some(Kind::Read))]);
    pair.looks();
    pair.is_told();
    // A claim of write-through by a session without the lease has no effect either.
    let claim = LogEntry::WritesThrough { number: 0, file: pair.file.clone() };
    assert_eq!(pair.world.log(pair.reader, vec![claim]), []);
}

#[test]
fn a_file_that_is_deleted_is_written_through_by_nobody() {
    let mut pair = written_through();
    pair.world.ask(pair.writer, unlink(&ROOT, "file", false), Vec::new(), AskMode::Ship);
    for session in [pair.reader, pair.writer] {
        pair.world.yields(session);
    }
    let told = pair.world.told(pair.writer);
    assert!(matches!(told.as_slice(), [ToClient::Shipped { result: Ok(_), .. }]), "{told:?}");
    let wrote = LogEntry::Wrote { file: pair.file.clone() };
    pair.world.send_log(pair.writer, vec![wrote], false);
    let told = pair.world.told(pair.writer);
    assert!(matches!(told.as_slice(), [ToClient::Heard { goes_on: false, .. }]), "{told:?}");
}
