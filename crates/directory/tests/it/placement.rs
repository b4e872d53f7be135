//! Files in use are counted where there are several servers. The root server keeps pins, and the
//! last move of each region.

use crate::support::*;
use directory::{ACTIVE_MS, Input, MoveReason, Moved, Placement};
use ident::{FileId, ServerId};
use lease::{SessionId, Time};
use namespace::FileKind;
use wire::AskMode;

const ROOT: FileId = FileId::root();

fn id(path: &[u64]) -> FileId {
    path.iter().fold(ROOT, |id, n| id.child(*n))
}

/// Makes a directory with a file, in a session of its own.
fn uses(world: &mut World) -> (SessionId, FileId, FileId) {
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let dir = world.create(session, &ROOT, "dir", FileKind::Directory, n);
    let file = world.create(session, &made(&dir), "file", FileKind::Regular, 1);
    let (dir_id, file_id) = (made(&dir), made(&file));
    assert_eq!(world.log(session, vec![update(dir), update(file)]), []);
    (session, dir_id, file_id)
}

fn active(world: &World, now: Time) -> Vec<FileId> {
    let mut files = world.server.active(now, ACTIVE_MS).files().to_vec();
    files.sort();
    files
}

#[test]
fn with_one_server_nothing_is_counted() {
    let mut world = World::new();
    uses(&mut world);
    assert_eq!(active(&world, world.now), []);
}

#[test]
fn with_several_servers_files_are_counted_that_messages_name() {
    let mut world = World::new();
    world.input(Input::Found { number: 1, founder: 1 });
    let (session, dir, file) = uses(&mut world);
    assert_eq!(active(&world, world.now), [ROOT, dir, file.clone()]);
    world.now = world.now.after_ms(ACTIVE_MS);
    assert_eq!(active(&world, world.now).len(), 3);
    world.now = world.now.after_ms(1);
    assert_eq!(active(&world, world.now), []);
    world.ask(session, stat(&file), vec![], AskMode::Ship);
    assert_eq!(active(&world, world.now), [file]);
    // The counts are in memory alone.
    let digest = world.server.digest();
    world.restart();
    assert_eq!((active(&world, world.now), world.server.digest()), (vec![], digest));
}

/// Anybody could make a server look busy otherwise.
#[test]
fn a_session_that_is_over_counts_for_nothing() {
    let mut world = World::new();
    world.input(Input::Found { number: 1, founder: 1 });
    let (session, ..) = uses(&mut world);
    world.now = world.now.after_ms(ACTIVE_MS + 1);
    world.input(Input::NoMessage { session });
    world.ask(session, stat(&id(&[7, 8])), vec![], AskMode::Ship);
    assert_eq!(active(&world, world.now), []);
}

#[test]
fn pins_and_moves_survive_a_restart() {
    let mut root = World::new();
    assert_eq!(root.server.placement(&root.store), Placement::default());
    let moved = |to, why| Moved { to: ServerId(to), at: 1_800_000_000, why };
    let (first, then) = (moved(1, MoveReason::Balance), moved(2, MoveReason::Asked));
    let region = id(&[2, 3]);
    root.input(Input::Moved { region: region.clone(), moved: Some(first) });
    root.input(Input::Moved { region: id(&[4]), moved: Some(first) });
    root.input(Input::Pin { file: region.clone(), pinned: true });
    root.input(Input::Balance { on: false });
    root.restart();
    let found = root.server.placement(&root.store);
    assert_eq!(found.moved.into_iter().collect::<Vec<_>>(), [(region.clone(), first), (id(&[4]), first)]);
    assert_eq!((found.is_off, found.pins.into_iter().collect::<Vec<_>>()), (true, vec![region.clone()]));
    // It moves with all below it, so nothing is left to be said of that.
    root.input(Input::Moved { region: id(&[2]), moved: Some(then) });
    root.input(Input::Moved { region: id(&[4]), moved: None });
    root.input(Input::Pin { file: region, pinned: false });
    root.input(Input::Balance { on: true });
    let moved = [(id(&[2]), then)].into();
    assert_eq!(root.server.placement(&root.store), Placement { moved, ..Placement::default() });
    root.check();
}

#[test]
fn a_pin_keeps_what_is_in_it_and_around_it() {
    let placement = Placement { pins: [id(&[2, 3])].into(), ..Placement::default() };
    for (region, stays) in
        [(&[2][..], true), (&[2, 3], true), (&[2, 3, 4], true), (&[2, 4], false), (&[3], false), (&[], true)]
    {
        assert_eq!(placement.is_pinned(&id(region)), stays, "{region:?}");
    }
}
