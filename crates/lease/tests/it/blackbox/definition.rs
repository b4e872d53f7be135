//! The definition of what may be granted: it tries every completion of the values that are not
//! stuck (BlackBox §4.6, §4.7).

use lease::SessionId;
use lease::blackbox::{Aggregate, BlackBox, BoundedMax, Or, Own, SaturatingCount};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// An aggregate of which all values can be tried.
pub trait Enumerable: Aggregate<Value: Send + Sync> + Clone + Debug + Eq + Send + Sync + 'static {
    fn values() -> Vec<Self::Value>;
}

impl Enumerable for Or {
    fn values() -> Vec<bool> {
        vec![false, true]
    }
}

impl<const MAX: u8> Enumerable for BoundedMax<MAX> {
    fn values() -> Vec<u8> {
        (0..=MAX).collect()
    }
}

impl<const MAX: u32> Enumerable for SaturatingCount<MAX> {
    fn values() -> Vec<u32> {
        (0..=MAX).collect()
    }
}

/// The exclusive or: a monoid without an absorbing element. So there are no shields, and nothing to
/// coerce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {}

impl Aggregate for Parity {
    type Value = bool;
    const IDENTITY: bool = false;
    const ABSORBING: Option<bool> = None;

    fn combine(a: bool, b: bool) -> bool {
        a != b
    }
}

impl Enumerable for Parity {
    fn values() -> Vec<bool> {
        vec![false, true]
    }
}

/// One field, client by client, in the plainest form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition<A: Enumerable> {
    pub clients: BTreeMap<SessionId, (Own<A::Value>, bool)>,
}

impl<A: Enumerable> Definition<A> {
    pub fn of(field: &BlackBox<A>) -> Definition<A> {
        let rows = field.members();
        Definition { clients: rows.into_iter().map(|row| (row.session, (row.own, row.reads))).collect() }
    }

    pub fn own(&self, x: SessionId) -> Own<A::Value> {
        self.clients.get(&x).map_or(Own::Stuck(A::IDENTITY), |(own, _)| *own)
    }

    pub fn reads(&self, x: SessionId) -> bool {
        self.clients.get(&x).is_some_and(|(_, reads)| *reads)
    }

    pub fn set(&mut self, x: SessionId, own: Own<A::Value>, reads: bool) {
        self.clients.insert(x, (own, reads));
        self.clients.retain(|_, client| *client != (Own::Stuck(A::IDENTITY), false));
    }

    /// Returns all aggregates that `x` may see, over all completions.
    pub fn possible(&self, x: SessionId) -> BTreeSet<A::Value> {
        let others = self.clients.iter().filter(|(session, _)| **session != x);
        let mut all = BTreeSet::from([A::IDENTITY]);
        for (_, (own, _)) in others {
            let choices = match own {
                Own::Stuck(value) => vec![*value],
                Own::Writing => A::values(),
            };
            all = all.iter().flat_map(|a| choices.iter().map(|b| A::combine(*a, *b))).collect();
        }
        all
    }

    /// Returns the value that `x` can get, if there is only one.
    pub fn grantable_other_read(&self, x: SessionId) -> Option<A::Value> {
        let possible = self.possible(x);
        possible.first().copied().filter(|_| possible.len() == 1)
    }

    /// Returns the holders of `OtherRead` that might see another value if `x` wrote.
    pub fn exposed_to(&self, x: SessionId) -> Vec<SessionId> {
        let mut writing = self.clone();
        writing.set(x, Own::Writing, self.reads(x));
        self.readers().filter(|y| *y != x && writing.possible(*y).len() > 1).collect()
    }

    /// Returns the holders of `OtherRead` that might see another value if `x` were gone.
    pub fn resting_on(&self, x: SessionId) -> Vec<SessionId> {
        let mut gone = self.clone();
        gone.clients.remove(&x);
        self.readers().filter(|y| *y != x && gone.possible(*y) != self.possible(*y)).collect()
    }

    pub fn writers_but(&self, x: SessionId) -> Vec<SessionId> {
        let writing = self.clients.iter().filter(|(_, (own, _))| *own == Own::Writing);
        writing.map(|(session, _)| *session).filter(|session| *session != x).collect()
    }

    /// Returns whether every view is fixed.
    pub fn holds(&self) -> bool {
        self.readers().all(|x| self.possible(x).len() == 1)
    }

    fn readers(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.clients.iter().filter(|(_, (_, reads))| *reads).map(|(session, _)| *session)
    }
}
