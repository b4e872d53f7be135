//! Accounts and shares: taking over, ending and comparing leases.

use crypto::SecretKey;

use super::{ME, Medium, World, body, check_quiet, everywhere, id};
use crate::{
    AccountError, AccountId, AccountKey, Deletion, Holds, ReadError, Refusal, ShareLease, SignatureError,
    Signed, StoreError, Uploaders, Usage, digest,
};

everywhere! {
    who_takes_shares_over_holds_them_alone,
    what_only_those_hold_who_should_not_have_stored_it_is_not_taken_over_and_goes,
    nobody_ends_the_leases_of_a_key_but_itself,
    what_is_taken_over_is_leased_for_a_term_and_to_be_renewed_after_a_week,
    an_account_is_known_by_one_name_and_never_taken_for_the_clusters,
    a_share_that_is_brought_is_leased_as_it_was_and_for_a_start,
    an_account_that_ends_lets_go_of_all_that_it_holds,
    what_an_account_holds_is_listed_in_steps,
    a_whole_share_comes_with_the_digest_that_it_has,
    a_quota_bounds_what_an_account_leases_and_nobody_else,
    uploads_at_the_same_time_do_not_get_past_a_quota_together,
    a_signed_request_is_believed_once_from_its_account_for_its_store,
}

const KEY: AccountKey = AccountKey([5; 32]);

fn who_takes_shares_over_holds_them_alone(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let (uploader, other) = (server.account("uploader").unwrap(), server.account("other").unwrap());
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], uploader).unwrap();
    server.lease(other, &[id(1)], None).unwrap();
    let wanted = [id(1), id(2), id(3)];
    assert_eq!(server.holds(ME, &wanted).unwrap(), [Holds::Unleased, Holds::Unleased, Holds::Nothing]);
    assert_eq!(server.take_over(ME, &wanted, Uploaders::new()).unwrap(), [id(1), id(2)]);
    assert_eq!(server.holds(ME, &wanted).unwrap(), [Holds::Leased, Holds::Leased, Holds::Nothing]);
    for n in [1, 2] {
        assert_eq!(server.leases_of(&id(n)).unwrap().iter().map(|l| l.account).collect::<Vec<_>>(), [ME]);
    }
    // A damaged share is not reported as held. It may be the only copy, so every lease on it stays.
    running.store(&[(id(4), &body(4))], uploader).unwrap();
    world.write_file(&id(4), b"else");
    assert!(server.verify(&id(4)).is_err());
    assert!(server.take_over(ME, &[id(4)], Uploaders::new()).unwrap().is_empty());
    assert_eq!(server.leases_of(&id(4)).unwrap().len(), 2);
    assert_eq!(server.holds(uploader, &[id(4)]).unwrap(), [Holds::Nothing]);
}

fn what_only_those_hold_who_should_not_have_stored_it_is_not_taken_over_and_goes(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let [one, two, other] = ["one", "two", "other"].map(|name| server.account(name).unwrap());
    let key = server.key_account(KEY, "key", None).unwrap().unwrap();
    for n in 1..5 {
        running.store(&[(id(n), &body(n))], one).unwrap();
    }
    server.lease(two, &[id(1)], None).unwrap();
    server.lease(other, &[id(2)], None).unwrap();
    server.lease(key, &[id(3)], None).unwrap();
    // Each account with a lease brought the same bytes. Only the fourth share's uploader is
    // believed.
    let ids: Vec<_> = (1..6).map(id).collect();
    let believed = (1..6).map(|n| (id(n), [if n == 4 { one } else { other }].into())).collect();
    assert_eq!(server.take_over(ME, &ids, believed).unwrap(), [id(2), id(4)]);
    for gone in [1, 3] {
        assert!(matches!(server.read(&id(gone), 0, 1), Err(ReadError::Going(_) | ReadError::NotFound(_))));
    }
    server.reap().unwrap();
    // The true bytes are stored now.
    running.store(&[(id(1), &body(6)), (id(3), &body(5))], ME).unwrap();
    assert_eq!(server.read(&id(1), 0, 4).unwrap(), body(6)[..4]);
    assert_eq!(server.leases_of(&id(3)).unwrap().iter().map(|l| l.account).collect::<Vec<_>>(), [ME]);
    check_quiet(&world, &running);
}

fn nobody_ends_the_leases_of_a_key_but_itself(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let stranger = server.key_account(KEY, "stranger", None).unwrap().unwrap();
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], stranger).unwrap();
    let group = server.account("group").unwrap();
    assert_eq!(server.take_over(group, &[id(1)], Uploaders::new()).unwrap(), [id(1)]);
    server.release_all(&[id(1), id(2)], Deletion::AtOnce).unwrap();
    server.reap().unwrap();
    assert_eq!(server.holds(stranger, &[id(1), id(2)]).unwrap(), [Holds::Leased; 2]);
    assert_eq!(server.usage(group).unwrap(), Usage::default());
    server.release(stranger, &[id(1), id(2)], Deletion::AtOnce).unwrap();
    server.reap().unwrap();
    assert_eq!(server.stored().unwrap(), Usage::default());
}

fn what_is_taken_over_is_leased_for_a_term_and_to_be_renewed_after_a_week(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let group = server.account("group").unwrap();
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], group).unwrap();
    let ends = |n| server.leases_of(&id(n)).unwrap()[0].expires_at;
    assert_eq!(ends(1), None);
    let day = 24 * 3600;
    world.advance(7 * day - 1);
    assert_eq!(server.holds(group, &[id(1)]).unwrap(), [Holds::Leased]);
    world.advance(1);
    assert_eq!(server.holds(group, &[id(1)]).unwrap(), [Holds::Due]);
    server.take_over(group, &[id(1)], Uploaders::new()).unwrap();
    assert_eq!(
        (server.holds(group, &[id(1)]).unwrap(), ends(1)),
        (vec![Holds::Leased], Some(world.now() + 31 * day))
    );
    assert_eq!(ends(1), Some(server.lease_end()));
    // A lease is never shortened.
    let longest = ends(1);
    world.set(world.now() - 3 * day);
    server.take_over(group, &[id(1)], Uploaders::new()).unwrap();
    assert_eq!((ends(1), ends(2)), (longest, None));
}

fn an_account_is_known_by_one_name_and_never_taken_for_the_clusters(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let add = |key, name| server.key_account(AccountKey([key; 32]), name, None).unwrap();
    let first = add(1, "group-1").unwrap();
    assert_ne!(server.account("group-1").unwrap(), first);
    assert_ne!(server.account("key-other").unwrap(), add(4, "other-one").unwrap());
    assert_eq!(add(1, "group-1"), Ok(first));
    assert_eq!(add(2, "group-1"), Err(AccountError::Taken));
    assert_eq!(add(1, "else"), Err(AccountError::Renamed));
    for unfit in ["", "a b", "a/b", "\u{e9}", &"a".repeat(65)] {
        assert_eq!(add(3, unfit), Err(AccountError::Unfit));
    }
    let known = server.accounts().unwrap().into_iter().find(|account| account.id == first).unwrap();
    assert_eq!((known.name.as_str(), known.key), ("group-1", Some(AccountKey([1; 32]))));
}

#[test]
fn an_account_names_its_shares_so_that_no_other_can() {
    let (one, other) = (AccountKey([1; 32]), AccountKey([2; 32]));
    let share = one.name([9; 8]);
    assert_eq!(share.0, [9, 9, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert!(one.may_name(&share) && !other.may_name(&share) && !one.may_name(&id(1)));
}

fn a_share_that_is_brought_is_leased_as_it_was_and_for_a_start(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let (group, stranger) =
        (server.account("group").unwrap(), server.key_account(KEY, "stranger", Some(Usage::default())));
    let stranger = stranger.unwrap().unwrap();
    let lease = |account, renewed_at, expires_at| ShareLease { account, renewed_at, expires_at };
    let now = world.now();
    let leases = [lease(group, 5, Some(now + 10)), lease(stranger, now + 99, None)];
    server.bring(super::new_share(id(1), &body(1)), &leases[..1]).unwrap();
    let starter = lease(AccountId::STARTER, now, Some(now + 60 * 24 * 3600));
    assert_eq!(server.leases_of(&id(1)).unwrap(), [starter, leases[0]]);
    // An account whose lease is over does not keep the share. A known holder gets no second lease.
    server.bring(super::new_share(id(1), &body(1)), &[lease(stranger, now, Some(now))]).unwrap();
    assert_eq!(server.leases_of(&id(1)).unwrap().len(), 3);
    server.bring(super::new_share(id(1), &body(1)), &leases).unwrap();
    let mut brought = vec![leases[0], lease(stranger, now, None)];
    assert_eq!(server.leases_of(&id(1)).unwrap(), brought);
    // Bringing the share once more does not shorten a longer lease.
    server.bring(super::new_share(id(1), &body(1)), &[lease(group, 4, Some(3))]).unwrap();
    assert_eq!(server.leases_of(&id(1)).unwrap(), brought);
    server.bring(super::new_share(id(1), &body(1)), &[lease(group, 6, None)]).unwrap();
    brought[0] = lease(group, 6, None);
    assert_eq!(server.leases_of(&id(1)).unwrap(), brought);
    assert_eq!(running.read_all(&id(1)).unwrap(), body(1));
    // Lost bytes come back.
    world.remove_file(&id(1));
    server.bring(super::new_share(id(1), &body(1)), &[]).unwrap();
    assert!(server.verify(&id(1)).is_ok());
    let other = server.bring(super::new_share(id(1), &body(2)), &leases).unwrap_err();
    assert!(matches!(other, StoreError::Refused { why: Refusal::Different, .. }));
    check_quiet(&world, &running);
}

fn an_account_that_ends_lets_go_of_all_that_it_holds(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let uploader = server.account("uploader").unwrap();
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], uploader).unwrap();
    server.lease(ME, &[id(2)], None).unwrap();
    assert_eq!(server.end_account(uploader).unwrap(), 2);
    assert!(server.accounts().unwrap().iter().all(|account| account.name != "uploader"));
    assert!(server.leases_of(&id(1)).unwrap().is_empty());
    assert_eq!(server.leases_of(&id(2)).unwrap().len(), 1);
    assert_ne!(server.account("uploader").unwrap(), AccountId::STARTER);
    assert_eq!(server.end_account(uploader).unwrap(), 0);
}

fn what_an_account_holds_is_listed_in_steps(on: Medium) {
    let world = World::on(on);
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

fn a_whole_share_comes_with_the_digest_that_it_has(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(5), &body(5))], ME).unwrap();
    let (bytes, its) = running.server.whole(&id(5)).unwrap();
    assert_eq!((&bytes, its), (&body(5), digest(&body(5))));
    assert!(matches!(running.server.whole(&id(6)), Err(ReadError::NotFound(_))));
    // A bit of its body flips. A read of another part would not notice.
    let mut bytes = world.file(&id(5)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    world.write_file(&id(5), &bytes);
    assert!(matches!(running.server.whole(&id(5)), Err(ReadError::Damaged { .. })));
    // An uploader that has the bytes stores the share anew.
    running.store(&[(id(5), &body(5))], ME).unwrap();
    assert_eq!(running.server.whole(&id(5)).unwrap().0, body(5));
}

fn a_quota_bounds_what_an_account_leases_and_nobody_else(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let quota =
        |shares, bytes| server.key_account(KEY, "bounded", Some(Usage { shares, bytes })).unwrap().unwrap();
    let account = quota(2, 1000);
    // The bodies have 50, 100, 150 and 200 bytes.
    running.store(&[(id(1), &body(1)), (id(2), &body(2))], account).unwrap();
    let refused = running.store(&[(id(3), &body(3))], account).unwrap_err();
    assert!(matches!(refused, StoreError::Refused { why: Refusal::Quota, .. }), "{refused}");
    server.reap().unwrap();
    assert_eq!(server.share(&id(3)).unwrap(), None, "nothing is left of it");
    running.store(&[(id(3), &body(3))], ME).unwrap();
    let refused = running.store(&[(id(3), &body(3))], account).unwrap_err();
    assert!(matches!(refused, StoreError::Refused { why: Refusal::Quota, .. }), "there already: {refused}");
    assert_eq!(server.lease(account, &[id(1), id(2), id(3)], None).unwrap(), [id(1), id(2)], "renewed");
    server.release(account, &[id(1)], Deletion::AfterGrace).unwrap();
    assert_eq!(server.lease(account, &[id(3)], None).unwrap(), [id(3)]);
    // The quota in bytes.
    assert_eq!(quota(9, 350), account);
    assert_eq!(server.lease(account, &[id(1)], None).unwrap(), [id(1)], "300 of 350");
    running.store(&[(id(4), &body(4))], account).unwrap_err();
    // The quota is below the usage: the account gets nothing new and loses nothing.
    assert_eq!(quota(1, 1), account);
    assert_eq!(server.lease(account, &[id(1), id(2)], None).unwrap(), [id(1), id(2)]);
    assert_eq!(server.usage(account).unwrap(), Usage { shares: 3, bytes: 300 });
    server.key_account(KEY, "bounded", None).unwrap().unwrap();
    running.store(&[(id(4), &body(4))], account).unwrap();
    server.reap().unwrap();
    check_quiet(&world, &running);
}

fn uploads_at_the_same_time_do_not_get_past_a_quota_together(on: Medium) {
    let world = World::on(on);
    let server = world.serve(world.settings());
    let account = server.key_account(KEY, "bounded", Some(Usage { shares: 5, bytes: 1 << 20 }));
    let account = account.unwrap().unwrap();
    let stored: usize = std::thread::scope(|scope| {
        let store = |n| {
            let server = &server;
            scope.spawn(move || {
                usize::from(server.store_many(vec![super::new_share(id(n), &body(n))], account, None).is_ok())
            })
        };
        (0..20).map(store).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(stored <= 5, "{stored}");
    assert_eq!(server.usage(account).unwrap().shares, stored as u64);
}

fn a_signed_request_is_believed_once_from_its_account_for_its_store(on: Medium) {
    let (secret, other_secret) = (SecretKey::of_seed(&[1; 32]), SecretKey::of_seed(&[2; 32]));
    let world = World::on(on);
    let running = world.open();
    let server = &running.server;
    let store = server.id().unwrap();
    let sign = |nonce, request: &[u8]| Signed::by(&secret, &store, nonce, request.to_vec());
    let request = sign(5, b"lease");
    assert_eq!(server.admit(&request).unwrap(), Err(SignatureError::Unknown));
    let account = server.key_account(request.key, "asker", None).unwrap().unwrap();
    assert_eq!(server.admit(&request).unwrap(), Ok(account));
    for (nonce, expected) in [
        (5, Err(SignatureError::Replayed)),
        (4, Err(SignatureError::Replayed)),
        (u64::MAX, Err(SignatureError::Replayed)),
        (6, Ok(account)),
    ] {
        assert_eq!(server.admit(&sign(nonce, b"lease")).unwrap(), expected, "{nonce}");
    }
    // Every change to the signed request is refused.
    let good = sign(10, b"lease");
    let elsewhere = Signed::by(&secret, &[1; 16], 10, b"lease".to_vec());
    let mut forged = Signed::by(&other_secret, &store, 10, b"lease".to_vec());
    forged.key = good.key;
    let mut flipped = good.clone();
    flipped.signature[9] ^= 1;
    let changed = [
        elsewhere,
        forged,
        flipped,
        Signed { nonce: 11, ..good.clone() },
        Signed { request: b"let go".to_vec(), ..good.clone() },
        Signed { key: AccountKey([0; 32]), ..good.clone() },
    ];
    for signed in changed {
        assert_eq!(server.admit(&signed).unwrap(), Err(SignatureError::Signature), "{signed:?}");
    }
    // A used number stays used, also after a power cut.
    running.cut(1);
    let running = world.open();
    assert_eq!(running.server.admit(&sign(6, b"lease")).unwrap(), Err(SignatureError::Replayed));
    assert_eq!(running.server.admit(&good).unwrap(), Ok(account));
}
