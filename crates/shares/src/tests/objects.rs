//! The peculiarities of an object store: old lists, late answers and other users.

use std::{fs, io::ErrorKind, sync::atomic::Ordering};

use super::{
    ME, Medium, World, body, check_quiet, everywhere, id, release_now,
    trouble::{DELETE, Fault, PLACE},
};
use crate::{AccountId, Health, Location, OpenError, ShareServerSettings, content, server::SharedState};

everywhere! {
    a_list_that_is_old_loses_nothing_and_revives_nothing,
    a_list_that_is_old_leaves_no_share_of_a_restored_database_without_a_lease,
    what_is_put_later_than_its_deletion_is_a_stranger_and_goes_with_its_starter_lease,
    an_answer_that_is_lost_for_a_part_of_a_batch_fails_all_of_it,
    names_are_compared_whole,
    objects_belong_to_one_directory,
    a_claim_that_fails_or_whose_answer_is_lost_is_repeated_at_the_next_start,
}

fn set_stale(world: &World, stale: bool) {
    if let Some(outside) = world.outside() {
        outside.memory.stale.store(stale, Ordering::Relaxed);
    }
}

fn a_list_that_is_old_loses_nothing_and_revives_nothing(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], ME).unwrap();
    release_now(&running, &[id(2)]);
    running.server.reap().unwrap();
    running.store(&[(id(3), &body(3))], ME).unwrap();
    drop(running);
    fs::remove_file(world.dir().join("leases.sqlite")).unwrap();
    set_stale(&world, true);
    // The list has the second share, which is gone, and lacks the first and the third.
    let running = world.open();
    if on != Medium::Disk {
        assert_eq!(running.server.stored().unwrap().shares, 0);
    }
    running.server.reap().unwrap();
    assert_eq!(world.files().0, [id(1), id(3)]);
    for n in [1, 3] {
        assert_eq!(running.server.lease(ME, &[id(2), id(n)], None).unwrap(), [id(n)]);
        assert_eq!(running.read_all(&id(n)).unwrap(), body(n));
    }
    // A known share is not given up because a list lacks it.
    running.server.discover().unwrap();
    assert_eq!(running.server.share(&id(3)).unwrap().unwrap().health, Health::Ok);
    check_quiet(&world, &running);
}

fn a_list_that_is_old_leaves_no_share_of_a_restored_database_without_a_lease(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1))], ME).unwrap();
    release_now(&running, &[id(1)]);
    drop(running);
    let database = world.dir().join("leases.sqlite");
    let backup = fs::read(&database).unwrap();
    let running = world.open();
    running.server.lease(ME, &[id(1)], None).unwrap();
    drop(running);
    fs::write(&database, backup).unwrap();
    set_stale(&world, true);
    // By the old rows the share is unleased.
    let running = world.open();
    running.server.reap().unwrap();
    assert_eq!(running.read_all(&id(1)).unwrap(), body(1));
    let leases = running.server.leases_of(&id(1)).unwrap();
    assert_eq!(leases.iter().map(|lease| lease.account).collect::<Vec<_>>(), [AccountId::STARTER]);
}

fn what_is_put_later_than_its_deletion_is_a_stranger_and_goes_with_its_starter_lease(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.disk.set_fault_among(PLACE, 0, Fault::Fail(ErrorKind::TimedOut));
    running.store(&[(id(1), &body(1))], ME).unwrap_err();
    running.server.reap().unwrap();
    assert_eq!(world.files().0, []);
    world.deposit(1);
    running.server.discover().unwrap();
    assert_eq!(running.server.leases_of(&id(1)).unwrap()[0].account, AccountId::STARTER);
    for _ in 0..61 {
        world.advance(24 * 3600);
        running.server.expire().unwrap();
    }
    world.advance(100);
    running.server.reap().unwrap();
    assert_eq!(world.files().0, []);
    check_quiet(&world, &running);
}

fn an_answer_that_is_lost_for_a_part_of_a_batch_fails_all_of_it(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let bodies: Vec<_> = (0..5).map(|n| (id(n), body(n))).collect();
    let shares: Vec<_> = bodies.iter().map(|(id, body)| (*id, &body[..])).collect();
    running.disk.set_fault_among(PLACE, 2, Fault::Lost);
    running.store(&shares, ME).unwrap_err();
    running.disk.set_fault_among(DELETE, 2, Fault::Lost);
    running.server.reap().unwrap_err();
    running.server.reap().unwrap();
    assert_eq!(running.server.stored().unwrap().shares, 0);
    check_quiet(&world, &running);
    running.store(&shares, ME).unwrap();
    check_quiet(&world, &running);
}

/// Checks the hazard of names that begin others (leasedb, fault 8), for prefixes and for shares.
fn names_are_compared_whole(on: Medium) {
    let first = &World::on(on);
    let second = &first.neighbour("-2");
    let servers = [first, second].map(|world| {
        let running = world.open();
        running.store(&[(id(1), &body(1)), (id(256), &body(256))], ME).unwrap();
        running
    });
    release_now(&servers[0], &[id(1)]);
    servers[0].server.discover().unwrap();
    servers[0].server.reap().unwrap();
    assert_eq!(first.files().0, [id(256)]);
    assert_eq!(second.files().0.len(), 2);
    for (world, running) in [first, second].into_iter().zip(&servers) {
        check_quiet(world, running);
    }
}

fn objects_belong_to_one_directory(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1))], ME).unwrap();
    drop(running);
    if on == Medium::Disk {
        let wanted = Some("s3://elsewhere".parse().unwrap());
        let error =
            SharedState::open(&world.dir(), ShareServerSettings { content: wanted, ..world.settings() })
                .unwrap_err();
        assert!(matches!(error, OpenError::Elsewhere { .. }), "{error}");
        return;
    }
    let error = world.neighbour("").try_open(None).err().unwrap();
    assert!(matches!(error, OpenError::Taken { .. }), "{error}");
    // The place is recorded. It need not be given again, and no other is accepted.
    let record = fs::read_to_string(world.dir().join("content")).unwrap();
    let location = world.outside().unwrap().location.clone();
    assert!(record.starts_with(&format!("{location}\n")), "{record}");
    let elsewhere: Location = "s3://elsewhere".parse().unwrap();
    let store = world.outside().unwrap().store.clone();
    let opened = |wanted: Option<&Location>| {
        content::open(&world.dir(), wanted, |at| {
            assert_eq!(*at, location);
            Ok(store.clone())
        })
    };
    assert!(matches!(opened(Some(&elsewhere)), Err(OpenError::Elsewhere { .. })));
    let (backend, is_new) = opened(None).unwrap();
    assert!(!is_new && backend.open(&id(1)).is_ok());
    for damaged in ["", "s3://", "s3://a/b\n", "s3://a/b\nowner\nmine\n", "s3://a/b\nowner\nours\nmore"] {
        fs::write(world.dir().join("content"), damaged).unwrap();
        assert!(matches!(opened(None), Err(OpenError::Foreign { .. })), "{damaged:?}");
    }
}

fn a_claim_that_fails_or_whose_answer_is_lost_is_repeated_at_the_next_start(on: Medium) {
    for fault in [Fault::Cut, Fault::CutAfter, Fault::Lost, Fault::Fail(ErrorKind::Other)] {
        for at in 0..4 {
            let world = World::on(on);
            drop(world.try_open(Some((at, fault))));
            let running = world.open();
            running.store(&[(id(1), &body(1))], ME).unwrap();
            check_quiet(&world, &running);
        }
    }
}
