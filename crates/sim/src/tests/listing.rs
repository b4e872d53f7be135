//! Listings of a directory while other machines change it, and the access times that reads leave.

use crate::host::Host;
use crate::host::calls::label;
use client::{Call, Listed, Reply, Upto, call};
use ident::FileId;
use lease::Label;
use namespace::{FileKind, RenameMode, Stat};
use std::collections::BTreeSet;

/// Two machines beside the server's own, and a directory with so many files. The first of them has
/// made the files.
fn with(files: usize) -> (Host, [usize; 2], FileId) {
    let (mut host, machines) = (Host::of(0, 3), [1, 2]);
    let dir = host.make(machines[0], &FileId::root(), "dir", FileKind::Directory).unwrap();
    for n in 0..files {
        host.make(machines[0], &dir, &format!("File {n}"), FileKind::Regular).unwrap();
    }
    host.does(machines[0], Call::SyncAll);
    (host, machines, dir)
}

fn page(
    host: &mut Host,
    at: usize,
    dir: &FileId,
    (after, upto): (u64, Option<Upto>),
    limit: usize,
) -> (Vec<Listed>, Upto, bool) {
    match host.does(at, Call::List(call::List { dir: dir.clone(), after, upto, limit, stat: false })) {
        Reply::Listing { entries, upto, end } => (entries, upto, end),
        other => panic!("{other:?}"),
    }
}

fn rename(host: &mut Host, at: usize, dir: &FileId, from: &Label, to: &str) {
    let (from_dir, to_dir) = (dir.clone(), dir.clone());
    let (from, to, mode, whiteout) = (from.clone(), label(to), RenameMode::Replace, false);
    host.does(
        at,
        Call::Rename(call::Rename {
            from_dir,
            from,
            to_dir,
            to,
            mode,
            whiteout,
            source: None,
            replaced: None,
        }),
    );
}

/// Lists the directory, and calls `does` with each label as it is listed.
fn each(
    host: &mut Host,
    at: usize,
    dir: &FileId,
    limit: usize,
    mut does: impl FnMut(&mut Host, &Label),
) -> Vec<Label> {
    let (mut seen, mut after, mut upto) = (Vec::new(), 0, None);
    loop {
        let (entries, told, end) = page(host, at, dir, (after, upto), limit);
        upto = Some(told);
        for listed in entries {
            assert!(listed.entry.position > after, "in the order of positions");
            after = listed.entry.position;
            assert!(seen.len() < 5000, "no end");
            does(host, &listed.label);
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
            let (mut host, machines, dir) = with(files);
            let mut n = 0;
            let seen = each(&mut host, machines[1], &dir, limit, |host, listed| {
                n += 1;
                rename(host, machines[[0, 1, n % 2][turn]], &dir, listed, &format!("Renamed {n}"));
            });
            let names = |prefix: &str, from: usize| {
                (from..from + files).map(|n| label(&format!("{prefix} {n}"))).collect::<BTreeSet<_>>()
            };
            assert_eq!((seen.len(), seen.into_iter().collect()), (files, names("File", 0)), "{turn}");
            // A listing that begins later has the new names.
            let seen = each(&mut host, machines[1], &dir, limit, |_, _| ());
            assert_eq!((seen.len(), seen.into_iter().collect()), (files, names("Renamed", 1)), "{turn}");
        }
    }
}

/// A replaced name is there throughout: as with a file that is saved anew.
#[test]
fn what_is_replaced_meanwhile_is_listed_once() {
    for replaces in 0..2 {
        let (mut host, machines, dir) = with(300);
        let mut n = 0;
        let seen = each(&mut host, machines[1], &dir, 3, |host, _| {
            n += 1;
            if n <= 100 {
                let (at, new) = (machines[replaces], format!("new {n}"));
                host.make(at, &dir, &new, FileKind::Regular).unwrap();
                rename(host, at, &dir, &label(&new), &format!("File {}", 299 - n));
            }
        });
        assert_eq!(seen.len(), 300);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 300);
    }
}

#[test]
fn a_position_that_was_told_holds_while_names_go() {
    let (mut host, machines, dir) = with(20);
    let (entries, upto, end) = page(&mut host, machines[1], &dir, (0, None), 100);
    assert!(end && entries.len() == 20);
    for listed in &entries[5..10] {
        let (dir, label, directory) = (dir.clone(), listed.label.clone(), false);
        host.does(machines[0], Call::Unlink(call::Unlink { dir, label, directory, pending: None }));
    }
    let (rest, ..) = page(&mut host, machines[1], &dir, (entries[4].entry.position, Some(upto)), 100);
    let labels = |entries: &[Listed]| entries.iter().map(|it| it.label.clone()).collect::<Vec<_>>();
    assert_eq!(labels(&rest), labels(&entries[10..]));
}

/// As with relatime: the first read after a change moves the access time, whichever machine made
/// the change. A quiet read and a repeated read do not.
#[test]
fn an_access_time_moves_whoever_has_written() {
    let (mut host, [writer, reader], dir) = with(1);
    let find = |host: &mut Host, at| match host
        .does(at, Call::Lookup(call::Lookup { dir: dir.clone(), label: label("File 0") }))
        .told()
    {
        Reply::Node(entry, stat) => (entry.file, stat),
        other => panic!("{other:?}"),
    };
    let (file, Stat { attributes: before, .. }) = find(&mut host, writer);
    let read = |host: &mut Host, quietly| {
        host.began += 10;
        let call = Call::Read(call::Read { file: file.clone(), offset: 0, length: 10, kept: true, quietly });
        assert!(matches!(host.does(reader, call), Reply::Data(_)));
        find(host, reader).1.attributes.atime
    };
    find(&mut host, reader);
    assert_eq!(read(&mut host, true), before.atime);
    let first = read(&mut host, false);
    assert_eq!(first, host.clocks().wall);
    assert_eq!(read(&mut host, false), first, "nothing has changed since");
    // The access time goes to the server with the log, and no lease is recalled for it.
    host.does(reader, Call::SyncAll);
    host.began += 10;
    let data = "x".into();
    host.does(writer, Call::Write(call::Write { file: file.clone(), offset: 0, data, append: false }));
    assert_eq!(read(&mut host, false), host.clocks().wall);
}
