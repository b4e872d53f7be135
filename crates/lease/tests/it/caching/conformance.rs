//! The conformance tests of Samba's smbtorture (`smb2.lease`, `smb2.dirlease`), as far as they are
//! decided by the object: their matrices, and their sequences of breaks. Each test has the name of
//! the one there.

use super::{STATES, Store, asks, asks_v2, exclusive, key, overwriting, plain, stat, state, waits_for};
use lease::caching::{
    AccessMask, AcknowledgeError, Act, Actor, Asks, CachingState, Judgement, LeaseHolder, LeaseVersion,
    Opening, Sharing,
};

/// The four states that Windows grants beside another lease.
const GRANTED: [&str; 4] = ["R", "RH", "RW", "RWH"];

fn without(flags: &str, gone: &str) -> CachingState {
    state(flags).but(state(gone))
}

#[test]
fn request() {
    for (asked, granted) in
        [("", ""), ("R", "R"), ("RH", "RH"), ("RW", "RW"), ("RWH", "RWH"), ("H", ""), ("W", ""), ("HW", "")]
    {
        assert_eq!(Store::file().opens(plain(asks(1, asked))).1.state, state(granted), "{asked}");
    }
}

#[test]
fn upgrade() {
    let mut store = Store::held(1, "RH");
    assert_eq!(store.opens(plain(asks(1, "RW"))).1.state, CachingState::RH);
    assert_eq!(store.opens(plain(asks(1, "RWH"))).1.state, CachingState::RWH);
    assert_eq!(store.opens(plain(asks(1, "RH"))).1.state, CachingState::RWH);
}

#[test]
fn upgrade2() {
    // Rows: what is held. Columns: what is asked for, in the order of STATES.
    let table = [
        ["", "R", "RH", "RW", "RWH"],
        ["R", "R", "RH", "RW", "RWH"],
        ["RH", "RH", "RH", "RH", "RWH"],
        ["RW", "RW", "RW", "RW", "RWH"],
        ["RWH"; 5],
    ];
    for (held, row) in STATES.into_iter().zip(table) {
        for (asked, expected) in STATES.into_iter().zip(row) {
            let asks = |state| Asks::Lease { lease: super::lease(1), state, version: LeaseVersion::V1 };
            let mut store = Store::file();
            store.opens(plain(asks(held)));
            assert_eq!(store.opens(plain(asks(asked))).1.state, state(expected), "{held} asked {asked}");
        }
    }
}

#[test]
fn upgrade3() {
    for (first, second) in [("R", "R"), ("R", "RH"), ("RH", "R"), ("RH", "RH")] {
        for asked in ["", "R", "RW", "RH", "RWH"] {
            let mut store = Store::held(1, first);
            store.opens(plain(asks(2, second)));
            let expected = if asked == "RH" { "RH" } else { first };
            assert_eq!(store.opens(plain(asks(1, asked))).1.state, state(expected), "{first} asked {asked}");
            assert_eq!((store.sent(), store.state_of(2)), (vec![], state(second)));
        }
    }
}

#[test]
fn r#break() {
    for (held, asked) in GRANTED.iter().flat_map(|held| GRANTED.map(|asked| (*held, asked))) {
        let mut store = Store::held(1, held);
        let (sent, grant) = store.opens_after_breaks(plain(asks(2, asked)));
        let broken_to = without(held, "W");
        assert_eq!(sent.len(), usize::from(held.contains('W')), "{held} {asked}");
        assert_eq!((store.state_of(1), grant.state), (broken_to, without(asked, "W")), "{held} {asked}");
        assert_eq!(store.opens(plain(asks(1, "RWH"))).1.state, broken_to, "an upgrade changes nothing");
        assert_eq!(store.sent(), [""; 0]);
    }
}

#[test]
fn oplock() {
    for (held, level) in GRANTED.iter().flat_map(|held| ["R", "RW", "RWH"].map(|level| (*held, level))) {
        let mut store = Store::held(1, held);
        let (_, grant) = store.opens_after_breaks(plain(Asks::Oplock(state(level))));
        let expected = if held.contains('H') { "" } else { "R" };
        assert_eq!(
            (store.state_of(1), grant.state),
            (without(held, "W"), state(expected)),
            "{held}, {level}"
        );
    }
    for (level, asked) in ["R", "RW", "RWH"].iter().flat_map(|level| GRANTED.map(|asked| (*level, asked))) {
        let mut store = Store::file();
        let (open, grant) = store.opens(plain(Asks::Oplock(state(level))));
        assert_eq!(grant.state, state(level));
        let (sent, grant) = store.opens_after_breaks(plain(asks(1, asked)));
        assert_eq!(sent.len(), usize::from(level != "R"), "{level}, {asked}");
        assert_eq!(store.object.held(LeaseHolder::Oplock(open)).map(|it| it.state), Some(state("R")));
        assert_eq!(grant.state, state("R"), "{level}, {asked}");
    }
}

#[test]
fn oplocks_by_themselves() {
    // A conflict breaks batch to level II, and exclusive not at all.
    let mut store = Store::file();
    store.opens(plain(Asks::Oplock(state("RWH"))));
    assert!(matches!(store.tries(exclusive(Asks::Nothing)), Ok(Judgement::Waits(_))));
    assert_eq!(store.settles(), ["o1 RWH>R!"]);
    store.is_refused(exclusive(Asks::Nothing));
    let mut store = Store::file();
    let (open, _) = store.opens(plain(Asks::Oplock(state("RW"))));
    store.is_refused(exclusive(Asks::Nothing));
    // The open itself breaks nothing of its own. Another breaks exclusive to level II, a write
    // level II to none, and an overwriting open exclusive to none.
    assert_eq!(store.acts(Act::Write, Actor::Open(open)), Judgement::Go(()));
    assert_eq!(store.sent(), [""; 0]);
    let (sent, grant) = store.opens_after_breaks(plain(Asks::Oplock(state("RWH"))));
    assert_eq!((sent.concat().as_str(), grant.state), ("o1 RW>R!", state("R")));
    // Level II goes on both sides, with the writer's own open as well (`batch6`).
    for act in [Act::Read, Act::Rename, Act::Dispose] {
        assert_eq!(store.acts(act, Actor::Open(open)), Judgement::Go(()));
    }
    assert_eq!(store.sent(), [""; 0]);
    assert_eq!(store.acts(Act::Write, Actor::Open(open)), Judgement::Go(()));
    assert_eq!(store.sent(), ["o1 R>none", "o4 R>none"]);
    for act in [Act::Resize, Act::Lock] {
        let mut store = Store::file();
        let (open, _) = store.opens(plain(Asks::Oplock(state("R"))));
        assert_eq!(store.acts(act, Actor::Open(open)), Judgement::Go(()));
        assert_eq!(store.sent(), ["o1 R>none"], "{act:?}");
    }
    // An open that overwrites was granted level II for what it leaves (`exclusive5`).
    let mut store = Store::held(1, "R");
    let (open, _) = store.opens(overwriting(Asks::Oplock(state("R"))));
    assert_eq!(store.sent(), ["1 R>none"]);
    assert_eq!(store.acts(Act::Overwrite, Actor::Open(open)), Judgement::Go(()));
    assert_eq!(store.sent(), [""; 0]);
    let mut store = Store::file();
    store.opens(plain(Asks::Oplock(state("RW"))));
    assert_eq!(store.opens_after_breaks(overwriting(Asks::Nothing)).0, ["o1 RW>none!"]);
}

#[test]
fn nobreakself() {
    let mut store = Store::file();
    let (one, _) = store.opens(plain(asks(1, "R")));
    let (two, _) = store.opens(plain(asks(2, "R")));
    assert_eq!(store.acts(Act::Write, Actor::Open(one)), Judgement::Go(()));
    assert_eq!(store.sent(), ["2 R>none"]);
    assert_eq!(store.opens(plain(asks(2, "R"))).1.state, state("R"));
    assert_eq!(store.acts(Act::Write, Actor::Open(two)), Judgement::Go(()));
    assert_eq!(store.sent(), ["1 R>none"]);
}

#[test]
fn statopen() {
    let mut store = Store::file();
    assert_eq!(
        store.opens(Opening { sharing: Sharing(0), ..stat(asks(1, "RWH")) }).1.state,
        CachingState::RWH
    );
    assert_eq!(store.opens(plain(asks(1, ""))).1.state, CachingState::RWH);
    let (sent, grant) = store.opens_after_breaks(plain(asks(2, "RWH")));
    assert_eq!((sent.concat().as_str(), grant.state), ("1 RWH>RH!", CachingState::RH));
}

#[test]
fn statopen2_and_statopen3() {
    let mut store = Store::held(1, "RWH");
    store.opens(stat(Asks::Nothing));
    assert_eq!(store.opens(plain(asks(1, "RWH"))).1.state, CachingState::RWH);
    let mut store = Store::file();
    store.opens(stat(Asks::Nothing));
    assert_eq!(store.opens(plain(asks(1, "RWH"))).1.state, CachingState::RWH);
    assert_eq!(store.sent(), [""; 0]);
}

#[test]
fn statopen4() {
    // Attributes, READ_CONTROL and SYNCHRONIZE. All else breaks: data, EAs, EXECUTE, DELETE,
    // WRITE_DAC, WRITE_OWNER.
    let stat_opens = [0x80, 0x100, 0x2_0000, 0x10_0000];
    let others = [0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x1_0000, 0x4_0000, 0x8_0000];
    for (right, is_stat) in stat_opens.map(|it| (it, true)).into_iter().chain(others.map(|it| (it, false))) {
        let mut store = Store::held(1, "RWH");
        let opening = Opening { access: AccessMask(right), ..plain(Asks::Nothing) };
        assert_eq!(store.opens_after_breaks(opening).0.is_empty(), is_stat, "{right:#x}");
    }
}

/// smb2.oplock.statopen1: to an oplock, an open that reads the descriptor is none.
#[test]
fn statopen1() {
    for (right, is_stat) in [(0x80, true), (0x100, true), (0x10_0000, true), (0x2_0000, false), (0x1, false)]
    {
        let mut store = Store::file();
        store.opens(plain(Asks::Oplock(state("RWH"))));
        let opening = Opening { access: AccessMask(right), ..plain(Asks::Nothing) };
        assert_eq!(store.opens_after_breaks(opening).0.is_empty(), is_stat, "{right:#x}");
    }
}

#[test]
fn multibreak() {
    let mut store = Store::held(1, "RH");
    store.opens(plain(asks(1, "RWH")));
    assert_eq!(store.opens_after_breaks(plain(asks(2, "RWH"))).0, ["1 RWH>RH!"]);
    let mut store = Store::held(1, "R");
    let (open, _) = store.opens(plain(Asks::Oplock(state("R"))));
    store.opens(overwriting(Asks::Nothing));
    assert_eq!(store.sent(), ["1 R>none".to_owned(), format!("o{} R>none", open.0)]);
}

#[test]
fn breaking1() {
    let mut store = Store::held(1, "RWH");
    store.waits(plain(asks(2, "RWH")), &[1]);
    let (_, grant) = store.opens(plain(asks(1, "RWH")));
    assert_eq!((grant.state, grant.is_breaking), (CachingState::RWH, true));
    store.waits(plain(asks(2, "RWH")), &[1]);
    assert_eq!(store.settles(), ["1 RWH>RH!"]);
    assert_eq!(store.opens(plain(asks(2, "RWH"))).1.state, CachingState::RH);
    assert!(!store.grant_of(1).is_breaking);
}

#[test]
fn breaking2() {
    let mut store = Store::held(1, "RWH");
    store.waits(overwriting(Asks::Nothing), &[1]);
    assert_eq!(store.sent(), ["1 RWH>none!"]);
    for more in ["RH", "R", "RWH"] {
        assert_eq!(
            store.acknowledges(1, more),
            Err(AcknowledgeError::MoreThanTold { told: CachingState::NONE })
        );
    }
    assert_eq!(store.acknowledges(1, ""), Ok(CachingState::NONE));
    assert_eq!(store.acknowledges(1, ""), Err(AcknowledgeError::NotBreaking));
    store.opens(overwriting(Asks::Nothing));
}

#[test]
fn breaking3_and_v2_breaking3() {
    for asked in [asks(1, "RWH"), asks_v2(1, "RWH", 0x11)] {
        let mut store = Store::file();
        store.opens(plain(asked));
        let flows = |store: &mut Store, held| {
            let (open, grant) = store.opens(plain(asked));
            assert_eq!((grant.state, grant.is_breaking), (held, true));
            store.object.close(open);
        };
        store.waits(plain(Asks::Nothing), &[1]);
        assert_eq!(store.sent(), ["1 RWH>RH!"]);
        let epoch = store.grant_of(1).version.epoch();
        flows(&mut store, CachingState::RWH);
        store.waits(overwriting(Asks::Nothing), &[1]);
        flows(&mut store, CachingState::RWH);
        assert_eq!(store.acknowledges(1, "RH"), Ok(CachingState::RH));
        assert_eq!(store.sent(), ["1 RH>R!"]);
        flows(&mut store, CachingState::RH);
        store.waits(plain(Asks::Nothing), &[1]);
        store.waits(overwriting(Asks::Nothing), &[1]);
        assert_eq!(store.acknowledges(1, "R"), Ok(state("R")));
        assert_eq!(store.sent(), ["1 R>none"]);
        assert_eq!(store.grant_of(1).version.epoch(), epoch, "the epoch moves once");
        store.opens(plain(Asks::Nothing));
        store.opens(overwriting(Asks::Nothing));
    }
}

#[test]
fn breaking4() {
    let mut store = Store::held(1, "RH");
    store.opens(overwriting(Asks::Nothing));
    assert_eq!(store.sent(), ["1 RH>none!"]);
    store.opens(overwriting(Asks::Nothing));
    assert_eq!(store.sent(), [""; 0]);
    let (_, grant) = store.opens(plain(asks(1, "")));
    assert_eq!((grant.state, grant.is_breaking), (CachingState::RH, true));
    assert_eq!(store.acknowledges(1, ""), Ok(CachingState::NONE));
}

#[test]
fn breaking5() {
    let mut store = Store::held(1, "R");
    store.opens(overwriting(Asks::Nothing));
    assert_eq!(store.sent(), ["1 R>none"]);
    assert!(!store.opens(plain(asks(1, ""))).1.is_breaking);
    assert_eq!(store.acknowledges(1, ""), Err(AcknowledgeError::NotBreaking));
}

#[test]
fn breaking6() {
    let mut store = Store::held(1, "RWH");
    store.waits(plain(Asks::Nothing), &[1]);
    assert_eq!(store.acknowledges(1, ""), Ok(CachingState::NONE));
    store.opens(plain(Asks::Nothing));
}

#[test]
fn break_twice() {
    let mut store = Store::file();
    store.opens(plain(asks_v2(1, "RWH", 0x11)));
    let reads_only = Opening { sharing: Sharing::READ, ..plain(asks_v2(2, "RWH", 0x22)) };
    store.waits(reads_only, &[1]);
    assert_eq!((store.out[0].epoch, store.settles()), (0x13, vec!["1 RWH>RW!".to_owned()]));
    store.is_refused(reads_only);
    let (sent, grant) = store.opens_after_breaks(plain(asks_v2(2, "RWH", 0x22)));
    assert_eq!((sent.concat().as_str(), grant.state), ("1 RW>R!", CachingState::RH));
    assert_eq!((grant.version.epoch(), store.grant_of(1).version.epoch()), (0x23, 0x14));
}

#[test]
fn lock1() {
    let mut store = Store::held(1, "RH");
    let (open, _) = store.opens(plain(asks(1, "")));
    store.opens(plain(asks(2, "RH")));
    store.opens(plain(asks(3, "R")));
    assert_eq!(store.acts(Act::Lock, Actor::Open(open)), Judgement::Go(()));
    assert_eq!(store.settles(), ["2 RH>none!", "3 R>none"]);
    assert_eq!(store.state_of(1), CachingState::RH);
}

#[test]
fn lock3() {
    let mut store = Store::held(1, "RWH");
    let locked = Opening { locked: true, ..overwriting(asks(2, "RWH")) };
    let (sent, grant) = store.opens_after_breaks(locked);
    assert_eq!((sent.concat().as_str(), grant.state), ("1 RWH>none!", CachingState::RH));
}

#[test]
fn complex1_and_v2_complex1() {
    let mut store = Store::file();
    let (h, grant) = store.opens(plain(asks_v2(1, "R", 0x4711)));
    assert_eq!((grant.state, grant.version.epoch()), (state("R"), 0x4712));
    let (h2, grant) = store.opens(plain(asks_v2(1, "RWH", 0x4712)));
    assert_eq!((grant.state, grant.version.epoch()), (CachingState::RWH, 0x4713));
    store.object.close(h2);
    let (sent, grant) = store.opens_after_breaks(plain(asks_v2(2, "R", 0x11)));
    assert_eq!((sent.concat().as_str(), grant.state), ("1 RWH>RH!", state("R")));
    assert_eq!((grant.version.epoch(), store.grant_of(1).version.epoch()), (0x12, 0x4714));
    let h3 = lease::caching::OpenId(store.opens);
    assert_eq!(store.opens(plain(asks_v2(1, "RH", 0x4714))).1.version.epoch(), 0x4714);
    assert_eq!(store.acts(Act::Write, Actor::Open(h)), Judgement::Go(()));
    assert_eq!((store.out[0].epoch, store.settles()), (0x13, vec!["2 R>none".to_owned()]));
    assert_eq!(store.acts(Act::Write, Actor::Open(h3)), Judgement::Go(()));
    assert_eq!((store.out[0].epoch, store.settles()), (0x4715, vec!["1 RH>none!".to_owned()]));
}

#[test]
fn v2_epoch2_and_v2_epoch3() {
    let mut store = Store::file();
    store.opens(plain(asks_v2(1, "RH", 0x11)));
    assert_eq!(store.opens(plain(asks(1, "RWH"))).1.version, LeaseVersion::V2 { epoch: 0x13, parent: None });
    let mut store = Store::held(1, "RH");
    assert_eq!(store.opens(plain(asks_v2(1, "RWH", 0x11))).1.version, LeaseVersion::V1);
}

#[test]
fn v2_request_parent() {
    let version = LeaseVersion::v2(0x11, LeaseVersion::PARENT_KEY_SET, [2; 16]);
    let with = Asks::Lease { lease: super::lease(1), state: CachingState::RWH, version };
    let granted = Store::file().opens(plain(with)).1.version;
    assert_eq!(granted, LeaseVersion::V2 { epoch: 0x12, parent: Some(key(2)) });
}

#[test]
fn timeout() {
    let mut store = Store::file();
    let (h, _) = store.opens(plain(asks(1, "RWH")));
    store.waits(plain(asks(2, "RWH")), &[1]);
    store.object.expire(lease::Time(lease::caching::ACKNOWLEDGE_WITHIN_MS));
    let (hnew, grant) = store.opens(plain(asks(2, "RWH")));
    assert_eq!(grant.state, CachingState::RH);
    assert_eq!(store.acknowledges(1, "RH"), Err(AcknowledgeError::NotBreaking));
    assert_eq!(store.opens(plain(asks(1, ""))).1.state, CachingState::NONE);
    store.out.clear();
    assert_eq!(store.acts(Act::Write, Actor::Open(h)), Judgement::Go(()));
    assert_eq!(store.settles(), ["2 RH>none!"]);
    assert_eq!(store.acts(Act::Write, Actor::Open(hnew)), Judgement::Go(()));
    assert_eq!(store.sent(), [""; 0]);
    store.object.close(hnew);
    assert_eq!(store.opens(plain(asks(1, "R"))).1.state, state("R"));
    assert_eq!(store.opens(plain(asks(1, "RWH"))).1.state, CachingState::RWH);
}

#[test]
fn v2_rename_unlink_and_rename_wait() {
    let mut store = Store::file();
    let (open, _) = store.opens(plain(asks_v2(1, "RWH", 0x11)));
    assert_eq!(store.acts(Act::Rename, Actor::Open(open)), Judgement::Go(()));
    assert_eq!(store.sent(), [""; 0]);
    store.opens_after_breaks(plain(asks_v2(2, "RWH", 0x44)));
    assert_eq!(store.acts(Act::Rename, Actor::Open(open)), waits_for(&[2]));
    assert_eq!((store.out[0].epoch, store.settles()), (0x46, vec!["2 RH>R!".to_owned()]));
    assert_eq!(store.acts(Act::Rename, Actor::Open(open)), Judgement::Go(()));
    assert_eq!(store.acts(Act::Dispose, Actor::Other), waits_for(&[1]));
    assert_eq!(store.sent(), ["1 RH>R!"]);
}

#[test]
fn two_leases() {
    let mut store = Store::file();
    let (one, _) = store.opens(plain(asks(1, "RH")));
    let (two, _) = store.opens(plain(asks(2, "RH")));
    store.waits(exclusive(Asks::Nothing), &[1, 2]);
    assert_eq!(store.sent(), ["1 RH>R!", "2 RH>R!"]);
    store.object.close(one);
    store.waits(exclusive(Asks::Nothing), &[2]);
    store.object.close(two);
    store.opens(exclusive(Asks::Nothing));
    assert_eq!(store.sent(), [""; 0]);
}

/// `unlink_*`: nothing breaks before the last close, and the directory whose key both handles gave
/// stays.
#[test]
fn unlink_same_and_different() {
    for (last, sent) in [(1, vec!["2 RH>none!"]), (2, vec!["1 RH>none!", "2 RH>none!"])] {
        let mut store = Store::directory();
        store.opens(plain(asks(1, "RH")));
        store.opens(plain(asks(2, "RH")));
        let actor = Actor::deleting(Some(key(1)), Some(key(last)));
        assert_eq!(store.acts(Act::ChangeListing, actor), Judgement::Go(()));
        assert_eq!(store.sent(), sent);
    }
}
