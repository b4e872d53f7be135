//! With more knowledge an answer other than `Unknown` stays the same. A grant of the wanted leases
//! leads to an answer.

use crate::random::{Choices, World};
use crate::tree::{Seen, Tree, at, decide_proved, decide_traced};
use lease::{Kind, Lease};
use namespace::{Operation, Verdict, decide};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A random part of the leases that the operation could need: of each nothing, a weaker one, or
/// itself.
fn some_leases(choices: &mut Choices<'_>, trace: &[Lease]) -> Vec<Lease> {
    let kinds = |choices: &mut Choices<'_>, kind| match choices.pick(4) {
        0 => None,
        1 if kind == Kind::Write => Some(Kind::Read),
        _ => Some(kind),
    };
    trace
        .iter()
        .filter_map(|lease| Some(Lease { kind: kinds(choices, lease.kind)?, ..lease.clone() }))
        .collect()
}

fn check_monotone(tree: &Tree, operation: &Operation, choices: &mut Choices<'_>) {
    let (full, trace) = decide_traced(tree, operation);
    let mut leases = some_leases(choices, &trace);
    // Each round grants the wanted leases. A server that did not find the rest by itself would do
    // the same.
    for _ in 0..=trace.len() {
        match decide(operation, &Seen { tree, leases: &leases }) {
            Verdict::Unknown { wants } => {
                assert!(!wants.is_empty(), "{operation:?} wants nothing and does not decide");
                let mut goes_on = false;
                for want in wants {
                    // After an unknown other-value a rule goes on as if it were FALSE.
                    goes_on |= want.field.is_black_box() && want.kind == Kind::Read;
                    assert!(
                        goes_on || trace.contains(&want),
                        "{operation:?} wants {want:?}, which does not matter: {trace:?}"
                    );
                    assert!(!leases.contains(&want), "{operation:?} wants {want:?} twice");
                    leases.push(want);
                }
            }
            verdict => return assert_eq!(verdict, full, "{operation:?} knowing {leases:?}"),
        }
    }
    panic!("{operation:?} does not come to an end");
}

fn run(steps: &[Vec<u8>], mut on_verdict: impl FnMut(&Operation, &Verdict)) {
    let mut world = World::new();
    for (step, bytes) in steps.iter().enumerate() {
        let mut choices = Choices::new(bytes);
        let operation = world.operation(&mut choices, at(1000 + step as i64));
        check_monotone(&world.tree, &operation, &mut choices);
        let verdict = decide_proved(&world.tree, &operation);
        on_verdict(&operation, &verdict);
        if let Verdict::Done { effects, .. } = verdict {
            assert!(operation.is_update() || effects.is_empty());
            for effect in &effects {
                world.tree.apply(effect);
            }
            world.tree.check();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn decisions_are_monotone_and_proved(
        steps in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 40), 1..40),
    ) {
        run(&steps, |_, _| {});
    }
}

/// Tests the test: the random operations reach every result that a decision on whole state has.
#[test]
fn the_random_operations_reach_everything() {
    let mut done = BTreeSet::new();
    let mut errors = BTreeSet::new();
    let mut state = 1u64;
    for _ in 0..5000 {
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let steps: Vec<Vec<u8>> = (0..60).map(|_| (0..40).map(|_| byte()).collect()).collect();
        run(&steps, |operation, verdict| {
            let text = format!("{operation:?}");
            let name = text.split(['(', ' ']).next().unwrap().to_owned();
            match verdict {
                Verdict::Done { .. } => done.insert(name),
                Verdict::Refused { error, .. } => errors.insert(format!("{name} {error:?}")),
                Verdict::Unknown { .. } => unreachable!(),
            };
        });
    }
    assert_eq!(done.len(), 22, "{done:?}");
    let expected = "
        Access AccessDenied, Access Stale,
        Create AccessDenied, Create Exists, Create Invalid, Create NotDirectory, Create NotFound, Create NotPermitted,
        Dispose Invalid, GetXattr AccessDenied, GetXattr NoAttribute, GetXattr NotSupported,
        Link AccessDenied, Link Exists, Link NotFound, Link NotPermitted, Link Stale, List NotDirectory,
        Open AccessDenied, Open DeletePending, Open SharingViolation, Open Stale,
        SetDisposition AccessDenied, SetDisposition NotEmpty, SetDisposition Stale, Create DeletePending, Rename DeletePending,
        Lock WouldBlock, Lock Invalid, Lock Stale, GetLock Stale, GetLock Invalid,
        Lookup AccessDenied, Lookup NotDirectory, Lookup NotFound, Publish Invalid, ReadLink Invalid,
        RemoveXattr AccessDenied, RemoveXattr NoAttribute, RemoveXattr NotPermitted,
        Rename AccessDenied, Rename Exists, Rename Invalid, Rename IsDirectory, Rename NotDirectory, Rename NotEmpty,
        Rename NotFound, Rename NotPermitted, Rename AnotherFile, Link AnotherFile, Unlink AnotherFile, Unlink Invalid,
        Link IsDirectory, Find AccessDenied, Find NotDirectory, Find NotFound,
        SetAttributes AccessDenied, SetAttributes NotPermitted, SetAttributes NotSupported, SetAttributes Stale,
        SetXattr AccessDenied, SetXattr Exists, SetXattr Invalid, SetXattr NoAttribute, SetXattr NotPermitted,
        SetXattr NotSupported, Stat Stale,
        Unlink AccessDenied, Unlink IsDirectory, Unlink NotDirectory, Unlink NotEmpty, Unlink NotFound, Unlink NotPermitted";
    for row in expected.split(',').map(str::trim) {
        assert!(errors.contains(row), "{row} is not among {errors:?}");
    }
}
