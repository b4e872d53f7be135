//! The cluster's version: raised by an entry, and what sessions, replicas and programs of each make
//! of it.

use crate::support::*;
use directory::{Directory, Fault, Input, MemoryStore, Misdeed, Store};
use ident::FileId;
use lease::{SessionId, Time};
use namespace::{AttributeChange, Attributes, Cred, FileKind, Operation, Rules};
use wire::{AskMode, LogEntry, MachineId, Refusal, ToClient, ToServer, Version, Versions};

const ROOT: FileId = FileId::root();
const OLD: Version = Version(3);
const NEW: Version = Version(4);
/// Of the row that says which versions are in use.
const ROW: &[u8] = &[0x0a];

/// Knows the versions that a later program will.
fn later() -> Versions {
    Versions { oldest: OLD, newest: Version(5) }
}

/// A cluster of the old version, whose servers have the new program.
fn old_cluster() -> World {
    let mut world = World::founded_by(Versions::held_to(OLD));
    world.restart();
    world
}

/// Opens a session of `machine`, whose program speaks `version`; the rules that it is told.
fn open(world: &mut World, machine: u64, version: Version) -> (SessionId, Rules) {
    world.enrol_up_to(machine);
    world.input(Input::Speaks { machine: MachineId(machine), version });
    world.opened(machine, 1)
}

/// What `session` is told when it goes on over a new connection that speaks `version`.
fn resume(world: &mut World, machine: u64, session: SessionId, version: Version) -> Rules {
    let machine = MachineId(machine);
    world.input(Input::Speaks { machine, version });
    world.input(Input::Open { machine, incarnation: 1, session: Some(session), connection: 1 });
    let resumed = world.told(session).into_iter().find_map(|message| match message {
        ToClient::Resumed { rules, .. } => Rules::numbered(rules),
        _ => None,
    });
    resumed.unwrap()
}

fn raise(world: &mut World, to: Version) {
    world.input(Input::Raise { to });
}

fn chmod(file: &FileId, mode: u16, secs: i64) -> Operation {
    let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    Operation::SetAttributes { file: file.clone(), change, cred: Cred::default(), time: at(secs) }
}

fn update_by(rules: Rules, operation: Operation) -> LogEntry {
    LogEntry::Update { rules: rules.number(), operation }
}

/// The root's attributes, as a session is granted them for writing.
fn attributes(world: &mut World, session: SessionId) -> Attributes {
    let operation = chmod(&ROOT, 0o700, 0);
    let grants = world.granted(session, operation, AskMode::Lease);
    grants.iter().find_map(|grant| grant.values.attributes).unwrap()
}

#[test]
fn a_cluster_of_the_oldest_version_has_nothing_of_a_later_one() {
    let mut world = old_cluster();
    let (session, rules) = open(&mut world, 2, NEW);
    assert_eq!((world.server.version(), rules), (OLD, Rules::Two));
    let n = world.take_root(session);
    let file = world.create(session, &ROOT, "file", FileKind::Regular, n);
    let id = made(&file);
    let published = |world: &mut World, version, n| {
        let content = extents(vec![extent(0, 10, share(n))], version == 1);
        assert_eq!(world.log(session, vec![update_by(rules, publish(&id, version, 10, content))]), []);
        assert!(directory::refers_to(&world.store, &share(n)));
        directory::publisher(&world.store, &share(n))
    };
    assert_eq!(world.log(session, vec![update_by(rules, file)]), []);
    assert_eq!(published(&mut world, 1, 1), None);
    assert_eq!(world.store.get(ROW), None);
    raise(&mut world, NEW);
    assert!(world.store.get(ROW).is_some());
    assert_eq!(published(&mut world, 2, 2), Some(MachineId(2)));
    // Inputs of the oldest version are what they were, and the later ones stand behind them.
    let tags = [
        Input::Tick,
        Input::Lead,
        Input::Restored { at: 0 },
        Input::Raise { to: NEW },
        Input::Speaks { machine: MachineId(1), version: NEW },
    ];
    assert_eq!(tags.map(|input| postcard::to_allocvec(&input).unwrap()[0]), [2, 5, 10, 11, 12]);
}

#[test]
fn sessions_go_by_the_rules_of_what_their_machines_speak() {
    let mut world = old_cluster();
    let old = open(&mut world, 1, OLD).0;
    raise(&mut world, NEW);
    assert_eq!(world.raised, [NEW]);
    // By the old rules a clock that is behind leaves the time as it was.
    assert_eq!(attributes(&mut world, old).ctime, root().ctime);
    assert_eq!(world.log(old, vec![update_by(Rules::Two, chmod(&ROOT, 0o711, 0))]), []);
    assert_eq!(attributes(&mut world, old).ctime, root().ctime);
    // Nobody goes by rules that he was not told of.
    let entries = vec![update_by(Rules::Three, chmod(&ROOT, 0o733, 0))];
    world.input_unchecked(Input::Message {
        session: old,
        message: ToServer::Log { first: 2, entries, answer: true },
    });
    assert_eq!(world.server.misdeeds(), [(old, Misdeed::OtherRules(3))]);
    let (new, rules) = open(&mut world, 2, NEW);
    assert_eq!(rules, Rules::Three);
    assert_eq!(attributes(&mut world, new).mode, 0o711);
    assert_eq!(world.log(new, vec![update_by(Rules::Three, chmod(&ROOT, 0o722, 0))]), []);
    assert_eq!(attributes(&mut world, new).ctime, root().ctime.next());
}

#[test]
fn what_a_server_does_for_a_session_it_does_by_the_sessions_rules() {
    for (speaks, moves) in [(OLD, false), (NEW, true)] {
        let mut world = old_cluster();
        world.enrol_up_to(3);
        raise(&mut world, NEW);
        let session = open(&mut world, 2, speaks).0;
        world.ask(session, chmod(&ROOT, 0o711, 0), Vec::new(), AskMode::Ship);
        let ctime = attributes(&mut world, session).ctime;
        assert_eq!(ctime > root().ctime, moves, "{speaks}");
    }
}

#[test]
fn a_session_that_goes_on_goes_by_the_new_rules_and_what_it_decided_before_counts() {
    let mut world = old_cluster();
    let session = open(&mut world, 2, NEW).0;
    let n = world.take_root(session);
    raise(&mut world, NEW);
    let file = world.create(session, &ROOT, "a", FileKind::Regular, n);
    assert_eq!(resume(&mut world, 2, session, NEW), Rules::Three);
    let again = world.create(session, &ROOT, "b", FileKind::Regular, n + 1);
    assert_eq!(world.log(session, vec![update_by(Rules::Two, file), update_by(Rules::Three, again)]), []);
    assert_eq!(world.server.status(world.now).files, 3);
}

#[test]
fn the_last_versions_rules_stay_until_no_machine_may_come_back_to_them() {
    let mut world = old_cluster();
    for machine in 1..=4 {
        open(&mut world, machine, OLD);
    }
    raise(&mut world, NEW);
    let older = |world: &World| {
        world.server.older_machines(&world.store).iter().map(|(machine, _)| machine.0).collect::<Vec<_>>()
    };
    assert_eq!(older(&world), [1, 2, 3, 4]);
    world.restart();
    world.input(Input::Speaks { machine: MachineId(1), version: NEW });
    world.input(Input::Speaks { machine: MachineId(2), version: NEW });
    // One that is away, and one that comes back as it was.
    world.input(Input::Speaks { machine: MachineId(3), version: OLD });
    assert_eq!(older(&world), [3, 4]);
    world.input(Input::Expel { machine: MachineId(4) });
    assert_eq!(older(&world), [3]);
    world.input(Input::Speaks { machine: MachineId(3), version: NEW });
    assert_eq!(older(&world), []);
    world.restart();
    // From here on the old rules are no session's.
    world.input(Input::Speaks { machine: MachineId(2), version: OLD });
    world.input(Input::Open { machine: MachineId(2), incarnation: 2, session: None, connection: 9 });
    let too_old = Refusal::TooOld { speaks: OLD, oldest: NEW };
    assert_eq!(world.refused, [too_old]);
    assert!(too_old.to_string().starts_with("this machine's leasehold is too old: it speaks version 3"));
}

/// The founder cannot be expelled; gone for good, it must not keep what is older for ever.
#[test]
fn a_founder_that_is_gone_keeps_nothing() {
    let mut world = old_cluster();
    let founder = open(&mut world, 1, OLD).0;
    open(&mut world, 2, OLD);
    raise(&mut world, NEW);
    world.send(founder, ToServer::Goodbye);
    world.input(Input::Speaks { machine: MachineId(2), version: NEW });
    assert_eq!(world.server.older_machines(&world.store), []);
}

#[test]
fn the_version_is_raised_one_at_a_time_and_not_before_the_last_is_everybodys() {
    let mut world = old_cluster();
    world.server.checkpoint(&mut world.store);
    world.server = Directory::open(&world.store, later()).unwrap();
    open(&mut world, 2, OLD);
    raise(&mut world, Version(5));
    assert_eq!(world.server.version(), OLD);
    raise(&mut world, NEW);
    raise(&mut world, NEW);
    raise(&mut world, Version(5));
    assert_eq!((world.server.version(), world.raised.as_slice()), (NEW, [NEW].as_slice()));
    world.input(Input::Speaks { machine: MachineId(2), version: NEW });
    raise(&mut world, Version(5));
    assert_eq!(world.server.version(), Version(5));
}

#[test]
fn replicas_whose_programs_know_different_versions_are_the_same() {
    let mut worlds = [Versions::held_to(OLD), Versions::KNOWN].map(|known| {
        let mut world = World::founded_by(Versions::held_to(OLD));
        world.server.checkpoint(&mut world.store);
        world.server = Directory::open(&world.store, known).unwrap();
        let session = world.open(2, 1);
        let n = world.take_root(session);
        let file = world.create(session, &ROOT, "file", FileKind::Regular, n);
        let entries = [file, chmod(&ROOT, 0o711, 0)].map(|operation| update_by(Rules::Two, operation));
        assert_eq!(world.log(session, entries.into()), []);
        world
    });
    let [old, new] = &mut worlds;
    for world in [&mut *old, &mut *new] {
        world.server.checkpoint(&mut world.store);
    }
    assert_eq!((old.server.digest(), &old.store), (new.server.digest(), &new.store));
    // And what only one of them knows stops the other before it comes to something else.
    let (digest, mut out) = (old.server.digest(), Vec::new());
    let stopped = old.server.handle(Time(5000), Input::Raise { to: NEW }, &mut old.store, &mut out);
    assert_eq!(stopped, Err(Fault::Version { version: NEW, known: Versions::held_to(OLD) }));
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
        words(Versions::held_to(OLD)),
        "the cluster is at version 4, and this leasehold knows version 3: install a newer one on this machine"
    );
    // One that has dropped the old rules, while a machine may still come back with them.
    assert_eq!(
        words(Versions { oldest: NEW, newest: Version(5) }),
        "machines of the cluster may still speak version 3, and this leasehold knows versions 4 to 5: go back to the one before, until `leasehold status` names none"
    );
    let mut store = raised();
    store.put(ROW, vec![9, 0xff]);
    let later = Fault::Version { version: Version(9), known: Versions::KNOWN };
    assert_eq!(Directory::open(&store, Versions::KNOWN).map(drop), Err(later), "whatever follows it");
    store.put(ROW, vec![4, 0xff]);
    assert!(matches!(Directory::open(&store, Versions::KNOWN), Err(Fault::Corrupt(_))));
}
