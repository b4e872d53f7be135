//! Listings of a directory while other machines change it, and the access times that reads leave.

use crate::rights::RightsWorld;
use client::{Call, Listed, Reply, Upto, call};
use ident::FileId;
use lease::Label;
use namespace::{FileKind, RenameMode, Stat};
use std::collections::BTreeSet;
use wire::Rights;

const ROOT: FileId = FileId::root();

fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}

/// A world with two machines beside the server's own, and a directory with so many files. The first
/// machine has made the files.
fn with(files: usize) -> (RightsWorld, [usize; 2], FileId) {
    let mut lab = RightsWorld::new();
    let machines = [lab.join(Rights::FULL), lab.join(Rights::FULL)];
    let dir = lab.make(machines[0], &ROOT, "dir", FileKind::Directory).unwrap();
    for n in 0..files {
        lab.make(machines[0], &dir, &format!("File {n}"), FileKind::Regular).unwrap();
    }
    lab.call(machines[0], Call::SyncAll).unwrap();
    (lab, machines, dir)
}

fn page(
    lab: &mut RightsWorld,
    at: usize,
    dir: &FileId,
    (after, upto): (u64, Option<Upto>),
    limit: usize,
) -> (Vec<Listed>, Upto, bool) {
    match lab.call(at, Call::List(call::List { dir: dir.clone(), after, upto, limit, stat: false })) {
        Ok(Reply::Listing { entries, upto, end }) => (entries, upto, end),
        other => panic!("{other:?}"),
    }
}

fn rename(lab: &mut RightsWorld, at: usize, dir: &FileId, from: &Label, to: &str) {
    let (from_dir, to_dir) = (dir.clone(), dir.clone());
    let (from, to, mode, whiteout) = (from.clone(), label(to), RenameMode::Replace, false);
    lab.call(at, Call::Rename(call::Rename { from_dir, from, to_dir, to, mode, whiteout })).unwrap();
}

/// Lists the directory, and calls `does` with each label as it is listed.
fn each(
    lab: &mut RightsWorld,
    at: usize,
    dir: &FileId,
    limit: usize,
    mut does: impl FnMut(&mut RightsWorld, &Label),
) -> Vec<Label> {
    let (mut seen, mut after, mut upto) = (Vec::new(), 0, None);
    loop {
        let (entries, told, end) = page(lab, at, dir, (after, upto), limit);
        upto = Some(told);
        for listed in entries {
            assert!(listed.entry.position > after, "in the order of positions");
            after = listed.entry.position;
            assert!(seen.len() < 5000, "no end");
            does(lab, &listed.label);
            seen.push(listed.label);
        }
        if end {
            return seen;
        }
    }
}

/// The directory may be granted by pages. The renaming machine is the lister, the maker of the
/// directory, or each in turn.
#[test]
fn a_listing_ends_at_what_was_there_when_it_began() {
    for (files, limit) in [(0, 1), (1, 1), (200, 7), (1200, 500)] {
        for turn in 0..3 {
            let (mut lab, machines, dir) = with(files);
            let mut n = 0;
            let seen = each(&mut lab, machines[1], &dir, limit, |lab, listed| {
                n += 1;
                rename(lab, machines[[0, 1, n % 2][turn]], &dir, listed, &format!("Renamed {n}"));
            });
            let names = |prefix: &str, from: usize| {
                (from..from + files).map(|n| label(&format!("{prefix} {n}"))).collect::<BTreeSet<_>>()
            };
            assert_eq!((seen.len(), seen.into_iter().collect()), (files, names("File", 0)), "{turn}");
            // A listing that begins later has the new names.
            let seen = each(&mut lab, machines[1], &dir, limit, |_, _| ());
            assert_eq!((seen.len(), seen.into_iter().collect()), (files, names("Renamed", 1)), "{turn}");
        }
    }
}

/// A replaced name is there throughout: as with a file that is saved anew.
#[test]
fn what_is_replaced_meanwhile_is_listed_once() {
    for replaces in 0..2 {
        let (mut lab, machines, dir) = with(300);
        let mut n = 0;
        let seen = each(&mut lab, machines[1], &dir, 3, |lab, _| {
            n += 1;
            if n <= 100 {
                let (at, new) = (machines[replaces], format!("new {n}"));
                lab.make(at, &dir, &new, FileKind::Regular).unwrap();
                rename(lab, at, &dir, &label(&new), &format!("File {}", 299 - n));
            }
        });
        assert_eq!(seen.len(), 300);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 300);
    }
}

#[test]
fn a_position_that_was_told_holds_while_names_go() {
    let (mut lab, machines, dir) = with(20);
    let (entries, upto, end) = page(&mut lab, machines[1], &dir, (0, None), 100);
    assert!(end && entries.len() == 20);
    for listed in &entries[5..10] {
        let (dir, label, directory) = (dir.clone(), listed.label.clone(), false);
        lab.call(machines[0], Call::Unlink(call::Unlink { dir, label, directory })).unwrap();
    }
    let (rest, ..) = page(&mut lab, machines[1], &dir, (entries[4].entry.position, Some(upto)), 100);
    let labels = |entries: &[Listed]| entries.iter().map(|it| it.label.clone()).collect::<Vec<_>>();
    assert_eq!(labels(&rest), labels(&entries[10..]));
}

/// As with relatime: the first read after a change moves the access time, whichever machine made
/// the change. A quiet read and a repeated read do not.
#[test]
fn an_access_time_moves_whoever_has_written() {
    let (mut lab, [writer, reader], dir) = with(1);
    let find = |lab: &mut RightsWorld, at| match lab
        .call(at, Call::Lookup(call::Lookup { dir: dir.clone(), label: label("File 0") }))
    {
        Ok(reply) => match reply.told() {
            Reply::Node(entry, stat) => (entry.file, stat),
            other => panic!("{other:?}"),
        },
        Err(error) => panic!("{error:?}"),
    };
    let (file, Stat { attributes: before, .. }) = find(&mut lab, writer);
    let read = |lab: &mut RightsWorld, quietly| {
        lab.now.wall.secs += 10;
        let call = Call::Read(call::Read { file: file.clone(), offset: 0, length: 10, kept: true, quietly });
        assert!(matches!(lab.call(reader, call), Ok(Reply::Data(_))));
        find(lab, reader).1.attributes.atime
    };
    find(&mut lab, reader);
    assert_eq!(read(&mut lab, true), before.atime);
    let first = read(&mut lab, false);
    assert_eq!(first, lab.now.wall);
    assert_eq!(read(&mut lab, false), first, "nothing has changed since");
    // The access time goes to the server with the log, and no lease is recalled for it.
    lab.call(reader, Call::SyncAll).unwrap();
    lab.now.wall.secs += 10;
    let data = "x".into();
    lab.call(writer, Call::Write(call::Write { file: file.clone(), offset: 0, data, append: false }))
        .unwrap();
    assert_eq!(read(&mut lab, false), lab.now.wall);
}
