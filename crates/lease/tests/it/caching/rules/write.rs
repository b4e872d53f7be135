//! Rules 18 to 21: write caching.

use crate::caching::{Store, asks, plain, stat, state, waits_for};
use lease::caching::{AccessMask, Act, Actor, Asks, Judgement, Opening, Sharing};

/// All rights that make a stat open.
fn stat_rights() -> u32 {
    AccessMask::READ_ATTRIBUTES
        .or(AccessMask::WRITE_ATTRIBUTES)
        .or(AccessMask::SYNCHRONIZE)
        .or(AccessMask::READ_CONTROL)
        .0
}

#[test]
fn rule_18_an_open_with_any_other_right_breaks_write_caching() {
    for access in (0..32).map(|bit| AccessMask(1 << bit)).filter(|access| access.0 & stat_rights() == 0) {
        for with in [access, AccessMask(access.0 | stat_rights())] {
            let mut store = Store::held(1, "RWH");
            store.waits(Opening { access: with, ..plain(Asks::Nothing) }, &[1]);
            assert_eq!(store.sent(), ["1 RWH>RH!"], "{with:?}");
        }
    }
}

#[test]
fn rule_19_the_open_waits_for_the_acknowledgment() {
    for (held, kept) in [("RW", "R"), ("RWH", "RH")] {
        let mut store = Store::held(1, held);
        store.waits(plain(asks(2, "RWH")), &[1]);
        store.waits(plain(asks(2, "RWH")), &[1]);
        // Cached writes and locks come in by opens with the lease's key.
        let (own, _) = store.opens(plain(asks(1, "")));
        assert_eq!(store.acts(Act::Write, Actor::Open(own)), Judgement::Go(()));
        assert_eq!(store.acts(Act::Lock, Actor::Open(own)), Judgement::Go(()));
        store.waits(plain(asks(2, "RWH")), &[1]);
        assert_eq!(store.acknowledges(1, kept), Ok(state(kept)));
        assert_eq!(store.opens(plain(asks(2, "RWH"))).1.state, state("RH"));
    }
}

#[test]
fn rule_19_a_read_waits_for_cached_writes() {
    let mut store = Store::held(1, "RWH");
    assert_eq!(store.acts(Act::Read, Actor::Other), waits_for(&[1]));
    assert_eq!(store.settles(), ["1 RWH>RH!"]);
    assert_eq!(store.acts(Act::Read, Actor::Other), Judgement::Go(()));
}

#[test]
fn rule_20_a_stat_open_breaks_nothing_and_waits_for_nobody() {
    // Any subset of the four rights.
    let subsets = (0..=stat_rights()).filter(|rights| rights & !stat_rights() == 0);
    for (access, sharing) in
        subsets.flat_map(|rights| (0..8).map(move |bits| (AccessMask(rights), Sharing(bits))))
    {
        let mut store = Store::held(1, "RWH");
        store.opens(Opening { access, sharing, ..plain(Asks::Nothing) });
        assert_eq!(store.sent(), [""; 0], "{access:?}");
    }
}

#[test]
fn rule_20_a_stat_open_is_granted_nothing_beside_write_caching() {
    let mut store = Store::held(1, "RW");
    assert_eq!(store.opens(stat(asks(2, "RWH"))).1.state, state(""));
    assert_eq!(store.opens(stat(Asks::Oplock(state("R")))).1.state, state(""));
}

#[test]
fn rule_21_an_open_of_the_same_key_with_any_access_breaks_nothing() {
    for access in (0..32).map(|bit| AccessMask(1 << bit)) {
        let mut store = Store::held(1, "RWH");
        store.opens(Opening { access, ..plain(asks(1, "")) });
        assert_eq!((store.sent(), store.state_of(1)), (vec![], state("RWH")), "{access:?}");
    }
}
