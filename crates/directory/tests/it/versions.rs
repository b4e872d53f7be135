//! The cluster's version: raised by an entry, and its effect on sessions, replicas and programs.
//! The next version exists only here, and has nothing new in it.

use crate::support::*;
use directory::{Directory, Fault, Input, MemoryStore, Misdeed, Store};
use ident::FileId;
use lease::{SessionId, Time};
use namespace::{AttributeChange, Cred, FileKind, Operation, operation};
use wire::{GreetingNumber, LogEntry, MachineId, Refusal, ToClient, ToServer, Version, Versions};

const ROOT: FileId = FileId::root();
const OLD: Version = Version::NEWEST;
const NEW: Version = OLD.next();
/// The versions that each program knows.
const KNOW_OLD: Versions = Versions::KNOWN;
const KNOW_NEW: Versions = Versions::WITH_NEXT;
/// The key of the cluster's row.
const CLUSTER: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x30];

/// A cluster of the old version, whose servers have the new program.
fn old_cluster() -> World {
    let mut world = World::new();
    world.knows = KNOW_NEW;
    world.restart();
    world
}

/// Opens a session of `machine`, whose program speaks `version`; also the version by which it is to
/// decide.
fn open(world: &mut World, machine: u64, version: Version) -> (SessionId, Version) {
    world.opened(machine, 1, version)
}

/// A machine's session goes on over a new connection that speaks `version`; the version by which it
/// is to decide, if it has one.
fn resume(world: &mut World, machine: u64, session: SessionId, version: Version) -> Option<Version> {
    let machine = MachineId(machine);
    let (greeting, session_of) = (GreetingNumber::default(), Some(session));
    let (incarnation, connection) = (1, 1);
    world.input(Input::Open { machine, incarnation, greeting, session: session_of, connection, version });
    world.told(session).into_iter().find_map(|message| match message {
        ToClient::Resumed { version, .. } => Some(version),
        _ => None,
    })
}

fn raise(world: &mut World, to: Version) {
    world.input(Input::Raise { to });
}

fn chmod(mode: u16) -> Operation {
    let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    Operation::SetAttributes(operation::SetAttributes {
        file: ROOT,
        change,
        cred: Cred::default(),
        time: at(0),
    })
}

fn decided_by(version: Version, operation: Operation) -> LogEntry {
    LogEntry::Update { version, operation }
}

fn older(world: &World) -> Vec<u64> {
    world.server.older_machines(&world.store).iter().map(|(machine, _)| machine.0).collect()
}

/// All entries that the Raft log of a cluster of version 1 may have.
#[test]
fn inputs_of_version_1_are_what_they_are() {
    let (machine, session, version) = (MachineId(2), Some(SessionId(3)), Version(1));
    let greeting = GreetingNumber { drawn: 8, count: 9 };
    let open = Input::Open { machine, incarnation: 4, greeting, session, connection: 5, version };
    assert_eq!(postcard::to_allocvec(&open).unwrap(), [0, 2, 4, 8, 9, 1, 3, 5, 1]);
    let inputs = [
        Input::Tick,
        Input::Lead,
        Input::NoMessage { session: SessionId(3) },
        Input::Restored { at: 0 },
        Input::Raise { to: Version(2) },
        Input::Revoke { token: [0; 32] },
    ];
    assert_eq!(inputs.map(|input| postcard::to_allocvec(&input).unwrap()[0]), [2, 5, 9, 10, 11, 14]);
}

#[test]
fn sessions_go_by_what_their_machines_speak() {
    let mut world = old_cluster();
    // The cluster's version is the newest that any session goes by.
    let (new, told) = open(&mut world, 2, NEW);
    assert_eq!((world.server.version(), told), (OLD, OLD));
    let old = open(&mut world, 1, OLD).0;
    raise(&mut world, NEW);
    assert_eq!(world.raised, [NEW]);
    world.take_root(old);
    assert_eq!(world.log(old, vec![decided_by(OLD, chmod(0o711))]), []);
    assert_eq!(resume(&mut world, 2, new, NEW), Some(NEW));
    assert_eq!(resume(&mut world, 1, old, OLD), Some(OLD));
    // No session goes by a version that it has not heard of.
    world.input_unchecked(Input::Message {
        session: old,
        message: ToServer::Log { first: 2, entries: vec![decided_by(NEW, chmod(0o733))], answer: true },
    });
    assert_eq!(world.server.misdeeds(), [(old, Misdeed::OtherVersion(NEW))]);
    world.take_root(new);
    assert_eq!(world.log(new, vec![decided_by(NEW, chmod(0o722))]), []);
}

#[test]
fn a_session_that_goes_on_goes_by_the_new_version_and_what_it_decided_before_counts() {
    let mut world = old_cluster();
    let session = open(&mut world, 2, NEW).0;
    let n = world.take_root(session);
    raise(&mut world, NEW);
    let file = world.create(session, &ROOT, "a", FileKind::Regular, n);
    assert_eq!(resume(&mut world, 2, session, NEW), Some(NEW));
    let again = world.create(session, &ROOT, "b", FileKind::Regular, n + 1);
    assert_eq!(world.log(session, vec![decided_by(OLD, file), decided_by(NEW, again)]), []);
    assert_eq!(world.server.status(world.now).files, 3);
}

#[test]
fn the_last_version_stays_until_no_machine_may_come_back_to_it() {
    let mut world = old_cluster();
    let sessions = [1, 2, 3, 4].map(|machine| open(&mut world, machine, OLD).0);
    raise(&mut world, NEW);
    assert_eq!(older(&world), [1, 2, 3, 4]);
    world.restart();
    assert_eq!(resume(&mut world, 1, sessions[0], NEW), Some(NEW));
    assert_eq!(resume(&mut world, 2, sessions[1], NEW), Some(NEW));
    // One machine comes back as it was, and one is away.
    assert_eq!(resume(&mut world, 3, sessions[2], OLD), Some(OLD));
    assert_eq!(older(&world), [3, 4]);
    world.input(Input::Expel { machine: MachineId(4) });
    assert_eq!(older(&world), [3]);
    assert_eq!(resume(&mut world, 3, sessions[2], NEW), Some(NEW));
    assert_eq!(older(&world), []);
    world.restart();
    // From here on no session speaks the old version.
    assert_eq!(resume(&mut world, 2, sessions[1], OLD), None);
    let too_old = Refusal::TooOld { speaks: OLD, oldest: NEW };
    assert_eq!(world.refused, [too_old]);
    assert!(too_old.to_string().starts_with("this machine's leasehold is too old: it speaks version 1"));
}

/// The founder cannot be expelled. If it is gone for good, it must not keep the older version for
/// ever.
#[test]
fn a_founder_that_is_gone_keeps_nothing() {
    let mut world = old_cluster();
    let founder = open(&mut world, 1, OLD).0;
    let other = open(&mut world, 2, OLD).0;
    raise(&mut world, NEW);
    world.send(founder, ToServer::Goodbye);
    assert_eq!(older(&world), [2]);
    assert_eq!(resume(&mut world, 2, other, NEW), Some(NEW));
    assert_eq!(older(&world), []);
}

#[test]
fn the_version_is_raised_one_at_a_time_and_not_before_the_last_is_everybodys() {
    let mut world = World::new();
    let newest = NEW.next();
    world.knows = KNOW_OLD.held_to(newest);
    world.restart();
    let session = open(&mut world, 2, OLD).0;
    raise(&mut world, newest);
    assert_eq!(world.server.version(), OLD);
    raise(&mut world, NEW);
    raise(&mut world, NEW);
    raise(&mut world, newest);
    assert_eq!((world.server.version(), world.raised.as_slice()), (NEW, [NEW].as_slice()));
    resume(&mut world, 2, session, newest);
    raise(&mut world, newest);
    assert_eq!(world.server.version(), newest);
}

#[test]
fn replicas_whose_programs_know_different_versions_are_the_same() {
    let mut worlds = [KNOW_OLD, KNOW_NEW].map(|known| {
        let mut world = World::new();
        world.knows = known;
        world.restart();
        let session = world.open(2, 1);
        let n = world.take_root(session);
        let file = world.create(session, &ROOT, "file", FileKind::Regular, n);
        assert_eq!(world.log(session, [file, chmod(0o711)].map(update).into()), []);
        world
    });
    let [old, new] = &mut worlds;
    for world in [&mut *old, &mut *new] {
        world.server.checkpoint(&mut world.store);
    }
    assert_eq!((old.server.digest(), &old.store), (new.server.digest(), &new.store));
    // An input that only one of them knows stops the other before it gets another result.
    let (digest, mut out) = (old.server.digest(), Vec::new());
    let stopped = old.server.handle(Time(5000), Input::Raise { to: NEW }, &mut old.store, &mut out);
    assert_eq!(stopped, Err(Fault::Version { version: NEW, known: KNOW_OLD }));
    assert_eq!((old.server.digest(), out), (digest, Vec::new()));
}

/// The store of a cluster that was raised to the new version.
fn raised() -> MemoryStore {
    let mut world = old_cluster();
    open(&mut world, 2, OLD);
    raise(&mut world, NEW);
    world.server.checkpoint(&mut world.store);
    world.store
}

#[test]
fn a_state_of_versions_that_a_program_does_not_know_is_refused() {
    let words = |known| Directory::open(&raised(), known).map(drop).unwrap_err().to_string();
    assert_eq!(
        words(KNOW_OLD),
        "the cluster is at version 2, and this leasehold knows version 1: install a newer one on this machine"
    );
    // A program that has dropped the old version, while a machine may still come back with it.
    assert_eq!(
        words(Versions { oldest: NEW, newest: NEW.next() }),
        "machines of the cluster may still speak version 1, and this leasehold knows versions 2 to 3: go back to the one before, until `leasehold status` names none"
    );
    let mut store = raised();
    store.put(CLUSTER, vec![9, 0xff]);
    let later = Fault::Version { version: Version(9), known: KNOW_NEW };
    assert_eq!(Directory::open(&store, KNOW_NEW).map(drop), Err(later), "whatever follows it");
    store.put(CLUSTER, vec![2, 0xff]);
    assert!(matches!(Directory::open(&store, KNOW_NEW), Err(Fault::Corrupt(_))));
}
