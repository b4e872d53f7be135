//! The table of leases: every pair that can meet, and random histories checked against the rule
//! itself.

use lease::{Field, Held, Holdings, InTheWay, Kind, Label, LeaseViolation, Mode, OpenModes, SessionId};
use proptest::prelude::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const KINDS: [Kind; 3] = [Kind::Read, Kind::Touch, Kind::Write];

fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).expect("a label")
}

fn child(name: &str) -> Field {
    Field::Child(label(name))
}

fn xattr(name: &str) -> Field {
    Field::Xattr(label(name))
}

/// Returns holdings in which `A` holds these leases.
fn held(leases: &[(Field, Kind, &[&str])]) -> Holdings {
    let mut holdings = Holdings::default();
    for (field, kind, excluded) in leases {
        holdings.grant(A, field, *kind, excluded.iter().map(|name| label(name)));
    }
    holdings
}

fn asked(holdings: &Holdings, field: &Field, kind: Kind) -> Vec<(Field, Option<Kind>)> {
    let in_the_way = holdings.in_the_way(B, field, kind);
    assert!(in_the_way.iter().all(|it| it.session == A));
    in_the_way.into_iter().map(|it| (it.field, it.keep)).collect()
}

#[test]
fn every_pair_of_kinds_on_one_field() {
    use Kind::{Read, Touch, Write};
    // A's kind, B's request, and what A may keep if it has to release.
    let rows = [
        (Read, Read, None),
        (Read, Touch, Some(None)),
        (Read, Write, Some(None)),
        (Touch, Read, Some(None)),
        (Touch, Touch, None),
        (Touch, Write, Some(None)),
        (Write, Read, Some(Some(Read))),
        (Write, Touch, Some(Some(Touch))),
        (Write, Write, Some(None)),
    ];
    for (holds, asks, expected) in rows {
        let fields = [
            Field::Times,
            Field::Attributes,
            Field::Content,
            Field::Handles,
            Field::Mode(Mode::ExcludeWrite),
            child("a"),
            xattr("a"),
        ];
        for field in fields.into_iter().filter(|field| field.admits(holds) && field.admits(asks)) {
            let answer = asked(&held(&[(field.clone(), holds, &[])]), &field, asks);
            let expected: Vec<_> = expected.iter().map(|keep| (field.clone(), *keep)).collect();
            assert_eq!(answer, expected, "{holds:?} held, {asks:?} asked of {field:?}");
        }
        assert_eq!(expected.is_none(), holds.agrees_with(asks));
        assert_eq!(holds.agrees_with(asks), asks.agrees_with(holds));
    }
    assert_eq!(rows.len(), KINDS.len() * KINDS.len());
}

#[test]
fn every_pair_of_a_label_and_all_labels() {
    use Kind::{Read, Write};
    let all = Field::Children;
    type TableRow<'a> = (&'a [(Field, Kind, &'a [&'a str])], Field, Kind, &'a [(Field, Option<Kind>)]);
    let rows: &[TableRow] = &[
        // One label held, another or the same asked for.
        (&[(child("a"), Write, &[])], child("b"), Write, &[]),
        (&[(child("a"), Write, &[])], xattr("a"), Write, &[]),
        // One label held, all asked for.
        (&[(child("a"), Read, &[])], all.clone(), Read, &[]),
        (&[(child("a"), Read, &[])], all.clone(), Write, &[(child("a"), None)]),
        (&[(child("a"), Write, &[])], all.clone(), Read, &[(child("a"), Some(Read))]),
        (&[(child("a"), Write, &[])], Field::Xattrs, Write, &[]),
        // All held, one label asked for: that label only.
        (&[(all.clone(), Read, &[])], child("a"), Read, &[]),
        (&[(all.clone(), Read, &[])], child("a"), Write, &[(child("a"), None)]),
        (&[(all.clone(), Write, &[])], child("a"), Read, &[(child("a"), Some(Read))]),
        (&[(all.clone(), Write, &[])], child("a"), Write, &[(child("a"), None)]),
        (&[(all.clone(), Write, &["a"])], child("a"), Write, &[]),
        (&[(all.clone(), Write, &["a"])], child("b"), Write, &[(child("b"), None)]),
        // All held, all asked for.
        (&[(all.clone(), Read, &[])], all.clone(), Read, &[]),
        (&[(all.clone(), Read, &["a"])], all.clone(), Write, &[(all.clone(), None)]),
        (&[(all.clone(), Write, &["a"])], all.clone(), Read, &[(all.clone(), Some(Read))]),
        // All held for reading, one of them for writing.
        (
            &[(all.clone(), Read, &[]), (child("a"), Write, &[])],
            all.clone(),
            Read,
            &[(child("a"), Some(Read))],
        ),
        (
            &[(all.clone(), Read, &["b"]), (child("a"), Write, &[])],
            all.clone(),
            Write,
            &[(all.clone(), None), (child("a"), None)],
        ),
        (
            &[(all.clone(), Read, &[]), (child("a"), Write, &[])],
            child("a"),
            Read,
            &[(child("a"), Some(Read))],
        ),
        // Attributes are the same construction.
        (&[(Field::Xattrs, Write, &["a"])], xattr("a"), Write, &[]),
        (&[(Field::Xattrs, Write, &["a"])], Field::Xattrs, Read, &[(Field::Xattrs, Some(Read))]),
        (&[(xattr("a"), Write, &[])], Field::Xattrs, Read, &[(xattr("a"), Some(Read))]),
    ];
    for (holds, field, kind, expected) in rows {
        assert_eq!(asked(&held(holds), field, *kind), *expected, "{kind:?} on {field:?} beside {holds:?}");
        assert!(held(holds).in_the_way(A, field, *kind).is_empty(), "nobody is in their own way");
    }
}

#[test]
fn an_infinite_lease_can_exclude_what_others_hold() {
    let holdings = held(&[(child("a"), Kind::Read, &[]), (child("b"), Kind::Write, &[])]);
    assert_eq!(holdings.excluded_for(B, &Field::Children, Kind::Read), Some(vec![label("b")]));
    assert_eq!(holdings.excluded_for(B, &Field::Children, Kind::Write), Some(vec![label("a"), label("b")]));
    assert_eq!(holdings.excluded_for(B, &Field::Xattrs, Kind::Write), Some(vec![]));
    let mut granted = holdings.clone();
    granted.grant(B, &Field::Children, Kind::Write, [label("a"), label("b")]);
    assert_eq!(granted.check(), Ok(()));
    assert!(granted.covers(B, &child("c"), Kind::Write) && !granted.covers(B, &child("a"), Kind::Read));
    // Another infinite lease cannot be excluded.
    let holdings = held(&[(Field::Children, Kind::Read, &["a"])]);
    assert_eq!(holdings.excluded_for(B, &Field::Children, Kind::Write), None);
    assert_eq!(holdings.excluded_for(B, &Field::Children, Kind::Read), Some(vec![]));
}

#[test]
fn what_is_granted_without_asking_is_found() {
    let mut holdings = held(&[(Field::Children, Kind::Write, &["a"])]);
    holdings.grant(B, &child("a"), Kind::Write, []);
    assert_eq!(holdings.check(), Ok(()));
    holdings.grant(B, &child("b"), Kind::Read, []);
    let evidence =
        LeaseViolation::Disagreement { field: child("b"), first: (A, Kind::Write), second: (B, Kind::Read) };
    assert_eq!(holdings.check(), Err(evidence));

    let mut holdings = Holdings::default();
    holdings.grant(A, &Field::Content, Kind::Touch, []);
    let evidence = LeaseViolation::NoSuchLease { session: A, field: Field::Content, kind: Kind::Touch };
    assert_eq!(holdings.check(), Err(evidence));

    let mut holdings = Holdings::default();
    holdings.grant_whole(A);
    holdings.grant_whole(B);
    assert!(matches!(holdings.check(), Err(LeaseViolation::Disagreement { field: Field::Attributes, .. })));
}

#[test]
fn the_row_of_a_file_just_made_is_five_bytes() {
    let mut holdings = Holdings::default();
    holdings.grant_whole(SessionId(300));
    let row = postcard::to_stdvec(&holdings).unwrap();
    assert_eq!(row.len(), 5, "one holder; two bytes of session; everything; nobody is stuck");
    assert_eq!(postcard::from_bytes::<Holdings>(&row).unwrap(), holdings);
    // Holders twice, out of order, or with no lease; stuck at nothing, at a box that does not
    // exist, or at one that the holder may change.
    for row in [
        &[2, 5, 0, 5, 0, 0][..],
        &[2, 5, 0, 4, 0, 0],
        &[1, 5, 1, 0, 0],
        &[0, 1, 5, 0],
        &[0, 1, 5, 0x80],
        &[1, 5, 0, 1, 5, 1],
    ] {
        assert!(postcard::from_bytes::<Holdings>(row).is_err(), "{row:?}");
    }
    assert!(postcard::from_bytes::<Holdings>(&[2, 4, 0, 5, 0, 0]).is_ok());
    let stuck = postcard::from_bytes::<Holdings>(&[0, 1, 5, 3]).unwrap();
    assert_eq!(stuck.stuck(), [(SessionId(5), OpenModes::with([Mode::AccessRead]))]);
}

const SESSIONS: [SessionId; 3] = [A, B, SessionId(3)];

#[derive(Clone, Debug)]
enum Step {
    /// Grants after everything in the way was released.
    Ask(SessionId, Field, Kind),
    /// Grants an infinite lease around what others hold.
    AskAround(SessionId, Field, Kind),
    Release(SessionId, Field, Option<Kind>),
    End(SessionId),
    Birth(SessionId),
}

fn step() -> impl Strategy<Value = Step> {
    let session = || prop::sample::select(SESSIONS.to_vec());
    let fields =
        [Field::Attributes, Field::Times, child("a"), child("b"), Field::Children, xattr("a"), Field::Xattrs];
    let lease = || {
        let leases = fields.iter().flat_map(|field| KINDS.map(|kind| (field.clone(), kind)));
        prop::sample::select(leases.filter(|(field, kind)| field.admits(*kind)).collect::<Vec<_>>())
    };
    let keep = prop::option::of(prop::sample::select(KINDS.to_vec()));
    prop_oneof![
        8 => (session(), lease()).prop_map(|(session, (field, kind))| Step::Ask(session, field, kind)),
        3 => (session(), any::<bool>(), any::<bool>()).prop_map(|(session, labels, write)| Step::AskAround(
            session,
            if labels { Field::Children } else { Field::Xattrs },
            if write { Kind::Write } else { Kind::Read },
        )),
        4 => (session(), lease(), keep).prop_map(|(session, (field, _), keep)| Step::Release(session, field, keep)),
        1 => session().prop_map(Step::End),
        1 => session().prop_map(Step::Birth),
    ]
}

/// Returns every single thing that the steps lease. The last label and attribute stand for all that
/// are never named.
fn atoms() -> Vec<Field> {
    let names = ["a", "b", "rest"];
    let named = names.into_iter().flat_map(|name| [child(name), xattr(name)]);
    [Field::Attributes, Field::Times, Field::Content].into_iter().chain(named).collect()
}

/// The rule itself: no two sessions hold conflicting leases on any single thing.
fn rule(holdings: &Holdings) -> Option<(Field, SessionId, SessionId)> {
    let kind = |session, field: &Field| holdings.held(session).and_then(|held| held.kind(field));
    for field in atoms() {
        for (at, a) in SESSIONS.into_iter().enumerate() {
            for b in SESSIONS.into_iter().skip(at + 1) {
                if let (Some(x), Some(y)) = (kind(a, &field), kind(b, &field))
                    && !x.agrees_with(y)
                {
                    return Some((field, a, b));
                }
            }
        }
    }
    None
}

fn released(holdings: &mut Holdings, all: &[InTheWay]) {
    for InTheWay { session, field, keep } in all {
        holdings.release(*session, field, *keep);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn what_is_let_go_is_enough_and_each_of_it_is_needed(steps in prop::collection::vec(step(), 0..40)) {
        let mut holdings = Holdings::default();
        for step in steps {
            let before = holdings.clone();
            match step {
                Step::Ask(session, field, kind) => {
                    let in_the_way = holdings.in_the_way(session, &field, kind);
                    for left_out in 0..in_the_way.len() {
                        let mut broken = before.clone();
                        let others = [&in_the_way[..left_out], &in_the_way[left_out + 1..]].concat();
                        released(&mut broken, &others);
                        broken.grant(session, &field, kind, []);
                        prop_assert!(broken.check().is_err(), "{:?} is not needed for {:?}", in_the_way[left_out], field);
                        prop_assert!(rule(&broken).is_some());
                    }
                    released(&mut holdings, &in_the_way);
                    for (holder, held) in before.iter().filter(|(holder, _)| *holder != session) {
                        // No session loses a lease that agrees with the request.
                        for atom in atoms().into_iter().filter(|atom| !atom.overlaps(&field)) {
                            let now = holdings.held(holder).and_then(|held| held.kind(&atom));
                            prop_assert_eq!(now, held.kind(&atom));
                        }
                    }
                    holdings.grant(session, &field, kind, []);
                    prop_assert!(holdings.covers(session, &field, kind));
                    prop_assert!(holdings.in_the_way(session, &field, kind).is_empty());
                }
                Step::AskAround(session, field, kind) => {
                    if let Some(excluded) = holdings.excluded_for(session, &field, kind) {
                        holdings.grant(session, &field, kind, excluded.clone());
                        prop_assert!(holdings.held(session).unwrap().kind(&field).unwrap().covers(kind));
                        for other in SESSIONS.into_iter().filter(|other| *other != session) {
                            prop_assert_eq!(holdings.held(other), before.held(other), "nobody else loses anything");
                        }
                    } else {
                        prop_assert!(!holdings.is_alone(session));
                    }
                }
                Step::Release(session, field, keep) => {
                    holdings.release(session, &field, keep);
                    for atom in atoms() {
                        let kind = |of: &Holdings| of.held(session).and_then(|held| held.kind(&atom));
                        prop_assert!(kind(&holdings) == kind(&before) || kind(&holdings) == keep || kind(&holdings).is_none());
                    }
                }
                Step::End(session) => {
                    holdings.end(session);
                    prop_assert_eq!(holdings.held(session), None);
                }
                Step::Birth(session) => {
                    holdings = Holdings::default();
                    holdings.grant_whole(session);
                    prop_assert!(holdings.is_alone(session) && holdings.held(session) == Some(&Held::whole()));
                }
            }
            prop_assert_eq!(holdings.check(), Ok(()));
            prop_assert_eq!(rule(&holdings), None);
            let row = postcard::to_stdvec(&holdings).unwrap();
            prop_assert_eq!(&postcard::from_bytes::<Holdings>(&row).unwrap(), &holdings);
        }
    }
}

/// Stuck values decide which leases agree; the tests in `blackbox` have all of it.
#[test]
fn who_is_stuck_at_having_it_open_is_a_shield() {
    use Kind::{Read, Touch, Write};
    const C: SessionId = SessionId(3);
    let handles = Field::Handles;
    let keeps = |holdings: &Holdings, session, kind| -> Vec<(SessionId, Option<Kind>)> {
        let in_the_way = holdings.in_the_way(session, &Field::Handles, kind);
        in_the_way.into_iter().map(|it| (it.session, it.keep)).collect()
    };
    let mut holdings = Holdings::default();
    holdings.grant(A, &handles, Write, []);
    assert_eq!(keeps(&holdings, B, Read), [(A, Some(Read))]);
    assert_eq!(holdings.anybody(&handles).unwrap_err()[0].keep, Some(Read));
    holdings.return_black_box(A, &handles, Some(Read), true);
    assert_eq!((holdings.stuck(), holdings.anybody(&handles)), (&[(A, OpenModes::with([]))][..], Ok(true)));
    holdings.grant(B, &handles, Read, []);
    assert_eq!(holdings.black_box(&handles).other_value(B), Some(true));
    assert_eq!(holdings.black_box(&handles).other_value(A), Some(false));
    assert_eq!(holdings.check(), Ok(()));
    // A sees C, and has no shield but itself. B, which sees A, does not notice.
    assert_eq!(keeps(&holdings, C, Touch), [(A, None)]);
    assert!(!holdings.is_alone(B) && !holdings.is_empty());
    // The stored bytes are the whole state, in one form only.
    let bytes = postcard::to_allocvec(&holdings).unwrap();
    assert_eq!(postcard::from_bytes::<Holdings>(&bytes).unwrap(), holdings);
    // A is over, and B has seen its value. So B releases its view first.
    holdings.end(A);
    let resting = holdings.leave(A).unwrap_err();
    assert_eq!((resting.len(), resting[0].session, resting[0].keep), (1, B, None));
    holdings.return_black_box(B, &handles, None, true);
    assert_eq!(
        holdings.stuck(),
        [(A, OpenModes::with([]))],
        "B did not hold what it needs to change its own value"
    );
    assert_eq!(holdings.leave(A), Ok(()));
    assert!(holdings.is_empty());
    // A session that is granted everything is stuck no longer. No session is both.
    holdings.grant(A, &handles, Touch, []);
    holdings.return_black_box(A, &handles, None, true);
    assert!(holdings.is_alone(A) && !holdings.is_empty());
    holdings.grant_whole(A);
    assert_eq!(holdings.stuck(), []);
    let open = OpenModes::with([]);
    for (holders, stuck, sound) in [
        (vec![(A, Held::whole())], vec![(A, open)], false),
        (vec![(A, Held::whole())], vec![(B, open)], true),
        (vec![(B, Held::whole())], vec![(A, open)], true),
        (vec![], vec![(A, open), (B, open)], true),
        (vec![], vec![(B, open), (A, open)], false),
    ] {
        let bytes = postcard::to_allocvec(&(&holders, &stuck)).unwrap();
        assert_eq!(postcard::from_bytes::<Holdings>(&bytes).is_ok(), sound, "{holders:?} {stuck:?}");
    }
}
