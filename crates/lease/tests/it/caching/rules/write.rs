//! Rules 18 to 21: write caching.

use crate::caching::{Desk, asks, plain, stat, state, waits_for};
use lease::caching::{Access, Act, Actor, Asks, Judgement, Opening, Sharing};

/// All rights that make a stat open.
fn stat_rights() -> u32 {
    Access::READ_ATTRIBUTES.or(Access::WRITE_ATTRIBUTES).or(Access::SYNCHRONIZE).or(Access::READ_CONTROL).0
}

#[test]
fn rule_18_an_open_with_any_other_right_breaks_write_caching() {
    for access in (0..32).map(|bit| Access(1 << bit)).filter(|access| access.0 & stat_rights() == 0) {
        for with in [access, Access(access.0 | stat_rights())] {
            let mut desk = Desk::held(1, "RWH");
            desk.waits(Opening { access: with, ..plain(Asks::Nothing) }, &[1]);
            assert_eq!(desk.sent(), ["1 RWH>RH!"], "{with:?}");
        }
    }
}

#[test]
fn rule_19_the_open_waits_for_the_acknowledgment() {
    for (held, kept) in [("RW", "R"), ("RWH", "RH")] {
        let mut desk = Desk::held(1, held);
        desk.waits(plain(asks(2, "RWH")), &[1]);
        desk.waits(plain(asks(2, "RWH")), &[1]);
        // Cached writes and locks come in by opens with the lease's key.
        let (own, _) = desk.opens(plain(asks(1, "")));
        assert_eq!(desk.acts(Act::Write, Actor::Open(own)), Judgement::Go(()));
        assert_eq!(desk.acts(Act::Lock, Actor::Open(own)), Judgement::Go(()));
        desk.waits(plain(asks(2, "RWH")), &[1]);
        assert_eq!(desk.acknowledges(1, kept), Ok(state(kept)));
        assert_eq!(desk.opens(plain(asks(2, "RWH"))).1.state, state("RH"));
    }
}

#[test]
fn rule_19_a_read_waits_for_cached_writes() {
    let mut desk = Desk::held(1, "RWH");
    assert_eq!(desk.acts(Act::Read, Actor::Other), waits_for(&[1]));
    assert_eq!(desk.settles(), ["1 RWH>RH!"]);
    assert_eq!(desk.acts(Act::Read, Actor::Other), Judgement::Go(()));
}

#[test]
fn rule_20_a_stat_open_breaks_nothing_and_waits_for_nobody() {
    // Any subset of the four rights.
    let subsets = (0..=stat_rights()).filter(|rights| rights & !stat_rights() == 0);
    for (access, sharing) in
        subsets.flat_map(|rights| (0..8).map(move |bits| (Access(rights), Sharing(bits))))
    {
        let mut desk = Desk::held(1, "RWH");
        desk.opens(Opening { access, sharing, ..plain(Asks::Nothing) });
        assert_eq!(desk.sent(), [""; 0], "{access:?}");
    }
}

#[test]
fn rule_20_a_stat_open_is_granted_nothing_beside_write_caching() {
    let mut desk = Desk::held(1, "RW");
    assert_eq!(desk.opens(stat(asks(2, "RWH"))).1.state, state(""));
    assert_eq!(desk.opens(stat(Asks::Oplock(state("R")))).1.state, state(""));
}

#[test]
fn rule_21_an_open_of_the_same_key_with_any_access_breaks_nothing() {
    for access in (0..32).map(|bit| Access(1 << bit)) {
        let mut desk = Desk::held(1, "RWH");
        desk.opens(Opening { access, ..plain(asks(1, "")) });
        assert_eq!((desk.sent(), desk.state_of(1)), (vec![], state("RWH")), "{access:?}");
    }
}
