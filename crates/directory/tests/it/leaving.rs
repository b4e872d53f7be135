//! Regions that leave: what they wait for, how long, and with which others they can go.

use crate::hand_over::{ROOT, carry, tree};
use crate::servers::Servers;
use crate::support::*;
use directory::{DelegateError, Input};
use ident::{FileId, ServerId};
use lease::{Field, Kind, Released, SessionId};
use namespace::{FileKind, LockChange, LockKind, LockRange, LockSpace, Operation, operation};
use std::collections::BTreeSet;
use std::ops::Range;
use wire::{AskMode, ToClient, ToServer};

/// A file that could not leave, or came home, has no region of its own any more. Its directory may
/// leave, and a server that once had the file, or some of its rows, takes the directory.
#[test]
fn what_has_come_home_leaves_with_what_is_around() {
    for comes_home in [false, true] {
        let (mut root, session, dir, file) = tree();
        let mut other = World::beside(&root, ServerId(1));
        root.send(session, ToServer::Goodbye);
        root.input(Input::Tick);
        root.input(Input::Delegate { region: file.clone(), to: ServerId(1) });
        if comes_home {
            carry(&mut root, &mut other);
            other.input(Input::Delegate { region: file.clone(), to: ServerId::ROOT });
        } else {
            while root.handed.is_empty() {
                root.input(Input::Tick);
            }
            for (_, message) in std::mem::take(&mut root.handed) {
                other.input_unchecked(Input::HandOver { from: ServerId::ROOT, message });
            }
            root.input(Input::Keep { region: file.clone() });
        }
        carry(&mut root, &mut other);
        assert!(root.server.manages(&file) && !other.server.manages(&file));
        let before = (root.delegated.len(), other.delegated.len());
        assert_eq!(root.server.may_delegate(&root.store, &dir, ServerId(1)), Ok(()));
        root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
        carry(&mut root, &mut other);
        assert_eq!(root.delegated[before.0..], [Ok(())]);
        assert!(other.server.manages(&dir) && other.server.manages(&file));
        // And home again, in a later epoch than the file's.
        other.input(Input::Delegate { region: dir.clone(), to: ServerId::ROOT });
        carry(&mut root, &mut other);
        assert_eq!(other.delegated[before.1..], [Ok(())]);
        assert!(root.server.manages(&dir) && root.server.manages(&file));
        assert!(!root.server.anybody_waits() && !other.server.anybody_waits());
        root.check();
        other.check();
    }
}

/// A server that does not take the rows, or not all of them, goes without the region. A session
/// that asked for something in the region has an answer. Later word of the other server changes
/// nothing.
#[test]
fn a_server_that_is_silent_goes_without() {
    for answers in [0, 1] {
        let (mut root, session, dir, file) = tree();
        let mut other = World::beside(&root, ServerId(1));
        root.send(session, ToServer::Goodbye);
        root.input(Input::Tick);
        root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
        while root.handed.is_empty() {
            root.input(Input::Tick);
        }
        let mut late = Vec::new();
        for _ in 0..answers {
            for (_, message) in std::mem::take(&mut root.handed) {
                other.input_unchecked(Input::HandOver { from: ServerId::ROOT, message });
            }
            for (_, message) in std::mem::take(&mut other.handed) {
                late.push(message.clone());
                root.input_unchecked(Input::HandOver { from: ServerId(1), message });
            }
        }
        let session = root.open(1, 2);
        let number = root.ask(session, stat(&file), Vec::new(), AskMode::Report);
        for _ in 0..50 {
            root.now = root.now.after_ms(100);
            root.input(Input::Tick);
        }
        assert_eq!(root.delegated, [], "there is time");
        assert_eq!(root.told(session), []);
        root.now = root.now.after_ms(100);
        root.input(Input::Tick);
        assert_eq!(root.delegated, [Err(DelegateError::Silent)]);
        let told = root.told(session);
        let is_answer = |it: &ToClient| matches!(it, ToClient::Reported { number: of, .. } if *of == number);
        assert!(told.iter().any(is_answer), "{told:?}");
        root.handed.clear();
        for message in late {
            root.input_unchecked(Input::HandOver { from: ServerId(1), message });
        }
        carry(&mut root, &mut other);
        assert!(root.server.manages(&file) && !other.server.anybody_waits());
        root.send(session, ToServer::Goodbye);
        root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
        carry(&mut root, &mut other);
        assert!(other.server.manages(&file));
        root.check();
        other.check();
    }
}

/// Makes a file of each number, one a second, and releases nothing.
fn works(root: &mut World, session: SessionId, numbers: Range<u64>) {
    for number in numbers {
        root.now = root.now.after_ms(1_000);
        let made = root.create(session, &ROOT, &format!("{number}"), FileKind::Regular, number);
        assert_eq!(root.update(session, made), Ok(()));
        root.input(Input::Tick);
    }
}

/// A session whose log grows is given time to release: its answer may be in a long queue. That time
/// has an end.
#[test]
fn a_session_that_works_has_time_to_release() {
    for releases in [true, false] {
        let (mut root, session, dir, file) = tree();
        let mut other = World::beside(&root, ServerId(1));
        root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
        root.input(Input::Tick);
        let owed = root.recalled(session);
        assert!(owed.iter().any(|it| it.file == file));
        works(&mut root, session, 10..30);
        assert_eq!(root.delegated, []);
        if releases {
            let (boxes, fields): (Vec<_>, Vec<_>) = owed.into_iter().partition(|it| it.field.is_black_box());
            let boxes = boxes.into_iter().map(|released| returning(released, false));
            root.send_log(session, releasing(fields).into_iter().chain(boxes).collect(), false);
            carry(&mut root, &mut other);
            assert_eq!(root.delegated, [Ok(())]);
            assert!(other.server.manages(&file));
        } else {
            // A pass over the rows of the region takes some ticks.
            works(&mut root, session, 30..80);
            assert_eq!(root.delegated, [Err(DelegateError::InUse)]);
            assert!(root.server.manages(&file));
        }
    }
}

/// A session walks through a directory, one file of which is about to go to another server. It is
/// granted the next files ahead, and nothing of that one: nobody would recall that.
#[test]
fn nothing_is_granted_ahead_of_a_region_that_leaves() {
    for left in 0..12 {
        let (mut root, session, dir, _) = tree();
        let make = |root: &mut World, at| root.create(session, &dir, &format!("{at}"), FileKind::Regular, at);
        let made: Vec<_> = (2..14).map(|at| make(&mut root, at)).collect();
        let files: Vec<FileId> = made.iter().map(crate::support::made).collect();
        assert_eq!(root.log(session, made.into_iter().map(update).collect()), []);
        root.send(session, ToServer::Goodbye);
        root.settle();
        root.input(Input::Delegate { region: files[left].clone(), to: ServerId(1) });
        // The rows are on their way in half of all cases, and leases are recalled in the others.
        (0..left % 2).for_each(|_| root.input(Input::Tick));
        let walker = root.open(2, 1);
        let mut ahead = 0;
        for file in files.iter().filter(|file| **file != files[left]) {
            let number = root.ask(walker, stat(file), Vec::new(), AskMode::Lease);
            let grants = root.grants(walker, number).expect("granted at once");
            assert!(grants.iter().all(|grant| grant.file != files[left]), "{left}: {grants:?}");
            ahead = ahead.max(grants.len());
        }
        assert!(ahead > 6, "{ahead} files at once");
        assert_eq!(root.holds(2, &files[left], &Field::Attributes), None);
    }
}

/// An operation that the server does itself does not wait until the region has gone: its program
/// may keep a directory locked, which another session has yet to release.
#[test]
fn an_operation_that_grants_nothing_is_done_before_its_region_leaves() {
    let (mut root, session, dir, file) = tree();
    let mut other = World::beside(&root, ServerId(1));
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    root.input(Input::Tick);
    let owed = root.recalled(session);
    let second = root.open(2, 1);
    // A request for leases waits, and no operation waits for it.
    let waits = root.ask(second, lookup(&dir, "new"), Vec::new(), AskMode::Lease);
    let operation = root.create(second, &dir, "new", FileKind::Regular, 1);
    let done = root.ask(second, operation, Vec::new(), AskMode::Ship);
    // The holder has not released the other file.
    let (of_file, of_dir): (Vec<_>, Vec<_>) = owed.into_iter().partition(|it| it.file == file);
    root.send_log(session, releasing(of_dir), false);
    let told = root.told(second);
    let [ToClient::Shipped { number, result: Ok(_) }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*number, done);
    root.send_log(session, releasing(of_file), false);
    carry(&mut root, &mut other);
    assert_eq!(root.delegated, [Ok(())]);
    let elsewhere = ToClient::Elsewhere { number: waits, region: dir.clone(), epoch: 1, server: ServerId(1) };
    assert_eq!(root.told(second), [elsewhere]);
    let names = other.server.entries(&other.store, &dir, 0, 9).unwrap();
    assert_eq!(names.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(), ["file", "new"]);
    root.check();
    other.check();
}

/// A tree with more files than may be recalled at once from a region that cools, all of them
/// leased to the session that has made them: its directory and the files.
fn large_region() -> (World, SessionId, FileId, Vec<FileId>) {
    let (mut root, session, dir, _) = tree();
    root.checks = false;
    let mut files = Vec::new();
    for at in 2..14 {
        if at == 8 {
            // The first block of inode numbers is too small for all.
            root.send(session, ToServer::ReserveInodes { known: u64::MAX });
            let Some(ToClient::ReservedInodes { first, .. }) = root.told(session).pop() else { panic!() };
            root.next_inode(session, first);
        }
        let below = root.create(session, &dir, &format!("{at}"), FileKind::Directory, at);
        let parent = made(&below);
        assert_eq!(root.update(session, below), Ok(()));
        let make = |at| root.create(session, &parent, &format!("{at}"), FileKind::Regular, at);
        let made: Vec<_> = (1..501).map(make).collect();
        files.extend(made.iter().map(crate::support::made));
        assert_eq!(root.log(session, made.into_iter().map(update).collect()), []);
    }
    (root, session, dir, files)
}

/// Releases many leases, in logs that are not too long.
fn give_back(root: &mut World, session: SessionId, owed: Vec<Released>) {
    for some in owed.chunks(1_000) {
        root.send_log(session, releasing(some.to_vec()), false);
    }
    root.told(session);
    assert_eq!(root.server.misdeeds(), []);
}

/// A request for a file of a large region is served while leases come back, and some thousand of
/// them are recalled at a time. Only what was granted meanwhile is recalled while requests wait.
#[test]
fn a_large_region_cools_while_requests_are_served() {
    let (mut root, session, dir, files) = large_region();
    let mut other = World::beside(&root, ServerId(1));
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    root.settle();
    let first = root.recalled(session);
    let of_files = |owed: &[Released]| owed.iter().map(|it| it.file.clone()).collect::<BTreeSet<_>>();
    let asked = of_files(&first).len();
    assert!((4_096..=4_096 + 512).contains(&asked), "{asked} files are recalled at once");
    // Without answers nothing goes on, and yet nobody waits.
    root.input(Input::Tick);
    assert_eq!(root.recalled(session), []);
    let second = root.open(2, 1);
    give_back(&mut root, session, first);
    let number = root.ask(second, stat(&files[0]), Vec::new(), AskMode::Lease);
    assert!(root.grants(second, number).is_some(), "granted while the region cools");
    root.input(Input::Tick);
    root.settle();
    // An acknowledgment is among what the session is told.
    let recalls = |it| if let ToClient::Recall { leases, .. } = it { leases } else { Vec::new() };
    let rest: Vec<_> = root.told(session).into_iter().flat_map(recalls).collect();
    assert!(of_files(&rest).len() > files.len() - asked - 2, "the rest follows");
    // Now the region leaves, and requests wait.
    let number = root.ask(second, stat(&files[1]), Vec::new(), AskMode::Lease);
    assert_eq!(root.grants(second, number), None);
    let again = root.recalled(second);
    assert!(of_files(&again).contains(&files[0]), "what was granted meanwhile is recalled");
    give_back(&mut root, session, rest);
    root.send_log(second, releasing(again), false);
    (0..10).for_each(|_| carry(&mut root, &mut other));
    assert_eq!(root.delegated, [Ok(())]);
    assert!(files.iter().all(|file| other.server.manages(file) && !root.server.manages(file)));
    let told = root.told(second);
    assert!(
        told.iter().any(|it| matches!(it, ToClient::Elsewhere { number: of, .. } if *of == number)),
        "{told:?}"
    );
    root.check();
    other.check();
}

/// A session that works, and releases nothing, keeps a large region where it is: the region cools
/// for a minute, and requests wait for another one.
#[test]
fn a_region_that_does_not_cool_stays() {
    let (mut root, session, dir, files) = large_region();
    root.input(Input::Delegate { region: dir, to: ServerId(1) });
    root.settle();
    works(&mut root, session, 10..130);
    assert_eq!(root.delegated, []);
    works(&mut root, session, 130..160);
    assert_eq!(root.delegated, [Err(DelegateError::InUse)]);
    assert!(root.server.manages(&files[0]));
}

/// A session makes files in a directory before it releases that directory. The pass over the region
/// did not see them, and the session has all of them: they are recalled, too.
#[test]
fn a_file_that_is_made_behind_the_pass_is_recalled() {
    let (mut root, session, dir, _) = tree();
    let mut other = World::beside(&root, ServerId(1));
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    // The pass takes some steps.
    (0..10).for_each(|_| root.input(Input::Tick));
    let owed = root.recalled(session);
    let operation = root.create(session, &dir, "next", FileKind::Regular, 2);
    let next = made(&operation);
    assert_eq!(root.update(session, operation), Ok(()));
    let mut late = root.told(session);
    root.send_log(session, releasing(owed), false);
    carry(&mut root, &mut other);
    assert_eq!(root.delegated, [], "the session has the new file");
    late.extend(root.told(session));
    let recalls = |it| if let ToClient::Recall { leases, .. } = it { leases } else { Vec::new() };
    let owed: Vec<_> = late.into_iter().flat_map(recalls).collect();
    assert!(owed.iter().any(|it| it.file == next), "{owed:?}");
    // The session still may change the file, and the server knows that file.
    root.send_log(session, vec![update(publish(&next, 1, 10, inline(b"0123456789")))], false);
    root.send_log(session, releasing(owed), false);
    carry(&mut root, &mut other);
    assert_eq!((root.server.misdeeds(), &root.delegated[..]), (&[][..], &[Ok(())][..]));
    assert!(other.server.manages(&next));
    root.check();
    other.check();
}

/// A change of a file that the pass over the region has been at is seen by the next pass.
#[test]
fn a_file_that_is_locked_behind_the_pass_keeps_its_region() {
    let (mut root, session, dir, file) = tree();
    let mut other = World::beside(&root, ServerId(1));
    let operation = root.create(session, &dir, "next", FileKind::Regular, 2);
    let next = made(&operation);
    assert_eq!(root.update(session, operation), Ok(()));
    let put = (0..1500).map(|i| extent(i * 16, 16, share((i % 7) as u8 + 8))).collect();
    assert_eq!(root.update(session, publish(&next, 1, 1500 * 16, extents(put, true))), Ok(()));
    root.send(session, ToServer::Goodbye);
    root.settle();
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    // Three steps are for the rows of the first file, and some of the next one's.
    (0..3).for_each(|_| root.input(Input::Tick));
    let session = root.open(1, 2);
    let (space, range, kind) = (LockSpace::Posix, LockRange::WHOLE, Some(LockKind::Write));
    let change = LockChange { space, owner: 7, range, kind, pid: 77 };
    let lock = Operation::Lock(operation::Lock { file: file.clone(), change });
    root.ask(session, lock, Vec::new(), AskMode::Ship);
    assert!(matches!(&root.told(session)[..], [ToClient::Shipped { result: Ok(_), .. }]));
    carry(&mut root, &mut other);
    assert_eq!(root.delegated, [Err(DelegateError::InUse)]);
    assert!(root.server.manages(&file));
}

/// The server's own operation on a file may change another region, whose rows are on their way.
#[test]
fn the_end_of_a_file_waits_for_the_rows_of_its_name() {
    let (mut root, session, dir, _) = tree();
    let operation = root.create(session, &ROOT, "doomed", FileKind::Regular, 9);
    let doomed = made(&operation);
    assert_eq!(root.update(session, operation), Ok(()));
    root.send(session, ToServer::Goodbye);
    root.settle();
    let session = root.open(1, 2);
    root.ask(session, rename(&ROOT, "doomed", &dir, "doomed", 5), Vec::new(), AskMode::Ship);
    root.ask(session, stat(&doomed), vec![want(&doomed, Field::Handles, Kind::Touch)], AskMode::Lease);
    let link = Some(namespace::Link { dir: dir.clone(), label: label("doomed") });
    let own = lease::OpenModes::with([lease::Mode::AccessDelete]);
    let (cred, time) = (namespace::Cred::default(), at(26));
    let set = operation::SetDisposition { file: doomed.clone(), link, own, cred, time };
    root.told(session);
    root.ask(session, Operation::SetDisposition(set), Vec::new(), AskMode::Ship);
    // The session is asked whether it still has the file open, and does not say so for a while.
    let told = root.told(session);
    assert!(told.iter().any(|it| matches!(it, ToClient::Shipped { result: Ok(_), .. })), "{told:?}");
    assert!(told.iter().any(|it| matches!(it, ToClient::Recall { .. })), "{told:?}");
    let mut servers = Servers::beside(root, 2, 1);
    servers[0].input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    for _ in 0..100 {
        servers[0].input(Input::Tick);
        if !servers[0].handed.is_empty() {
            break;
        }
    }
    assert!(!servers[0].handed.is_empty(), "rows are on their way");
    servers[0].send(session, ToServer::Goodbye);
    for _ in 0..60 {
        for at in 0..2 {
            servers[at].now = servers[at].now.after_ms(100);
            servers[at].input_unchecked(Input::Tick);
        }
        servers.collects(false);
        for said in servers.takes_all() {
            servers.deliver(said);
        }
    }
    assert_eq!(servers.managers(&dir), [1]);
    let names = servers[1].server.entries(&servers[1].store, &dir, 0, 9).unwrap();
    assert_eq!(names.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(), ["file"]);
    assert_eq!(servers[0].server.links(&servers[0].store, &doomed).unwrap(), None);
    servers.iter().for_each(World::check);
}
