//! Work that is too long for one turn, and equal runs.

use crate::support::*;
use directory::{Directory, MemoryStore};
use ident::FileId;
use namespace::{Error, FileKind, Place};
use wire::LogEntry;

const ROOT: FileId = FileId::root();

#[test]
fn a_file_with_many_extents_dies_in_bounded_steps() {
    let mut world = World::new();
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let op = world.create(session, &ROOT, "big", FileKind::Regular, n);
    let file = made(&op);
    assert_eq!(world.update(session, op.clone()), Ok(()));
    let count = 5000u32;
    let put = (0..count).map(|i| {
        let mut extent = extent(u64::from(i) * 16, 16, share(1));
        if i % 2 == 0 {
            extent.piece.place = Place::Inline(vec![0; 32].into());
        }
        extent
    });
    assert_eq!(
        world.update(session, publish(&file, 1, u64::from(count) * 16, extents(put.collect(), true))),
        Ok(())
    );
    let rows = world.store.rows.len();
    assert_eq!(world.update(session, unlink(&ROOT, "big", false)), Ok(()));
    assert!(world.again);
    assert!(rows - world.store.rows.len() < 600, "not all at once");
    assert_eq!(world.server.status(world.now).files, 1);
    // Its identifier is not free before its rows are gone, even if a client claims so.
    let again = create(
        &ROOT,
        "again",
        FileKind::Regular,
        n,
        match op {
            namespace::Operation::Create(namespace::operation::Create { new, .. }) => new.ino,
            _ => unreachable!(),
        },
    );
    assert_eq!(world.update(session, again), Err(Error::Invalid));
    let steps = world.settle();
    assert!((8..=12).contains(&steps), "{steps} steps");
    assert!(world.store.rows.len() < rows - 5000);
    assert_eq!(world.shares.last(), Some(&directory::ShareWork::Drop(share(1))));
}

#[test]
fn many_orphans_are_looked_at_in_bounded_steps() {
    let mut world = World::new();
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let mut entries = Vec::new();
    for i in 0..600 {
        let op = world.create(session, &ROOT, &format!("{i}"), FileKind::Regular, n.min(2) + i);
        entries.push(update(op));
        entries.push(update(unlink(&ROOT, &format!("{i}"), true)));
    }
    // Integers are given out as they are asked for.
    while world.server.status(world.now).files < 601 {
        world.send(session, wire::ToServer::Reserve { dir: ROOT });
        let Some(wire::ToClient::Reserved { end, .. }) = world.told(session).pop() else { panic!() };
        if end > 700 {
            assert_eq!(world.log(session, std::mem::take(&mut entries)), []);
        }
    }
    world.open(1, 2);
    let steps = world.settle();
    assert!((3..=5).contains(&steps), "{steps} steps");
    assert_eq!(world.server.status(world.now).files, 1);
}

/// A run of some length, from one seed.
fn run(seed: u64) -> (MemoryStore, u64) {
    let mut world = World::new();
    let sessions = [world.open(1, 1), world.open(2, 1)];
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for positions in 2..152 {
        let who = draw(2) as usize;
        let session = sessions[who];
        let name = format!("f{}", draw(6));
        let mode = [wire::AskMode::Lease, wire::AskMode::Ship, wire::AskMode::Report][draw(3) as usize];
        let op = match draw(4) {
            0 => world.create(session, &ROOT, &name, FileKind::Regular, positions),
            1 => unlink(&ROOT, &name, false),
            2 => rename(&ROOT, &name, &ROOT, &format!("f{}", draw(6)), positions),
            _ => lookup(&ROOT, &name),
        };
        let mode = if op.is_update() && mode == wire::AskMode::Report { wire::AskMode::Lease } else { mode };
        world.ask(session, op.clone(), vec![], mode);
        // A session may have to release leases for the server's own work, too.
        for holder in [sessions[1 - who], session] {
            let answers = world.told(holder).into_iter().flat_map(|message| match message {
                wire::ToClient::Recall { leases, .. } => releasing(leases),
                wire::ToClient::Flush { number, .. } => vec![LogEntry::Flushed { number }],
                _ => Vec::new(),
            });
            let answers: Vec<LogEntry> = answers.collect();
            if !answers.is_empty() {
                world.log(holder, answers);
            }
        }
        if mode == wire::AskMode::Lease && op.is_update() {
            world.log(session, vec![update(op)]);
        }
        world.now = world.now.after_ms(draw(2000));
    }
    world.settle();
    (world.store, world.server.digest())
}

#[test]
fn two_equal_runs_give_equal_bytes_and_digests() {
    let mut digests = Vec::new();
    for seed in 0..8 {
        let (one, other) = (run(seed), run(seed));
        assert_eq!(one, other);
        assert!(Directory::open(&one.0, wire::Versions::KNOWN).is_ok());
        digests.push(one.1);
    }
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 8, "different runs differ");
}
