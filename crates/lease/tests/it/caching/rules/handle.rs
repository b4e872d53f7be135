//! Rules 22 to 27: handle caching.

use crate::caching::{READ_WRITE, Store, asks, exclusive, overwriting, plain, state, waits_for};
use lease::caching::{AccessMask, Act, Actor, Asks, Judgement, Opening, Sharing, SharingViolation};

#[test]
fn rule_22_a_conflict_asks_for_handles_first_and_is_judged_again() {
    let mut store = Store::held(1, "RWH");
    store.waits(exclusive(asks(2, "RWH")), &[1]);
    assert_eq!(store.settles(), ["1 RWH>RW!"]);
    store.is_refused(exclusive(asks(2, "RWH")));
    assert_eq!((store.sent(), store.state_of(1)), (vec![], state("RW")), "write caching is kept");
}

#[test]
fn rule_22_to_be_admitted_costs_others_no_data() {
    let mut store = Store::held(1, "RWH");
    let admits = |store: &mut Store, opening| store.object.admit(store.now, opening, &mut store.out);
    for opening in [plain(asks(2, "RWH")), overwriting(asks(2, "RWH")), exclusive(asks(1, "RWH"))] {
        let own = opening == exclusive(asks(1, "RWH"));
        let admitted = if own { Err(SharingViolation) } else { Ok(Judgement::Go(())) };
        assert_eq!((admits(&mut store, opening), store.sent()), (admitted, vec![]), "{opening:?}");
    }
    assert_eq!(admits(&mut store, exclusive(asks(2, "RWH"))), Ok(waits_for(&[1])));
    assert_eq!(store.settles(), ["1 RWH>RW!"]);
    assert_eq!(admits(&mut store, exclusive(asks(2, "RWH"))), Err(SharingViolation));
}

#[test]
fn rule_22_a_conflict_is_gone_when_the_cached_handle_is_closed() {
    let mut store = Store::file();
    let (cached, _) = store.opens(plain(asks(1, "RWH")));
    store.waits(exclusive(asks(2, "RWH")), &[1]);
    assert_eq!(store.sent(), ["1 RWH>RW!"]);
    store.object.close(cached);
    assert_eq!(store.opens(exclusive(asks(2, "RWH"))).1.state, state("RWH"));
}

#[test]
fn rule_22_a_conflict_without_cached_handles_in_the_way_is_refused_at_once() {
    for held in ["", "R", "RW"] {
        let mut store = Store::held(1, held);
        store.is_refused(exclusive(Asks::Nothing));
        assert_eq!(store.sent(), [""; 0], "{held}");
    }
    // The handles in the way are those of an open without a lease. Nobody else's are asked for.
    let mut store = Store::file();
    let reader = Opening { access: AccessMask::READ_DATA, ..plain(asks(1, "RH")) };
    store.opens(reader);
    store.opens(plain(Asks::Nothing));
    let excludes_writers = Sharing(Sharing::READ.0 | Sharing::DELETE.0);
    store.is_refused(Opening {
        access: AccessMask::READ_DATA,
        sharing: excludes_writers,
        ..plain(Asks::Nothing)
    });
    assert_eq!(store.sent(), [""; 0]);
}

#[test]
fn rule_22_a_conflict_with_ones_own_key_is_refused_and_breaks_nothing() {
    let mut store = Store::held(1, "RWH");
    store.is_refused(exclusive(asks(1, "RWH")));
    assert_eq!((store.sent(), store.state_of(1)), (vec![], state("RWH")));
}

/// Every pair of rights, and every pair of sharings, is judged as Windows does: an open that reads,
/// writes or deletes needs each other open's sharing for it.
#[test]
fn rule_22_each_access_needs_each_others_sharing() {
    let rights = [
        (AccessMask::READ_DATA, 1),
        (AccessMask::EXECUTE, 1),
        (AccessMask::WRITE_DATA, 2),
        (AccessMask::APPEND_DATA, 2),
        (AccessMask::DELETE, 4),
        (READ_WRITE, 3),
        (AccessMask::READ_ATTRIBUTES, 0),
        (AccessMask(0x8), 0), // FILE_READ_EA is no stat open, and yet conflicts with nobody.
    ];
    let all = rights.iter().flat_map(|right| (0..8).map(move |sharing| (right.0, right.1, sharing)));
    for ((one, needs, shares), (other, others_needs, others_share)) in
        all.clone().flat_map(|one| all.clone().map(move |other| (one, other)))
    {
        let free =
            needs == 0 || others_needs == 0 || (needs & !others_share == 0 && others_needs & !shares == 0);
        let mut store = Store::file();
        store.opens(Opening { access: one, sharing: Sharing(shares), ..plain(Asks::Nothing) });
        let second = Opening { access: other, sharing: Sharing(others_share), ..plain(Asks::Nothing) };
        assert_eq!(store.tries(second).is_ok(), free, "{one:?} {shares}, {other:?} {others_share}");
    }
}

/// The act asks for handles, and waits.
fn asks_for_handles(mut store: Store, act: Act, sent: &str) {
    let before = store.state_of(1);
    assert_eq!(store.acts(act, Actor::Other), waits_for(&[1]));
    assert_eq!(store.acts(act, Actor::Other), waits_for(&[1]), "still");
    assert_eq!(store.settles(), [sent]);
    assert_eq!(store.acts(act, Actor::Other), Judgement::Go(()));
    assert_eq!(store.state_of(1), before.but(state("H")));
    assert!(store.object.is_open(), "by which a rename over SMB of the directory above fails");
}

#[test]
fn rules_23_and_24_a_rename_of_a_directory_above_asks_for_handles_and_waits() {
    asks_for_handles(Store::held(1, "RH"), Act::MoveAbove, "1 RH>R!");
    asks_for_handles(Store::held(1, "RWH"), Act::MoveAbove, "1 RWH>RW!");
}

#[test]
fn rules_23_and_24_the_renamed_file_itself_and_its_deletion_ask_for_handles() {
    for act in [Act::Rename, Act::Link, Act::Dispose] {
        asks_for_handles(Store::held(1, "RH"), act, "1 RH>R!");
    }
}

#[test]
fn rule_25_a_conflict_on_a_directory_asks_for_handles_and_waits() {
    let mut store = Store::directory();
    store.opens(plain(asks(1, "RH")));
    store.waits(exclusive(asks(2, "RH")), &[1]);
    assert_eq!(store.settles(), ["1 RH>R!"]);
    store.is_refused(exclusive(asks(2, "RH")));
}

#[test]
fn rule_26_a_rename_or_deletion_of_the_parent_asks_a_directory_for_handles_and_waits() {
    let mut store = Store::directory();
    store.opens(plain(asks(1, "RH")));
    asks_for_handles(store, Act::MoveAbove, "1 RH>R!");
}

#[test]
fn rule_27_all_holders_are_asked_at_once_and_the_open_goes_on_when_all_have_answered() {
    let mut store = Store::file();
    let (first, _) = store.opens(plain(asks(1, "RH")));
    let (second, _) = store.opens(plain(asks(2, "RH")));
    store.opens(Opening { access: AccessMask::READ_ATTRIBUTES, ..plain(asks(3, "RH")) });
    store.waits(exclusive(Asks::Nothing), &[1, 2]);
    assert_eq!(store.sent(), ["1 RH>R!", "2 RH>R!"], "the third has no handle in the way");
    store.object.close(first);
    store.waits(exclusive(Asks::Nothing), &[2]);
    assert_eq!(store.sent(), [""; 0], "neither is asked again");
    assert_eq!(store.acknowledges(2, "R"), Ok(state("R")));
    store.is_refused(exclusive(Asks::Nothing));
    store.object.close(second);
    store.opens(exclusive(Asks::Nothing));
    assert_eq!(store.sent(), [""; 0]);
}

#[test]
fn rule_27_a_holder_that_has_answered_is_not_granted_handles_while_another_is_asked() {
    let mut store = Store::file();
    store.opens(plain(asks(1, "RH")));
    store.opens(plain(asks(2, "RH")));
    store.waits(exclusive(Asks::Nothing), &[1, 2]);
    assert_eq!(store.acknowledges(1, "R"), Ok(state("R")));
    assert_eq!(store.opens(plain(asks(1, "RH"))).1.state, state("R"));
}
