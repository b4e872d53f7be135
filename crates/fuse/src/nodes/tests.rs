use super::*;
use crate::syscall::SystemCall;
use namespace::Timestamp;

pub(crate) fn stat(ino: u64, mode: u16) -> Stat {
    let now = Timestamp::default();
    let kind = FileKind::Regular;
    let attributes =
        Attributes { kind, mode, uid: 0, gid: 0, links: 1, ino, rdev: 0, ctime: now, btime: now, atime: now };
    Stat { attributes, size: 0, occupied: 0, mtime: now }
}

#[test]
fn a_node_lives_until_all_its_lookups_are_forgotten() {
    let (nodes, file) = (Nodes::new(FileId::root()), FileId::root().child(9));
    for _ in 0..3 {
        assert_eq!(nodes.give(&file, &stat(5, 0)), Ok(5));
    }
    assert_eq!(nodes.forget(5, 2), None);
    assert_eq!((nodes.file(5), &nodes.of(&file)[..]), (Ok(file.clone()), &[5][..]));
    assert_eq!(nodes.forget(5, 1), None);
    assert_eq!((nodes.file(5), &nodes.of(&file)[..]), (Err(Errno::STALE), &[][..]));
    assert_eq!(nodes.forget(ROOT, u64::MAX), None);
    assert_eq!(nodes.file(ROOT), Ok(FileId::root()));
    assert_eq!(nodes.all(), [ROOT]);
}

#[test]
fn a_node_is_one_file_only() {
    let nodes = Nodes::new(FileId::root());
    assert_eq!(nodes.give(&FileId::root().child(9), &stat(5, 0)), Ok(5));
    assert_eq!(nodes.give(&FileId::root().child(8), &stat(5, 0)), Err(Errno::IO));
    assert_eq!(nodes.give(&FileId::root().child(7), &stat(ROOT, 0)), Err(Errno::IO));
    assert_eq!(nodes.give(&FileId::root(), &stat(77, 0)), Ok(ROOT));
}

fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}

#[test]
fn an_entry_is_given_until_it_is_taken_back_and_has_arrived_before() {
    let nodes = Nodes::new(FileId::root());
    let readme = label("readme");
    assert!(!nodes.has_entries(ROOT, None));
    ["README", "other"].iter().for_each(|name| _ = nodes.give_entry(ROOT, &label(name), nodes.since(ROOT)));
    let entries = nodes.entries(ROOT, Some(&readme));
    assert_eq!(entries.iter().map(|(label, _)| label.to_string()).collect::<Vec<_>>(), ["README"]);
    nodes.taken_back(ROOT, &entries, true);
    assert!(!nodes.has_entries(ROOT, Some(&readme)), "nobody waits for it again");
    let entries = nodes.entries(ROOT, Some(&readme));
    assert_eq!(entries.len(), 1, "it may be on its way, and is taken back once more");
    nodes.taken_back(ROOT, &entries, false);
    assert!(nodes.entries(ROOT, Some(&readme)).is_empty());
    assert!(!nodes.has_entries(ROOT, Some(&readme)) && nodes.has_entries(ROOT, None));
    assert_eq!(nodes.given.load(Relaxed), 1);
}

#[test]
fn the_oldest_entries_go_when_there_are_too_many() {
    let nodes = Nodes::new(FileId::root());
    let mut dir = stat(5, 0o755);
    dir.attributes.kind = FileKind::Directory;
    nodes.give(&FileId::root().child(9), &dir).unwrap();
    for n in 0..=GIVEN_MAX {
        let dir = if n % 2 == 0 { ROOT } else { 5 };
        nodes.give_entry(dir, &label(&n.to_string()), nodes.since(dir));
    }
    let old = nodes.crowded().unwrap();
    let count: usize = old.iter().map(|(_, entries)| entries.len()).sum();
    assert!(old.len() == 2 && count.abs_diff(GIVEN_MAX / 2) < 3, "{count}");
    old.iter().for_each(|(dir, entries)| nodes.taken_back(*dir, entries, false));
    let is_given = |n: usize| nodes.has_entries(ROOT, Some(&label(&n.to_string())));
    assert!(!is_given(0) && is_given(GIVEN_MAX));
    assert_eq!(nodes.forget(5, 1), None);
    assert_eq!(
        nodes.given.load(Relaxed),
        nodes.entries(ROOT, None).len(),
        "what goes with a directory counts no more"
    );
    nodes.close();
    assert!(nodes.crowded().is_none());
}

#[test]
fn a_directory_that_was_removed_has_no_link_and_its_kind() {
    let nodes = Nodes::new(FileId::root());
    let mut dir = stat(5, 0o750);
    dir.attributes.kind = FileKind::Directory;
    nodes.give(&FileId::root().child(9), &dir).unwrap();
    nodes.give(&FileId::root().child(8), &stat(6, 0o644)).unwrap();
    let left = nodes.removed_directory(5).unwrap().attributes;
    assert_eq!((left.kind, left.mode, left.ino, left.links), (FileKind::Directory, 0o750, 5, 0));
    assert_eq!((nodes.removed_directory(6), nodes.removed_directory(7)), (None, None));
}

#[test]
fn a_directory_is_contended_after_an_entry_was_invalidated() {
    let nodes = Nodes::new(FileId::root());
    assert!(!nodes.is_contended(7));
    nodes.contend(7);
    assert!(nodes.is_contended(7) && !nodes.is_contended(8));
}

#[test]
fn a_size_that_was_reported_passes_until_the_kernel_may_have_another() {
    let nodes = Nodes::new(FileId::root());
    nodes.pass(7, &Stat { size: 3, ..stat(7, 0) });
    assert_eq!((nodes.ping_pong(7), nodes.ping_pong(8)), (Some(PingPong::Size(3)), None));
    nodes.resize(7);
    assert_eq!(nodes.ping_pong(7), None);
}

#[test]
fn what_the_kernel_was_told_is_compared() {
    let (nodes, file) = (Nodes::new(FileId::root()), FileId::root().child(9));
    nodes.give(&file, &stat(5, 0o755)).unwrap();
    assert!(nodes.is_as_told(5, &stat(5, 0o755)) && !nodes.is_as_told(5, &stat(5, 0o700)));
    nodes.see(5, &stat(5, 0o700));
    assert!(!nodes.is_as_told(5, &stat(5, 0o700)), "seen and not told");
    nodes.tell(5, &stat(5, 0o700));
    assert!(nodes.is_as_told(5, &stat(5, 0o700)) && !nodes.is_as_told(6, &stat(6, 0o700)));
    let mut given_away = stat(5, 0o700);
    given_away.attributes.uid = 7;
    assert!(!nodes.is_as_told(5, &given_away));
}

#[test]
fn set_id_bits_are_doubted_after_an_invalidation() {
    let (nodes, file) = (Nodes::new(FileId::root()), FileId::root().child(9));
    nodes.give(&file, &stat(5, 0o755)).unwrap();
    assert!(!nodes.may_have_setid(5));
    nodes.doubt(5);
    assert!(nodes.may_have_setid(5) && nodes.may_run(5));
    nodes.tell(5, &stat(5, 0o644));
    assert!(!nodes.may_have_setid(5) && !nodes.may_run(5));
    nodes.tell(5, &stat(5, 0o755));
    assert!(!nodes.may_have_setid(5) && nodes.may_run(5));
    nodes.tell(5, &stat(5, 0o4755));
    assert!(nodes.may_have_setid(5));
}

#[test]
fn a_file_that_lingers_is_let_go_with_its_last_lookup() {
    let (nodes, file) = (Nodes::new(FileId::root()), FileId::root().child(9));
    assert!(!nodes.linger(&file), "the kernel does not have it");
    for _ in 0..2 {
        nodes.give(&file, &stat(5, 0)).unwrap();
    }
    assert!(nodes.linger(&file));
    assert_eq!((nodes.forget(5, 1), nodes.forget(5, 1)), (None, Some(file.clone())));
    nodes.give(&file, &stat(5, 0)).unwrap();
    assert_eq!(nodes.forget(5, 1), None, "it was let go");
}

/// An entry that was expired has been expired under its new name as well. One that was not has not.
#[test]
fn an_entry_is_as_good_under_its_new_name_as_under_the_old() {
    let nodes = Nodes::new(FileId::root());
    let dir = place(&nodes, (ROOT, "dir"), 2, false);
    let [from, to, other] = ["From", "to", "other"].map(|name| Label::new(name.as_bytes()).unwrap());
    for label in [&from, &other] {
        assert!(nodes.give_entry(ROOT, label, nodes.since(ROOT)));
    }
    nodes.move_entry((ROOT, &to), (dir, &to));
    assert!(!nodes.has_entry(dir, &to), "the kernel has no such entry");
    let expire = |dir| nodes.taken_back(dir, &nodes.entries(dir, None), true);
    nodes.move_entry((ROOT, &from), (dir, &to));
    assert!(nodes.has_entries(dir, None) && nodes.has_entry(dir, &to));
    expire(ROOT);
    assert!(nodes.has_entries(dir, None), "another directory");
    nodes.move_entry((ROOT, &from), (dir, &to));
    assert!(nodes.has_entries(dir, None), "the entry that it replaces, if it does");
    expire(dir);
    nodes.move_entry((ROOT, &from), (dir, &to));
    nodes.move_entry((ROOT, &other), (dir, &other));
    assert!(!nodes.has_entries(dir, None));
    let told: Vec<bool> = nodes.entries(dir, None).iter().map(|(_, when)| when.was_told).collect();
    assert_eq!(told, [true; 2], "their answers may still arrive");
}

/// Gives the directory with this inode number, and returns its node. `can_splice`: the kernel
/// could move its entry.
fn place(nodes: &Nodes, at: (u64, &str), ino: u64, can_splice: bool) -> u64 {
    place_for(nodes, at, ino, can_splice, None)
}

/// The same for a system call of a thread.
fn place_for(
    nodes: &Nodes,
    (dir, name): (u64, &str),
    ino: u64,
    can_splice: bool,
    asks: Option<ThreadCall>,
) -> u64 {
    let mut stat = stat(ino, 0);
    stat.attributes.kind = FileKind::Directory;
    let (file, label) = (FileId::root().child(ino), Label::new(name.as_bytes()).unwrap());
    nodes.give_at((dir, &label), &file, &stat, true, |_| can_splice, || asks).unwrap().unwrap()
}

/// A thread that asks twice within one system call walks its path again, since the kernel could not
/// move its entry the first time. Linux shows the program a second failure.
#[test]
fn a_thread_that_asks_again_within_its_system_call_gets_a_node_of_its_own() {
    let call = |tid, number| Some((tid, SystemCall { number, arguments: [1, 2, 3] }));
    let moves = |second| {
        let nodes = Nodes::new(FileId::root());
        let to = place(&nodes, (ROOT, "to"), 3, true);
        assert_eq!(place(&nodes, (ROOT, "x"), 7, true), 7);
        assert_eq!(place_for(&nodes, (to, "x"), 7, true, call(1, 2)), 7);
        let again = place_for(&nodes, (to, "x"), 7, true, second);
        assert_eq!(place_for(&nodes, (to, "x"), 7, true, call(1, 2)), again, "it is there for certain");
        again
    };
    assert_eq!(moves(call(1, 2)), FIRST_FURTHER);
    for other in [call(2, 2), call(1, 3), None] {
        assert_eq!(moves(other), 7);
    }
}

#[test]
fn a_directory_that_the_kernel_cannot_move_gets_a_node_of_its_own() {
    let nodes = Nodes::new(FileId::root());
    let (from, to) = (place(&nodes, (ROOT, "from"), 2, false), place(&nodes, (ROOT, "to"), 3, false));
    assert_eq!((from, to, place(&nodes, (from, "x"), 7, false)), (2, 3, 7));
    assert_eq!(place(&nodes, (from, "x"), 7, false), 7, "it is where it was");
    assert_eq!(place(&nodes, (from, "y"), 7, false), 7, "within a directory the kernel can always move it");
    assert_eq!(place(&nodes, (to, "x"), 7, true), 7, "and so it can here");
    // The kernel may have failed to move it after all.
    let further = place(&nodes, (to, "x"), 7, false);
    assert_eq!((further, place(&nodes, (to, "x"), 7, false)), (FIRST_FURTHER, FIRST_FURTHER));
    assert_eq!((nodes.file(7), nodes.file(further)), (nodes.file(further), nodes.file(7)));
    let file = FileId::root().child(7);
    assert_eq!(nodes.of(&file)[..], [7, further]);
    // The kernel moves its own entry, and from then on the directory is there.
    let label = |name: &str| Label::new(name.as_bytes()).unwrap();
    nodes.moved((to, &label("x")), (from, &label("z")), false);
    assert_eq!(place(&nodes, (from, "z"), 7, false), further);
    assert_eq!(nodes.forget(further, 4), None);
    assert_eq!((&nodes.of(&file)[..], nodes.file(further)), (&[7][..], Err(Errno::STALE)));
    assert_eq!(nodes.forget(7, 9), None);
    assert_eq!(place(&nodes, (to, "x"), 7, false), 7, "what it has forgotten it has nowhere");
}

/// The directory is found by its number first, and then by its name, as `open_by_handle_at`
/// does.
#[test]
fn a_directory_that_the_kernel_has_by_a_handle_is_put_where_it_is_found() {
    let nodes = Nodes::new(FileId::root());
    let mut stat = stat(7, 0);
    stat.attributes.kind = FileKind::Directory;
    assert_eq!(nodes.give(&FileId::root().child(7), &stat), Ok(7));
    assert_eq!(place(&nodes, (ROOT, "x"), 7, false), 7);
    assert_eq!(place(&nodes, (9, "x"), 7, false), FIRST_FURTHER, "it is there now, and cannot be moved");
}

#[test]
fn the_kernel_moves_no_directory_into_itself() {
    let nodes = Nodes::new(FileId::root());
    let (above, below) = (place(&nodes, (ROOT, "a"), 2, false), place(&nodes, (2, "b"), 3, false));
    assert_eq!((above, below), (2, 3));
    // Another machine has swapped the two. A program in `b` comes to `a` from there.
    assert_eq!(place(&nodes, (below, "a"), 2, true), FIRST_FURTHER);
}
