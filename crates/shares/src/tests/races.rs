//! Many threads at once, with the reaper's own.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::{ME, Medium, Random, World, body, check_quiet, everywhere, id, new_share};
use crate::{Deletion, ReadError, Refusal, StoreError};

everywhere! {
    what_is_held_is_readable_whatever_the_others_do,
    concurrent_batches_are_all_stored,
}

/// Each thread works on the same few shares with an account of its own. A share that the server
/// reported as held must be readable.
fn what_is_held_is_readable_whatever_the_others_do(on: Medium) {
    let mut world = World::on(on);
    world.grace = Duration::ZERO;
    let server = world.serve(world.settings());
    thread::scope(|scope| {
        for number in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let account = server.account(&format!("machine {number}")).unwrap();
                let mut random = Random(number);
                for _ in 0..150 {
                    let n = random.below(6);
                    let held = if random.chance(50) {
                        !server.lease(account, &[id(n)], None).unwrap().is_empty()
                    } else {
                        match server.store_many(vec![new_share(id(n), &body(n))], account, None) {
                            Ok(()) => true,
                            Err(StoreError::Refused { why: Refusal::Coming | Refusal::Going, .. }) => false,
                            Err(error) => panic!("{error}"),
                        }
                    };
                    let length = u32::try_from(body(n).len()).unwrap();
                    match server.read(&id(n), 0, length) {
                        Ok(bytes) => assert_eq!(bytes, body(n)),
                        Err(ReadError::NotFound(_) | ReadError::Going(_)) => assert!(!held),
                        Err(error) => panic!("{error}"),
                    }
                    server.release(account, &[id(n)], Deletion::AfterGrace).unwrap();
                }
            });
        }
    });
    drop(server);
    let running = world.open();
    running.server.reap().unwrap();
    assert_eq!(running.server.stored().unwrap().shares, 0);
    check_quiet(&world, &running);
}

/// Batches under way at the same time share syncs and transactions. Each batch is complete when it
/// returns.
fn concurrent_batches_are_all_stored(on: Medium) {
    let world = World::on(on);
    let server = world.serve(world.settings());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let uploaders: Vec<_> = (0..3)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    for batch in 0..10 {
                        let numbers = (0..8).map(|i| number * 1000 + batch * 8 + i);
                        let shares = numbers.map(|n| new_share(id(n), &body(n))).collect();
                        server.store_many(shares, ME, None).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            // A reader that keeps the files coming into the cache and leaving it.
            let mut random = Random(7);
            while !stop.load(Ordering::Relaxed) {
                let n = random.below(3) * 1000 + random.below(80);
                match server.read(&id(n), 0, u32::try_from(body(n).len()).unwrap()) {
                    Ok(bytes) => assert_eq!(bytes, body(n)),
                    Err(ReadError::NotFound(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        for uploader in uploaders {
            uploader.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(server.usage(ME).unwrap().shares, 240);
    drop(server);
    check_quiet(&world, &world.open());
}
