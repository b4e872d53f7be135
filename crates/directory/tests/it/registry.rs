//! The root server's registry of machines and servers, and the copies that other servers have.

use crate::support::*;
use directory::{Directory, FoundError, Input, MachineReport, MemoryStore, Output, Registry, SERVERS_MAX};
use ident::{FileId, ServerId};
use lease::SessionId;
use wire::{
    EnrolError, ExpelError, GreetingNumber, InviteError, MachineId, Refusal, RevokeError, Rights, ToClient,
    ToServer, Version, Versions,
};

/// Expelled machines that are remembered.
const EXPELLED_MAX: u64 = 1024;
const OTHER: ServerId = ServerId(1);

/// The root server with so many machines, and another server that has heard of them.
fn two(machines: u64) -> (World, World) {
    let mut root = World::new();
    root.enrol_up_to(machines);
    let other = World::beside(&root, OTHER);
    (root, other)
}

fn feed(root: &World, since: u64) -> Registry {
    root.server.registry(since, &root.store)
}

/// The other server hears of all that it has not heard of.
fn feeds(root: &World, other: &mut World) {
    other.input(Input::Registry(feed(root, other.server.registered())));
}

/// Machines as the server knows them, but for their sessions.
fn machines(world: &World) -> Vec<MachineReport> {
    let machines = world.server.machines(world.now, &world.store).into_iter();
    machines.map(|machine| MachineReport { session: None, ..machine }).collect()
}

fn admits(world: &World, machine: u64) -> Result<Rights, Refusal> {
    world.server.admits(MachineId(machine), &world.store)
}

fn expel(root: &mut World, machine: u64) {
    root.input(Input::Expel { machine: MachineId(machine) });
    assert_eq!(root.expelled.pop(), Some(Ok(())));
}

/// The server greets a start of a machine; the outputs.
fn greets(world: &mut World, machine: u64, incarnation: u64) -> Vec<Output> {
    let (machine, greeting, version) = (MachineId(machine), GreetingNumber::default(), Version::NEWEST);
    let open = Input::Open { machine, incarnation, greeting, session: None, connection: 7, version };
    let mut out = Vec::new();
    world.server.handle(world.now, open, &mut world.store, &mut out).unwrap();
    world.check();
    out
}

fn begins(world: &mut World, machine: u64, incarnation: u64) -> SessionId {
    let out = greets(world, machine, incarnation);
    let session = out.iter().find_map(|output| match output {
        Output::Opened { session, .. } => Some(*session),
        _ => None,
    });
    session.expect("no session")
}

fn is_fenced(world: &mut World, session: SessionId) -> bool {
    world.told(session).contains(&ToClient::Fenced)
}

#[test]
fn a_machine_that_joins_is_admitted_where_it_was_heard_of() {
    let (mut root, mut other) = two(1);
    assert_eq!(other.server.registered(), root.server.registered());
    root.enrol_up_to(2);
    assert!(other.server.registered() < root.server.registered());
    let unknown = Refusal::Unknown(MachineId(2));
    assert_eq!(admits(&other, 2), Err(unknown));
    assert!(matches!(greets(&mut other, 2, 1)[..], [Output::Refused { why, .. }] if why == unknown));
    feeds(&root, &mut other);
    assert_eq!(other.server.registered(), root.server.registered());
    assert_eq!(machines(&other), machines(&root));
    begins(&mut other, 2, 1);
}

#[test]
fn an_expelled_machine_is_fenced_once_and_comes_back_by_no_older_feed() {
    let (mut root, mut other) = two(3);
    let before = feed(&root, 0);
    let (two, three) = (begins(&mut other, 2, 1), begins(&mut other, 3, 1));
    root.enrol_up_to(4);
    let since = root.server.registered();
    let between = feed(&root, 0);
    expel(&mut root, 2);
    let after = feed(&root, since);
    // It does not continue what this server has heard of.
    other.input(Input::Registry(after.clone()));
    assert_eq!(admits(&other, 2), Ok(Rights::FULL));
    feeds(&root, &mut other);
    assert!(is_fenced(&mut other, two));
    for late in [between, before, after, feed(&root, 0)] {
        other.input(Input::Registry(late));
        assert_eq!(admits(&other, 2), Err(Refusal::Expelled(MachineId(2))));
    }
    assert!(!is_fenced(&mut other, two) && !is_fenced(&mut other, three));
    assert_eq!(other.server.has_through(three), Some(0));
    assert_eq!(machines(&other), machines(&root));
}

#[test]
fn a_copy_is_as_old_after_a_start_as_before() {
    let (mut root, mut other) = two(2);
    let before = feed(&root, 0);
    expel(&mut root, 2);
    // A server that is new begins where the root server is, and one that starts again where it was.
    let mut new = World::beside(&root, ServerId(2));
    feeds(&root, &mut other);
    other.restart();
    for world in [&mut new, &mut other] {
        assert_eq!(world.server.registered(), root.server.registered());
        world.input(Input::Registry(before.clone()));
        assert_eq!(admits(world, 2), Err(Refusal::Expelled(MachineId(2))));
    }
}

#[test]
fn sessions_of_earlier_starts_end_everywhere() {
    let (mut root, mut other) = two(2);
    begins(&mut root, 2, 1);
    let (first, others) = (begins(&mut other, 2, 1), begins(&mut other, 1, 4));
    begins(&mut root, 2, 2);
    begins(&mut root, 1, 4);
    feeds(&root, &mut other);
    assert!(is_fenced(&mut other, first));
    assert_eq!(other.server.has_through(others), Some(0), "of the same start");
    // A late greeting of an earlier start begins nothing, also where the machine has no session.
    let fenced = root.server.status(root.now).sessions;
    for world in [&mut root, &mut other] {
        assert_eq!(world.server.latest_start(MachineId(2), &world.store), Some(2));
        assert_eq!(greets(world, 2, 1), []);
    }
    assert_eq!(root.server.status(root.now).sessions, fenced);
    // A start that comes here first is not ended by the news of it.
    let third = begins(&mut other, 2, 3);
    begins(&mut root, 2, 3);
    feeds(&root, &mut other);
    assert_eq!(other.server.has_through(third), Some(0));
}

#[test]
fn the_root_server_knows_the_latest_start_of_a_machine_that_is_off() {
    let mut root = World::new();
    let session = begins(&mut root, 1, 5);
    root.send(session, ToServer::Goodbye);
    root.restart();
    assert_eq!(root.server.latest_start(MachineId(1), &root.store), Some(5));
    assert_eq!(greets(&mut root, 1, 4), []);
    begins(&mut root, 1, 5);
}

/// Of very many expelled machines the first are forgotten, which no row tells. The next feed has
/// all that are left.
#[test]
fn machines_that_are_forgotten_have_no_session_anywhere() {
    let (mut root, mut other) = two(2);
    let session = begins(&mut other, 2, 1);
    (root.checks, other.checks) = (false, false);
    expel(&mut root, 2);
    for number in 3..3 + EXPELLED_MAX {
        // Invitations that have expired are forgotten.
        let (mut token, name) = ([0; 32], format!("machine-{number}"));
        token[..8].copy_from_slice(&number.to_be_bytes());
        root.input(Input::Invite { token, rights: Rights::FULL, at: number, until: number + 1 });
        root.input(Input::Enrol { token, name, key: [0; 32], at: number, connection: 0 });
        expel(&mut root, number);
    }
    assert_eq!(admits(&root, 2), Err(Refusal::Unknown(MachineId(2))));
    assert!(feed(&root, other.server.registered()).is_whole());
    feeds(&root, &mut other);
    assert!(is_fenced(&mut other, session));
    assert_eq!(machines(&other), machines(&root));
    other.check();
    // A change after that makes a small feed again.
    begins(&mut root, 1, 1);
    let small = feed(&root, other.server.registered());
    assert!(!small.is_whole() && postcard::to_allocvec(&small).unwrap().len() < 100);
    feeds(&root, &mut other);
    assert_eq!(other.server.latest_start(MachineId(1), &other.store), Some(1));
}

/// The restored state is an earlier one, and goes on with numbers that nobody has heard of.
#[test]
fn a_restored_registry_is_later_than_all_that_was_heard_of_it() {
    let (mut root, mut other) = two(2);
    root.server.checkpoint(&mut root.store);
    let backup = root.store.clone();
    root.enrol_up_to(4);
    feeds(&root, &mut other);
    let late = begins(&mut other, 4, 1);
    root.server = Directory::open(&backup, root.knows).unwrap();
    root.store = backup;
    root.input(Input::Restored { at: 1_800_000_000 });
    feeds(&root, &mut other);
    assert!(is_fenced(&mut other, late));
    assert_eq!(machines(&other), machines(&root));
    assert_eq!(admits(&other, 4), Err(Refusal::Unknown(MachineId(4))));
}

/// Greets as a program that speaks `version`, and goes on with `session`, if there is one.
fn speaks(world: &mut World, machine: u64, session: Option<SessionId>, version: Version) -> Option<Version> {
    let (machine, greeting) = (MachineId(machine), GreetingNumber::default());
    world.input(Input::Open { machine, incarnation: 1, greeting, session, connection: 0, version });
    let told = world.inbox.values_mut().flat_map(std::mem::take).last();
    match told {
        Some(ToClient::Opened { version, .. } | ToClient::Resumed { version, .. }) => Some(version),
        _ => None,
    }
}

#[test]
fn an_older_version_goes_once_the_root_server_and_all_sessions_here_have_dropped_it() {
    let (old, new) = (Version::NEWEST, Version::NEWEST.next());
    let (mut root, mut other) = two(2);
    for world in [&mut root, &mut other] {
        world.knows = Versions::WITH_NEXT.held_to(new.next());
        world.restart();
    }
    let session = begins(&mut other, 2, 1);
    for world in [&mut root, &mut other] {
        world.input(Input::Raise { to: new });
    }
    feeds(&root, &mut other);
    // While both are in use, a new server speaks both.
    let registry = feed(&root, 0);
    let mut store = MemoryStore::default();
    let beside = |store: &mut MemoryStore, knows| {
        Directory::create_beside(store, ServerId(2), (&registry, 0), knows).map(|server| server.version())
    };
    assert_eq!(beside(&mut store, Versions::WITH_NEXT), Ok(new));
    assert!(beside(&mut store, Versions::KNOWN).is_err());
    let dropped = Versions { oldest: new, newest: new.next() };
    assert!(beside(&mut store, dropped).is_err());
    for machine in [1, 2] {
        assert_eq!(speaks(&mut root, machine, None, new), Some(new));
    }
    // The root server has dropped it. A session here has not heard of the raise.
    feeds(&root, &mut other);
    let older = |world: &World| world.server.older_machines(&world.store).len();
    assert_eq!((older(&root), older(&other)), (0, 1));
    assert_eq!(speaks(&mut other, 1, None, old), None);
    assert_eq!(other.refused.pop(), Some(Refusal::TooOld { speaks: old, oldest: new }));
    other.input(Input::Raise { to: new.next() });
    assert_eq!(other.server.version(), new);
    assert_eq!(speaks(&mut other, 2, Some(session), new), Some(new));
    assert_eq!(older(&other), 0);
    other.server.checkpoint(&mut other.store);
    assert!(Directory::open(&other.store, dropped).is_ok());
}

/// A server whose sessions are gone holds up no version.
#[test]
fn a_machine_that_is_gone_from_here_keeps_no_version_that_the_root_server_has_dropped() {
    let new = Version::NEWEST.next();
    let (mut root, mut other) = two(2);
    for world in [&mut root, &mut other] {
        world.knows = Versions::WITH_NEXT.held_to(new.next());
        world.restart();
    }
    let session = begins(&mut other, 2, 1);
    for world in [&mut root, &mut other] {
        world.input(Input::Raise { to: new });
    }
    for machine in [1, 2] {
        speaks(&mut root, machine, None, new);
    }
    feeds(&root, &mut other);
    other.send(session, ToServer::Goodbye);
    root.input(Input::Raise { to: new.next() });
    other.input(Input::Raise { to: new.next() });
    assert_eq!((root.server.version(), other.server.version()), (new.next(), new.next()));
}

/// A host may be misled, and there is one registry.
#[test]
fn only_the_root_server_changes_the_registry() {
    let (_, mut other) = two(2);
    let (before, registered) = (machines(&other), other.server.registered());
    let (token, machine) = ([9; 32], MachineId(2));
    other.input(Input::Invite { token, rights: Rights::FULL, at: 0, until: 10 });
    assert_eq!(other.invited.pop(), Some(Err(InviteError::NotTheRoot)));
    other.input(Input::Enrol { token, name: "a".to_owned(), key: [0; 32], at: 0, connection: 1 });
    assert_eq!(other.enrolled.pop(), Some(Err(EnrolError::NotTheRoot)));
    other.input(Input::Revoke { token });
    assert_eq!(other.revoked.pop(), Some(Err(RevokeError::NotTheRoot)));
    other.input(Input::Expel { machine });
    assert_eq!(other.expelled.pop(), Some(Err(ExpelError::NotTheRoot)));
    other.input(Input::Found { number: 1, founder: 1 });
    assert_eq!(other.founded.pop(), Some(Err(FoundError::NotTheRoot)));
    let authority = directory::CertificateAuthority { certificate: vec![1], key: vec![2], cluster: [3; 32] };
    other.input(Input::Authorize { number: 1, authority });
    assert_eq!(other.authorized.pop(), Some((1, false)));
    let known = directory::MachineCredential { key: Some([5; 32]), certified: 0, holds: 0 };
    other.input(Input::Known { machine, known, itself: true });
    assert_eq!(other.server.known(machine, &other.store).unwrap().key, Some([0; 32]));
    let moved = directory::Moved { to: ServerId(1), at: 0, why: directory::MoveReason::Asked };
    other.input(Input::Pin { file: FileId::root(), pinned: true });
    other.input(Input::Moved { region: FileId::root(), moved: Some(moved) });
    other.input(Input::Balance { on: false });
    assert_eq!(other.server.placement(&other.store), directory::Placement::default());
    other.input(Input::Restored { at: 1_800_000_000 });
    assert_eq!((machines(&other), other.server.registered()), (before, registered));
    assert_eq!(
        (other.server.authorities(&other.store), other.server.invitations(&other.store)),
        (vec![], vec![])
    );
    assert_eq!(other.server.servers(&other.store), []);
}

#[test]
fn the_root_server_takes_no_feed() {
    let (mut root, _) = two(2);
    let before = feed(&root, 0);
    expel(&mut root, 2);
    let later = feed(&root, 0);
    let mut world = World::new();
    for feed in [before, later] {
        let digest = world.server.digest();
        world.input(Input::Registry(feed));
        assert_eq!((world.server.digest(), machines(&world).len()), (digest, 1));
    }
}

#[test]
fn servers_are_numbered_in_order_and_survive_a_restart() {
    let mut root = World::new();
    for founder in [7, 5, 7] {
        root.input(Input::Found { number: 1, founder });
    }
    let three = [(ServerId(1), 7), (ServerId(2), 5), (ServerId(3), 7)];
    assert_eq!(root.server.servers(&root.store), three);
    assert_eq!(root.founded, [Ok(ServerId(1)), Ok(ServerId(2)), Ok(ServerId(3))]);
    root.restart();
    root.check();
    assert_eq!(root.server.servers(&root.store), three);
    root.checks = false;
    for number in 4..=SERVERS_MAX {
        root.input(Input::Found { number: number.into(), founder: 1 });
        assert_eq!(root.founded.last(), Some(&Ok(ServerId(number))));
    }
    root.input(Input::Found { number: 0, founder: 1 });
    assert_eq!(root.founded.last(), Some(&Err(FoundError::TooMany)));
    root.check();
    assert_eq!(root.server.servers(&root.store).len(), usize::from(SERVERS_MAX));
}
