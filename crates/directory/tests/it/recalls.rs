//! Several sessions want the same leases: recalls, order, reports, shipping.

use crate::support::*;
use ident::FileId;
use lease::{Field, Kind, Lease, SessionId};
use namespace::{Answer, AttributeChange, Cred, Error, FileKind, Operation, operation};
use wire::{AskMode, LogEntry, ToClient};

const ROOT: FileId = FileId::root();

fn access(file: &FileId) -> Operation {
    Operation::Access(operation::Access { file: file.clone(), mask: 0, cred: Cred::default() })
}

fn set_mode(file: &FileId, mode: u16) -> Operation {
    let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    Operation::SetAttributes(operation::SetAttributes {
        file: file.clone(),
        change,
        time: at(10),
        cred: Cred::default(),
    })
}

/// Two sessions, and a root that the first holds whole; its first integer.
fn shared() -> (World, SessionId, SessionId, u64) {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    let n = world.take_root(a);
    (world, a, b, n)
}

#[test]
fn a_reader_gets_what_a_writer_lets_go_and_the_writer_goes_on_reading() {
    let (mut world, a, b, n) = shared();
    let number = world.ask(b, stat(&ROOT), vec![], AskMode::Lease);
    let recalled = world.recalled(a);
    assert_eq!(
        recalled,
        [
            released(&ROOT, Field::Attributes, Some(Kind::Read)),
            released(&ROOT, Field::Times, Some(Kind::Read))
        ]
    );
    assert!(world.told(b).is_empty());
    // An update made under the lease stands before its release, and the grant shows it.
    let made = world.create(a, &ROOT, "file", FileKind::Regular, n);
    assert_eq!(world.log(a, vec![update(made), LogEntry::Release(recalled)]), []);
    let grants = world.grants(b, number).unwrap();
    assert_eq!(grants[0].fields, [(Field::Attributes, Kind::Read), (Field::Times, Kind::Read)]);
    assert_eq!(grants[0].values.times.unwrap().mtime, at(10));
    // `a` lost the right to touch the times, so its next create waits.
    let late = world.create(a, &ROOT, "late", FileKind::Regular, n + 1);
    assert_eq!(world.update(a, late), Err(Error::CutOff));
}

/// Asks for a new name in the root for `asker`, and has all others release what they are asked for.
/// Returns the number of recalls of names.
fn asks_for_name(world: &mut World, asker: SessionId, others: &[SessionId], name: &str) -> usize {
    let operation = world.create(asker, &ROOT, name, FileKind::Regular, 1);
    let number = world.ask(asker, operation, vec![], AskMode::Lease);
    let mut of_names = 0;
    for other in others {
        let recalled = world.recalled(*other);
        of_names +=
            recalled.iter().filter(|it| matches!(it.field, Field::Child(_) | Field::Children)).count();
        if !recalled.is_empty() {
            world.release(*other, recalled);
        }
    }
    assert!(world.grants(asker, number).is_some(), "{name} is granted");
    of_names
}

/// Two machines that make files of distinct names in one directory in turn.
#[test]
fn in_a_crowded_directory_names_are_asked_for_and_nobody_is_recalled() {
    let (mut world, a, b, _) = shared();
    let mut recalls = 0;
    for n in 0..40 {
        for (asker, other) in [(b, a), (a, b)] {
            let name = format!("{}-{n}", asker.0);
            recalls += asks_for_name(&mut world, asker, &[other], &name);
        }
    }
    assert_eq!([1, 2].map(|machine| world.holds(machine, &ROOT, &Field::Children)), [None, None]);
    assert!(recalls <= 25, "{recalls} of 80");
}

/// A machine that makes many files in the directory of another one, which makes none.
#[test]
fn a_session_that_alone_goes_on_taking_names_gets_all_of_them() {
    let (mut world, a, b, _) = shared();
    let mut recalls = 0;
    for n in 0..10 {
        recalls += asks_for_name(&mut world, b, &[a], &format!("b{n}"));
    }
    assert!(recalls <= 10, "{recalls} of 10");
    let held = |world: &World| [1, 2].map(|machine| world.holds(machine, &ROOT, &Field::Children));
    assert_eq!(held(&world), [None, Some(Kind::Write)]);
    // Now the other one asks back. From then on nobody has all names.
    for n in 0..10 {
        asks_for_name(&mut world, a, &[b], &format!("a{n}"));
        asks_for_name(&mut world, b, &[a], &format!("c{n}"));
    }
    assert_eq!(held(&world), [None, None]);
}

#[test]
fn one_label_is_taken_out_of_an_infinite_lease() {
    let (mut world, a, b, n) = shared();
    let op = world.create(b, &ROOT, "x", FileKind::Regular, 1);
    let number = world.ask(b, op, vec![], AskMode::Lease);
    let recalled = world.recalled(a);
    assert!(recalled.contains(&released(&ROOT, Field::Child(label("x")), None)), "{recalled:?}");
    assert!(!recalled.iter().any(|lease| lease.field == Field::Children));
    world.release(a, recalled);
    let grants = world.grants(b, number).unwrap();
    assert!(grants[0].fields.contains(&(Field::Child(label("x")), Kind::Write)));
    assert!(!grants[0].fields.iter().any(|(field, _)| *field == Field::Children), "the other still has it");
    assert!(grants[0].values.reservation.is_some());
    // All other labels are still a's: only `x` is not.
    let x = world.create(a, &ROOT, "x", FileKind::Regular, n);
    let y = world.create(a, &ROOT, "y", FileKind::Regular, n + 1);
    assert_eq!(world.update(a, y), Ok(()));
    assert_eq!(world.update(a, x), Err(Error::CutOff));
}

#[test]
fn a_label_once_let_go_comes_back_by_name_only() {
    let (mut world, a, b, _) = shared();
    let op = world.create(b, &ROOT, "x", FileKind::Regular, 1);
    let number = world.ask(b, op, vec![], AskMode::Lease);
    world.yields(a);
    let n = world.grants(b, number).unwrap()[0].values.reservation.unwrap().0;
    let op = world.create(b, &ROOT, "x", FileKind::Regular, n);
    assert_eq!(world.update(b, op), Ok(()));
    world.send(b, wire::ToServer::Goodbye);
    world.now = world.now.after_ms(60_000);
    // No other session is there. Still the infinite lease does not silently cover labels that may
    // have changed meanwhile.
    let grants = world.granted(a, lookup(&ROOT, "y"), AskMode::Lease);
    assert!(!grants[0].whole);
    assert!(!grants[0].values.children.iter().any(|(name, _)| *name == label("x")), "{:?}", grants[0]);
    let grants = world.granted(a, lookup(&ROOT, "x"), AskMode::Lease);
    assert_eq!(grants[0].values.told, [label("x")]);
    assert!(grants[0].values.children.iter().any(|(name, _)| *name == label("x")));
}

#[test]
fn first_come_first_served_and_nobody_is_told_twice() {
    let (mut world, a, b, _) = shared();
    let (c, d) = (world.open(3, 1), world.open(4, 1));
    let change = want(&ROOT, Field::Attributes, Kind::Write);
    let first = world.ask(b, stat(&ROOT), vec![change.clone()], AskMode::Lease);
    let second = world.ask(c, stat(&ROOT), vec![change], AskMode::Lease);
    let third = world.ask(d, stat(&ROOT), vec![], AskMode::Lease);
    assert_eq!(world.yields(a), 2);
    assert!(world.grants(b, first).is_some());
    assert_eq!((world.grants(c, second), world.grants(d, third)), (None, None));
    assert_eq!(world.yields(a), 0);
    assert_eq!(world.yields(b), 1);
    assert!(world.grants(c, second).is_some());
    assert_eq!(world.grants(d, third), None, "d came after c");
    assert_eq!(world.yields(c), 1);
    assert!(world.grants(d, third).is_some());
}

#[test]
fn a_request_takes_all_or_nothing() {
    let (mut world, a, b, n) = shared();
    let dir = world.create(a, &ROOT, "dir", FileKind::Directory, n);
    let dir_id = made(&dir);
    assert_eq!(world.update(a, dir), Ok(()));
    let wants =
        vec![want(&ROOT, Field::Attributes, Kind::Write), want(&dir_id, Field::Attributes, Kind::Write)];
    let number = world.ask(b, stat(&ROOT), wants, AskMode::Lease);
    let recalled = world.recalled(a);
    let (of_root, of_dir): (Vec<_>, Vec<_>) = recalled.into_iter().partition(|lease| lease.file == ROOT);
    world.release(a, of_root);
    assert_eq!(world.grants(b, number), None);
    // Meanwhile no later request gets the free lease, though no session holds it.
    let c = world.open(3, 1);
    let later = world.ask(c, stat(&ROOT), vec![want(&ROOT, Field::Attributes, Kind::Write)], AskMode::Lease);
    assert_eq!(world.grants(c, later), None);
    assert!(world.told(b).is_empty());
    world.release(a, of_dir);
    assert!(world.grants(b, number).is_some());
}

#[test]
fn what_is_in_the_way_may_change_what_is_needed() {
    let (mut world, a, b, n) = shared();
    // b asks for a label that is unused as far as the server knows; it gets the entry that the
    // release reveals.
    let number = world.ask(b, lookup(&ROOT, "new"), vec![], AskMode::Lease);
    let recalled = world.recalled(a);
    let op = world.create(a, &ROOT, "new", FileKind::Regular, n);
    let file = made(&op);
    assert_eq!(world.log(a, vec![update(op), LogEntry::Release(recalled)]), []);
    // And of the file, all that a lookup needs.
    assert!(world.yields(a) > 0);
    let grants = world.grants(b, number).unwrap();
    assert_eq!(grants[0].values.children.len(), 1);
    assert_eq!(grants[0].values.children[0].1.file, file);
}

#[test]
fn a_report_gets_the_value_and_the_holder_keeps_its_lease() {
    let (mut world, a, b, n) = shared();
    let number = world.ask(b, stat(&ROOT), vec![], AskMode::Report);
    let flushes = world.told(a);
    let numbers: Vec<u64> = flushes
        .iter()
        .map(|message| match message {
            ToClient::Flush { number, file, field } => {
                assert!(*file == ROOT && matches!(field, Field::Attributes | Field::Times));
                *number
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers.len(), 2);
    let op = world.create(a, &ROOT, "file", FileKind::Regular, n);
    let flushed = numbers.into_iter().map(|number| LogEntry::Flushed { number });
    assert_eq!(world.log(a, std::iter::once(update(op)).chain(flushed).collect()), []);
    let told = world.told(b);
    let [ToClient::Reported { number: n2, values, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((*n2, values[0].fields.len()), (number, 2));
    assert_eq!(values[0].values.times.unwrap().mtime, at(10));
    // No lease: b may not rely on it; a may go on.
    let op = world.create(a, &ROOT, "more", FileKind::Regular, n + 1);
    assert_eq!(world.update(a, op), Ok(()));
    assert_eq!(world.yields(a), 0);
}

#[test]
fn what_a_report_takes_does_not_last_and_what_is_flushed_for_it_does() {
    let (mut world, a, b, n) = shared();
    let asks = |world: &mut World| -> Vec<LogEntry> {
        world.ask(b, stat(&ROOT), vec![], AskMode::Report);
        assert!(!world.server.lasts(), "a question that waits");
        let flushes = world.told(a).into_iter().filter_map(|message| match message {
            ToClient::Flush { number, .. } => Some(LogEntry::Flushed { number }),
            _ => None,
        });
        flushes.collect()
    };
    let reported = |world: &mut World| matches!(world.told(b).as_slice(), [ToClient::Reported { .. }]);
    let flushed = asks(&mut world);
    let op = world.create(a, &ROOT, "file", FileKind::Regular, n);
    world.send_log(a, std::iter::once(update(op)).chain(flushed).collect(), false);
    assert!(world.server.lasts() && reported(&mut world));
    let flushed = asks(&mut world);
    world.send_log(a, flushed, false);
    assert!(!world.server.lasts() && reported(&mut world), "nothing was pending");
    // A client learns how far its log has come so that it can forget the log.
    assert_eq!(world.log(a, Vec::new()), []);
    assert!(world.server.lasts());
}

#[test]
fn a_report_does_not_wait_for_whoever_is_gone() {
    let (mut world, a, b, _) = shared();
    let number = world.ask(b, stat(&ROOT), vec![], AskMode::Report);
    world.open(1, 2);
    assert!(matches!(world.told(b).as_slice(), [ToClient::Reported { number: n, .. }] if *n == number));
    assert_eq!(world.told(a).last(), Some(&ToClient::Fenced));
}

/// The mode of the root changes at one client, and another looks at it after each change.
#[test]
fn a_mode_that_passes_to_and_fro_is_told_and_leased_to_those_who_decide_by_it() {
    let (mut world, a, b, _) = shared();
    let mode = want(&ROOT, Field::Attributes, Kind::Read);
    let to_change = want(&ROOT, Field::Attributes, Kind::Write);
    for _ in 0..3 {
        world.ask(b, stat(&ROOT), vec![mode.clone()], AskMode::LeaseOrReport);
        assert!(world.yields(a) > 0, "the lease changes hands");
        world.told(b);
        world.ask(a, access(&ROOT), vec![to_change.clone()], AskMode::Lease);
        assert!(world.yields(b) > 0, "and back");
        world.told(a);
    }
    for bits in [0o700, 0o711] {
        world.ask(b, stat(&ROOT), vec![mode.clone()], AskMode::LeaseOrReport);
        let asked = world.told(a);
        let numbers = asked.iter().filter_map(|message| match message {
            ToClient::Flush { number, field: Field::Attributes, .. } => Some(*number),
            _ => None,
        });
        let flushed: Vec<LogEntry> = numbers.map(|number| LogEntry::Flushed { number }).collect();
        assert_eq!(flushed.len(), 1, "the value is asked for, and the lease stays: {asked:?}");
        let change = std::iter::once(update(set_mode(&ROOT, bits))).chain(flushed).collect();
        assert_eq!(world.log(a, change), []);
        let told = world.told(b);
        let [ToClient::Reported { values, .. }] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(values[0].values.attributes.unwrap().mode, bits);
    }
    // A call that is decided by the mode, as an open, takes the lease.
    world.ask(b, access(&ROOT), vec![mode], AskMode::LeaseOrReport);
    assert!(world.yields(a) > 0);
    assert!(matches!(world.told(b).as_slice(), [ToClient::Granted { .. }]));
}

/// A caller that takes nothing is told even what has never changed hands, and what nobody else may
/// change is leased to it.
#[test]
fn what_another_may_change_is_told_at_once_to_whoever_takes_nothing() {
    let (mut world, a, b, _) = shared();
    let mode = want(&ROOT, Field::Attributes, Kind::Read);
    world.ask(a, access(&ROOT), vec![want(&ROOT, Field::Attributes, Kind::Write)], AskMode::Lease);
    world.yields(b);
    world.told(a);
    world.ask(b, stat(&ROOT), vec![mode.clone()], AskMode::LeaseIfFree);
    let asked = world.told(a);
    let flushes = asked.iter().filter_map(|message| match message {
        ToClient::Flush { number, .. } => Some(LogEntry::Flushed { number: *number }),
        _ => None,
    });
    let flushes: Vec<LogEntry> = flushes.collect();
    assert_eq!(flushes.len(), asked.len(), "nothing is recalled: {asked:?}");
    assert_eq!(world.log(a, flushes), []);
    assert!(matches!(world.told(b).as_slice(), [ToClient::Reported { .. }]));
    assert_eq!(world.yields(a), 0);
    // The holder lets it go by itself.
    world.ask(b, access(&ROOT), vec![mode.clone()], AskMode::Lease);
    world.yields(a);
    world.told(b);
    world.ask(b, stat(&ROOT), vec![mode], AskMode::LeaseIfFree);
    assert!(matches!(world.told(b).as_slice(), [ToClient::Granted { .. }]));
}

#[test]
fn a_shipped_operation_is_done_on_the_authoritative_state_and_grants_nothing() {
    let (mut world, a, b, n) = shared();
    let op = world.create(b, &ROOT, "file", FileKind::Regular, 1);
    let number = world.ask(b, op, vec![], AskMode::Ship);
    let recalled = world.recalled(a);
    let theirs = world.create(a, &ROOT, "other", FileKind::Regular, n);
    assert_eq!(world.log(a, vec![update(theirs), LogEntry::Release(recalled)]), []);
    let told = world.told(b);
    let [ToClient::Shipped { number: n2, result: Ok((Answer::Entry(entry), effects)) }] = told.as_slice()
    else {
        panic!("{told:?}")
    };
    assert_eq!(*n2, number);
    assert!(!effects.is_empty() && entry.position > n, "the server draws its own numbers: {entry:?}");
    let change = publish(&entry.file, 1, 1, inline(&[1]));
    // The same again is refused.
    let op = world.create(b, &ROOT, "file", FileKind::Regular, 1);
    world.ask(b, op, vec![], AskMode::Ship);
    world.yields(a);
    let told = world.told(b);
    assert!(matches!(told.as_slice(), [ToClient::Shipped { result: Err(Error::Exists), .. }]), "{told:?}");
    // The session holds nothing: the creator of a shipped file has no birthright.
    assert_eq!(world.update(b, change), Err(Error::CutOff));
}

#[test]
fn only_the_server_moves_a_directory_and_it_keeps_the_tree_a_tree() {
    let (mut world, a, _, n) = shared();
    let outer = world.create(a, &ROOT, "outer", FileKind::Directory, n);
    let inner = world.create(a, &made(&outer), "inner", FileKind::Directory, 1);
    let (outer_id, inner_id) = (made(&outer), made(&inner));
    assert_eq!(world.log(a, vec![update(outer), update(inner)]), []);
    world.ask(a, rename(&ROOT, "outer", &inner_id, "loop", 1), vec![], AskMode::Ship);
    assert!(matches!(world.told(a).as_slice(), [ToClient::Shipped { result: Err(Error::Invalid), .. }]));
    let doubts = vec![want(&inner_id, Field::Attributes, Kind::Read)];
    world.ask(a, rename(&outer_id, "inner", &ROOT, "moved", n + 1), doubts, AskMode::Ship);
    let told = world.told(a);
    assert!(matches!(told.as_slice(), [ToClient::Shipped { result: Ok(_), .. }]), "{told:?}");
    // A client cannot decide it.
    assert_eq!(world.update(a, rename(&ROOT, "moved", &outer_id, "back", 2)), Err(Error::CutOff));
}

/// Directories `one` and `other` of the first session, with a directory `moved` in `other`, and the
/// lease that is in doubt while that one moves.
fn two_directories() -> (World, [SessionId; 2], [FileId; 2], Vec<Lease>) {
    let (mut world, a, b, n) = shared();
    let dirs =
        [("one", n), ("other", n + 1)].map(|(name, n)| world.create(a, &ROOT, name, FileKind::Directory, n));
    let [one, other] = dirs.each_ref().map(made);
    let moved = world.create(a, &other, "moved", FileKind::Directory, 1);
    let doubts = vec![want(&made(&moved), Field::Attributes, Kind::Read)];
    assert_eq!(world.log(a, dirs.into_iter().chain([moved]).map(update).collect()), []);
    (world, [a, b], [one, other], doubts)
}

fn is_shipped(told: &[ToClient]) -> bool {
    matches!(told, [ToClient::Shipped { result: Ok(_), .. }])
}

/// A program keeps both directories locked in its kernel until its rename is done, and its machine
/// cannot answer the recall before.
#[test]
fn the_operation_of_a_session_that_owes_an_answer_goes_first() {
    let (mut world, [a, b], [one, other], doubts) = two_directories();
    let moves = |from: &str, to: &str| rename(&other, from, &one, to, 1);
    world.ask(b, moves("moved", "theirs"), vec![], AskMode::Ship);
    let recalled = world.recalled(a);
    assert!(!recalled.is_empty());
    // A request for leases does not go first: its machine can give it up.
    world.ask(a, moves("moved", "ours"), vec![], AskMode::Lease);
    assert_eq!(world.told(a), []);
    world.ask(a, moves("moved", "ours"), doubts, AskMode::Ship);
    let told = world.told(a);
    assert!(told.iter().any(|it| is_shipped(std::slice::from_ref(it))), "{told:?}");
    assert_eq!(world.told(b), []);
    world.release(a, recalled);
    let told = world.told(b);
    assert!(matches!(told.as_slice(), [ToClient::Shipped { result: Err(Error::NotFound), .. }]), "{told:?}");
}

/// The first decision lacks what others hold, and that is no reason to think of other servers. An
/// operation over several servers takes the asker's own leases, too, and the asker could not
/// release them: its program keeps both directories locked.
#[test]
fn a_move_takes_from_others_only_what_they_hold() {
    let (mut world, [a, b], [one, other], doubts) = two_directories();
    for (dir, name) in [(&other, "moved"), (&one, "theirs")] {
        let number = world.ask(b, lookup(dir, name), vec![], AskMode::Lease);
        world.yields(a);
        assert!(world.grants(b, number).is_some());
    }
    world.ask(b, rename(&other, "moved", &one, "theirs", 1), doubts, AskMode::Ship);
    assert!(world.yields(a) > 0);
    let told = world.told(b);
    assert!(is_shipped(&told), "{told:?}");
}

#[test]
fn what_was_recalled_lately_is_granted_narrowly() {
    let (mut world, a, b, _) = shared();
    let number = world.ask(b, stat(&ROOT), vec![], AskMode::Lease);
    world.yields(a);
    let grants = world.grants(b, number).unwrap();
    assert!(grants[0].fields.iter().all(|(_, kind)| *kind == Kind::Read));
    world.release(a, vec![released(&ROOT, Field::Attributes, None), released(&ROOT, Field::Times, None)]);
    // No other session holds them any more; but they are contended.
    let again = world.granted(b, stat(&ROOT), AskMode::Lease);
    assert!(again[0].fields.iter().all(|(_, kind)| *kind == Kind::Read));
    world.now = world.now.after_ms(11_000);
    let again = world.granted(b, stat(&ROOT), AskMode::Lease);
    assert!(again[0].fields.iter().all(|(_, kind)| *kind == Kind::Write));
}

#[test]
fn files_that_are_no_more_are_named() {
    let (mut world, a, b, n) = shared();
    let op = world.create(a, &ROOT, "file", FileKind::Regular, n);
    let file = made(&op);
    assert_eq!(world.log(a, vec![update(op), update(unlink(&ROOT, "file", false))]), []);
    let number = world.ask(b, stat(&file), vec![want(&file, Field::Content, Kind::Write)], AskMode::Lease);
    let told = world.told(b);
    assert_eq!(told, [ToClient::Granted { number, grants: vec![], gone: vec![file] }]);
}

#[test]
fn a_request_whose_session_ends_stands_in_nobodys_way() {
    let (mut world, a, b, _) = shared();
    let c = world.open(3, 1);
    world.ask(b, stat(&ROOT), vec![want(&ROOT, Field::Attributes, Kind::Write)], AskMode::Lease);
    let number = world.ask(c, stat(&ROOT), vec![], AskMode::Lease);
    world.open(2, 2);
    world.yields(a);
    assert!(world.grants(c, number).is_some());
    assert_eq!(world.server.status(world.now).waiting, 0);
}

#[test]
fn rows_of_holdings_stay_short_however_many_labels_are_taken_out() {
    let (mut world, a, b, _) = shared();
    let c = world.open(3, 1);
    let mut recalled_all = 0;
    world.checks = false;
    for i in 0..2200 {
        // Two sessions ask, so that neither gets all names.
        let asker = if i % 2 == 0 { b } else { c };
        let op = world.create(asker, &ROOT, &format!("x{i}"), FileKind::Regular, 1);
        world.ask(asker, op, vec![], AskMode::Lease);
        for session in [a, b, c] {
            let recalled = world.told(session).into_iter().filter_map(|message| match message {
                ToClient::Recall { leases, .. } => Some(leases),
                _ => None,
            });
            let recalled: Vec<_> = recalled.flatten().collect();
            // One from the holder of all names; many from a holder of names one by one.
            recalled_all += usize::from(recalled.iter().any(|lease| lease.field == Field::Children));
            recalled_all += usize::from(recalled.len() > 100);
            if !recalled.is_empty() {
                world.release(session, recalled);
            }
        }
    }
    world.check();
    assert!(recalled_all >= 2, "both are told");
    let longest = world.store.rows.values().map(Vec::len).max().unwrap();
    assert!(longest < 16 << 10, "{longest} bytes");
}

#[test]
fn who_keeps_a_request_waiting_is_named_at_the_server() {
    let (mut world, a, b, n) = shared();
    let made = world.create(a, &ROOT, "dir", FileKind::Directory, n);
    let dir = super::support::made(&made);
    assert_eq!(world.update(a, made), Ok(()));
    let asked = world.ask(b, lookup(&dir, "x"), vec![], AskMode::Lease);
    let reported = world.ask(b, stat(&dir), vec![], AskMode::Report);
    world.now = world.now.after_ms(6_000);
    world.send(b, wire::ToServer::Renew);
    let waits = |world: &World, at_least_ms| world.server.waits(world.now, &world.store, at_least_ms);
    let names: Vec<String> =
        world.server.machines(world.now, &world.store).into_iter().map(|machine| machine.name).collect();
    let by = Some(names[1].clone());
    let unanswered = vec![(names[0].clone(), 6_000)];
    let report = |arrival, operation, path: &str| directory::WaitReport {
        arrival,
        by: by.clone(),
        operation,
        path: path.to_owned(),
        for_ms: 6_000,
        unanswered: unanswered.clone(),
    };
    let waiting = waits(&world, 6_000);
    let first = waiting[0].arrival;
    assert_eq!(waiting, [report(first, "lookup", "/dir/x"), report(first + 1, "stat", "/dir")]);
    assert_eq!(waits(&world, 6_001), []);
    // The asker learns nothing of it.
    assert!(world.told(b).iter().all(|told| matches!(told, ToClient::Renewed { .. })));
    let recalled: Vec<ToClient> = world.told(a);
    for message in recalled {
        match message {
            ToClient::Recall { leases, .. } => world.release(a, leases),
            ToClient::Flush { number, .. } => drop(world.log(a, vec![LogEntry::Flushed { number }])),
            other => panic!("{other:?}"),
        }
    }
    assert!(world.grants(b, asked).is_some());
    assert!(matches!(world.told(b).as_slice(), [ToClient::Reported { number, .. }] if *number == reported));
    assert_eq!(waits(&world, 0), []);
}

/// B has looked at a file of A's. It has the server remove the file by a name that it knows nothing
/// of, and doubts its knowledge meanwhile.
fn removed_unseen(doubts: bool) -> (World, SessionId, FileId) {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    let n = world.take_root(a);
    let op = world.create(a, &ROOT, "file", FileKind::Regular, n);
    let file = made(&op);
    assert_eq!(world.log(a, vec![update(op)]), []);
    world.ask(b, stat(&file), vec![], AskMode::Lease);
    world.yields(a);
    assert!(matches!(world.told(b).as_slice(), [ToClient::Granted { .. }]));
    let wants = if doubts { vec![want(&file, Field::Attributes, Kind::Read)] } else { vec![] };
    world.ask(b, unlink(&ROOT, "file", false), wants, AskMode::Ship);
    world.yields(a);
    (world, b, file)
}

/// Others may learn that the name is gone before B does, and B would go on saying that the file has
/// a link.
#[test]
fn who_does_not_know_what_the_server_changes_for_it_lets_go_of_that_first() {
    let done = |told: &[ToClient]| matches!(told, [ToClient::Shipped { result: Ok(_), .. }]);
    let (mut world, b, file) = removed_unseen(false);
    let recalled = world.recalled(b);
    assert_eq!(recalled, [released(&file, Field::Attributes, None)]);
    world.release(b, recalled);
    assert!(done(&world.told(b)));
    // The client does not answer from leases that it doubts.
    let (mut world, b, _) = removed_unseen(true);
    assert!(done(&world.told(b)));
}
