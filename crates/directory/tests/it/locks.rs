//! Locks of ranges: the reports of them, and their end.

use crate::support::*;
use directory::{Input, TERM_MS};
use ident::FileId;
use lease::{Field, Kind, SessionId};
use namespace::{
    Error, FileKind, Holder, LockChange, LockKind, LockRange, LockSpace, LockTable, Locks, Operation,
    operation,
};
use wire::{AskMode, ToClient, ToServer};

const ROOT: FileId = FileId::root();
const WRITE: Option<LockKind> = Some(LockKind::Write);

/// A file that `session` has made.
fn file(world: &mut World, session: SessionId) -> FileId {
    let n = world.take_root(session);
    let op = world.create(session, &ROOT, "file", FileKind::Regular, n);
    let file = made(&op);
    assert_eq!(world.update(session, op), Ok(()));
    file
}

fn change(owner: u64, first: u64, last: u64, kind: Option<LockKind>) -> LockChange {
    LockChange { owner, pid: 42, space: LockSpace::Posix, range: LockRange { first, last }, kind }
}

fn lock(file: &FileId, change: LockChange) -> Operation {
    Operation::Lock(operation::Lock { file: file.clone(), change })
}

/// Asks for the leases that locking takes; the locks that came with the grant, and the kind of
/// lease on them.
fn ask(world: &mut World, session: SessionId, file: &FileId, change: LockChange) -> u64 {
    world.ask(session, lock(file, change), vec![want(file, Field::Locks, Kind::Write)], AskMode::Lease)
}

fn granted(world: &mut World, session: SessionId, number: u64) -> Option<(Locks, Option<Kind>)> {
    let grants = world.grants(session, number)?;
    let [grant] = grants.as_slice() else { panic!("{grants:?}") };
    let kind = grant.fields.iter().find(|(field, _)| *field == Field::Locks).map(|(_, kind)| *kind);
    Some((grant.values.locks.clone().expect("the locks are told"), kind))
}

fn seen(locks: &[(u64, LockChange)], by: u64) -> Locks {
    let mut table: LockTable<(u64, u64)> = LockTable::default();
    locks.iter().for_each(|(session, change)| table.change(session, change));
    table.seen_by(&by)
}

#[test]
fn the_second_is_told_that_a_range_is_locked_and_not_by_whom() {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    let file = file(&mut world, a);
    let number = ask(&mut world, b, &file, change(9, 5, 5, WRITE));
    assert_eq!(world.recalled(a), [released(&file, Field::Locks, None)]);
    assert_eq!(world.update(a, lock(&file, change(7, 0, 9, WRITE))), Ok(()));
    world.release(a, vec![released(&file, Field::Locks, None)]);
    let (locks, kind) = granted(&mut world, b, number).unwrap();
    // A conflict is proved by a lease to read.
    assert_eq!(kind, Some(Kind::Read));
    assert_eq!(locks, seen(&[(1, change(7, 0, 9, WRITE))], 2));
    let holders: Vec<Holder> = locks.in_the_way(&change(9, 5, 5, WRITE)).collect();
    assert_eq!(holders, [Holder::Elsewhere]);
    // To unlock, the first session needs back the lease that it released; it still knows its owners
    // by name.
    let number = ask(&mut world, a, &file, change(7, 0, 9, None));
    assert_eq!(world.recalled(b), [released(&file, Field::Locks, None)]);
    world.release(b, vec![released(&file, Field::Locks, None)]);
    let (locks, kind) = granted(&mut world, a, number).unwrap();
    assert_eq!((locks.has_any(LockSpace::Posix, 7), kind), (true, Some(Kind::Write)));
    assert_eq!(world.update(a, lock(&file, change(7, 0, 9, None))), Ok(()));
}

#[test]
fn who_holds_no_lease_locks_nothing() {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    let file = file(&mut world, a);
    assert_eq!(world.update(b, lock(&file, change(1, 0, 0, WRITE))), Err(Error::CutOff));
    world.release(a, vec![released(&file, Field::Locks, Some(Kind::Read))]);
    assert_eq!(world.update(a, lock(&file, change(1, 3, 2, WRITE))), Err(Error::Invalid));
    assert_eq!(world.update(a, lock(&file, change(1, 0, 0, WRITE))), Err(Error::CutOff));
    let again = world.open(1, 2);
    let question = Operation::GetLock(operation::GetLock {
        file: file.clone(),
        owner: 1,
        space: LockSpace::Posix,
        range: LockRange::WHOLE,
        kind: LockKind::Read,
    });
    let grants = world.granted(again, question, AskMode::Lease);
    assert_eq!(grants[0].values.locks, Some(Locks::default()));
}

/// The sessions that saw the locks release first: then the locks are gone for all at one moment.
#[test]
fn locks_go_with_the_session_and_who_waits_for_them_is_told() {
    for restart in [false, true] {
        let mut world = World::new();
        let (a, b, c) = (world.open(1, 1), world.open(2, 1), world.open(3, 1));
        let file = file(&mut world, a);
        assert_eq!(world.update(a, lock(&file, change(7, 0, 9, WRITE))), Ok(()));
        world.release(a, vec![released(&file, Field::Locks, None)]);
        let number = ask(&mut world, b, &file, change(9, 5, 5, WRITE));
        assert!(!granted(&mut world, b, number).unwrap().0.is_empty());
        if restart {
            world.restart();
        }
        // A's machine starts again.
        world.open(1, 2);
        let number = ask(&mut world, c, &file, change(9, 5, 5, WRITE));
        if restart {
            world.restart();
        }
        world.settle();
        let recalled = world.recalled(b);
        assert!(recalled.contains(&released(&file, Field::Locks, None)), "{recalled:?}");
        assert!(world.grants(c, number).is_none());
        let again = ask(&mut world, b, &file, change(9, 5, 5, WRITE));
        world.release(b, vec![released(&file, Field::Locks, None)]);
        // First come, first served.
        let (locks, kind) = granted(&mut world, c, number).unwrap();
        assert_eq!((locks, kind), (Locks::default(), Some(Kind::Write)));
        assert!(world.grants(b, again).is_none());
        world.settle();
        world.check();
    }
}

#[test]
fn a_session_that_is_not_heard_of_loses_its_locks_when_somebody_looks_at_them() {
    let mut world = World::new();
    let (idle, b) = (world.open(1, 1), world.open(2, 1));
    let file = file(&mut world, idle);
    assert_eq!(world.update(idle, lock(&file, change(7, 0, 9, WRITE))), Ok(()));
    world.release(idle, vec![released(&file, Field::Locks, None)]);
    world.now = world.now.after_ms(TERM_MS + 1);
    world.send(b, ToServer::Renew);
    world.input(Input::Tick);
    assert_eq!(world.told(idle), [], "courteous");
    world.told(b);
    let number = ask(&mut world, b, &file, change(9, 5, 5, WRITE));
    assert_eq!(world.told(idle), [ToClient::Fenced]);
    assert_eq!(granted(&mut world, b, number).unwrap().0, Locks::default());
}

/// The waiting session asks once; only later does the holder turn out to be silent.
#[test]
fn a_session_that_lapses_while_its_locks_are_waited_for_is_fenced() {
    let mut world = World::new();
    let (idle, b) = (world.open(1, 1), world.open(2, 1));
    let file = file(&mut world, idle);
    assert_eq!(world.update(idle, lock(&file, change(7, 0, 9, WRITE))), Ok(()));
    world.release(idle, vec![released(&file, Field::Locks, None)]);
    let number = ask(&mut world, b, &file, change(9, 5, 5, WRITE));
    assert!(!granted(&mut world, b, number).unwrap().0.is_empty());
    world.restart();
    world.now = world.now.after_ms(TERM_MS + 1);
    world.send(b, ToServer::Renew);
    world.told(b);
    world.input(Input::Tick);
    assert_eq!(world.told(idle), [ToClient::Fenced]);
    world.settle();
    assert_eq!(world.recalled(b), [released(&file, Field::Locks, None)]);
    world.release(b, vec![released(&file, Field::Locks, None)]);
    let number = ask(&mut world, b, &file, change(9, 5, 5, WRITE));
    assert_eq!(granted(&mut world, b, number).unwrap().0, Locks::default());
}

/// A grant that was not asked for does not tell of others' locks: they are watched only when a
/// session asks.
#[test]
fn a_locked_file_is_not_granted_whole() {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    let file = file(&mut world, a);
    assert_eq!(world.update(a, lock(&file, change(7, 0, 9, WRITE))), Ok(()));
    let everything = FileId::root();
    world.log(a, releasing(vec![released(&file, Field::Locks, None)]));
    world.send(a, ToServer::Renew);
    world.told(a);
    let grants = world.ask(b, stat(&file), vec![], AskMode::Lease);
    world.yields(a);
    let grants = world.grants(b, grants).unwrap();
    assert!(
        grants.iter().all(|grant| grant.file == everything || grant.values.locks.is_none()),
        "{grants:?}"
    );
}
