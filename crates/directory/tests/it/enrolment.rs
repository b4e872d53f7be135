//! Membership of the cluster: invitations, joining, expulsion.

use crate::support::*;
use directory::{Directory, FOUNDER, INVITATIONS_MAX, Input, Output};
use ident::FileId;
use lease::{Field, Kind, SessionId};
use namespace::{Error, FileKind};
use wire::{
    AskMode, EnrolError, ExpelError, InviteError, MACHINE_NAME_BYTES_MAX, MachineId, Refusal, RevokeError,
    Rights, ToClient, ToServer,
};

const ROOT: FileId = FileId::root();
const TOKEN: [u8; 32] = [9; 32];

fn read_only() -> Rights {
    Rights { read_only: true, ..Rights::FULL }
}

/// The default time of all requests here, in UTC seconds; invitations count from it.
const AT: u64 = 1_800_000_000;
const UNTIL: u64 = AT + 60;

/// Invites with [`TOKEN`], for a minute.
fn invite(world: &mut World, rights: Rights) -> Result<(), InviteError> {
    invite_at(world, rights, AT)
}

fn invite_at(world: &mut World, rights: Rights, at: u64) -> Result<(), InviteError> {
    world.input(Input::Invite { token: TOKEN, rights, at, until: UNTIL });
    world.invited.pop().unwrap()
}

fn enrol(world: &mut World, name: &str) -> Result<(MachineId, Rights), EnrolError> {
    enrol_with(world, name, [0; 32])
}

fn enrol_with(world: &mut World, name: &str, key: [u8; 32]) -> Result<(MachineId, Rights), EnrolError> {
    enrol_at(world, name, key, AT)
}

fn enrol_at(
    world: &mut World,
    name: &str,
    key: [u8; 32],
    at: u64,
) -> Result<(MachineId, Rights), EnrolError> {
    world.input(Input::Enrol { token: TOKEN, name: name.to_owned(), key, at, connection: 5 });
    world.enrolled.pop().unwrap()
}

fn expel(world: &mut World, machine: u64) -> Result<(), ExpelError> {
    world.input(Input::Expel { machine: MachineId(machine) });
    world.expelled.pop().unwrap()
}

/// Asks for a machine's first session; the outputs to the connection.
fn opens(world: &mut World, machine: u64, connection: u64) -> Vec<Output> {
    let input = connects(machine, None, connection);
    let mut out = Vec::new();
    world.server.handle(world.now, input, &mut world.store, &mut out).unwrap();
    out
}

#[test]
fn a_machine_joins_once_with_what_it_was_invited_to() {
    let mut world = World::new();
    assert_eq!(invite(&mut world, read_only()), Ok(()));
    assert_eq!(enrol(&mut world, "desk.lab-2_a"), Ok((MachineId(2), read_only())));
    // The answer goes to the connection that asked, and covers only its request.
    let told = opens(&mut world, 2, 77);
    assert!(matches!(told.first(), Some(Output::Opened { machine: MachineId(2), connection: 77, .. })));
    let Some(Output::Send { message: ToClient::Opened { rights, inodes, allowance, .. }, .. }) = told.get(1)
    else {
        panic!("{told:?}")
    };
    assert_eq!((rights, *inodes, *allowance), (&read_only(), (0, 0), (0, 0)));
    let machines = world.server.machines(world.now, &world.store);
    let names: Vec<_> = machines.iter().map(|machine| (machine.machine, machine.name.as_str())).collect();
    assert_eq!(names, [(FOUNDER, "first"), (MachineId(2), "desk.lab-2_a")]);
    assert_eq!(machines[0].rights, Rights::FULL);
    assert_eq!((machines[1].since, machines[1].expelled), (world.now, None));
    assert_eq!(machines[1].session.map(|session| (session.heard_ms, session.lapsed)), Some((0, false)));
}

#[test]
fn tokens_are_for_one_machine_once_and_in_time() {
    let mut world = World::new();
    assert_eq!(enrol(&mut world, "a"), Err(EnrolError::UnknownToken));
    invite(&mut world, Rights::FULL).unwrap();
    assert_eq!(invite(&mut world, Rights::FULL), Err(InviteError::TokenTaken));
    assert_eq!(enrol(&mut world, "a"), Ok((MachineId(2), Rights::FULL)));
    for name in ["a", "b"] {
        assert_eq!(enrol_with(&mut world, name, [1; 32]), Err(EnrolError::UsedToken));
    }
    // Nor after a restart, nor if the machine is expelled, whatever key is shown.
    world.restart();
    assert_eq!(enrol_with(&mut world, "b", [1; 32]), Err(EnrolError::UsedToken));
    expel(&mut world, 2).unwrap();
    for key in [[0; 32], [1; 32]] {
        assert_eq!(enrol_with(&mut world, "b", key), Err(EnrolError::UsedToken));
    }
    let token = [8; 32];
    world.input(Input::Invite { token, rights: Rights::FULL, at: AT, until: UNTIL });
    world.input(Input::Enrol { token, name: "b".to_owned(), key: [0; 32], at: UNTIL, connection: 5 });
    assert_eq!(world.enrolled.pop(), Some(Err(EnrolError::ExpiredToken)));
}

#[test]
fn a_machine_that_did_not_hear_that_it_has_joined_joins_as_the_same() {
    let mut world = World::new();
    invite(&mut world, read_only()).unwrap();
    assert_eq!(enrol(&mut world, "desk"), Ok((MachineId(2), read_only())));
    let since = world.now;
    world.now = since.after_ms(1_000);
    world.restart();
    assert_eq!(enrol(&mut world, "desk"), Ok((MachineId(2), read_only())));
    // The machine may have chosen another name meanwhile, which must not belong to another machine.
    assert_eq!(enrol(&mut world, "first"), Err(EnrolError::NameTaken));
    assert_eq!(enrol(&mut world, "table"), Ok((MachineId(2), read_only())));
    let machines = world.server.machines(world.now, &world.store);
    let seen: Vec<_> = machines.iter().map(|it| (it.machine, it.name.as_str(), it.since)).collect();
    assert_eq!(seen[1..], [(MachineId(2), "table", since)]);
    assert_eq!(enrol_at(&mut world, "table", [0; 32], UNTIL), Err(EnrolError::ExpiredToken));
}

#[test]
fn a_refused_name_costs_no_token() {
    let mut world = World::new();
    invite(&mut world, Rights::FULL).unwrap();
    let long = "x".repeat(MACHINE_NAME_BYTES_MAX + 1);
    for name in ["", "3", "0042", "a b", "a/b", "b\u{fc}ro", "a\n", long.as_str()] {
        assert_eq!(enrol(&mut world, name), Err(EnrolError::BadName), "{name:?}");
    }
    for taken in ["first", "First"] {
        assert_eq!(enrol(&mut world, taken), Err(EnrolError::NameTaken));
    }
    assert_eq!(enrol(&mut world, &long[1..]), Ok((MachineId(2), Rights::FULL)));
}

#[test]
fn rights_begin_at_a_directory_that_is_there() {
    let mut world = World::new();
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let dir = world.create(session, &ROOT, "dir", FileKind::Directory, n);
    let file = world.create(session, &ROOT, "file", FileKind::Regular, n + 1);
    world.update(session, dir.clone()).unwrap();
    world.update(session, file.clone()).unwrap();
    let below = |root: &FileId| Rights { root: root.clone(), ..Rights::FULL };
    assert_eq!(invite(&mut world, below(&made(&file))), Err(InviteError::NotADirectory));
    assert_eq!(invite(&mut world, below(&ROOT.child(999))), Err(InviteError::NotADirectory));
    assert_eq!(invite(&mut world, below(&made(&dir))), Ok(()));
    let rmdir = namespace::Operation::Unlink(namespace::operation::Unlink {
        dir: ROOT,
        label: label("dir"),
        directory: true,
        open: false,
        cred: namespace::Cred::default(),
        time: at(20),
        pending: None,
    });
    world.update(session, rmdir).unwrap();
    assert_eq!(enrol(&mut world, "a"), Err(EnrolError::RootGone));
}

#[test]
fn invitations_are_bounded_and_expired_ones_make_room() {
    let mut world = World::new();
    world.checks = false;
    let token = |n: u64| {
        let mut token = [0; 32];
        token[..8].copy_from_slice(&n.to_be_bytes());
        token
    };
    for n in 0..INVITATIONS_MAX {
        world.input_unchecked(Input::Invite { token: token(n), rights: Rights::FULL, at: AT, until: UNTIL });
    }
    assert!(world.invited.drain(..).all(|result| result == Ok(())));
    assert_eq!(invite(&mut world, Rights::FULL), Err(InviteError::TooMany));
    assert_eq!(invite_at(&mut world, Rights::FULL, UNTIL), Ok(()));
    world.check();
}

#[test]
fn an_expelled_machine_is_out_at_once_and_for_good() {
    let mut world = World::new();
    let (gone, other) = (world.open(2, 1), world.open(1, 1));
    let is_over = |world: &World, machine, session| world.server.is_over(MachineId(machine), session);
    assert!(!is_over(&world, 2, gone) && !is_over(&world, 2, SessionId(other.0 + 1)));
    assert!(is_over(&world, 2, other), "it is another's");
    assert!(world.server.has_begun(other) && !world.server.has_begun(SessionId(other.0 + 1)));
    let n = world.take_root(gone);
    let number = world.ask(other, stat(&ROOT), vec![], AskMode::Lease);
    world.told(gone);
    assert_eq!(expel(&mut world, 2), Ok(()));
    assert!(is_over(&world, 2, gone) && !is_over(&world, 1, other));
    // Its leases are free, and the session that waited for them waits no more.
    assert_eq!(world.told(gone), [ToClient::Fenced]);
    assert!(world.grants(other, number).is_some());
    // Its unsent changes are not done, and it receives nothing, by any way.
    let entries = vec![update(create(&ROOT, "late", FileKind::Regular, n, 9))];
    world.send(gone, ToServer::Log { answer: true, first: 1, entries });
    assert_eq!(world.told(gone), [ToClient::Fenced]);
    assert_eq!(world.server.status(world.now).files, 1);
    let query = ToServer::Extents { number: 1, file: ROOT, from: 0 };
    assert_eq!(world.server.query(gone, &query, &world.store), Some(ToClient::Fenced));
    // It gets no session again, with or without its old session's number; nor after a restart.
    let refused = |why| vec![Output::Refused { connection: 7, why }];
    assert_eq!(opens(&mut world, 2, 7), refused(Refusal::Expelled(MachineId(2))));
    world.restart();
    let again = connects(2, Some(gone), 7);
    let mut out = Vec::new();
    world.server.handle(world.now, again, &mut world.store, &mut out).unwrap();
    assert_eq!(out, refused(Refusal::Expelled(MachineId(2))));
    assert_eq!(opens(&mut world, 99, 7), refused(Refusal::Unknown(MachineId(99))));
}

#[test]
fn the_name_of_an_expelled_machine_is_free_and_its_number_is_not() {
    let mut world = World::new();
    invite(&mut world, Rights::FULL).unwrap();
    enrol(&mut world, "desk").unwrap();
    assert_eq!(expel(&mut world, 3), Err(ExpelError::Unknown));
    assert_eq!(expel(&mut world, 2), Ok(()));
    assert_eq!(expel(&mut world, 2), Err(ExpelError::Expelled));
    world.input(Input::Invite { token: [1; 32], rights: Rights::FULL, at: AT, until: UNTIL });
    world.input(Input::Enrol {
        token: [1; 32],
        name: "desk".to_owned(),
        key: [0; 32],
        at: AT,
        connection: 1,
    });
    assert_eq!(world.enrolled.pop(), Some(Ok((MachineId(3), Rights::FULL))));
    let machines = world.server.machines(world.now, &world.store);
    let desks: Vec<_> = machines[1..].iter().map(|it| (it.name.as_str(), it.expelled.is_some())).collect();
    assert_eq!(desks, [("desk", true), ("desk", false)]);
    // The host has made sure that the founder is no server any more.
    assert_eq!(expel(&mut world, 1), Ok(()));
    assert_eq!(
        opens(&mut world, 1, 8),
        vec![Output::Refused { connection: 8, why: Refusal::Expelled(MachineId(1)) }]
    );
}

#[test]
fn nobody_joins_by_an_invitation_that_was_revoked() {
    let mut world = World::new();
    let listed = |world: &World| {
        let all = world.server.invitations(&world.store).into_iter();
        all.map(|it| (it.token, it.until)).collect::<Vec<_>>()
    };
    invite(&mut world, Rights::FULL).unwrap();
    assert_eq!(listed(&world), [(TOKEN, UNTIL)]);
    world.input(Input::Revoke { token: [8; 32] });
    world.input(Input::Revoke { token: TOKEN });
    world.input(Input::Revoke { token: TOKEN });
    assert_eq!(world.revoked, [Err(RevokeError::Unknown), Ok(()), Err(RevokeError::Unknown)]);
    assert_eq!(listed(&world), []);
    assert_eq!(enrol(&mut world, "desk"), Err(EnrolError::UnknownToken));
    // A used invitation is not listed; its machine is to be expelled.
    invite(&mut world, Rights::FULL).unwrap();
    enrol(&mut world, "desk").unwrap();
    assert_eq!(listed(&world), []);
    world.input(Input::Revoke { token: TOKEN });
    assert_eq!(world.revoked.last(), Some(&Err(RevokeError::Used(MachineId(2)))));
    // Its machine may still repeat that it joins.
    enrol(&mut world, "desk").unwrap();
}

#[test]
fn a_restart_forgets_no_machine_and_no_right() {
    let mut world = World::new();
    let machine = world.enrol(read_only()).unwrap();
    let session = world.open(machine.0, 1);
    let before = world.server.machines(world.now, &world.store);
    world.server.checkpoint(&mut world.store);
    world.server = Directory::open(&world.store, wire::Versions::KNOWN).unwrap();
    assert_eq!(world.server.machines(world.now, &world.store), before);
    world.input(Input::Lead);
    assert_eq!(world.update(session, unlink(&ROOT, "a", false)), Err(Error::ReadOnly));
}

#[test]
fn leases_say_who_holds_which_field_who_waits_and_who_does_not_answer() {
    use directory::Standing;
    let mut world = World::new();
    let (holder, other) = (world.open(1, 1), world.open(2, 1));
    let n = world.take_root(holder);
    let create = world.create(holder, &ROOT, "a", FileKind::Regular, n);
    let file = made(&create);
    world.update(holder, create).unwrap();
    assert_eq!(world.server.resolve(&world.store, b"/a"), Some(file.clone()));
    assert_eq!(world.server.resolve(&world.store, b"a/../a/."), None);
    assert_eq!(world.server.resolve(&world.store, b"/b"), None);
    assert_eq!(world.server.resolve(&world.store, b"//"), Some(ROOT));
    world.now = world.now.after_ms(1000);
    world.ask(other, stat(&file), vec![], AskMode::Lease);
    world.now = world.now.after_ms(500);
    let leases = world.server.leases(world.now, &world.store, &file);
    let of = |field: &Field| -> Vec<(&str, Standing)> {
        let of = leases.iter().filter(|lease| lease.field == *field);
        of.map(|lease| (lease.name.as_str(), lease.standing)).collect()
    };
    let left_ms = directory::TERM_MS - 1500;
    assert_eq!(
        of(&Field::Attributes),
        [
            ("first", Standing::Holds { kind: Kind::Write, left_ms }),
            ("first", Standing::Recalled { keep: Some(Kind::Read), for_ms: 500 }),
            ("machine-2", Standing::Waits { kind: Kind::Read, for_ms: 500 }),
        ]
    );
    // The report names not the machine that has the file open, but the machine that could have
    // opened it without asking.
    assert_eq!(of(&Field::Handles), [("first", Standing::Holds { kind: Kind::Write, left_ms })]);
    let session = world.server.machines(world.now, &world.store)[0].session.unwrap();
    assert_eq!((session.heard_ms, session.unanswered_ms), (1500, Some(500)));
    world.yields(holder);
    let leases = world.server.leases(world.now, &world.store, &file);
    let attributes = leases.iter().find(|lease| lease.field == Field::Attributes).unwrap();
    assert_eq!(attributes.last_recall_ms, Some(500));
    assert!(!leases.iter().any(|lease| matches!(lease.standing, Standing::Waits { .. })));
}

#[test]
fn what_others_have_open_is_in_no_report() {
    let mut reports = Vec::new();
    for open in [false, true] {
        let mut world = World::new();
        let session = world.open(1, 1);
        let n = world.take_root(session);
        let create = world.create(session, &ROOT, "a", FileKind::Regular, n);
        let file = made(&create);
        world.update(session, create).unwrap();
        world.returns(session, &file, None, open);
        reports.push(world.server.leases(world.now, &world.store, &file));
    }
    assert_eq!(reports[0], reports[1]);
}
