//! Expirer, discovery, scrub and reaper: when they act, when they do not, and how they continue
//! after a restart.

use std::{fs, ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use super::{
    ME, Medium, Random, Running, World, body, check_quiet, everywhere, id, new_share, release_now,
    trouble::{DELETE, Fault, PLACE},
};
use crate::{
    AccountId, AccountKey, Damage, Deletion, Expiry, Health, Holds, Inventory, Process, ReadError, Refusal,
    ShareServer, ShareServerSettings, StoreError, Suspended, Uploaders, Usage, header::HEADER_BYTES,
    server::SharedState, share::file_name,
};

everywhere! {
    fault_5_what_comes_and_goes_during_discovery_is_neither_lost_nor_taken_for_a_stranger,
    fault_5_who_renews_in_time_wins_against_the_reaper,
    fault_6_discovered_shares_are_stable_and_leased,
    fault_9_nobody_deletes_what_he_holds_no_lease_on,
    fault_10_what_has_no_row_is_looked_for_on_the_disk,
    fault_11_deposits_are_taken_in_by_discovery_and_damaged_ones_kept_apart,
    nothing_is_deleted_before_discovery_is_through_and_it_goes_on_where_it_was,
    leases_of_the_clusters_own_accounts_end_when_they_say_and_those_of_others_when_a_policy_says,
    what_the_cluster_has_not_vouched_for_does_not_expire,
    an_inventory_says_how_all_that_is_stored_stands,
    a_cut_off_date_ends_leases_renewed_before_it_and_starter_leases_keep_their_time,
    the_expirer_goes_on_where_it_was_and_remembers_ten_passes,
    a_jump_of_the_clock_suspends_expiry_and_grace_until_somebody_confirms_it,
    a_clock_that_goes_back_deletes_nothing_early_and_keeps_nothing_for_ever,
    the_scrub_finds_what_has_rotted_and_goes_on_where_it_was,
    a_damaged_database_deletes_nothing_until_it_was_made_anew,
    the_threads_do_all_this_by_themselves,
    power_lost_at_any_step_of_expiring_and_scrubbing_is_recovered_from,
}

const DAY: u64 = 24 * 3600;

fn place(world: &World, n: u64) -> PathBuf {
    let name = file_name(&id(n));
    world.dir().join("shares").join(&name[..2]).join(&name)
}

/// Advances the clock day by day with a request each day, so that it does not jump.
fn days(world: &World, running: &Running, count: u64) {
    for _ in 0..count {
        world.advance(DAY);
        running.server.account("somebody").unwrap();
    }
}

fn fault_5_what_comes_and_goes_during_discovery_is_neither_lost_nor_taken_for_a_stranger(on: Medium) {
    let world = World::on(on);
    let server = world.serve(world.settings());
    let rounds = if on == Medium::Foreign { 1 } else { 30 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                server.discover().unwrap();
            }
        });
        for worker in 0..2 {
            let server = &server;
            scope.spawn(move || {
                let mut random = Random(worker);
                for _ in 0..150 {
                    let n = worker * 100 + random.below(10);
                    // An uploader that meets a deletion tries again.
                    let stored = || match server.store_many(vec![new_share(id(n), &body(n))], ME, None) {
                        Err(StoreError::Refused { why: Refusal::Going, .. }) => false,
                        stored => {
                            stored.unwrap();
                            true
                        }
                    };
                    while !stored() {
                        std::thread::yield_now();
                    }
                    let length = u32::try_from(body(n).len()).unwrap();
                    assert_eq!(server.read(&id(n), 0, length).unwrap(), body(n));
                    if random.chance(50) {
                        server.release(ME, &[id(n)], Deletion::AtOnce).unwrap();
                        server.reap().unwrap();
                        // While discovery is under way nothing is deleted. The next upload then
                        // leases the share again.
                    }
                }
            });
        }
    });
    server.discover().unwrap();
    assert_eq!(server.incidents().unwrap(), [], "nothing was taken for lost");
    assert_eq!(server.usage(AccountId::STARTER).unwrap().shares, 0, "nothing was taken for a stranger");
    drop(server);
    let running = world.open();
    running.server.reap().unwrap();
    check_quiet(&world, &running);
}

fn fault_5_who_renews_in_time_wins_against_the_reaper(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], ME).unwrap();
    running.server.release(ME, &[id(1), id(2)], Deletion::AfterGrace).unwrap();
    world.advance(100);
    // The index finds both. One is leased by the time that they are to go.
    running.server.lease(ME, &[id(1)], None).unwrap();
    running.server.reap().unwrap();
    assert_eq!(world.files().0, [id(1)]);
}

fn fault_6_discovered_shares_are_stable_and_leased(on: Medium) {
    let world = World::on(on);
    drop(world.open());
    for n in [1, 2, 10, 11] {
        world.deposit(n);
    }
    let running = world.open();
    running.server.discover().unwrap();
    for n in [1, 2, 10, 11] {
        let leases = running.server.leases_of(&id(n)).unwrap();
        assert_eq!(leases.len(), 1);
        assert_eq!(
            (leases[0].account, leases[0].expires_at),
            (AccountId::STARTER, Some(world.now() + 60 * DAY))
        );
        assert_eq!(running.read_all(&id(n)).unwrap(), body(n));
    }
    assert_eq!(running.server.lease(ME, &[id(10)], None).unwrap(), [id(10)]);
    check_quiet(&world, &running);
    // They become due, too.
    days(&world, &running, 60);
    running.server.expire().unwrap();
    days(&world, &running, 1);
    running.server.reap().unwrap();
    assert_eq!(world.files().0, [id(10)]);
}

fn fault_9_nobody_deletes_what_he_holds_no_lease_on(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let stranger = server.key_account(AccountKey([1; 32]), "stranger", None).unwrap().unwrap();
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], ME).unwrap();
    server.release(ME, &[id(2)], Deletion::AfterGrace).unwrap();
    server.release(stranger, &[id(1), id(2)], Deletion::AtOnce).unwrap();
    assert_eq!(server.end_account(stranger).unwrap(), 0);
    server.reap().unwrap();
    assert_eq!(world.files().0, [id(1), id(2)], "held, and within its grace period");
    assert_eq!(server.leases_of(&id(1)).unwrap().len(), 1);
}

fn fault_10_what_has_no_row_is_looked_for_on_the_disk(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    for n in 1..=3 {
        world.deposit(n);
    }
    let server = &running.server;
    assert_eq!(server.holds(ME, &[id(1), id(4)]).unwrap(), [Holds::Unleased, Holds::Nothing]);
    assert_eq!(server.lease(ME, &[id(1), id(4)], None).unwrap(), [id(1)]);
    assert_eq!(server.take_over(ME, &[id(2)], Uploaders::new()).unwrap(), [id(2)]);
    assert_eq!(server.leases_of(&id(2)).unwrap().len(), 1);
    // Storing a share that lies there takes a lease on it and puts nothing in its place. Other
    // bytes of that name are refused and delete nothing.
    let placed = |running: &Running| running.disk.steps().iter().filter(|step| PLACE.contains(step)).count();
    let before = placed(&running);
    running.store(&[(id(3), b"other bytes")], ME).unwrap_err();
    running.server.reap().unwrap();
    running.store(&[(id(3), &body(3))], ME).unwrap();
    assert_eq!(placed(&running), before);
    for n in 1..=3 {
        assert_eq!(running.read_all(&id(n)).unwrap(), body(n));
    }
    check_quiet(&world, &running);
}

fn fault_11_deposits_are_taken_in_by_discovery_and_damaged_ones_kept_apart(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1))], ME).unwrap();
    for n in [2, 3] {
        world.deposit(n);
    }
    let whole = world.file(&id(3)).unwrap();
    world.write_file(&id(3), &whole[..whole.len() - 1]);
    world.set_stranger(true);
    running.server.discover().unwrap();
    let row = |n| running.server.share(&id(n)).unwrap().unwrap();
    assert_eq!((row(2).health, row(2).leases), (Health::Ok, 1));
    assert_eq!((row(3).health, row(3).leases, row(3).digest), (Health::Corrupt, 1, None));
    assert_eq!(running.server.leases_of(&id(1)).unwrap().len(), 1, "what was known gets no starter lease");
    let incidents = running.server.incidents().unwrap();
    assert_eq!(incidents.iter().map(|i| i.share).collect::<Vec<_>>(), [Some(id(3))]);
    // An uploader that has the bytes stores them anew.
    running.store(&[(id(3), &body(3))], ME).unwrap();
    assert_eq!(running.read_all(&id(3)).unwrap(), body(3));
    world.set_stranger(false);
    check_quiet(&world, &running);
}

fn nothing_is_deleted_before_discovery_is_through_and_it_goes_on_where_it_was(on: Medium) {
    let mut world = World::on(on);
    world.grace = Duration::ZERO;
    // The shares take more than one step, in several directories.
    let (first, second) = (0..600_u64, 600..640);
    let running = world.open();
    for n in first.clone().chain(second) {
        running.store(&[(id(n), &body(n))], ME).unwrap();
    }
    drop(running);
    fs::remove_file(world.dir().join("leases.sqlite")).unwrap();
    let running = world.try_open(None).unwrap();
    running.server.take_over(ME, &[id(4)], Uploaders::new()).unwrap();
    running.server.release_all(&[id(4)], Deletion::AtOnce).unwrap();
    running.server.reap().unwrap();
    assert!(world.file(&id(4)).is_some());
    assert_eq!(running.server.suspended().unwrap(), Some(Suspended::Discovering));
    let server: &SharedState = running.server.inner();
    assert!(!server.discover_some().unwrap().is_last);
    let passes = running.server.passes().unwrap();
    let pass = passes.iter().find(|pass| pass.process == Process::Discovery).unwrap();
    assert!(pass.ended_at.is_none() && pass.progress > 0.0 && pass.progress < 1.0);
    let (examined, lists) = (pass.examined, running.disk.steps().len());
    assert!((500..640).contains(&examined), "{examined}, {lists}");
    drop(running);
    let running = world.try_open(None).unwrap();
    assert_eq!(running.server.suspended().unwrap(), Some(Suspended::Discovering));
    running.server.finish_discovery().unwrap();
    let passes = running.server.passes().unwrap();
    assert_eq!(passes.len(), 1);
    assert_eq!((passes[0].cycle, passes[0].examined, passes[0].progress), (1, 640, 1.0), "the same pass");
    running.server.reap().unwrap();
    assert!(world.file(&id(4)).is_none());
    assert_eq!(world.files().0.len(), 639);
    check_quiet(&world, &running);
}

fn leases_of_the_clusters_own_accounts_end_when_they_say_and_those_of_others_when_a_policy_says(on: Medium) {
    let stranger_key = AccountKey([3; 32]);
    // Each policy, with the first second at which a lease renewed at 0 with end 1000 is over.
    for (expiry, ends) in [
        (None, None),
        (Some(Expiry::Age), Some(1000)),
        (Some(Expiry::Override(300)), Some(300)),
        (Some(Expiry::Override(3000)), Some(3000)),
    ] {
        let mut world = World::on(on);
        world.expiry = expiry;
        let running = world.open();
        let server = &running.server;
        let (own, stranger) = (
            server.account("own").unwrap(),
            server.key_account(stranger_key, "stranger", None).unwrap().unwrap(),
        );
        let begin = world.now();
        for (n, account) in [(1, own), (2, stranger), (3, ME)] {
            server.store_many(vec![new_share(id(n), &body(n))], account, Some(begin + 1000)).unwrap();
        }
        for at in [299, 300, 999, 1000, 2999, 3000] {
            world.set(begin + at);
            server.expire().unwrap();
            let is_leased = |n| !server.leases_of(&id(n)).unwrap().is_empty();
            assert_eq!(is_leased(1), at < 1000, "{expiry:?} at {at}");
            for n in [2, 3] {
                assert_eq!(is_leased(n), ends.is_none_or(|ends| at < ends), "{expiry:?} at {at}");
            }
        }
        server.expire().unwrap();
        assert_eq!(server.usage(own).unwrap().shares, 0);
    }
}

fn what_the_cluster_has_not_vouched_for_does_not_expire(on: Medium) {
    let mut world = World::on(on);
    world.expiry = Some(Expiry::Age);
    let running = world.open();
    let own = running.server.account("own").unwrap();
    let until = |seconds| Some(world.now() + seconds);
    for (n, account, end) in [(1, own, until(10)), (2, own, until(20)), (3, ME, until(10))] {
        running.server.store_many(vec![new_share(id(n), &body(n))], account, end).unwrap();
    }
    world.deposit(4);
    running.server.discover().unwrap();
    drop(running);
    // The server starts anew, long after.
    let begin = world.now();
    let server = world.serve(world.settings());
    for _ in 0..100 {
        world.advance(DAY);
        server.account("own").unwrap();
    }
    let leased = || {
        server.expire().unwrap();
        [1, 2, 3, 4].map(|n| server.leases_of(&id(n)).unwrap().len())
    };
    assert_eq!((server.vouched(), leased()), (None, [1, 1, 0, 1]));
    server.vouch(begin + 10);
    assert_eq!(leased(), [0, 1, 0, 1]);
    // An earlier promise does not undo a later one.
    server.vouch(begin);
    assert_eq!(server.vouched(), Some(begin + 10));
    server.vouch(begin + 99 * DAY);
    assert_eq!(leased(), [0, 0, 0, 0]);
}

fn an_inventory_says_how_all_that_is_stored_stands(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    for n in 1..=6 {
        running.store(&[(id(n), &body(n))], ME).unwrap();
    }
    let usage = |shares: u64, numbers: &[u64]| Usage {
        shares,
        bytes: numbers.iter().map(|n| body(*n).len() as u64).sum(),
    };
    server.release(ME, &[id(1), id(2)], Deletion::AfterGrace).unwrap();
    world.advance(60);
    server.release(ME, &[id(3)], Deletion::AfterGrace).unwrap();
    server.release(ME, &[id(4)], Deletion::AtOnce).unwrap();
    world.remove_file(&id(5));
    world.write_file(&id(6), b"else");
    server.scrub().unwrap();
    let sums = Inventory {
        stable: usage(6, &[1, 2, 3, 4, 5, 6]),
        unleased: usage(4, &[1, 2, 3, 4]),
        due: usage(1, &[4]),
        next_due: Some(world.now() + 40),
        missing: usage(1, &[5]),
        corrupt: usage(1, &[6]),
        ..Inventory::default()
    };
    assert_eq!(server.inventory().unwrap(), sums);
    world.advance(40);
    assert_eq!(server.inventory().unwrap().due, usage(3, &[1, 2, 4]));
    // A share that the reaper cannot delete is going.
    running.disk.set_fault_among(DELETE, 0, Fault::Fail(std::io::ErrorKind::Other));
    server.reap().unwrap_err();
    let sums = server.inventory().unwrap();
    assert_eq!(sums.stable.shares + sums.going.shares + sums.coming.shares, server.stored().unwrap().shares);
    server.reap().unwrap();
    let sums = server.inventory().unwrap();
    assert_eq!((sums.going, sums.stable), (Usage::default(), usage(3, &[3, 5, 6])));
}

fn a_cut_off_date_ends_leases_renewed_before_it_and_starter_leases_keep_their_time(on: Medium) {
    let mut world = World::on(on);
    world.expiry = Some(Expiry::CutOff(world.now() + 10));
    let running = world.open();
    world.deposit(4);
    running.server.discover().unwrap();
    running.store(&[(id(1), &body(1)), (id(2), &body(2)), (id(3), &body(3))], ME).unwrap();
    world.advance(9);
    running.server.lease(ME, &[id(1)], None).unwrap();
    world.advance(1);
    running.server.lease(ME, &[id(2)], None).unwrap();
    running.server.expire().unwrap();
    let leases = |n| running.server.leases_of(&id(n)).unwrap().len();
    assert_eq!([1, 2, 3, 4].map(leases), [0, 1, 0, 1]);
    // An override does not lose discovered shares earlier.
    world.expiry = Some(Expiry::Override(1));
    drop(running);
    let running = world.open();
    world.advance(DAY);
    running.server.expire().unwrap();
    assert_eq!(running.server.leases_of(&id(4)).unwrap().len(), 1);
}

fn the_expirer_goes_on_where_it_was_and_remembers_ten_passes(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let own = running.server.account("own").unwrap();
    let shares = (0..1500).map(|n| new_share(id(n), &[])).collect();
    running.server.store_many(shares, own, Some(world.now() + 10)).unwrap();
    running.server.lease(ME, &[id(3)], None).unwrap();
    world.advance(10);
    assert!(!running.server.inner().expire_some().unwrap().is_last);
    // One of the first thousand leases may be the one without an end.
    assert!((500..=501).contains(&running.server.usage(own).unwrap().shares));
    drop(running);
    let running = world.open();
    running.server.expire().unwrap();
    assert_eq!(running.server.usage(own).unwrap().shares, 0);
    let passes = running.server.passes().unwrap();
    assert_eq!((passes[0].cycle, passes[0].examined, passes[0].acted), (1, 1501, 1500));
    for _ in 0..15 {
        running.server.expire().unwrap();
    }
    let cycles: Vec<u64> = running.server.passes().unwrap().iter().map(|pass| pass.cycle).collect();
    assert_eq!(cycles, (7..=16).rev().collect::<Vec<u64>>());
}

fn a_jump_of_the_clock_suspends_expiry_and_grace_until_somebody_confirms_it(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let own = server.account("own").unwrap();
    let until = Some(world.now() + 2 * DAY);
    server.store_many((1..=3).map(|n| new_share(id(n), &body(n))).collect(), own, until).unwrap();
    server.release(own, &[id(2)], Deletion::AfterGrace).unwrap();
    world.advance(365 * DAY);
    server.expire().unwrap();
    server.reap().unwrap();
    assert_eq!(server.suspended().unwrap(), Some(Suspended::Clock { at: world.now() }));
    assert_eq!(world.files().0.len(), 3);
    // A caller that knows the share to be unreferenced needs no clock.
    server.release(own, &[id(3)], Deletion::AtOnce).unwrap();
    server.reap().unwrap();
    assert_eq!(world.files().0, [id(1), id(2)]);
    // A restart does not confirm the clock.
    drop(running);
    let running = world.open();
    let server = &running.server;
    server.expire().unwrap();
    server.reap().unwrap();
    assert_eq!(world.files().0, [id(1), id(2)]);
    assert_eq!(server.incidents().unwrap().len(), 1);
    server.confirm_clock().unwrap();
    server.expire().unwrap();
    server.reap().unwrap();
    assert_eq!(world.files().0, [id(1)], "unleased for a year");
    days(&world, &running, 1);
    running.server.reap().unwrap();
    assert_eq!(world.files().0, []);
}

fn a_clock_that_goes_back_deletes_nothing_early_and_keeps_nothing_for_ever(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(1), &body(1))], ME).unwrap();
    let right = world.now();
    world.advance(20 * 3600);
    running.server.release(ME, &[id(1)], Deletion::AfterGrace).unwrap();
    world.set(right);
    running.server.reap().unwrap();
    assert_eq!(world.files().0, [id(1)], "its grace begins now");
    world.advance(99);
    running.server.reap().unwrap();
    assert_eq!(world.files().0, [id(1)]);
    world.advance(1);
    running.server.reap().unwrap();
    assert_eq!(world.files().0, []);
}

fn the_scrub_finds_what_has_rotted_and_goes_on_where_it_was(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    for n in 0..200 {
        running.store(&[(id(n), &body(n))], ME).unwrap();
    }
    let rotten = [6, 13, 55];
    for n in rotten {
        let mut bytes = world.file(&id(n)).unwrap();
        *bytes.last_mut().unwrap() ^= 4;
        world.write_file(&id(n), &bytes);
    }
    world.remove_file(&id(100));
    assert!(!running.server.inner().scrub_some().unwrap().is_last);
    drop(running);
    let running = world.open();
    running.server.scrub().unwrap();
    let passes = running.server.passes().unwrap();
    assert_eq!((passes[0].process, passes[0].examined, passes[0].acted), (Process::Scrub, 200, 4));
    for n in 0..200 {
        let health = running.server.share(&id(n)).unwrap().unwrap().health;
        let right = match n {
            100 => Health::Missing,
            n if rotten.contains(&n) => Health::Corrupt,
            _ => Health::Ok,
        };
        assert_eq!(health, right, "{n}");
    }
    assert_eq!(running.server.incidents().unwrap().len(), 4);
    // Known damage is not reported again.
    running.server.scrub().unwrap();
    assert_eq!(running.server.passes().unwrap()[0].acted, 0);
    assert_eq!(running.server.incidents().unwrap().len(), 4);
    assert_eq!(running.server.damaged().unwrap(), 4);
}

#[test]
fn whoever_is_in_a_hurry_has_all_read_from_the_beginning_and_is_told_what_is_damaged() {
    let world = World::new();
    let (tell, told) = std::sync::mpsc::channel();
    let settings = ShareServerSettings {
        on_damage: Arc::new(move |share| tell.send(share).unwrap()),
        ..world.settings()
    };
    let open = || SharedState::open(&world.dir(), settings.clone()).unwrap();
    let server = ShareServer::without_threads(open());
    server.finish_discovery().unwrap();
    for n in 0..100 {
        server.store_many(vec![new_share(id(n), &body(n))], ME, None).unwrap();
    }
    assert!(!server.inner().scrub_some().unwrap().is_last);
    let mut bytes = fs::read(place(&world, 3)).unwrap();
    *bytes.last_mut().unwrap() ^= 4;
    fs::write(place(&world, 3), &bytes).unwrap();
    // Reading this gives EIO, as a lost sector does.
    fs::remove_file(place(&world, 99)).unwrap();
    std::os::unix::fs::symlink("/proc/self/mem", place(&world, 99)).unwrap();
    let mut examined = Vec::new();
    let scrubbed = server.scrub_now(|pass| {
        examined.push(pass.examined);
        if pass.examined > 60 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    scrubbed.unwrap();
    assert_eq!(examined, [32, 64]);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [id(3)]);
    // The scrub continues from there.
    server.scrub().unwrap();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [id(99)]);
    let pass = &server.passes().unwrap()[0];
    assert_eq!((pass.cycle, pass.examined, pass.acted), (1, 100, 2));
    assert!(server.inner().due_in(Process::Scrub) > Duration::from_secs(6 * 24 * 3600));
    let unreadable = ReadError::Damaged { share: id(99), damage: Damage::Unreadable }.to_string();
    assert_eq!(server.verify(&id(99)).unwrap_err().to_string(), unreadable);
    // A reader that knows the right bytes gets the rest of them.
    let length = bytes.len() - HEADER_BYTES;
    server.read(&id(3), 0, 1).unwrap_err();
    let left = server.read_unsound(&id(3), 0, u32::try_from(length).unwrap()).unwrap();
    assert_eq!(left, bytes[HEADER_BYTES..]);
    assert_eq!(left[..length - 1], body(3)[..length - 1]);
    server.read_unsound(&id(99), 0, 1).unwrap_err();
    // Stored anew, the share is sound.
    server.store_many(vec![new_share(id(3), &body(3)), new_share(id(99), &body(99))], ME, None).unwrap();
    assert_eq!(server.damaged().unwrap(), 0);
    server.verify(&id(99)).unwrap();
}

fn a_damaged_database_deletes_nothing_until_it_was_made_anew(on: Medium) {
    let mut world = World::on(on);
    world.grace = Duration::ZERO;
    let running = world.open();
    running.store(&[(id(1), &body(1)), (id(2), &body(2)), (id(3), &body(3))], ME).unwrap();
    // A row says that the share is unleased, as after a bit flip.
    let connection = rusqlite::Connection::open(world.dir().join("leases.sqlite")).unwrap();
    let sql = "UPDATE shares SET nleases = 0, unleased_since = 0 WHERE share = ?1";
    assert_eq!(connection.execute(sql, [id(1).0]).unwrap(), 1);
    drop(connection);
    running.server.reap().unwrap_err();
    assert_eq!(running.server.suspended().unwrap(), Some(Suspended::Damaged));
    release_now(&running, &[id(2)]);
    running.server.reap().unwrap();
    running.server.expire().unwrap();
    assert_eq!(world.files().0.len(), 3);
    assert_eq!(running.server.read(&id(1), 0, 50).unwrap(), body(1));
    drop(running);
    let running = world.open();
    running.server.reap().unwrap();
    assert_eq!(running.server.suspended().unwrap(), None);
    assert_eq!(running.server.usage(AccountId::STARTER).unwrap().shares, 3);
    check_quiet(&world, &running);
}

fn the_threads_do_all_this_by_themselves(on: Medium) {
    let mut world = World::on(on);
    world.grace = Duration::ZERO;
    drop(world.open());
    world.deposit(1);
    fs::remove_file(world.dir().join("leases.sqlite")).unwrap();
    let mut settings = world.settings();
    settings.pace.expire_every = Duration::from_millis(1);
    settings.pace.scrub_every = Duration::from_millis(1);
    let server = world.serve(settings);
    let own = server.account("own").unwrap();
    let until = |what: &str, is: &dyn Fn() -> bool| {
        for _ in 0..2000 {
            if is() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("never: {what}");
    };
    until("discovered", &|| server.leases_of(&id(1)).unwrap().len() == 1);
    server.store_many(vec![new_share(id(6), &body(6)), new_share(id(7), &body(7))], own, Some(0)).unwrap();
    until("expired and deleted", &|| server.stored().unwrap().shares == 1);
    world.remove_file(&id(1));
    until("found missing", &|| server.share(&id(1)).unwrap().unwrap().health == Health::Missing);
    assert!(matches!(server.read(&id(1), 0, 1), Err(ReadError::Damaged { .. })));
}

fn power_lost_at_any_step_of_expiring_and_scrubbing_is_recovered_from(on: Medium) {
    let scenario = |world: &World, running: &Running| -> Result<(), crate::DatabaseError> {
        world.advance(10);
        running.server.expire()?;
        running.server.scrub()
    };
    let begin = |world: &World| {
        let running = world.open();
        let own = running.server.account("own").unwrap();
        running.server.store_many(vec![new_share(id(1), &body(1))], own, Some(world.now() + 10)).unwrap();
        running.store(&[(id(2), &body(2))], ME).unwrap();
        running
    };
    let world = World::on(on);
    let running = begin(&world);
    let before = running.disk.steps().len();
    scenario(&world, &running).unwrap();
    let steps = running.disk.steps().len() - before;
    assert!(steps >= 4, "{steps}");
    for at in on.some_of(steps) {
        let world = World::on(on);
        let running = begin(&world);
        running.disk.set_fault(at, Fault::Cut);
        scenario(&world, &running).unwrap_err();
        running.cut(at as u64);
        let running = world.open();
        scenario(&world, &running).unwrap();
        world.advance(100);
        running.server.reap().unwrap();
        assert_eq!(world.files().0, [id(2)], "cut at {at}");
        check_quiet(&world, &running);
    }
}
