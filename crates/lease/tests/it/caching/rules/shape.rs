//! Rules 1 to 7: the shape of the store.

use crate::caching::{STATES, Store, asks, lease, lease_of, plain, stat, state};
use lease::caching::{
    AccessMask, Act, Actor, Asks, CachingState, Judgement, LeaseHolder, LeaseVersion, Opening, Sharing,
};

#[test]
fn rule_1_an_open_can_bring_a_key_and_is_bound_to_its_lease() {
    let mut store = Store::file();
    let (open, grant) = store.opens(plain(asks(1, "RWH")));
    assert_eq!(store.object.held(LeaseHolder::Lease(lease(1))), Some(grant));
    assert_eq!(store.object.close(open), Some(lease(1)), "the lease goes with its last open");
    assert_eq!(store.object.held(LeaseHolder::Lease(lease(1))), None);
    assert!(!store.object.is_open());
}

#[test]
fn rule_2_an_open_without_a_key_is_another_to_every_key() {
    let mut store = Store::held(1, "RWH");
    assert_eq!(store.opens_after_breaks(plain(Asks::Nothing)).0, ["1 RWH>RH!"]);
    let (open, _) = store.opens(plain(Asks::Nothing));
    assert_eq!(store.acts(Act::Write, Actor::Open(open)), Judgement::Go(()));
    assert_eq!(store.sent(), ["1 RH>none!"]);
}

#[test]
fn rule_3_opens_with_one_key_share_one_state() {
    let mut store = Store::held(1, "R");
    let (second, grant) = store.opens(plain(asks(1, "RWH")));
    assert_eq!((grant.state, store.state_of(1)), (CachingState::RWH, CachingState::RWH));
    assert_eq!(store.object.close(second), None, "the first open keeps it");
    assert_eq!(store.state_of(1), CachingState::RWH);
    assert_eq!(store.opens_after_breaks(plain(Asks::Nothing)).0, ["1 RWH>RH!"], "one break for all opens");
}

#[test]
fn rule_4_a_further_open_with_the_key_does_not_change_the_state() {
    for held in STATES {
        let first = Asks::Lease { lease: lease(1), state: held, version: LeaseVersion::V1 };
        for access in (0..21).map(|bit| AccessMask(1 << bit)) {
            for (sharing, overwrites) in
                (0..8).flat_map(|bits| [(Sharing(bits), false), (Sharing(bits), true)])
            {
                let mut store = Store::file();
                store.opens(stat(first));
                let further = Opening { access, sharing, overwrites, ..plain(first) };
                assert_eq!(store.opens(further).1.state, held, "{further:?}");
                assert_eq!(store.sent(), [""; 0], "{further:?}");
            }
        }
    }
}

#[test]
fn rule_5_a_state_is_a_set_of_read_write_and_handle() {
    assert_eq!(CachingState::RWH, CachingState::READ.or(CachingState::WRITE).or(CachingState::HANDLE));
    assert_eq!(
        (CachingState::READ.bits(), CachingState::HANDLE.bits(), CachingState::WRITE.bits()),
        (1, 2, 4)
    );
    assert_eq!(CachingState::from_bits(u32::MAX), CachingState::RWH, "unknown bits are off");
    assert_eq!(CachingState::from_bits(0xffff_fff8), CachingState::NONE);
}

#[test]
fn rule_6_a_file_can_have_none_r_rw_rh_rwh() {
    for bits in 0..8 {
        let asked = CachingState::from_bits(bits);
        let granted = if STATES.contains(&asked) { asked } else { CachingState::NONE };
        let it = Asks::Lease { lease: lease(1), state: asked, version: LeaseVersion::V1 };
        assert_eq!(Store::file().opens(plain(it)).1.state, granted, "{asked}");
    }
}

#[test]
fn rule_7_a_directory_can_have_none_r_rh() {
    for (asked, granted) in
        [("RWH", "RH"), ("RW", "R"), ("RH", "RH"), ("R", "R"), ("H", ""), ("WH", ""), ("", "")]
    {
        assert_eq!(Store::directory().opens(plain(asks(1, asked))).1.state, state(granted), "{asked}");
    }
    for level in ["R", "RW", "RWH"] {
        assert_eq!(
            Store::directory().opens(plain(Asks::Oplock(state(level)))).1.state,
            CachingState::NONE,
            "{level}"
        );
    }
}

#[test]
fn the_key_alone_says_whether_an_open_is_ones_own() {
    let with = |client| Asks::Lease {
        lease: lease_of(client, 1),
        state: CachingState::RH,
        version: LeaseVersion::V1,
    };
    let mut store = Store::file();
    store.opens(plain(with(1)));
    let (open, grant) = store.opens(plain(with(2)));
    assert_eq!((grant.state, store.sent()), (CachingState::RH, vec![]));
    assert_eq!(store.acts(Act::Write, Actor::Open(open)), Judgement::Go(()));
    assert_eq!(store.sent(), [""; 0]);
    assert_eq!(store.acts(Act::Write, Actor::Other), Judgement::Go(()));
    assert_eq!(store.sent(), ["1 RH>none!", "1 RH>none!"], "each client is told");
}
