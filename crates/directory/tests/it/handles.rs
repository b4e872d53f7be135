//! The black box of handles (the sessions that have a file open), from outside (BlackBox §4.3).

use crate::support::*;
use ident::FileId;
use lease::{Field, Kind, SessionId};
use namespace::FileKind;
use wire::{AskMode, FileGrant, LogEntry, ToClient, ToServer};

const ROOT: FileId = FileId::root();

/// A file that `session` has made. It holds all of the file, but others may see the attributes.
fn file(world: &mut World, session: SessionId) -> FileId {
    let n = world.take_root(session);
    let op = world.create(session, &ROOT, "file", FileKind::Regular, n);
    let file = made(&op);
    assert_eq!(world.update(session, op), Ok(()));
    world.release(session, vec![released(&file, Field::Attributes, Some(Kind::Read))]);
    file
}

/// Asks for one of the two leases, or both.
fn ask(world: &mut World, session: SessionId, file: &FileId, kind: Kind) -> u64 {
    ask_of(world, session, file, &Field::Handles, kind)
}

fn ask_of(world: &mut World, session: SessionId, file: &FileId, field: &Field, kind: Kind) -> u64 {
    world.ask(
        session,
        namespace::Operation::Access(namespace::operation::Access {
            file: file.clone(),
            mask: 0,
            cred: namespace::Cred::default(),
        }),
        vec![want(file, field.clone(), kind)],
        AskMode::Lease,
    )
}

fn told(grants: &[FileGrant]) -> (Vec<(Field, Kind)>, Option<bool>) {
    let [grant] = grants else { panic!("{grants:?}") };
    let handles = grant.fields.iter().filter(|(field, _)| *field == Field::Handles);
    (handles.cloned().collect(), grant.values.others.get(&Field::Handles))
}

/// `sessions` open it, one after the other, and are stuck at that.
fn open_and_stuck(world: &mut World, file: &FileId, sessions: &[SessionId]) {
    for session in sessions {
        ask(world, *session, file, Kind::Touch);
        for other in sessions {
            world.releases_or_takes(*other);
        }
        world.returns(*session, file, None, true);
        world.told(*session);
    }
}

impl World {
    /// Answers recalls, and ignores all other messages.
    fn releases_or_takes(&mut self, session: SessionId) {
        for message in self.told(session) {
            if let ToClient::Recall { leases, .. } = message {
                self.release(session, leases);
            }
        }
    }
}

#[test]
fn the_second_that_opens_costs_the_first_what_it_sees_and_the_third_nobody_anything() {
    let mut world = World::new();
    let (a, b, c) = (world.open(1, 1), world.open(2, 1), world.open(3, 1));
    let file = file(&mut world, a);
    let number = ask(&mut world, b, &file, Kind::Touch);
    assert_eq!(world.recalled(a), [released(&file, Field::Handles, Some(Kind::Touch))]);
    world.returns(a, &file, Some(Kind::Touch), true);
    assert_eq!(told(&world.grants(b, number).unwrap()), (vec![(Field::Handles, Kind::Touch)], None));
    let number = ask(&mut world, c, &file, Kind::Touch);
    assert_eq!(told(&world.grants(c, number).unwrap()), (vec![(Field::Handles, Kind::Touch)], None));
    // A session that wants to know whether others have it open makes the server ask all of them,
    // each for its own value only.
    let number = ask(&mut world, c, &file, Kind::Read);
    for session in [a, b] {
        assert_eq!(world.recalled(session), [released(&file, Field::Handles, None)]);
    }
    world.returns(a, &file, None, false);
    assert!(world.grants(c, number).is_none());
    world.returns(b, &file, None, true);
    let (fields, others_open) = told(&world.grants(c, number).unwrap());
    assert!(
        fields.contains(&(Field::Handles, Kind::Read)) || fields.contains(&(Field::Handles, Kind::Write))
    );
    assert_eq!(others_open, Some(true));
}

/// A second opinion costs no message: the client holds what lets it know.
#[test]
fn a_shield_lets_others_see_while_anybody_writes() {
    let mut world = World::new();
    let (a, b, c) = (world.open(1, 1), world.open(2, 1), world.open(3, 1));
    let file = file(&mut world, a);
    open_and_stuck(&mut world, &file, &[a, b]);
    // Two shields: C's own opens change nothing for others, and it sees TRUE. No session is asked.
    let number = ask(&mut world, c, &file, Kind::Write);
    assert_eq!(told(&world.grants(c, number).unwrap()), (vec![(Field::Handles, Kind::Write)], Some(true)));
    assert_eq!((world.recalled(a), world.recalled(b)), (vec![], vec![]));
}

#[test]
fn a_black_box_goes_with_a_value_and_a_shared_value_without() {
    let give = |entry: fn(lease::Released) -> LogEntry, field| {
        let mut world = World::new();
        let a = world.open(1, 1);
        let file = file(&mut world, a);
        world.send(
            a,
            ToServer::Log { answer: true, first: 3, entries: vec![entry(released(&file, field, None))] },
        );
        world.server.misdeeds().to_vec()
    };
    let release: fn(lease::Released) -> LogEntry = |released| LogEntry::Release(vec![released]);
    let returns: fn(lease::Released) -> LogEntry = |released| returning(released, true);
    let misdeed = [directory::Misdeed::OtherKindOfField];
    let only = |misdeeds: Vec<(SessionId, directory::Misdeed)>| {
        misdeeds.into_iter().map(|(_, it)| it).collect::<Vec<_>>()
    };
    assert_eq!(only(give(release, Field::Handles)), misdeed);
    assert_eq!(only(give(returns, Field::Attributes)), misdeed);
    assert_eq!(only(give(returns, Field::Handles)), []);
    assert_eq!(only(give(release, Field::Attributes)), []);
}

/// A fenced shield must not falsify the reports to others. The sessions that saw it release that
/// knowledge first, and no further session is told of it.
#[test]
fn what_rests_on_a_session_that_is_over_is_recalled_before_its_value_goes() {
    for restart in [false, true] {
        let mut world = World::new();
        let (a, b, c) = (world.open(1, 1), world.open(2, 1), world.open(3, 1));
        let file = file(&mut world, a);
        world.returns(a, &file, None, true);
        let number = ask(&mut world, b, &file, Kind::Read);
        assert_eq!(told(&world.grants(b, number).unwrap()).1, Some(true));
        // A's machine starts again.
        let a = world.open(1, 2);
        if restart {
            world.restart();
        }
        world.settle();
        let recall = world.recalled(b);
        assert_eq!(recall[0].field, Field::Handles);
        assert!(recall[0].keep.is_none_or(|kept| kept == Kind::Touch), "{recall:?}");
        // A session that asks now waits for that, and gets no value that no longer holds.
        let number = ask(&mut world, c, &file, Kind::Read);
        assert!(world.grants(c, number).is_none());
        if restart {
            world.restart();
            assert_eq!(world.recalled(b), recall[..1]);
        }
        world.returns(b, &file, None, false);
        assert_eq!(told(&world.grants(c, number).unwrap()).1, Some(false));
        world.settle();
        world.check();
        assert_eq!(world.told(a).len(), 0);
    }
}

#[test]
fn a_session_that_ends_with_many_files_open_fades_in_bounded_steps() {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    let mut integers = world.take_root(a)..65;
    let mut files = Vec::new();
    for n in 0..300 {
        let position = integers.next().unwrap_or_else(|| {
            world.send(a, ToServer::Reserve { dir: ROOT });
            let Some(ToClient::Reserved { first, end, .. }) = world.told(a).pop() else { panic!() };
            integers = first + 1..end;
            first
        });
        let op = world.create(a, &ROOT, &format!("f{n}"), FileKind::Regular, position);
        let file = made(&op);
        let read = released(&file, Field::Attributes, Some(Kind::Read));
        let open = returning(released(&file, Field::Handles, None), true);
        assert_eq!(world.log(a, vec![update(op), LogEntry::Release(vec![read]), open]), []);
        files.push(file);
    }
    // B sees one of them.
    let number = ask(&mut world, b, &files[7], Kind::Read);
    assert!(world.grants(b, number).is_some());
    world.open(1, 2);
    assert!(world.settle() > 1);
    assert_eq!(world.recalled(b), [released(&files[7], Field::Handles, None)]);
    // Of the others nothing is left at once.
    let number = ask(&mut world, b, &files[9], Kind::Read);
    assert_eq!(world.grants(b, number).unwrap()[0].values.others.get(&Field::Handles), Some(false));
    world.send(b, ToServer::Goodbye);
    world.settle();
    world.check();
}

/// The last session that could have an orphan open does not have it open. The orphan is disposed of
/// when that session has said so.
#[test]
fn the_server_asks_who_may_have_an_orphan_open() {
    for (ends, open) in [(false, false), (false, true), (true, true)] {
        let mut world = World::new();
        let (a, b) = (world.open(1, 1), world.open(2, 1));
        let file = file(&mut world, a);
        let number = ask(&mut world, b, &file, Kind::Touch);
        world.yields(a);
        assert!(world.grants(b, number).is_some());
        // `a` has it open and removes its name; then it closes, and does not know of `b`.
        let number = world.ask(a, unlink(&ROOT, "file", true), vec![], AskMode::Lease);
        assert_eq!(world.recalled(b), [released(&file, Field::Attributes, None)]);
        world.release(b, vec![released(&file, Field::Attributes, None)]);
        assert!(world.grants(a, number).is_some());
        assert_eq!(world.update(a, unlink(&ROOT, "file", true)), Ok(()));
        assert_eq!(world.told(b), [], "while `a` has it open it does not matter who else has");
        world.returns(a, &file, None, false);
        assert_eq!(world.recalled(b), [released(&file, Field::Handles, None)]);
        assert_eq!(world.server.status(world.now).files, 2);
        if ends {
            world.send(b, ToServer::Goodbye);
            world.settle();
        } else {
            world.returns(b, &file, None, open);
        }
        assert_eq!(world.server.status(world.now).files, if open && !ends { 2 } else { 1 });
        world.restart();
        world.settle();
    }
}

/// A log closes many files that were removed while they were open. The session that knows of all of
/// them is asked once.
#[test]
fn the_recalls_of_one_turn_go_in_one_message() {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    let first = world.take_root(a);
    let make = |world: &mut World, at: u64| {
        let operation = world.create(a, &ROOT, &format!("file {at}"), FileKind::Regular, first + at);
        assert_eq!(world.update(a, operation.clone()), Ok(()));
        made(&operation)
    };
    let files: Vec<FileId> = (0..20).map(|at| make(&mut world, at)).collect();
    for (at, file) in files.iter().enumerate() {
        let number = ask(&mut world, b, file, Kind::Touch);
        world.yields(a);
        assert!(world.grants(b, number).is_some());
        let operation = unlink(&ROOT, &format!("file {at}"), true);
        let number = world.ask(a, operation.clone(), vec![], AskMode::Lease);
        world.yields(b);
        assert!(world.grants(a, number).is_some());
        assert_eq!(world.update(a, operation), Ok(()));
    }
    world.told(b);
    let closed = files.iter().map(|file| returning(released(file, Field::Handles, None), false));
    assert_eq!(world.log(a, closed.collect()), []);
    let told = world.told(b);
    let [ToClient::Recall { leases, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(leases.len(), files.len());
}

/// All messages to `x` while three others open, close and look, with those at `open` having it
/// open.
fn what_x_is_sent(field: &Field, open: [bool; 3]) -> Vec<ToClient> {
    let mut world = World::new();
    let (maker, x) = (world.open(9, 1), world.open(1, 1));
    let others = [world.open(2, 1), world.open(3, 1), world.open(4, 1)];
    let file = file(&mut world, maker);
    world.send(maker, ToServer::Goodbye);
    let mut sent = Vec::new();
    for kind in [Kind::Touch, Kind::Read, Kind::Touch, Kind::Write] {
        for other in others {
            ask_of(&mut world, other, &file, field, Kind::Touch);
            for it in others {
                world.releases_or_takes(it);
            }
            let mut recalled = world.told(x);
            for message in &recalled {
                if let ToClient::Recall { leases, .. } = message {
                    world.release(x, leases.clone());
                }
            }
            sent.append(&mut recalled);
        }
        ask_of(&mut world, x, &file, field, kind);
        // Each session that is asked says what it has.
        for (other, open) in others.into_iter().zip(open) {
            for message in world.told(other) {
                if let ToClient::Recall { leases, .. } = message {
                    let entries = leases.into_iter().map(|released| returning(released, open));
                    assert!(world.log(other, entries.collect()).is_empty());
                }
            }
        }
        sent.extend(world.told(x));
    }
    sent
}

/// The definition of privacy in docs/internals/black-boxes.md: a client learns only whether others
/// have it open, and nothing else of them.
#[test]
fn two_executions_with_the_same_aggregate_look_the_same() {
    let anybody = [true, false];
    for (field, aggregate) in Field::BLACK_BOXES.iter().flat_map(|field| anybody.map(|any| (field, any))) {
        let mut all: Vec<Vec<ToClient>> = Vec::new();
        for bits in 0..8 {
            let open = [bits & 1 > 0, bits & 2 > 0, bits & 4 > 0];
            if open.contains(&true) == aggregate {
                all.push(what_x_is_sent(field, open));
            }
        }
        assert!(all[0].len() > 4, "{:?}", all[0]);
        assert!(all.iter().all(|sent| *sent == all[0]), "{all:#?}");
    }
    let differs = |field| what_x_is_sent(field, [true, false, false]) != what_x_is_sent(field, [false; 3]);
    assert!(Field::BLACK_BOXES.iter().all(differs));
}
