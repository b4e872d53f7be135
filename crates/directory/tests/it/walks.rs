//! Recalls and grants ahead of a session that looks at one file after the other of another one.

use crate::support::*;
use directory::Policy;
use ident::FileId;
use lease::{Field, Kind, Label, Released, SessionId};
use namespace::{Cred, FileKind, XattrMode, operation};
use std::collections::{BTreeMap, BTreeSet};
use wire::{AskMode, FileGrant, ToClient};

const ROOT: FileId = FileId::root();

/// A tree that its maker holds, and a session that comes to walk it.
struct Walk {
    world: World,
    maker: SessionId,
    walker: SessionId,
    /// Files of which the walker was granted the attributes.
    seen: BTreeSet<FileId>,
    /// The extended attributes of files of which the walker was granted all.
    xattrs: BTreeMap<FileId, Vec<(Label, Vec<u8>)>>,
    /// Messages of recalls that the maker was sent.
    recalls: usize,
}

impl Walk {
    fn new() -> Walk {
        let mut world = World::new();
        let maker = world.open(1, 1);
        world.take_root(maker);
        let walker = world.open(2, 1);
        Walk { world, maker, walker, seen: BTreeSet::new(), xattrs: BTreeMap::new(), recalls: 0 }
    }

    /// Makes files in a directory that the maker holds, with its integers from `from` on.
    fn make(&mut self, dir: &FileId, kind: FileKind, from: u64, count: u64) -> Vec<FileId> {
        let Walk { world, maker, .. } = self;
        world.send(*maker, wire::ToServer::ReserveInodes { known: u64::MAX });
        let Some(ToClient::ReservedInodes { first, .. }) = world.told(*maker).pop() else { panic!() };
        world.next_inode(*maker, first);
        let make = |at| world.create(*maker, dir, &format!("Name {at}"), kind, at);
        let made: Vec<_> = (from..from + count).map(make).collect();
        assert_eq!(world.log(*maker, made.iter().cloned().map(update).collect()), []);
        made.iter().map(crate::support::made).collect()
    }

    /// The leases that the maker is asked for because the walker asks for the file.
    fn ask(&mut self, operation: namespace::Operation) -> (u64, Vec<Released>) {
        let number = self.world.ask(self.walker, operation, Vec::new(), AskMode::Lease);
        let told = self.world.told(self.maker);
        self.recalls += usize::from(!told.is_empty());
        let leases = told.into_iter().flat_map(|message| match message {
            ToClient::Recall { leases, ahead } => [leases, ahead].concat(),
            other => panic!("{other:?} beside recalls"),
        });
        (number, leases.collect())
    }

    fn take_in(&mut self, grants: Vec<FileGrant>) {
        let with_all = grants.iter().filter(|it| it.fields.iter().any(|(field, _)| *field == Field::Xattrs));
        self.xattrs.extend(with_all.map(|grant| (grant.file.clone(), grant.values.xattrs.clone())));
        let with_values = grants.into_iter().filter(|grant| grant.values.attributes.is_some());
        self.seen.extend(with_values.map(|grant| grant.file));
    }

    /// Looks at the file, if the walker does not know it yet.
    fn stat(&mut self, file: &FileId) {
        if !self.seen.contains(file) {
            let (number, recalled) = self.ask(stat(file));
            if !recalled.is_empty() {
                self.world.release(self.maker, recalled);
            }
            let grants = self.world.grants(self.walker, number).expect("granted");
            self.take_in(grants);
            assert!(self.seen.contains(file));
        }
    }
}

/// The directory, with a block of integers of its own from the start.
fn directory(walk: &mut Walk, integer: u64) -> FileId {
    walk.make(&ROOT, FileKind::Directory, integer, 1).remove(0)
}

#[test]
fn a_walk_asks_for_many_files_at_once() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 32);
    files.iter().for_each(|file| walk.stat(file));
    assert_eq!(walk.recalls, 4, "two alone, the third with 16, and the fourth with the rest");
    // Each file is asked for by itself where nothing is given that was not asked for.
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 32);
    let policy = Policy { generous: false, ..Policy::default() };
    walk.world.server = walk.world.server.clone().with_policy(policy);
    files.iter().for_each(|file| walk.stat(file));
    assert_eq!(walk.recalls, 32);
}

/// `ls -l` asks each file for what stat shows and for its access list.
#[test]
fn a_listing_takes_extended_attributes_along() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 60);
    let (name, value) = (label("user.Colour"), b"green".to_vec());
    let painted = operation::SetXattr {
        file: files[50].clone(),
        name: name.clone(),
        value: value.clone(),
        mode: XattrMode::Set,
        cred: Cred::default(),
        time: at(15),
    };
    assert_eq!(walk.world.update(walk.maker, painted.into()), Ok(()));
    for file in &files {
        walk.stat(file);
        if walk.xattrs.contains_key(file) {
            continue;
        }
        let read = operation::GetXattr {
            file: file.clone(),
            name: label("system.posix_acl_access"),
            cred: Cred::default(),
        };
        let (number, recalled) = walk.ask(read.into());
        walk.world.release(walk.maker, recalled);
        let grants = walk.world.grants(walk.walker, number).expect("granted");
        walk.take_in(grants);
    }
    assert_eq!(walk.xattrs.get(&files[50]), Some(&vec![(name, value)]));
    assert_eq!(walk.xattrs.values().map(Vec::len).sum::<usize>(), 1);
    assert!(walk.recalls <= 8, "{} recalls for {} files", walk.recalls, files.len());
}

#[test]
fn the_maker_keeps_what_is_only_read() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 10);
    files.iter().take(2).for_each(|file| walk.stat(file));
    let (_, recalled) = walk.ask(stat(&files[2]));
    assert!(recalled.len() > files.len(), "more than one file's: {recalled:?}");
    for Released { field, keep, .. } in &recalled {
        // Of the handles it gives up only to know that nobody else has any.
        let keeps = if *field == Field::Handles { Kind::Touch } else { Kind::Read };
        assert_eq!(*keep, Some(keeps), "{recalled:?}");
    }
}

/// A client that knows a name and what stat shows of its file looks the name up by itself. So the
/// file must not go without anybody asking that client.
#[test]
fn with_the_attributes_of_a_file_comes_a_lease_on_its_handles() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 10);
    files.iter().take(2).for_each(|file| walk.stat(file));
    let (number, recalled) = walk.ask(stat(&files[2]));
    // Of one file the maker gives back everything but the handles.
    let (late, early): (Vec<_>, Vec<_>) =
        recalled.into_iter().partition(|it| it.file == files[5] && it.field == Field::Handles);
    assert_eq!(late.len(), 1);
    walk.world.release(walk.maker, early);
    let grants = walk.world.grants(walk.walker, number).expect("granted");
    for grant in grants.iter().filter(|grant| grant.file != files[2]) {
        assert_ne!(grant.file, files[5], "nothing of a file without its handles");
        assert!(grant.fields.contains(&(Field::Handles, Kind::Touch)), "{grant:?}");
    }
    assert_eq!(grants.len(), 7);
}

#[test]
fn after_some_directories_comes_the_subtree() {
    let mut walk = Walk::new();
    let top = directory(&mut walk, 1);
    let mut files = Vec::new();
    for integer in 1..=30 {
        let dir = walk.make(&top, FileKind::Directory, integer, 1).remove(0);
        files.push(walk.make(&dir, FileKind::Regular, 1, 4));
    }
    for (at, of_dir) in files.iter().enumerate() {
        let before = walk.recalls;
        of_dir.iter().for_each(|file| walk.stat(file));
        let asked = walk.recalls - before;
        assert!(asked <= if at < 3 { 3 } else { 1 }, "{asked} recalls in directory {at}");
    }
    // Three for each of the first three, then two steps in the region above.
    assert!(walk.recalls <= 12, "{} recalls for 120 files", walk.recalls);
}

#[test]
fn a_request_does_not_wait_for_what_is_only_ahead() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 10);
    files.iter().take(2).for_each(|file| walk.stat(file));
    let (number, recalled) = walk.ask(stat(&files[2]));
    let (needed, ahead): (Vec<_>, Vec<_>) = recalled.into_iter().partition(|it| it.file == files[2]);
    walk.world.release(walk.maker, needed);
    let grants = walk.world.grants(walk.walker, number).expect("granted without the rest");
    assert!(grants.iter().all(|grant| !files[3..].contains(&grant.file)), "the maker holds these to write");
    // The answer for the rest is owed, and no misdeed, whenever it comes.
    walk.world.release(walk.maker, ahead);
    assert_eq!(walk.world.server.misdeeds(), []);
    walk.stat(&files[3]);
    assert_eq!(walk.recalls, 3, "nobody is in the way of the fourth file");
}

#[test]
fn only_the_holder_that_is_asked_anyway_is_asked_ahead() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 10);
    // A third session holds one of the files to write.
    let third = walk.world.open(3, 1);
    let wants = vec![want(&files[6], Field::Attributes, Kind::Write)];
    walk.world.ask(third, stat(&files[6]), wants, AskMode::Lease);
    let maker = walk.maker;
    walk.world.yields(maker);
    walk.world.told(third);
    files.iter().take(6).for_each(|file| walk.stat(file));
    assert_eq!(walk.world.recalled(third), []);
    assert!(!walk.seen.contains(&files[6]) && walk.seen.contains(&files[7]));
}

#[test]
fn a_file_that_another_session_waits_for_is_not_taken_ahead() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 10);
    let third = walk.world.open(3, 1);
    let wants = vec![want(&files[6], Field::Attributes, Kind::Write)];
    let number = walk.world.ask(third, stat(&files[6]), wants, AskMode::Lease);
    let owed = walk.world.recalled(walk.maker);
    files.iter().take(6).for_each(|file| walk.stat(file));
    assert!(!walk.seen.contains(&files[6]) && walk.seen.contains(&files[7]));
    walk.world.release(walk.maker, owed);
    assert!(walk.world.grants(third, number).is_some(), "first come, first served");
}

/// Whether a file is in use is asked when the file goes, as long as the maker's kernel may come to
/// use it by its name. For many files at once the maker is asked together with the names, or once
/// it has lost them.
#[test]
fn a_session_that_removes_one_file_after_the_other_is_given_handles_with_the_names() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 200);
    let (mut has_names, mut recalls) = (true, 0);
    for (at, file) in (1..).zip(&files) {
        let operation = unlink(&dir, &format!("Name {at}"), false);
        let (number, mut recalled) = walk.ask(operation.clone());
        let of_others = recalled.iter().filter(|it| it.file != *file && it.file != dir);
        let handles = of_others.filter(|it| it.field == Field::Handles).count();
        let all_names = recalled.iter().any(|it| it.file == dir && it.field == Field::Children);
        assert!(!has_names || all_names || handles == 0, "file {at}: {recalled:?}");
        while !recalled.is_empty() {
            recalls += 1;
            has_names &= !recalled.iter().any(|it| it.file == dir && it.field == Field::Children);
            walk.world.log(walk.maker, releasing(recalled));
            recalled = walk.world.recalled(walk.maker);
        }
        assert!(walk.world.grants(walk.walker, number).is_some(), "file {at}");
        assert_eq!(walk.world.update(walk.walker, operation), Ok(()), "file {at}");
    }
    assert!(!has_names && recalls < 24, "{recalls} recalls");
}

#[test]
fn a_walk_is_part_of_the_state() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 32);
    files.iter().take(2).for_each(|file| walk.stat(file));
    walk.world.restart();
    files.iter().for_each(|file| walk.stat(file));
    assert_eq!(walk.recalls, 4);
}

/// A tree of small directories, in each of which few names are changed.
#[test]
fn a_session_that_removes_a_tree_is_given_the_rest_of_the_subtree() {
    let mut walk = Walk::new();
    let top = directory(&mut walk, 1);
    let dirs = walk.make(&top, FileKind::Directory, 1, 20);
    let trees: Vec<_> = dirs.iter().map(|dir| (dir, walk.make(dir, FileKind::Regular, 1, 12))).collect();
    let files: usize = trees.iter().map(|(_, files)| files.len()).sum();
    for (dir, files) in &trees {
        walk.stat(dir);
        for (at, _) in (1..).zip(files) {
            let (number, mut recalled) = walk.ask(lookup(dir, &format!("Name {at}")));
            while !recalled.is_empty() {
                walk.world.log(walk.maker, releasing(recalled));
                recalled = walk.world.recalled(walk.maker);
            }
            assert!(walk.world.grants(walk.walker, number).is_some(), "file {at} of {dir}");
        }
        for (at, _) in (1..).zip(files) {
            let operation = unlink(dir, &format!("Name {at}"), false);
            let (number, mut recalled) = walk.ask(operation.clone());
            while !recalled.is_empty() {
                walk.world.log(walk.maker, releasing(recalled));
                recalled = walk.world.recalled(walk.maker);
            }
            assert!(walk.world.grants(walk.walker, number).is_some(), "file {at} of {dir}");
            assert_eq!(walk.world.update(walk.walker, operation), Ok(()), "file {at} of {dir}");
        }
    }
    assert!(10 * walk.recalls < files, "{} recalls of {files} files", walk.recalls);
}

/// The maker of a large directory removes what another session has looked at a moment ago. It is
/// given all names with the first one, and has to ask for handles only.
#[test]
fn a_session_removes_what_another_one_has_looked_at() {
    let mut walk = Walk::new();
    let dir = directory(&mut walk, 1);
    let files = walk.make(&dir, FileKind::Regular, 1, 1_020);
    for (at, file) in (1..).zip(&files) {
        if !walk.seen.contains(file) {
            let (number, recalled) = walk.ask(lookup(&dir, &format!("Name {at}")));
            walk.world.release(walk.maker, recalled);
            let grants = walk.world.grants(walk.walker, number).expect("granted");
            walk.take_in(grants);
        }
    }
    std::mem::swap(&mut walk.maker, &mut walk.walker);
    let (mut recalls, mut granted) = (0, 0);
    for at in 1..=100 {
        let operation = unlink(&dir, &format!("Name {at}"), false);
        let (number, mut recalled) = walk.ask(operation.clone());
        while !recalled.is_empty() {
            recalls += 1;
            walk.world.log(walk.maker, releasing(recalled));
            recalled = walk.world.recalled(walk.maker);
        }
        let grants = walk.world.grants(walk.walker, number).expect("granted");
        // Otherwise it held all that it needed, and would not have asked.
        let mut fields = grants.iter().flat_map(|grant| &grant.fields);
        granted += usize::from(fields.any(|(field, _)| *field != Field::Children));
        assert_eq!(walk.world.update(walk.walker, operation), Ok(()), "file {at}");
    }
    assert!(recalls < 16 && granted < 16, "{recalls} recalls and {granted} grants");
}
