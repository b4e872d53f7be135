//! Rules 34 to 38: upgrade and downgrade, what is granted, and the cover.

use crate::caching::{
    STATES, Store, asks, asks_v2, exclusive, lease, overwriting, plain, stat, state, waits_for,
};
use lease::caching::{Act, Actor, Asks, CachingState, Judgement, LeaseVersion, Object, Opening};

/// Returns the state of a lease with `held` after a further open that asks for `asked`.
fn after(held: CachingState, asked: CachingState) -> CachingState {
    let asks = |state| plain(Asks::Lease { lease: lease(1), state, version: LeaseVersion::V1 });
    let mut store = Store::file();
    assert_eq!(store.opens(asks(held)).1.state, held);
    let grant = store.opens(asks(asked)).1;
    assert_eq!((grant.state, store.sent()), (store.state_of(1), vec![]));
    grant.state
}

#[test]
fn rule_34_a_further_open_may_get_more() {
    for (held, asked) in [("", "R"), ("", "RWH"), ("R", "RH"), ("R", "RW"), ("RH", "RWH"), ("RW", "RWH")] {
        assert_eq!(after(state(held), state(asked)), state(asked));
    }
}

#[test]
fn rule_34_an_upgrade_is_all_or_nothing() {
    let mut store = Store::held(1, "R");
    store.opens(plain(asks(2, "R")));
    assert_eq!(store.opens(plain(asks(1, "RWH"))).1.state, state("R"));
    assert_eq!(store.opens(plain(asks(1, "RH"))).1.state, state("RH"));
    assert_eq!(store.opens(plain(asks(3, "RWH"))).1.state, state("RH"), "a first open gets what fits");
}

#[test]
fn rule_35_a_further_open_never_lowers_the_state() {
    for (held, asked) in STATES.into_iter().flat_map(|held| STATES.map(|asked| (held, asked))) {
        assert!(after(held, asked).has(held), "{held} asked {asked}");
    }
}

/// The union of both counts for what is kept. It departs from the rule in that nothing is added.
#[test]
fn rule_36_a_request_that_is_no_superset_keeps_what_is_held() {
    for (held, asked) in STATES.into_iter().flat_map(|held| STATES.map(|asked| (held, asked))) {
        let granted = if asked.has(held) { asked } else { held };
        assert_eq!(after(held, asked), granted, "{held} asked {asked}");
    }
}

#[test]
fn rule_37_nothing_is_granted_to_a_lease_that_is_breaking() {
    let mut store = Store::held(1, "RH");
    assert_eq!(store.acts(Act::Rename, Actor::Other), waits_for(&[1]));
    let (_, grant) = store.opens(plain(asks(1, "RWH")));
    assert_eq!((grant.state, grant.is_breaking), (CachingState::RH, true));
    assert_eq!(store.acknowledges(1, "R"), Ok(state("R")));
    assert_eq!(store.opens(plain(asks(1, "RWH"))).1.state, state("RWH"));
}

#[test]
fn rule_37_nothing_is_granted_beside_a_break() {
    let mut store = Store::held(1, "RH");
    assert_eq!(store.opens(overwriting(asks(2, "R"))).1.state, state(""));
    assert_eq!(store.settles(), ["1 RH>none!"]);
    assert_eq!(store.opens(plain(asks(2, "R"))).1.state, state("R"));
}

#[test]
fn rule_38_a_grant_breaks_nobody() {
    for (held, asked) in STATES.into_iter().flat_map(|held| STATES.map(|asked| (held, asked))) {
        let asks = |number, state| Asks::Lease { lease: lease(number), state, version: LeaseVersion::V1 };
        let mut store = Store::file();
        store.opens(plain(asks(1, held)));
        let (_, grant) = store.opens(stat(asks(2, asked)));
        assert_eq!((store.sent(), store.state_of(1)), (vec![], held));
        assert!(
            grant.state == CachingState::NONE || !held.or(grant.state).has(CachingState::WRITE),
            "{held} {asked}"
        );
    }
}

#[test]
fn write_caching_needs_that_nobody_else_has_the_file_open_or_a_state() {
    let granted = |first: Opening| {
        let mut store = Store::file();
        store.opens(first);
        store.opens_after_breaks(plain(asks(2, "RWH"))).1.state
    };
    assert_eq!(granted(stat(Asks::Nothing)), state("RWH"), "a stat open does not count");
    assert_eq!(granted(stat(asks(1, ""))), state("RWH"));
    assert_eq!(granted(stat(asks(1, "R"))), state("RH"));
    assert_eq!(granted(plain(asks(1, ""))), state("RH"));
    assert_eq!(granted(plain(Asks::Nothing)), state("RH"));
}

#[test]
fn a_byte_range_lock_lets_nothing_be_granted_unless_the_open_has_truncated() {
    let locked = |opening| Opening { locked: true, ..opening };
    let mut store = Store::file();
    let (_, grant) = store.opens(locked(plain(asks_v2(1, "RWH", 7))));
    assert_eq!((grant.state, grant.version.epoch()), (state(""), 7), "the epoch comes back as it was");
    assert_eq!(Store::file().opens(locked(plain(Asks::Oplock(state("R"))))).1.state, state(""));
    assert_eq!(Store::file().opens(locked(overwriting(asks(1, "RWH")))).1.state, state("RWH"));
}

#[test]
fn handle_caching_is_refused_while_a_deletion_is_pending() {
    let deleting = |opening| Opening { deleting: true, ..opening };
    assert_eq!(Store::file().opens(deleting(plain(asks(1, "RWH")))).1.state, state("RW"));
    assert_eq!(Store::file().opens(deleting(plain(Asks::Oplock(state("RWH"))))).1.state, state("RW"));
}

#[test]
fn epochs_wrap_and_move_with_grants_and_breaks_only() {
    let mut store = Store::file();
    let epoch = |store: &Store| store.grant_of(1).version.epoch();
    store.opens(plain(asks_v2(1, "R", 0xffff)));
    assert_eq!(epoch(&store), 0, "the request's and one");
    store.opens(plain(asks_v2(1, "R", 0x99)));
    store.opens(plain(asks_v2(1, "", 0x99)));
    assert_eq!(epoch(&store), 0, "nothing has changed");
    store.opens(plain(asks_v2(1, "RWH", 0x99)));
    assert_eq!(epoch(&store), 1, "an upgrade");
    store.waits(exclusive(Asks::Nothing), &[1]);
    assert_eq!((epoch(&store), store.out[0].epoch), (2, 2), "a break");
    assert_eq!(store.acknowledges(1, "RW"), Ok(state("RW")));
    assert_eq!(epoch(&store), 2, "an acknowledgment");
    store.acts(Act::Write, Actor::Other);
    assert_eq!((epoch(&store), store.out[1].epoch), (3, 3));
    store.object.expire(lease::Time(u64::MAX));
    assert_eq!(epoch(&store), 3, "a break that ends by its time");
}

#[test]
fn the_machines_own_leases_bound_what_is_granted() {
    for (cover, granted) in [("", ""), ("R", "R"), ("RH", "RH"), ("RW", "RW"), ("RWH", "RWH")] {
        let mut store = Store::new(Object::file(state(cover)));
        assert_eq!(store.opens(plain(asks(1, "RWH"))).1.state, state(granted));
        store.object.extend_cover(CachingState::RWH);
        assert_eq!(store.opens(plain(asks(1, "RWH"))).1.state, state("RWH"));
    }
}

/// A recall takes what the machine may not keep, waits for every acknowledgment or its time, and
/// grants nothing of it meanwhile.
#[test]
fn a_recall_waits_until_nobody_has_what_is_recalled() {
    for (held, keep, sent) in [
        ("RWH", "RH", "1 RWH>RH!"),
        ("RWH", "RW", "1 RWH>RW!"),
        ("RWH", "R", "1 RWH>R!"),
        ("RWH", "", "1 RWH>none!"),
        ("RWH", "H", "1 RWH>none!"),
        ("RW", "RH", "1 RW>R!"),
        ("RH", "RW", "1 RH>R!"),
        ("RH", "", "1 RH>none!"),
    ] {
        let mut store = Store::held(1, held);
        for _ in 0..2 {
            assert_eq!(store.recalls(keep), waits_for(&[1]), "{held} {keep}");
            assert_eq!(store.opens(stat(asks(2, "RWH"))).1.state, state(""));
        }
        assert_eq!(store.settles(), [sent]);
        assert_eq!(store.recalls(keep), Judgement::Go(()), "{held} {keep}");
        let most = state(keep).of_lease();
        assert!(most.has(store.opens(plain(asks(1, "RWH"))).1.state));
    }
    let mut store = Store::held(1, "R");
    assert_eq!((store.recalls(""), store.sent()), (Judgement::Go(()), vec!["1 R>none".to_owned()]));
    let mut store = Store::held(1, "RWH");
    assert_eq!(store.recalls(""), waits_for(&[1]));
    store.object.expire(lease::Time(u64::MAX));
    assert_eq!(store.recalls(""), Judgement::Go(()), "the time answers the recall");
}
