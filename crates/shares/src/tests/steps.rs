//! Every step of storing and deleting, with a failure or a power cut at it.

use std::{collections::BTreeMap, io::ErrorKind};

use super::{
    ME, Medium, Running, World, body, check_quiet, everywhere, id,
    trouble::{Fault, PLACE},
};
use crate::{Deletion, ShareId, StoreError};

everywhere! {
    the_scenario_has_every_kind_of_step,
    power_lost_at_any_step_loses_nothing_acknowledged_and_leaves_nothing_behind,
    a_failure_at_any_step_is_reported_and_cleared_away,
    power_lost_while_recovering_is_recovered_from,
    power_lost_while_discovering_is_recovered_from,
}

/// The acknowledged results: `true`, the share is stored and leased; `false`, it was released.
type Acknowledged = BTreeMap<ShareId, bool>;

/// Stores two batches, stores some again, releases some, deletes them, and stores one of those
/// anew. It stops at a power cut and goes on after failures.
fn scenario(running: &Running, acknowledged: &mut Acknowledged) -> Result<(), StoreError> {
    let store = |acknowledged: &mut Acknowledged, numbers: &[u64]| {
        let bodies: Vec<Vec<u8>> = numbers.iter().map(|n| body(*n)).collect();
        let shares: Vec<(ShareId, &[u8])> =
            numbers.iter().map(|n| id(*n)).zip(bodies.iter().map(|b| &b[..])).collect();
        let mut result = running.store(&shares, ME);
        if result.is_err() && !running.disk.is_dead() {
            // The failure was momentary: after the cleanup the same upload must succeed.
            let _ = running.server.reap();
            running.server.reap().unwrap();
            result = running.store(&shares, ME);
        }
        result.map(|()| acknowledged.extend(shares.iter().map(|(id, _)| (*id, true))))
    };
    store(acknowledged, &[1, 2, 3])?;
    store(acknowledged, &[3, 4])?;
    let gone = [id(1), id(4)];
    // The effect of a release is unknown until its acknowledgement.
    for each in gone {
        acknowledged.remove(&each);
    }
    if running.server.release(ME, &gone, Deletion::AtOnce).is_err() {
        running.server.release(ME, &gone, Deletion::AtOnce)?;
    }
    acknowledged.extend(gone.map(|id| (id, false)));
    let _ = running.server.reap();
    let _ = running.server.reap();
    acknowledged.remove(&gone[0]);
    store(acknowledged, &[1])
}

fn check(world: &World, running: &Running, acknowledged: &Acknowledged, what: &str) {
    for _ in 0..2 {
        running.server.reap().unwrap();
    }
    for (id, stored) in acknowledged {
        let share = running.server.share(id).unwrap();
        if *stored {
            let number = u64::from_be_bytes(id.0[8..].try_into().unwrap());
            assert_eq!(running.read_all(id).unwrap(), body(number), "{what}");
            assert_eq!(share.unwrap().leases, 1, "{what}");
        } else {
            assert_eq!(share, None, "{what}");
        }
    }
    check_quiet(world, running);
    running
        .server
        .for_each_share(|share| {
            running.server.verify(&share.id).unwrap();
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
}

fn steps_of_scenario(on: Medium) -> Vec<&'static str> {
    let world = World::on(on);
    let running = world.open();
    let opening = running.disk.steps().len();
    scenario(&running, &mut Acknowledged::new()).unwrap();
    running.disk.steps().split_off(opening)
}

fn the_scenario_has_every_kind_of_step(on: Medium) {
    let steps = steps_of_scenario(on);
    let kinds: &[&str] = match on {
        Medium::Disk => &["commit", "committed", "write", "sync", "rename", "unlink"],
        _ => &["commit", "committed", "get", "put", "delete"],
    };
    for step in kinds {
        assert!(steps.contains(step), "{step}");
    }
}

fn power_lost_at_any_step_loses_nothing_acknowledged_and_leaves_nothing_behind(on: Medium) {
    for at in on.some_of(steps_of_scenario(on).len()) {
        for seed in 0..if on == Medium::Foreign { 1 } else { 4 } {
            let world = World::on(on);
            let running = world.open();
            running.disk.set_fault(at, if seed % 2 == 0 { Fault::Cut } else { Fault::CutAfter });
            let mut acknowledged = Acknowledged::new();
            let done = scenario(&running, &mut acknowledged);
            assert!(running.disk.is_dead() && (done.is_err() || at > 0));
            let what = format!("cut at step {at}, {:?}, seed {seed}", running.disk.steps().last());
            running.cut(seed);
            check(&world, &world.open(), &acknowledged, &what);
        }
    }
}

fn a_failure_at_any_step_is_reported_and_cleared_away(on: Medium) {
    for at in on.some_of(steps_of_scenario(on).len()) {
        for fault in [Fault::Fail(ErrorKind::StorageFull), Fault::Fail(ErrorKind::Other), Fault::Lost] {
            let world = World::on(on);
            let running = world.open();
            running.disk.set_fault(at, fault);
            let mut acknowledged = Acknowledged::new();
            let what = format!("{fault:?} at step {at}");
            scenario(&running, &mut acknowledged).unwrap_or_else(|e| panic!("{what}: {e}"));
            check(&world, &running, &acknowledged, &what);
            drop(running);
            check(&world, &world.open(), &acknowledged, &what);
        }
    }
}

fn power_lost_while_recovering_is_recovered_from(on: Medium) {
    // The upload is interrupted with files in place: the database still says coming.
    let interrupted = |world: &World| {
        let running = world.open();
        running.store(&[(id(7), &body(7))], ME).unwrap();
        running.disk.set_fault_among(PLACE, 1, Fault::CutAfter);
        running.store(&[(id(8), &body(8)), (id(9), &body(9))], ME).unwrap_err();
        running.cut(3);
    };
    let world = World::on(on);
    interrupted(&world);
    let running = world.open();
    running.server.reap().unwrap();
    let steps = running.disk.steps().len();
    assert!(steps > 3);
    for at in on.some_of(steps) {
        let world = World::on(on);
        interrupted(&world);
        let Ok(running) = world.try_open(Some((at, Fault::Cut))) else { continue };
        let _ = running.server.reap();
        running.cut(at as u64);
        check(&world, &world.open(), &[(id(7), true)].into(), &format!("recovery cut at {at}"));
    }
}

fn power_lost_while_discovering_is_recovered_from(on: Medium) {
    let begin = |world: &World| {
        let running = world.open();
        running.store(&[(id(1), &body(1)), (id(2), &body(2))], ME).unwrap();
        drop(running);
        std::fs::remove_file(world.dir().join("leases.sqlite")).unwrap();
    };
    let world = World::on(on);
    begin(&world);
    let steps = world.open().disk.steps().len();
    for at in on.some_of(steps) {
        let world = World::on(on);
        begin(&world);
        if let Ok(running) = world.try_open(Some((at, Fault::Cut))) {
            running.server.finish_discovery().unwrap_err();
            running.cut(at as u64);
        }
        check(
            &world,
            &world.open(),
            &[(id(1), true), (id(2), true)].into(),
            &format!("discovery cut at {at}"),
        );
    }
}
