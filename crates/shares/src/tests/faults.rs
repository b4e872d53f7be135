//! The numbered faults of the earlier code (leasedb), and other single situations.

use std::{fs, io::ErrorKind, time::Duration};

use super::{
    ME, Medium, World, body, check_quiet, everywhere, id, new_share, release_now,
    trouble::{DELETE, Fault, PLACE, WRITE},
};
use crate::{AccountId, Damage, Deletion, Health, ReadError, Refusal, StoreError};

everywhere! {
    fault_1_a_failed_write_leaves_nothing,
    fault_1_deletion_of_a_failed_write_is_retried_until_it_is_confirmed,
    fault_2_a_vanished_share_keeps_its_row_and_leases_and_may_be_stored_again,
    fault_3_a_corrupt_share_is_quarantined_and_replaced,
    a_failed_repair_leaves_the_share_in_quarantine,
    fault_4_storing_what_is_there_takes_a_lease,
    fault_7_what_was_interrupted_is_deleted_at_restart,
    fault_8_deleting_a_share_deletes_no_other,
    fault_12_deletion_waits_for_the_grace_period,
    a_lease_is_never_shortened,
    a_sweep_drops_what_was_not_renewed,
    reads_are_bounded_by_the_share,
    the_reaper_thread_deletes_by_itself,
    what_is_going_is_not_served_although_its_file_is_still_there_and_open,
}

fn fault_1_a_failed_write_leaves_nothing(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.disk.set_fault_among(WRITE, 1, Fault::Fail(ErrorKind::StorageFull));
    let error = running.store(&[(id(1), &body(1)), (id(2), &body(2))], ME).unwrap_err();
    // An object store does not run full. The room on a disk is free at once, and the rows after the
    // reaper's pass.
    if on == Medium::Disk {
        assert!(matches!(error, StoreError::Full), "{error}");
        assert_eq!(world.files(), (vec![], 0));
    }
    assert!(matches!(running.server.read(&id(1), 0, 1), Err(ReadError::NotFound(_))));
    running.server.reap().unwrap();
    check_quiet(&world, &running);
    assert_eq!(running.server.stored().unwrap().shares, 0);
}

fn fault_1_deletion_of_a_failed_write_is_retried_until_it_is_confirmed(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.disk.set_fault_among(PLACE, 0, Fault::Lost);
    running.store(&[(id(1), &body(1))], ME).unwrap_err();
    assert_eq!(world.files().0, [id(1)]);
    running.disk.set_fault_among(DELETE, 0, Fault::Fail(ErrorKind::Other));
    running.server.reap().unwrap_err();
    assert_eq!(world.files().0, [id(1)]);
    let refused = running.store(&[(id(1), &body(1))], ME).unwrap_err();
    assert!(matches!(refused, StoreError::Refused { why: Refusal::Going, .. }), "{refused}");
    assert!(matches!(running.server.read(&id(1), 0, 1), Err(ReadError::Going(_))));
    // The first deletion succeeds, and its answer is lost. The second finds nothing, which counts
    // as success.
    running.disk.set_fault_among(DELETE, 0, Fault::Lost);
    running.server.reap().unwrap_err();
    assert_eq!(world.files().0, []);
    running.server.reap().unwrap();
    check_quiet(&world, &running);
    running.store(&[(id(1), &body(1))], ME).unwrap();
    assert_eq!(running.read_all(&id(1)).unwrap(), body(1));
}

fn fault_2_a_vanished_share_keeps_its_row_and_leases_and_may_be_stored_again(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(6), &body(6)), (id(5), &body(5))], ME).unwrap();
    world.remove_file(&id(6));
    let missing = running.read_all(&id(6)).unwrap_err();
    assert!(matches!(missing, ReadError::Damaged { damage: Damage::Missing, .. }), "{missing}");
    let row = running.server.share(&id(6)).unwrap().unwrap();
    assert_eq!((row.health, row.leases), (Health::Missing, 1));
    assert_eq!(running.server.lease(ME, &[id(5), id(6)], None).unwrap(), [id(5)], "not held");
    let running = {
        drop(running);
        world.open()
    };
    assert!(matches!(running.read_all(&id(6)), Err(ReadError::Damaged { damage: Damage::Quarantined, .. })));
    let other = running.store(&[(id(6), b"other bytes")], ME).unwrap_err();
    assert!(matches!(other, StoreError::Refused { why: Refusal::Different, .. }), "{other}");
    running.store(&[(id(6), &body(6))], ME).unwrap();
    assert_eq!(running.read_all(&id(6)).unwrap(), body(6));
    assert_eq!(running.server.lease(ME, &[id(6)], None).unwrap(), [id(6)]);
    check_quiet(&world, &running);
}

fn fault_3_a_corrupt_share_is_quarantined_and_replaced(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(6), &body(6))], ME).unwrap();
    assert_eq!(running.read_all(&id(6)).unwrap(), body(6), "the file is kept open now");
    let sound = world.file(&id(6)).unwrap();
    let mut bytes = sound.clone();
    *bytes.last_mut().unwrap() ^= 1;
    world.write_file(&id(6), &bytes);
    assert!(matches!(running.server.verify(&id(6)), Err(ReadError::Damaged { damage: Damage::Digest, .. })));
    assert!(matches!(running.read_all(&id(6)), Err(ReadError::Damaged { damage: Damage::Quarantined, .. })));
    running.store(&[(id(6), &body(6))], ME).unwrap();
    assert_eq!(running.read_all(&id(6)).unwrap(), body(6));
    // A share that is sound again by itself leaves quarantine.
    world.write_file(&id(6), &bytes[..140]);
    assert!(matches!(running.server.verify(&id(6)), Err(ReadError::Damaged { damage: Damage::Length, .. })));
    world.write_file(&id(6), &sound);
    assert_eq!(running.server.verify(&id(6)).unwrap(), 300);
    assert_eq!(running.read_all(&id(6)).unwrap(), body(6));
    check_quiet(&world, &running);
}

fn a_failed_repair_leaves_the_share_in_quarantine(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(6), &body(6))], ME).unwrap();
    world.remove_file(&id(6));
    running.server.verify(&id(6)).unwrap_err();
    running.disk.set_fault_among(WRITE, 0, Fault::Fail(ErrorKind::Other));
    running.store(&[(id(6), &body(6))], ME).unwrap_err();
    running.server.reap().unwrap();
    assert!(matches!(running.read_all(&id(6)), Err(ReadError::Damaged { .. })));
    assert_eq!(running.server.share(&id(6)).unwrap().unwrap().leases, 1);
    running.store(&[(id(6), &body(6))], ME).unwrap();
    check_quiet(&world, &running);
}

fn fault_4_storing_what_is_there_takes_a_lease(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let other = running.server.account("machine 2").unwrap();
    assert_eq!(running.server.account("machine 2").unwrap(), other);
    assert!(other > AccountId::STARTER);
    running.store(&[(id(1), &body(1))], ME).unwrap();
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], other).unwrap();
    release_now(&running, &[id(1)]);
    running.server.reap().unwrap();
    assert_eq!(running.read_all(&id(1)).unwrap(), body(1));
    assert_eq!(running.server.leases_of(&id(1)).unwrap()[0].account, other);
    check_quiet(&world, &running);
    running.server.release_all(&[id(1)], Deletion::AtOnce).unwrap();
    running.server.reap().unwrap();
    assert!(matches!(running.read_all(&id(1)), Err(ReadError::NotFound(_))));
    check_quiet(&world, &running);
}

fn fault_7_what_was_interrupted_is_deleted_at_restart(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1))], ME).unwrap();
    // The row says coming, the file is in place.
    running.disk.set_fault_among(PLACE, 0, Fault::CutAfter);
    running.store(&[(id(2), &body(2))], ME).unwrap_err();
    drop(running);
    assert_eq!(world.files().0.len(), 2);
    let running = world.open();
    assert!(matches!(running.server.read(&id(2), 0, 1), Err(ReadError::Going(_))));
    running.server.reap().unwrap();
    check_quiet(&world, &running);
    // After going was committed: the row says going, the file is in place.
    release_now(&running, &[id(1)]);
    running.disk.set_fault_among(DELETE, 0, Fault::Cut);
    running.server.reap().unwrap_err();
    drop(running);
    assert_eq!(world.files().0, [id(1)]);
    let running = world.open();
    assert_eq!(running.server.lease(ME, &[id(1)], None).unwrap(), []);
    running.server.reap().unwrap();
    check_quiet(&world, &running);
    assert_eq!(running.server.stored().unwrap().shares, 0);
}

fn fault_8_deleting_a_share_deletes_no_other(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let ids: Vec<_> = [1, 10, 100, 16, 256].map(id).into();
    for (id, n) in ids.iter().zip(0..) {
        running.store(&[(*id, &body(n))], ME).unwrap();
    }
    release_now(&running, &ids[..1]);
    running.server.reap().unwrap();
    let mut rest = ids[1..].to_vec();
    rest.sort();
    assert_eq!(world.files().0, rest);
}

fn fault_12_deletion_waits_for_the_grace_period(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1)), (id(2), &body(2)), (id(3), &body(3))], ME).unwrap();
    running.server.release(ME, &[id(1), id(2)], Deletion::AfterGrace).unwrap();
    world.advance(99);
    running.server.reap().unwrap();
    assert_eq!(running.server.lease(ME, &[id(1), id(2)], None).unwrap().len(), 2, "came back in time");
    running.server.release(ME, &[id(1), id(2)], Deletion::AfterGrace).unwrap();
    running.server.release_all(&[id(2)], Deletion::AtOnce).unwrap();
    world.advance(99);
    running.server.reap().unwrap();
    assert_eq!(world.files().0, [id(1), id(3)]);
    world.advance(1);
    running.server.reap().unwrap();
    assert_eq!(world.files().0, [id(3)]);
    check_quiet(&world, &running);
}

fn a_lease_is_never_shortened(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.server.store_many(vec![new_share(id(1), b"x")], ME, Some(2_000_000)).unwrap();
    let ends = |until| {
        assert_eq!(running.server.lease(ME, &[id(1), id(2)], until).unwrap(), [id(1)]);
        running.server.leases_of(&id(1)).unwrap()[0].expires_at
    };
    assert_eq!(ends(Some(1_500_000)), Some(2_000_000));
    assert_eq!(ends(Some(3_000_000)), Some(3_000_000));
    assert_eq!(ends(None), None);
    assert_eq!(ends(Some(4_000_000)), None);
}

fn a_sweep_drops_what_was_not_renewed(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1)), (id(2), &body(2)), (id(3), &body(3))], ME).unwrap();
    running.store(&[(id(3), &body(3))], AccountId(1)).unwrap();
    world.advance(50);
    let mark = world.now();
    running.server.lease(ME, &[id(2)], None).unwrap();
    assert_eq!(running.server.drop_unrenewed_since(ME, mark).unwrap(), 2);
    assert_eq!(running.server.usage(ME).unwrap().shares, 1);
    world.advance(100);
    running.server.reap().unwrap();
    assert_eq!(world.files().0, [id(2), id(3)]);
    check_quiet(&world, &running);
}

fn reads_are_bounded_by_the_share(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), b"0123456789"), (id(2), b"")], ME).unwrap();
    assert_eq!(running.server.read(&id(1), 3, 4).unwrap(), b"3456");
    assert_eq!(running.server.read(&id(1), 10, 0).unwrap(), b"");
    assert_eq!(running.server.read(&id(2), 0, 0).unwrap(), b"");
    for (at, length) in [(0, 11), (10, 1), (11, 0), (u32::MAX, 1), (1, u32::MAX)] {
        assert!(matches!(running.server.read(&id(1), at, length), Err(ReadError::Beyond { of: 10, .. })));
    }
    assert!(matches!(running.server.read(&id(3), 0, 1), Err(ReadError::NotFound(_))));
}

fn the_reaper_thread_deletes_by_itself(on: Medium) {
    let mut world = World::on(on);
    world.grace = Duration::ZERO;
    drop(world.open());
    let server = world.serve(world.settings());
    server.store_many(vec![new_share(id(1), b"x"), new_share(id(2), b"y")], ME, None).unwrap();
    server.release(ME, &[id(1)], Deletion::AfterGrace).unwrap();
    for _ in 0..1000 {
        if server.stored().unwrap().shares == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(world.files().0, [id(2)]);
}

/// Run as root: `cargo test -p shares -- --ignored full_disk`.
#[test]
#[ignore = "mounts a file system of 6 MiB, which needs root"]
fn a_full_disk_is_reported_and_deleting_makes_room_again() {
    let world = World::new();
    fs::create_dir(world.dir()).unwrap();
    let mount = |arguments: &[&str], command: &str| {
        let status = std::process::Command::new(command).args(arguments).arg(world.dir()).status().unwrap();
        assert!(status.success(), "{command}");
    };
    mount(&["-t", "tmpfs", "-o", "size=6m", "leasehold-test"], "mount");
    {
        let running = crate::ShareServer::open(&world.dir(), world.settings()).unwrap();
        for _ in 0..3 {
            let mut stored = Vec::new();
            let error = loop {
                let next = id(stored.len() as u64);
                match running.store_many(vec![new_share(next, &[7; 300_000])], ME, None) {
                    Ok(()) => stored.push(next),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, StoreError::Full), "{error}");
            running.reap().unwrap();
            assert!(stored.len() > 3);
            assert_eq!(world.files(), (sorted(&stored), 0));
            for each in &stored {
                assert_eq!(running.read(each, 0, 300_000).unwrap(), [7; 300_000]);
            }
            running.release(ME, &stored, Deletion::AtOnce).unwrap();
            running.reap().unwrap();
            assert_eq!(running.stored().unwrap().shares, 0);
        }
    }
    mount(&[], "umount");
}

fn sorted(ids: &[crate::ShareId]) -> Vec<crate::ShareId> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids
}

fn what_is_going_is_not_served_although_its_file_is_still_there_and_open(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1))], ME).unwrap();
    assert_eq!(running.read_all(&id(1)).unwrap(), body(1));
    release_now(&running, &[id(1)]);
    assert_eq!(running.read_all(&id(1)).unwrap(), body(1), "not going yet");
    running.disk.set_fault_among(DELETE, 0, Fault::Fail(ErrorKind::Other));
    running.server.reap().unwrap_err();
    assert_eq!(world.files().0, [id(1)]);
    assert!(matches!(running.read_all(&id(1)), Err(ReadError::Going(_))));
    assert!(matches!(running.server.verify(&id(1)), Err(ReadError::Going(_))));
    assert_eq!(running.server.lease(ME, &[id(1)], None).unwrap(), []);
    running.server.reap().unwrap();
    assert!(matches!(running.read_all(&id(1)), Err(ReadError::NotFound(_))));
}
