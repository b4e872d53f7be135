//! Rules 34 to 38: upgrade and downgrade, what is granted, and the cover.

use crate::caching::{
    Desk, STATES, asks, asks_v2, exclusive, lease, overwriting, plain, stat, state, waits_for,
};
use lease::caching::{Act, Actor, Asks, Judgement, Object, Opening, State, Version};

/// Returns the state of a lease with `held` after a further open that asks for `asked`.
fn after(held: State, asked: State) -> State {
    let asks = |state| plain(Asks::Lease { lease: lease(1), state, version: Version::V1 });
    let mut desk = Desk::file();
    assert_eq!(desk.opens(asks(held)).1.state, held);
    let grant = desk.opens(asks(asked)).1;
    assert_eq!((grant.state, desk.sent()), (desk.state_of(1), vec![]));
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
    let mut desk = Desk::held(1, "R");
    desk.opens(plain(asks(2, "R")));
    assert_eq!(desk.opens(plain(asks(1, "RWH"))).1.state, state("R"));
    assert_eq!(desk.opens(plain(asks(1, "RH"))).1.state, state("RH"));
    assert_eq!(desk.opens(plain(asks(3, "RWH"))).1.state, state("RH"), "a first open gets what fits");
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
    let mut desk = Desk::held(1, "RH");
    assert_eq!(desk.acts(Act::Rename, Actor::Other), waits_for(&[1]));
    let (_, grant) = desk.opens(plain(asks(1, "RWH")));
    assert_eq!((grant.state, grant.is_breaking), (State::RH, true));
    assert_eq!(desk.acknowledges(1, "R"), Ok(state("R")));
    assert_eq!(desk.opens(plain(asks(1, "RWH"))).1.state, state("RWH"));
}

#[test]
fn rule_37_nothing_is_granted_beside_a_break() {
    let mut desk = Desk::held(1, "RH");
    assert_eq!(desk.opens(overwriting(asks(2, "R"))).1.state, state(""));
    assert_eq!(desk.settles(), ["1 RH>none!"]);
    assert_eq!(desk.opens(plain(asks(2, "R"))).1.state, state("R"));
}

#[test]
fn rule_38_a_grant_breaks_nobody() {
    for (held, asked) in STATES.into_iter().flat_map(|held| STATES.map(|asked| (held, asked))) {
        let asks = |number, state| Asks::Lease { lease: lease(number), state, version: Version::V1 };
        let mut desk = Desk::file();
        desk.opens(plain(asks(1, held)));
        let (_, grant) = desk.opens(stat(asks(2, asked)));
        assert_eq!((desk.sent(), desk.state_of(1)), (vec![], held));
        assert!(grant.state == State::NONE || !held.or(grant.state).has(State::WRITE), "{held} {asked}");
    }
}

#[test]
fn write_caching_needs_that_nobody_else_has_the_file_open_or_a_state() {
    let granted = |first: Opening| {
        let mut desk = Desk::file();
        desk.opens(first);
        desk.opens_after_breaks(plain(asks(2, "RWH"))).1.state
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
    let mut desk = Desk::file();
    let (_, grant) = desk.opens(locked(plain(asks_v2(1, "RWH", 7))));
    assert_eq!((grant.state, grant.version.epoch()), (state(""), 7), "the epoch comes back as it was");
    assert_eq!(Desk::file().opens(locked(plain(Asks::Oplock(state("R"))))).1.state, state(""));
    assert_eq!(Desk::file().opens(locked(overwriting(asks(1, "RWH")))).1.state, state("RWH"));
}

#[test]
fn handle_caching_is_refused_while_a_deletion_is_pending() {
    let deleting = |opening| Opening { deleting: true, ..opening };
    assert_eq!(Desk::file().opens(deleting(plain(asks(1, "RWH")))).1.state, state("RW"));
    assert_eq!(Desk::file().opens(deleting(plain(Asks::Oplock(state("RWH"))))).1.state, state("RW"));
}

#[test]
fn epochs_wrap_and_move_with_grants_and_breaks_only() {
    let mut desk = Desk::file();
    let epoch = |desk: &Desk| desk.grant_of(1).version.epoch();
    desk.opens(plain(asks_v2(1, "R", 0xffff)));
    assert_eq!(epoch(&desk), 0, "the request's and one");
    desk.opens(plain(asks_v2(1, "R", 0x99)));
    desk.opens(plain(asks_v2(1, "", 0x99)));
    assert_eq!(epoch(&desk), 0, "nothing has changed");
    desk.opens(plain(asks_v2(1, "RWH", 0x99)));
    assert_eq!(epoch(&desk), 1, "an upgrade");
    desk.waits(exclusive(Asks::Nothing), &[1]);
    assert_eq!((epoch(&desk), desk.out[0].epoch), (2, 2), "a break");
    assert_eq!(desk.acknowledges(1, "RW"), Ok(state("RW")));
    assert_eq!(epoch(&desk), 2, "an acknowledgment");
    desk.acts(Act::Write, Actor::Other);
    assert_eq!((epoch(&desk), desk.out[1].epoch), (3, 3));
    desk.object.expire(lease::Time(u64::MAX));
    assert_eq!(epoch(&desk), 3, "a break that ends by its time");
}

#[test]
fn the_machines_own_leases_bound_what_is_granted() {
    for (cover, granted) in [("", ""), ("R", "R"), ("RH", "RH"), ("RW", "RW"), ("RWH", "RWH")] {
        let mut desk = Desk::new(Object::file(state(cover)));
        assert_eq!(desk.opens(plain(asks(1, "RWH"))).1.state, state(granted));
        desk.object.extend_cover(State::RWH);
        assert_eq!(desk.opens(plain(asks(1, "RWH"))).1.state, state("RWH"));
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
        let mut desk = Desk::held(1, held);
        for _ in 0..2 {
            assert_eq!(desk.recalls(keep), waits_for(&[1]), "{held} {keep}");
            assert_eq!(desk.opens(stat(asks(2, "RWH"))).1.state, state(""));
        }
        assert_eq!(desk.settles(), [sent]);
        assert_eq!(desk.recalls(keep), Judgement::Go(()), "{held} {keep}");
        let most = state(keep).of_lease();
        assert!(most.has(desk.opens(plain(asks(1, "RWH"))).1.state));
    }
    let mut desk = Desk::held(1, "R");
    assert_eq!((desk.recalls(""), desk.sent()), (Judgement::Go(()), vec!["1 R>none".to_owned()]));
    let mut desk = Desk::held(1, "RWH");
    assert_eq!(desk.recalls(""), waits_for(&[1]));
    desk.object.expire(lease::Time(u64::MAX));
    assert_eq!(desk.recalls(""), Judgement::Go(()), "the time answers the recall");
}
