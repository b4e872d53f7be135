//! Logs: the updates that are carried out, those that are refused, and those that end the session.

use crate::support::*;
use directory::{Input, Misdeed};
use ident::FileId;
use lease::SessionId;
use namespace::{Error, FileKind};
use wire::{AskMode, LogEntry, ToClient, ToServer, Version};

const ROOT: FileId = FileId::root();

/// A session that holds the root, and a first integer of it.
fn with_root() -> (World, SessionId, u64) {
    let mut world = World::new();
    let session = world.open(1, 1);
    let first = world.take_root(session);
    (world, session, first)
}

#[test]
fn create_and_everything_in_it_needs_no_further_message() {
    let (mut world, session, n) = with_root();
    let dir = world.create(session, &ROOT, "dir", FileKind::Directory, n);
    let inside = world.create(session, &made(&dir), "file", FileKind::Regular, 1);
    let moved = rename(&made(&dir), "file", &made(&dir), "other", 2);
    let gone = unlink(&made(&dir), "other", false);
    let rejected = world.log(session, [dir, inside, moved, gone].map(update).into());
    assert_eq!(rejected, []);
    assert_eq!(world.server.status(world.now).files, 2);
}

/// A session that may read the attributes may move the access time, and that recalls nothing. A
/// session that may not know them may not. That is no misdeed: the file may have been at another
/// server meanwhile, and the lease with it.
#[test]
fn many_move_an_access_time() {
    let (mut world, maker, n) = with_root();
    let create = world.create(maker, &ROOT, "file", FileKind::Regular, n);
    let file = made(&create);
    assert_eq!(world.update(maker, create), Ok(()));
    let accessed = |secs| {
        namespace::Operation::Accessed(namespace::operation::Accessed { file: file.clone(), time: at(secs) })
    };
    let readers = [world.open(2, 1), world.open(3, 1)];
    for reader in readers {
        let number = world.ask(reader, stat(&file), vec![], AskMode::Lease);
        for released in world.recalled(maker) {
            world.release(maker, vec![released]);
        }
        assert!(world.grants(reader, number).is_some());
    }
    for (reader, secs) in [(readers[0], 50), (readers[1], 70), (readers[0], 60)] {
        assert_eq!(world.update(reader, accessed(secs)), Ok(()));
    }
    assert!(readers.iter().all(|reader| world.recalled(*reader).is_empty()));
    let grants = world.granted(readers[0], stat(&file), AskMode::Lease);
    assert_eq!(grants[0].values.attributes.map(|attributes| attributes.atime), Some(at(70)));
    let stranger = world.open(4, 1);
    assert_eq!(world.update(stranger, accessed(80)), Err(Error::Stale));
    let grants = world.granted(readers[0], stat(&file), AskMode::Lease);
    assert_eq!(grants[0].values.attributes.map(|attributes| attributes.atime), Some(at(70)));
}

/// The identifier and the number of a rename's whiteout need the same checks as those of a create.
#[test]
fn a_whiteout_has_numbers_that_were_given_out() {
    let (mut world, session, n) = with_root();
    let create = world.create(session, &ROOT, "file", FileKind::Regular, n);
    assert_eq!(world.update(session, create.clone()), Ok(()));
    let leaves = |integer, ino| {
        let mut rename = rename(&ROOT, "file", &ROOT, "moved", n + 1);
        if let namespace::Operation::Rename(namespace::operation::Rename { whiteout, .. }) = &mut rename {
            *whiteout = Some(namespace::Whiteout { integer, ino });
        }
        rename
    };
    let namespace::Operation::Create(namespace::operation::Create { new, .. }) = &create else { panic!() };
    for (integer, ino) in [(n + 1_000_000, new.ino + 1), (n, new.ino + 1), (n + 2, new.ino)] {
        assert_eq!(world.update(session, leaves(integer, ino)), Err(Error::Invalid), "{integer} {ino}");
    }
    assert_eq!(world.update(session, leaves(n + 2, new.ino + 1)), Ok(()));
    assert_eq!(world.server.status(world.now).files, 3);
    assert_eq!(violations(&world.server, &world.store), []);
}

#[test]
fn what_leases_do_not_cover_is_refused() {
    let mut world = World::new();
    let session = world.open(1, 1);
    let forged = world.create(session, &ROOT, "file", FileKind::Regular, 2);
    let rows = world.store.clone();
    world.send(session, ToServer::Log { answer: true, first: 1, entries: vec![update(forged)] });
    assert_eq!(world.server.misdeeds(), [(session, Misdeed::NoLease)]);
    assert_eq!(world.told(session), [ToClient::Fenced]);
    assert_eq!(world.store, rows);
}

#[test]
fn numbers_that_were_not_given_out_are_refused() {
    let (mut world, session, n) = with_root();
    let other = world.open(2, 1);
    // A position that the directory has yet to give out.
    let early = world.create(session, &ROOT, "a", FileKind::Regular, n + 1_000_000);
    assert_eq!(world.update(session, early), Err(Error::Invalid));
    // Another session's inode number.
    let theirs = world.create(other, &ROOT, "b", FileKind::Regular, n);
    assert_eq!(world.update(session, theirs), Err(Error::Invalid));
    // The same number twice: as inode, then as position.
    let first = world.create(session, &ROOT, "c", FileKind::Regular, n);
    assert_eq!(world.update(session, first.clone()), Ok(()));
    let namespace::Operation::Create(namespace::operation::Create { new, .. }) = &first else { panic!() };
    assert_eq!(
        world.update(session, create(&ROOT, "d", FileKind::Regular, n + 1, new.ino)),
        Err(Error::Invalid)
    );
    let again = world.create(session, &ROOT, "e", FileKind::Regular, n);
    assert_eq!(world.update(session, again), Err(Error::Invalid));
}

#[test]
fn a_log_that_is_sent_again_changes_nothing_and_is_answered_the_same() {
    let (mut world, session, n) = with_root();
    let good = world.create(session, &ROOT, "a", FileKind::Regular, n);
    let bad = world.create(session, &ROOT, "a", FileKind::Regular, n + 1);
    let entries: Vec<LogEntry> = [good, bad].map(update).into();
    let rejected = world.log(session, entries.clone());
    assert_eq!(rejected, [(2, Error::Exists)]);
    let (rows, digest) = (world.store.clone(), world.server.digest());
    world.send(session, ToServer::Log { answer: true, first: 1, entries: entries.clone() });
    assert_eq!(
        world.told(session),
        [ToClient::Applied { up_to: 2, rejected: vec![(2, Error::Exists)], forgotten: 0 }]
    );
    assert_eq!((world.store.clone(), world.server.digest()), (rows, digest));
    // Sent again with more entries behind: only those are done.
    let more = world.create(session, &ROOT, "b", FileKind::Regular, n + 2);
    world.send(
        session,
        ToServer::Log { answer: true, first: 2, entries: vec![entries[1].clone(), update(more)] },
    );
    assert_eq!(
        world.told(session),
        [ToClient::Applied { up_to: 3, rejected: vec![(2, Error::Exists)], forgotten: 0 }]
    );
    assert_eq!(world.server.status(world.now).files, 3);
}

#[test]
fn misdeeds_end_the_session() {
    let decided_by =
        |version| LogEntry::Update { version: Version(version), operation: unlink(&ROOT, "a", false) };
    let flushed = LogEntry::Flushed { number: 9 };
    let want = want(&ROOT, lease::Field::Attributes, lease::Kind::Read);
    let release = |field, keep| {
        let entries = vec![LogEntry::Release(vec![released(&ROOT, field, keep)])];
        ToServer::Log { answer: true, first: 1, entries }
    };
    let other_kind = LogEntry::Return {
        file: ROOT,
        fields: vec![(lease::Field::Times, None)],
        own: lease::OpenModes::CLOSED,
    };
    let crowd =
        ToServer::Ask { number: 1, operation: stat(&ROOT), wants: vec![want; 1000], mode: AskMode::Lease };
    let cases = [
        (
            ToServer::Log { answer: true, first: 2, entries: vec![flushed.clone()] },
            Misdeed::LogGap { expected: 1, first: 2 },
        ),
        (
            ToServer::Log { answer: true, first: 1, entries: vec![update(stat(&ROOT))] },
            Misdeed::QuestionLogged,
        ),
        (
            ToServer::Log { answer: true, first: 1, entries: vec![decided_by(0)] },
            Misdeed::OtherVersion(Version(0)),
        ),
        (
            ToServer::Log { answer: true, first: 1, entries: vec![decided_by(2)] },
            Misdeed::OtherVersion(Version(2)),
        ),
        (ToServer::Log { answer: true, first: 1, entries: vec![flushed; 20_000] }, Misdeed::TooManyEntries),
        (crowd, Misdeed::TooManyWants),
        (release(lease::Field::Path, None), Misdeed::NoSuchLease),
        (release(lease::Field::Child(label("A")), None), Misdeed::NoSuchLease),
        (release(lease::Field::Attributes, Some(lease::Kind::Touch)), Misdeed::NoSuchLease),
        (release(lease::Field::Handles, None), Misdeed::OtherKindOfField),
        (ToServer::Log { answer: true, first: 1, entries: vec![other_kind] }, Misdeed::OtherKindOfField),
    ];
    for (message, misdeed) in cases {
        let (mut world, session, _) = with_root();
        world.input_unchecked(Input::Message { session, message });
        assert_eq!(world.server.misdeeds(), [(session, misdeed)]);
        assert_eq!(world.told(session).last(), Some(&ToClient::Fenced), "{misdeed}");
        assert_eq!(world.server.status(world.now).sessions, 0);
    }
}

#[test]
fn what_is_no_message_ends_the_session() {
    let (mut world, session, _) = with_root();
    world.input(Input::NoMessage { session });
    assert_eq!(world.server.misdeeds(), [(session, Misdeed::NoMessage)]);
    assert_eq!(world.told(session).last(), Some(&ToClient::Fenced));
    // A session that is over says nothing more.
    world.input(Input::NoMessage { session });
    assert_eq!(world.server.misdeeds(), []);
}

#[test]
fn too_many_requests_end_the_session() {
    let (mut world, _, _) = with_root();
    let asker = world.open(2, 1);
    world.checks = false;
    for number in 0..=lease::REQUESTS_MAX as u64 {
        let message = ToServer::Ask { number, operation: stat(&ROOT), wants: vec![], mode: AskMode::Lease };
        world.input_unchecked(Input::Message { session: asker, message });
    }
    assert_eq!(world.server.misdeeds(), [(asker, Misdeed::TooManyRequests)]);
    assert_eq!(world.told(asker), [ToClient::Fenced]);
}

/// A file that `holder` made and holds, and another session.
fn with_file() -> (World, SessionId, SessionId, FileId) {
    let (mut world, holder, n) = with_root();
    let create = world.create(holder, &ROOT, "a", FileKind::Regular, n);
    let file = made(&create);
    world.update(holder, create).unwrap();
    let other = world.open(2, 1);
    (world, holder, other, file)
}

#[test]
fn who_lets_go_of_what_it_does_not_hold_is_cut_off() {
    let returns = |open| move |file: &FileId| returning(released(file, lease::Field::Handles, None), open);
    let releases = |field: lease::Field, keep| {
        move |file: &FileId| LogEntry::Release(vec![released(file, field.clone(), keep)])
    };
    type OfFile = Box<dyn Fn(&FileId) -> LogEntry>;
    let entries: [OfFile; 6] = [
        Box::new(releases(lease::Field::Attributes, None)),
        Box::new(releases(lease::Field::Content, Some(lease::Kind::Read))),
        Box::new(releases(lease::Field::Xattrs, None)),
        Box::new(releases(lease::Field::Xattr(label("a")), None)),
        Box::new(returns(false)),
        Box::new(returns(true)),
    ];
    for entry in entries {
        let (mut world, holder, other, file) = with_file();
        // Another session's recall is no excuse, and is not answered by it.
        let third = world.open(3, 1);
        let number = world.ask(third, stat(&file), vec![], AskMode::Lease);
        let recalled = world.recalled(holder);
        let rows = world.store.clone();
        world.send(other, ToServer::Log { answer: true, first: 1, entries: vec![entry(&file)] });
        assert_eq!(world.server.misdeeds(), [(other, Misdeed::NotHeld)]);
        assert_eq!(world.told(other), [ToClient::Fenced]);
        assert!(world.store == rows);
        assert!(world.grants(third, number).is_none());
        world.release(holder, recalled);
        assert!(world.grants(third, number).is_some());
    }
}

#[test]
fn who_holds_less_lets_go_of_no_more() {
    let (mut world, holder, other, file) = with_file();
    let grant = world.ask(other, stat(&file), vec![], AskMode::Lease);
    let recalled = world.recalled(holder);
    assert_eq!(recalled[0].keep, Some(lease::Kind::Read));
    world.release(holder, recalled.clone());
    assert!(world.grants(other, grant).is_some());
    // One answer was enough.
    world.send(holder, ToServer::Log { answer: true, first: 3, entries: vec![LogEntry::Release(recalled)] });
    assert_eq!(world.server.misdeeds(), [(holder, Misdeed::NotHeld)]);
}

/// The recalled lease may have been released with another one that was on its way then: its answer
/// is owed all the same, once.
#[test]
fn an_answer_that_is_owed_is_given_whatever_is_held() {
    let (mut world, holder, other, _) = with_file();
    let number = world.ask(other, lookup(&ROOT, "b"), vec![], AskMode::Lease);
    let mut recalled = world.recalled(holder);
    let label = recalled.pop().unwrap();
    assert_eq!(
        label,
        released(&ROOT, lease::Field::Child(crate::support::label("b")), Some(lease::Kind::Read))
    );
    let all = released(&ROOT, lease::Field::Children, None);
    recalled.push(all);
    assert_eq!(world.log(holder, releasing(recalled)), []);
    assert!(world.grants(other, number).is_some());
    assert_eq!(world.log(holder, releasing(vec![label.clone()])), []);
    assert_eq!(world.server.misdeeds(), []);
    world.send(holder, ToServer::Log { answer: true, first: 4, entries: releasing(vec![label]) });
    assert_eq!(world.server.misdeeds(), [(holder, Misdeed::NotHeld)]);
}

/// The client that releases a part of the file may not know yet that another deleted it, or that
/// its creation was refused.
#[test]
fn of_a_file_that_is_not_there_anything_may_be_let_go() {
    let (mut world, holder, other, file) = with_file();
    assert_eq!(world.update(holder, unlink(&ROOT, "a", false)), Ok(()));
    for (session, file) in [(holder, file.clone()), (other, file), (other, ROOT.child(99))] {
        let handles = released(&file, lease::Field::Handles, None);
        let mut entries = releasing(vec![released(&file, lease::Field::Content, None)]);
        entries.push(returning(handles, false));
        assert_eq!(world.log(session, entries), []);
    }
    assert_eq!(world.server.misdeeds(), []);
}

#[test]
fn allowances_are_used_up_and_shrink_near_the_end() {
    let mut world = World::new();
    world.input(Input::Space(wire::Space {
        total: 1 << 20,
        free: 100_000,
        files: 0,
        lends: 0,
        elsewhere: 0,
    }));
    let session = world.open(1, 1);
    let mut held = 25_000;
    for _ in 0..20 {
        world.send(session, ToServer::Allow { held: (held, 1000), want: (1 << 30, 1000), replaces: 0 });
        let Some(ToClient::Allowance { bytes, .. }) = world.told(session).pop() else { panic!() };
        // Never more than a quarter of what is left.
        assert!(bytes <= (100_000 - held) / 4, "{bytes} of {held}");
        held += bytes;
    }
    assert!(held > 99_000, "nearly all of it is given in the end: {held}");
    let n = world.take_root(session);
    // Deleting always works.
    world.input(Input::Space(wire::Space { total: 1 << 20, free: 2000, files: 0, lends: 0, elsewhere: 0 }));
    let fits = world.create(session, &ROOT, "a", FileKind::Regular, n);
    assert_eq!(world.update(session, fits), Ok(()));
    world.input(Input::Space(wire::Space { total: 1 << 20, free: 0, files: 0, lends: 0, elsewhere: 0 }));
    assert_eq!(world.update(session, unlink(&ROOT, "a", false)), Ok(()));
}
