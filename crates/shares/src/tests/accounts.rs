//! What accounts are to shares: taken over, ended, compared.

use std::fs;

use super::{ME, World, body, id};
use crate::{Holds, ReadError, digest, share::file_name};

#[test]
fn who_takes_shares_over_holds_them_alone() {
    let world = World::new();
    let running = world.open();
    let server = &running.server;
    let (uploader, other) = (server.account("uploader").unwrap(), server.account("other").unwrap());
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], uploader).unwrap();
    server.lease(other, &[id(1)], None).unwrap();
    let wanted = [id(1), id(2), id(3)];
    assert_eq!(server.holds(ME, &wanted).unwrap(), [Holds::Unleased, Holds::Unleased, Holds::Nothing]);
    assert_eq!(server.take_over(ME, &wanted).unwrap(), [id(1), id(2)]);
    assert_eq!(server.holds(ME, &wanted).unwrap(), [Holds::Leased, Holds::Leased, Holds::Nothing]);
    for n in [1, 2] {
        assert_eq!(server.leases_of(&id(n)).unwrap().iter().map(|l| l.account).collect::<Vec<_>>(), [ME]);
    }
    // Of what is damaged nothing changes: whoever has a lease keeps it.
    running.store(&[(id(4), &body(4))], uploader).unwrap();
    let name = file_name(&id(4));
    fs::write(world.dir().join("shares").join(&name[..2]).join(&name), b"else").unwrap();
    assert!(server.verify(&id(4)).is_err());
    assert!(server.take_over(ME, &[id(4)]).unwrap().is_empty());
    assert_eq!(server.leases_of(&id(4)).unwrap().len(), 1);
    assert_eq!(server.holds(uploader, &[id(4)]).unwrap(), [Holds::Nothing]);
}

#[test]
fn an_account_that_ends_lets_go_of_all_that_it_holds() {
    let world = World::new();
    let running = world.open();
    let server = &running.server;
    let uploader = server.account("uploader").unwrap();
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], uploader).unwrap();
    server.lease(ME, &[id(2)], None).unwrap();
    assert_eq!(server.end_account(uploader).unwrap(), 2);
    assert!(server.accounts().unwrap().iter().all(|(_, name)| name != "uploader"));
    assert!(server.leases_of(&id(1)).unwrap().is_empty());
    assert_eq!(server.leases_of(&id(2)).unwrap().len(), 1);
    assert_ne!(server.account("uploader").unwrap(), crate::AccountId::STARTER);
    assert_eq!(server.end_account(uploader).unwrap(), 0);
}

#[test]
fn what_an_account_holds_is_listed_in_steps() {
    let world = World::new();
    let running = world.open();
    let other = running.server.account("other").unwrap();
    for n in 0..10 {
        running.store(&[(id(n), &body(n))], if n % 2 == 0 { ME } else { other }).unwrap();
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let some = running.server.leased_by(ME, after.as_ref(), 2).unwrap();
        after = some.last().copied();
        found.extend(some);
        if after.is_none() {
            break;
        }
    }
    let mut all = [0, 2, 4, 6, 8].map(id);
    all.sort_unstable();
    assert_eq!(found, all);
}

#[test]
fn a_whole_share_comes_with_the_digest_that_it_has() {
    let world = World::new();
    let running = world.open();
    running.store(&[(id(5), &body(5))], ME).unwrap();
    let (bytes, its) = running.server.whole(&id(5)).unwrap();
    assert_eq!((&bytes, its), (&body(5), digest(&body(5))));
    assert!(matches!(running.server.whole(&id(6)), Err(ReadError::NotFound(_))));
    // A bit of its body, which a read of a part would not notice.
    let name = file_name(&id(5));
    let file = world.dir().join("shares").join(&name[..2]).join(&name);
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(matches!(running.server.whole(&id(5)), Err(ReadError::Damaged { .. })));
    // It is stored anew, by whoever has it.
    running.store(&[(id(5), &body(5))], ME).unwrap();
    assert_eq!(running.server.whole(&id(5)).unwrap().0, body(5));
}
