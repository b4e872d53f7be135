//! Rules 8 to 17: read caching.

use crate::caching::{Store, asks, key, overwriting, plain, state};
use lease::caching::{Act, Actor, Asks, Judgement};

/// Does the act beside a lease with R and one with RH, and then by the lease itself.
fn breaks_read_caching(make: fn() -> Store, act: Act) {
    let mut store = make();
    let (open, _) = store.opens(plain(asks(1, "R")));
    store.opens(plain(asks(2, "RH")));
    store.opens(plain(asks(3, "R")));
    assert_eq!(store.acts(act, Actor::Open(open)), Judgement::Go(()), "{act:?} waits for nobody");
    assert_eq!(store.sent(), ["2 RH>none!", "3 R>none"], "{act:?}");
    assert_eq!((store.state_of(1), store.state_of(3)), (state("R"), state("")), "{act:?}");
}

#[test]
fn rule_8_an_overwriting_open_breaks_read_caching() {
    for (held, sent) in [("R", "1 R>none"), ("RH", "1 RH>none!")] {
        let mut store = Store::held(1, held);
        store.opens(overwriting(Asks::Nothing));
        assert_eq!(store.sent(), [sent]);
    }
}

#[test]
fn rule_9_a_write_breaks_read_caching() {
    breaks_read_caching(Store::file, Act::Write);
}

#[test]
fn rule_10_a_change_of_size_breaks_read_caching() {
    breaks_read_caching(Store::file, Act::Resize);
}

#[test]
fn rule_11_a_byte_range_lock_breaks_read_caching() {
    breaks_read_caching(Store::file, Act::Lock);
}

/// Rules 12 to 14: a child is made, deleted, renamed within, into or out of the directory. A child
/// is made by an open that is none of the directory's own.
#[test]
fn rules_12_to_14_a_child_that_comes_or_goes_breaks_read_caching() {
    breaks_read_caching(Store::directory, Act::ChangeListing);
    let mut store = Store::directory();
    store.opens(plain(asks(1, "RH")));
    assert_eq!(store.acts(Act::ChangeListing, Actor::Child(None)), Judgement::Go(()));
    assert_eq!(store.sent(), ["1 RH>none!"], "in one step");
}

#[test]
fn rule_15_changed_metadata_breaks_read_caching_of_the_directory() {
    // The directory's own times, through an open of it.
    breaks_read_caching(Store::directory, Act::ChangeListing);
    // A child's times, through an open of the child, or by path.
    for actor in [Actor::Child(None), Actor::Child(Some(key(7))), Actor::Other] {
        let mut store = Store::directory();
        store.opens(plain(asks(1, "R")));
        assert_eq!(store.acts(Act::ChangeListing, actor), Judgement::Go(()));
        assert_eq!(store.sent(), ["1 R>none"], "{actor:?}");
    }
}

#[test]
fn rule_15_the_right_parent_key_is_exempt() {
    let mut store = Store::directory();
    store.opens(plain(asks(1, "RH")));
    store.opens(plain(asks(2, "RH")));
    assert_eq!(store.acts(Act::ChangeListing, Actor::Child(Some(key(1)))), Judgement::Go(()));
    assert_eq!(store.sent(), ["2 RH>none!"]);
}

#[test]
fn rule_16_a_holder_of_read_caching_that_does_not_answer_delays_nothing() {
    for held in ["R", "RH"] {
        for act in [Act::Write, Act::Resize, Act::Lock] {
            let mut store = Store::held(1, held);
            for _ in 0..2 {
                assert_eq!(store.acts(act, Actor::Other), Judgement::Go(()), "{held} {act:?}");
            }
            store.opens(overwriting(Asks::Nothing));
            assert_eq!(store.sent().len(), 1, "{held} {act:?}");
        }
    }
}

#[test]
fn rule_17_an_act_by_the_same_key_breaks_nothing() {
    for act in [Act::Read, Act::Write, Act::Resize, Act::Lock, Act::Rename, Act::Link, Act::Dispose] {
        let mut store = Store::held(1, "RWH");
        let (open, _) = store.opens(overwriting(asks(1, "")));
        assert_eq!(store.acts(act, Actor::Open(open)), Judgement::Go(()));
        assert_eq!(store.sent(), [""; 0], "{act:?}");
    }
    let mut store = Store::directory();
    let (open, _) = store.opens(plain(asks(1, "RH")));
    assert_eq!(store.acts(Act::ChangeListing, Actor::Open(open)), Judgement::Go(()));
    assert_eq!(store.sent(), [""; 0]);
}
