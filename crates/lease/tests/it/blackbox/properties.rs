//! The shipped code and the definition agree after any steps.

use crate::blackbox::definition::{Definition, Enumerable, Parity};
use lease::SessionId;
use lease::blackbox::{
    BlackBox, BlackBoxAnswer, BoundedMax, Departure, GrantPolicy, NotABlackBox, Or, Own, Recall,
    SaturatingCount, SelfWrites, StateC, SubLease, TableRow, Unshielded,
};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    AskOtherRead(u64),
    AskSelfWrite(u64),
    /// A return that the server might get at any time. The number chooses among the values.
    ReturnSelfWrite(u64, usize),
    ReturnOtherRead(u64),
    Leave(u64),
    /// The field is stored and read back. Later steps must not differ.
    Reload,
}

const POLICIES: [GrantPolicy; 4] = [
    GrantPolicy::FARSITE,
    GrantPolicy { self_writes: SelfWrites::Growing, unshielded: Unshielded::RecallReaders },
    GrantPolicy { self_writes: SelfWrites::All, unshielded: Unshielded::CoerceShield },
    GrantPolicy { self_writes: SelfWrites::Growing, unshielded: Unshielded::CoerceShield },
];

/// So many clients that the index comes and goes, with few of them at a time.
fn step(clients: u64) -> impl Strategy<Value = Step> {
    let client = 1..=clients;
    prop_oneof![
        4 => client.clone().prop_map(Step::AskOtherRead),
        5 => client.clone().prop_map(Step::AskSelfWrite),
        5 => (client.clone(), 0..4_usize).prop_map(|(x, value)| Step::ReturnSelfWrite(x, value)),
        2 => client.clone().prop_map(Step::ReturnOtherRead),
        1 => client.prop_map(Step::Leave),
        1 => Just(Step::Reload),
    ]
}

struct Both<A: Enumerable> {
    shipped: BlackBox<A>,
    definition: Definition<A>,
    policy: GrantPolicy,
}

impl<A: Enumerable> Both<A> {
    fn run(policy: GrantPolicy, steps: &[Step]) {
        let mut both =
            Both::<A> { shipped: BlackBox::new(), definition: Definition::of(&BlackBox::new()), policy };
        for step in steps {
            both.step(*step);
            assert_eq!(both.shipped.check(), Ok(()), "after {step:?}");
            assert_eq!(Definition::of(&both.shipped), both.definition, "after {step:?}");
            assert!(both.definition.holds(), "after {step:?}");
            assert_eq!(both.shipped.len(), both.definition.clients.len());
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::AskOtherRead(x) => self.ask_other_read(SessionId(x)),
            Step::AskSelfWrite(x) => self.ask_self_write(SessionId(x)),
            Step::ReturnSelfWrite(x, value) => {
                let values = A::values();
                let value = values[value % values.len()];
                self.return_self_write(SessionId(x), value);
            }
            Step::ReturnOtherRead(x) => {
                let x = SessionId(x);
                assert_eq!(self.shipped.return_other_read(x).is_ok(), self.definition.reads(x));
                self.definition.set(x, self.definition.own(x), false);
            }
            Step::Leave(x) => self.leave(SessionId(x)),
            Step::Reload => {
                let bytes = postcard::to_stdvec(&self.shipped).expect("written");
                let again: BlackBox<A> = postcard::from_bytes(&bytes).expect("read back");
                assert_eq!(again, self.shipped);
                assert_eq!(postcard::to_stdvec(&again).expect("written"), bytes);
                self.shipped = again;
            }
        }
    }

    fn ask_other_read(&mut self, x: SessionId) {
        let grantable = self.definition.grantable_other_read(x);
        let held = self.definition.reads(x);
        assert_eq!(self.shipped.state_c(Some(x)) == StateC::C3, grantable.is_none());
        match self.shipped.ask_other_read(x, self.policy, 1) {
            BlackBoxAnswer::Held(value) => assert_eq!((held, Some(value)), (true, grantable)),
            BlackBoxAnswer::Granted(value) => {
                assert_eq!((held, Some(value)), (false, grantable));
                self.definition.set(x, self.definition.own(x), true);
            }
            BlackBoxAnswer::Recall(recalls) => {
                assert_eq!((held, grantable), (false, None));
                let mut writers = self.definition.writers_but(x);
                if self.policy.self_writes == SelfWrites::Growing {
                    writers.truncate(2);
                }
                assert_eq!(recalls, of(SubLease::SelfWrite, writers));
            }
        }
    }

    fn ask_self_write(&mut self, x: SessionId) {
        let exposed = self.definition.exposed_to(x);
        let held = self.definition.own(x) == Own::Writing;
        match self.shipped.ask_self_write(x, self.policy, 1) {
            BlackBoxAnswer::Held(()) => assert!(held && exposed.is_empty()),
            BlackBoxAnswer::Granted(()) => {
                assert!(!held && exposed.is_empty());
                self.definition.set(x, Own::Writing, self.definition.reads(x));
            }
            BlackBoxAnswer::Recall(recalls) => {
                assert!(!held && !exposed.is_empty());
                let mut thirds = self.definition.writers_but(x);
                thirds.retain(|z| exposed.iter().any(|y| y != z));
                let coerce = self.policy.unshielded == Unshielded::CoerceShield
                    && !thirds.is_empty()
                    && A::ABSORBING.is_some();
                if coerce && self.policy.self_writes == SelfWrites::Growing {
                    thirds.truncate(2);
                }
                let expected = match coerce {
                    true => of(SubLease::SelfWrite, thirds),
                    false => of(SubLease::OtherRead, exposed),
                };
                assert_eq!(recalls, expected);
            }
        }
    }

    fn return_self_write(&mut self, x: SessionId, value: A::Value) {
        let held = self.definition.own(x) == Own::Writing;
        assert_eq!(self.shipped.return_self_write(x, value).is_ok(), held);
        if held {
            self.definition.set(x, Own::Stuck(value), self.definition.reads(x));
        }
    }

    fn leave(&mut self, x: SessionId) {
        self.definition.set(x, self.definition.own(x), false);
        let resting = self.definition.resting_on(x);
        match self.shipped.leave(x) {
            Departure::Gone => {
                assert_eq!(resting, []);
                self.definition.clients.remove(&x);
            }
            Departure::Recall(recalls) => {
                assert!(!resting.is_empty());
                assert_eq!(recalls, of(SubLease::OtherRead, resting));
            }
        }
    }
}

fn of(lease: SubLease, sessions: Vec<SessionId>) -> Vec<Recall> {
    sessions.into_iter().map(|session| Recall { session, lease }).collect()
}

proptest! {
    #[test]
    fn or_is_as_defined(policy in 0..4_usize, steps in prop::collection::vec(step(5), 0..80)) {
        Both::<Or>::run(POLICIES[policy], &steps);
    }

    #[test]
    fn bounded_max_is_as_defined(policy in 0..4_usize, steps in prop::collection::vec(step(5), 0..80)) {
        Both::<BoundedMax<2>>::run(POLICIES[policy], &steps);
    }

    #[test]
    fn saturating_count_is_as_defined(policy in 0..4_usize, steps in prop::collection::vec(step(5), 0..80)) {
        Both::<SaturatingCount<3>>::run(POLICIES[policy], &steps);
    }

    #[test]
    fn an_aggregate_without_shields_is_as_defined(policy in 0..4_usize, steps in prop::collection::vec(step(4), 0..60)) {
        Both::<Parity>::run(POLICIES[policy], &steps);
    }

    #[test]
    fn an_aggregate_is_a_commutative_monoid(a in 0..4_usize, b in 0..4_usize, c in 0..4_usize, count in 0..9_u32) {
        is_a_commutative_monoid::<Or>([a, b, c], count);
        is_a_commutative_monoid::<BoundedMax<3>>([a, b, c], count);
        is_a_commutative_monoid::<SaturatingCount<3>>([a, b, c], count);
        is_a_commutative_monoid::<Parity>([a, b, c], count);
    }

    /// Any bytes give an error, or a field that can exist and is written to the same bytes.
    #[test]
    fn bytes_are_input(bytes in prop::collection::vec(0..6_u8, 0..30)) {
        if let Ok((field, rest)) = postcard::take_from_bytes::<BlackBox<Or>>(&bytes) {
            prop_assert_eq!(field.check(), Ok(()));
            prop_assert!(Definition::of(&field).holds());
            prop_assert_eq!(&postcard::to_stdvec(&field).expect("written")[..], &bytes[..bytes.len() - rest.len()]);
        }
    }

    /// A client's answers depend on the others' values only through the aggregate. Two fields with
    /// other holders and the same aggregate give it the same answers.
    #[test]
    fn the_same_aggregate_looks_the_same(one in prop::collection::vec(step(5), 0..60), two in prop::collection::vec(step(5), 0..60)) {
        let (mut one, mut two) = (field_after(&one), field_after(&two));
        let x = SessionId(9);
        let ask = |field: &mut BlackBox<SaturatingCount<3>>| field.ask_other_read(x, GrantPolicy::FARSITE, 0);
        if let (BlackBoxAnswer::Granted(a), BlackBoxAnswer::Granted(b)) = (ask(&mut one), ask(&mut two)) {
            prop_assert_eq!(a == b, one.everyone() == two.everyone());
            prop_assert_eq!(ask(&mut one) == ask(&mut two), a == b);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// With the index, and without it again.
    #[test]
    fn many_clients_are_as_defined(policy in 0..4_usize, steps in prop::collection::vec(step(40), 0..300)) {
        Both::<Or>::run(POLICIES[policy], &steps);
        Both::<SaturatingCount<3>>::run(POLICIES[policy], &steps);
    }
}

fn field_after(steps: &[Step]) -> BlackBox<SaturatingCount<3>> {
    let mut both = Both {
        shipped: BlackBox::new(),
        definition: Definition::of(&BlackBox::new()),
        policy: GrantPolicy::FARSITE,
    };
    for step in steps {
        both.step(*step);
    }
    both.shipped
}

fn is_a_commutative_monoid<A: Enumerable>(picks: [usize; 3], count: u32) {
    let values = A::values();
    let [a, b, c] = picks.map(|pick| values[pick % values.len()]);
    assert_eq!(A::combine(a, b), A::combine(b, a));
    assert_eq!(A::combine(A::combine(a, b), c), A::combine(a, A::combine(b, c)));
    assert_eq!(A::combine(a, A::IDENTITY), a);
    assert_eq!(A::repeat(a, count), (0..count).fold(A::IDENTITY, |all, _| A::combine(all, a)));
    let absorbs = |z: &A::Value| values.iter().all(|value| A::combine(*z, *value) == *z);
    assert_eq!(values.iter().copied().find(absorbs), A::ABSORBING);
}

#[test]
fn rows_that_make_no_field_are_refused() {
    let row = |session, own, reads| TableRow { session: SessionId(session), own, reads };
    let refused = |rows: &[TableRow<u8>]| {
        let bytes = postcard::to_stdvec(rows).expect("written");
        assert!(postcard::from_bytes::<BlackBox<BoundedMax<2>>>(&bytes).is_err());
        BlackBox::<BoundedMax<2>>::from_rows(rows).expect_err("refused")
    };
    let (one, two) = (row(1, Own::Stuck(1), true), row(2, Own::Writing, false));
    let stuck = row(3, Own::Stuck(2), false);
    assert!(BlackBox::<BoundedMax<2>>::from_rows(&[one, two, stuck]).is_ok());
    assert_eq!(refused(&[two, one, stuck]), NotABlackBox::Disorder);
    assert_eq!(refused(&[two, two]), NotABlackBox::Disorder);
    assert!(matches!(refused(&[one, two]), NotABlackBox::Broken(_)), "what 1 sees, 2 may change");
    assert!(matches!(refused(&[row(1, Own::Stuck(3), false)]), NotABlackBox::Broken(_)), "no such value");
    assert!(matches!(refused(&[row(1, Own::Stuck(0), false)]), NotABlackBox::Broken(_)), "listed needlessly");
}
