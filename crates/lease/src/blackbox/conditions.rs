//! The conditions of a grant: states C-1 to C-3 and D-1 to D-3 for any aggregate (BlackBox §4.6,
//! §4.7).
//!
//! Let s be the aggregate of the stuck values of some clients. Add one that writes. It may choose
//! the identity, which leaves s. So the aggregate of them all is fixed exactly if s combined with
//! any value is s, that is, if s is absorbing. Hence two questions decide everything: does any
//! client write, and is s absorbing? The number of clients in each class answers both.

use super::{Aggregate, BlackBox, Class, Own};
use crate::SessionId;

/// The state of a request for `OtherRead` by client X (BlackBox §4.6, Fig. C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateC {
    /// The stuck values of others are absorbing by themselves. X can get that value, whatever
    /// others write.
    C1,
    /// Otherwise, and no other client writes. X can get the aggregate of the others' stuck values.
    C2,
    /// Another client writes, and X's view depends on it. Only a recall of `SelfWrite` helps.
    C3,
}

/// The state of a request for `SelfWrite` by client X (BlackBox §4.7, Fig. D).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateD {
    /// Every other client is shielded from X's value, or ignores it.
    D1,
    /// Some client sees X's value, and no client can become its shield. Only a recall of
    /// `OtherRead` helps.
    D2,
    /// Some client sees X's value, and a third client writes, which may turn out to be its shield.
    D3,
}

/// Evidence that a rule of black-box leases is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionViolation {
    /// A client holds `OtherRead`, and its view depends on a client that writes.
    #[error("{0} sees what another may change")]
    Unshielded(SessionId),
    /// A client is stuck at a value that does not exist.
    #[error("{0} is stuck at no value")]
    NoSuchValue(SessionId),
    /// A client is listed without need, or derived data disagrees with the rest.
    #[error("counted wrongly")]
    Miscounted,
}

impl<A: Aggregate> BlackBox<A> {
    /// Returns which of C-1 to C-3 holds for a request by `x`, granted already or not. None stands
    /// for the server itself.
    pub fn state_c(&self, x: Option<SessionId>) -> StateC {
        self.others_of(x.map(|x| self.class(x))).0
    }

    /// Returns which of D-1 to D-3 holds for a request by `x`.
    pub fn state_d(&self, x: SessionId) -> StateD {
        self.state_d_of(self.class(x))
    }

    /// Returns which of C-1 to C-3 holds for a client of this class, and the aggregate of the
    /// others' stuck values. Only the class of a client matters.
    pub(super) fn others_of(&self, its: Option<Class<A::Value>>) -> (StateC, A::Value) {
        let stuck = self.stuck_without([its.map(|its| its.own), None]);
        let state = if Some(stuck) == A::ABSORBING {
            StateC::C1
        } else if self.writers_but(its) == 0 {
            StateC::C2
        } else {
            StateC::C3
        };
        (state, stuck)
    }

    /// Returns which of D-1 to D-3 holds for a client of this class.
    pub(super) fn state_d_of(&self, its: Class<A::Value>) -> StateD {
        let mut exposed = self.exposed_to(its).peekable();
        if exposed.peek().is_none() {
            return StateD::D1;
        }
        // A third client: neither X nor the one that is to be shielded.
        let writers = self.writers_but(Some(its));
        let has_third = |class: Class<A::Value>| writers > u32::from(class.own == Own::Writing);
        if A::ABSORBING.is_some() && exposed.any(has_third) { StateD::D3 } else { StateD::D2 }
    }

    /// Checks every rule. The stuck values fix each client's view, and counts are right.
    pub fn check(&self) -> Result<(), ConditionViolation> {
        if !self.members.is_consistent() {
            return Err(ConditionViolation::Miscounted);
        }
        for (class, sessions) in self.members.classes() {
            let &[session, ..] = sessions else { return Err(ConditionViolation::Miscounted) };
            if class == Self::UNLISTED {
                return Err(ConditionViolation::Miscounted);
            }
            if matches!(class.own, Own::Stuck(value) if !A::admits(value)) {
                return Err(ConditionViolation::NoSuchValue(session));
            }
            if class.reads && self.state_c(Some(session)) == StateC::C3 {
                return Err(ConditionViolation::Unshielded(session));
            }
        }
        Ok(())
    }

    /// Returns the classes of the clients, other than one of class `its`, that see its value. They
    /// hold `OtherRead`, and the stuck values of all but the two do not fix their view.
    pub(super) fn exposed_to(
        &self,
        its: Class<A::Value>,
    ) -> impl Iterator<Item = Class<A::Value>> + use<'_, A> {
        // A value that is not absorbing does not become so with one client fewer. So if there is no
        // shield without X, the second test is skipped.
        let shielded = self.is_absorbing_without([Some(its.own), None]);
        let sees = move |class: &Class<A::Value>| {
            !shielded || !self.is_absorbing_without([Some(its.own), Some(class.own)])
        };
        self.readers_but(its).filter(sees)
    }

    /// Returns the classes of the clients, other than one of class `its`, whose view would or might
    /// change if its value became the identity.
    pub(super) fn resting_on(
        &self,
        its: Class<A::Value>,
    ) -> impl Iterator<Item = Class<A::Value>> + use<'_, A> {
        let rests = move |class: &Class<A::Value>| {
            let before = self.stuck_without([Some(class.own), None]);
            let after = self.stuck_without([Some(class.own), Some(its.own)]);
            let others_write = self.writers_but(Some(its)) > u32::from(class.own == Own::Writing);
            before != after || (others_write && Some(after) != A::ABSORBING)
        };
        // No view rests on a value that may be anything, or on the identity.
        let matters = its.own != Own::Writing && its.own != Own::Stuck(A::IDENTITY);
        self.readers_but(its).filter(move |class| matters && rests(class))
    }

    /// Returns the number of clients that hold `SelfWrite`, other than one of class `its`.
    pub(super) fn writers_but(&self, its: Option<Class<A::Value>>) -> u32 {
        let writing = self.members.counts().filter(|(class, _)| class.own == Own::Writing);
        let all: u32 = writing.map(|(_, count)| count).sum();
        all - u32::from(its.is_some_and(|its| its.own == Own::Writing))
    }

    /// Returns the aggregate of the stuck values, without those of (at most) two clients. A client
    /// that writes has no stuck value. An unlisted client has the identity, which changes nothing.
    pub(super) fn stuck_without(&self, mut without: [Option<Own<A::Value>>; 2]) -> A::Value {
        let mut all = A::IDENTITY;
        for (class, mut count) in self.members.counts() {
            let Own::Stuck(value) = class.own else { continue };
            for left_out in &mut without {
                if count > 0 && *left_out == Some(class.own) {
                    *left_out = None;
                    count -= 1;
                }
            }
            all = A::combine(all, A::repeat(value, count));
        }
        all
    }

    fn is_absorbing_without(&self, without: [Option<Own<A::Value>>; 2]) -> bool {
        Some(self.stuck_without(without)) == A::ABSORBING
    }

    fn readers_but(&self, its: Class<A::Value>) -> impl Iterator<Item = Class<A::Value>> + use<'_, A> {
        let readers = self.members.counts().filter(|(class, _)| class.reads);
        readers.filter(move |(class, count)| *class != its || *count > 1).map(|(class, _)| class)
    }
}
