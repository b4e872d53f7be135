//! Rules 28 to 33: breaks.

use crate::caching::{STATES, Store, asks, asks_v2, exclusive, lease, overwriting, plain, state, waits_for};
use lease::Time;
use lease::caching::{
    ACKNOWLEDGE_WITHIN_MS, AcknowledgeError, Act, Actor, Asks, CachingState, Grant, Judgement, LeaseHolder,
    LeaseVersion,
};

#[test]
fn rule_28_an_act_that_costs_several_flags_asks_for_all_in_one_break() {
    for (held, sent) in [("RH", "1 RH>none!"), ("RW", "1 RW>none!"), ("RWH", "1 RWH>none!")] {
        let mut store = Store::held(1, held);
        store.acts(Act::Write, Actor::Other);
        assert_eq!(store.sent(), [sent]);
    }
}

/// Each act beside each state: the new state, whether it is acknowledged, whether the act waits.
#[test]
fn rule_29_every_break_says_the_new_state() {
    let quiet = ("", false);
    let table = [
        ([Act::Read].as_slice(), [quiet, quiet, quiet, ("1 RW>R!", true), ("1 RWH>RH!", true)]),
        (
            &[Act::Write, Act::Resize, Act::Lock],
            [quiet, ("1 R>none", false), ("1 RH>none!", false), ("1 RW>none!", true), ("1 RWH>none!", true)],
        ),
        (
            &[Act::Rename, Act::Link, Act::Dispose, Act::MoveAbove],
            [quiet, quiet, ("1 RH>R!", true), quiet, ("1 RWH>RW!", true)],
        ),
    ];
    for (acts, row) in table {
        for (act, (held, (sent, waits))) in
            acts.iter().flat_map(|act| STATES.iter().zip(row).map(move |it| (*act, it)))
        {
            let mut store = Store::file();
            store.opens(plain(Asks::Lease { lease: lease(1), state: *held, version: LeaseVersion::V1 }));
            let judged = store.acts(act, Actor::Other);
            assert_eq!(judged, if waits { waits_for(&[1]) } else { Judgement::Go(()) }, "{held} {act:?}");
            assert_eq!(store.sent().concat(), sent, "{held} {act:?}");
        }
    }
}

#[test]
fn rule_30_creates_of_the_breaking_key_flow_through() {
    let mut store = Store::held(1, "RWH");
    store.waits(plain(asks(2, "RWH")), &[1]);
    assert_eq!(store.sent(), ["1 RWH>RH!"]);
    for opening in [plain(asks(1, "RWH")), overwriting(asks(1, "R")), plain(asks(1, ""))] {
        let (_, grant) = store.opens(opening);
        assert_eq!(grant, Grant { state: CachingState::RWH, is_breaking: true, version: LeaseVersion::V1 });
        assert_eq!(store.sent(), [""; 0]);
    }
}

#[test]
fn rule_31_a_second_conflict_sends_nothing_and_the_rest_falls_in_steps() {
    let mut store = Store::file();
    store.opens(plain(asks_v2(1, "RWH", 0x10)));
    store.waits(plain(Asks::Nothing), &[1]);
    assert_eq!(store.sent(), ["1 RWH>RH!"]);
    store.waits(overwriting(Asks::Nothing), &[1]);
    assert_eq!(store.sent(), [""; 0]);
    assert_eq!(store.acknowledges(1, "RH"), Ok(state("RH")));
    assert_eq!(store.sent(), ["1 RH>R!"]);
    // Both wait for the end of the break, as the conformance tests have it.
    store.waits(plain(Asks::Nothing), &[1]);
    store.waits(overwriting(Asks::Nothing), &[1]);
    assert_eq!(store.acknowledges(1, "R"), Ok(state("R")));
    assert_eq!(store.sent(), ["1 R>none"]);
    assert_eq!(store.grant_of(1).version.epoch(), 0x12, "one for the grant, and one for the break");
    store.opens(plain(Asks::Nothing));
    store.opens(overwriting(Asks::Nothing));
    assert_eq!(store.sent(), [""; 0]);
}

/// A write need not wait for RH to be acknowledged. But it does wait until the holder has been told
/// that R is gone, for which the break under way has to end.
#[test]
fn rule_31_an_act_waits_until_the_holder_is_told_of_all_that_it_takes() {
    let mut store = Store::held(1, "RH");
    assert_eq!(store.acts(Act::Rename, Actor::Other), waits_for(&[1]));
    store.opens(plain(Asks::Nothing));
    assert_eq!(store.acts(Act::Write, Actor::Other), waits_for(&[1]));
    assert_eq!(store.sent(), ["1 RH>R!"]);
    assert_eq!(store.acknowledges(1, "R"), Ok(state("R")));
    assert_eq!(store.sent(), ["1 R>none"]);
    assert_eq!(store.acts(Act::Write, Actor::Other), Judgement::Go(()));
}

#[test]
fn rule_31_handles_in_the_way_are_waited_for_during_a_break_to_none() {
    let mut store = Store::held(1, "RH");
    assert_eq!(store.acts(Act::Write, Actor::Other), Judgement::Go(()));
    store.waits(exclusive(Asks::Nothing), &[1]);
    assert_eq!(store.settles(), ["1 RH>none!"]);
    store.is_refused(exclusive(Asks::Nothing));
}

#[test]
fn rule_32_a_break_that_nobody_acknowledges_ends_by_its_time() {
    let mut store = Store::held(1, "RWH");
    store.now = Time(5);
    store.waits(plain(asks(2, "RWH")), &[1]);
    let deadline = Time(5 + ACKNOWLEDGE_WITHIN_MS);
    assert_eq!(store.object.next_deadline(), Some(deadline));
    assert_eq!(store.object.expire(Time(deadline.0 - 1)), []);
    store.waits(plain(asks(2, "RWH")), &[1]);
    assert_eq!(store.object.expire(deadline), [LeaseHolder::Lease(lease(1))]);
    assert_eq!(store.object.next_deadline(), None);
    assert_eq!(store.opens(plain(asks(2, "RWH"))).1.state, state("RH"));
    // The handle stays good, and the late acknowledgment is refused.
    assert_eq!(store.opens(plain(asks(1, "R"))).1.state, state(""), "its acknowledgment is owed");
    assert_eq!(store.acknowledges(1, "RH"), Err(AcknowledgeError::NotBreaking));
    assert_eq!(store.opens(plain(asks(1, "R"))).1.state, state("R"));
}

#[test]
fn rule_32_each_break_has_its_own_deadline_and_the_time_may_be_any() {
    let mut store = Store::file();
    store.opens(plain(asks(1, "RH")));
    store.opens(plain(asks(2, "RH")));
    store.opens(plain(asks(3, "R")));
    store.acts(Act::ChangeListing, Actor::Child(Some(crate::caching::key(2))));
    store.now = Time(u64::MAX - 1);
    store.acts(Act::Write, Actor::Other);
    assert_eq!(store.sent(), ["1 RH>none!", "3 R>none", "2 RH>none!"]);
    assert_eq!(store.object.expire(Time(ACKNOWLEDGE_WITHIN_MS)), [LeaseHolder::Lease(lease(1))]);
    assert_eq!(store.object.next_deadline(), Some(Time(u64::MAX)));
    assert_eq!(store.object.expire(Time(u64::MAX)), [LeaseHolder::Lease(lease(2))]);
}

#[test]
fn rule_33_less_than_told_is_fine_and_more_leaves_the_break_open() {
    for (keeps, kept) in [("RH", "RH"), ("R", "R"), ("", ""), ("H", "")] {
        let mut store = Store::held(1, "RWH");
        store.waits(plain(Asks::Nothing), &[1]);
        for more in ["RWH", "RW", "W"] {
            let told = AcknowledgeError::MoreThanTold { told: CachingState::RH };
            assert_eq!(store.acknowledges(1, more), Err(told), "{more}");
            assert!(store.grant_of(1).is_breaking);
        }
        assert_eq!(store.acknowledges(1, keeps), Ok(state(kept)));
        assert_eq!(store.acknowledges(1, keeps), Err(AcknowledgeError::NotBreaking));
        assert_eq!(store.acknowledges(9, keeps), Err(AcknowledgeError::Unknown));
        store.opens(plain(Asks::Nothing));
    }
}

#[test]
fn rule_33_an_acknowledgment_that_nobody_asked_for_is_refused() {
    let mut store = Store::held(1, "R");
    assert_eq!(store.acknowledges(1, ""), Err(AcknowledgeError::NotBreaking));
    store.acts(Act::Write, Actor::Other);
    assert_eq!(store.acknowledges(1, ""), Err(AcknowledgeError::NotBreaking), "R fell at once");
}

#[test]
fn rule_32_a_break_may_be_told_again_while_it_waits() {
    let mut store = Store::file();
    store.opens(plain(asks_v2(1, "RWH", 0x10)));
    let holder = LeaseHolder::Lease(lease(1));
    assert_eq!(store.object.told(holder), None);
    store.waits(plain(Asks::Nothing), &[1]);
    let told = store.object.told(holder).unwrap();
    assert_eq!((told.from, told.to), (state("RWH"), state("RH")));
    assert_eq!((told.epoch, told.acknowledge), (0x12, true), "as the first time");
    store.acknowledges(1, "RH").unwrap();
    assert_eq!(store.object.told(holder), None);
}
