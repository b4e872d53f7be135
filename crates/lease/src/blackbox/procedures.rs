//! What the server does about a request: procedures E and F (BlackBox §4.8, §4.9), and the end of a
//! session.

use super::{Aggregate, BlackBox, Class, Own, StateC, StateD};
use crate::{Kind, SessionId};
use serde::{Deserialize, Serialize};

/// The two leases on one field (BlackBox §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SubLease {
    /// Its holder may change its own value.
    SelfWrite,
    /// Its holder sees what the others' values come to.
    OtherRead,
}

impl SubLease {
    /// The kind of lease that it is on a black-box field.
    pub fn kind(self) -> Kind {
        match self {
            SubLease::SelfWrite => Kind::Touch,
            SubLease::OtherRead => Kind::Read,
        }
    }

    /// Whether a lease of this kind on a black-box field includes it.
    pub fn is_in(self, kind: Kind) -> bool {
        kind.covers(self.kind())
    }
}

/// A lease to be asked back. The session is the addressee: for whom it is asked back is nobody's
/// business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Recall {
    /// Who holds it.
    pub session: SessionId,
    /// Which of the two.
    pub lease: SubLease,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<V> {
    /// The client has the lease already.
    Held(V),
    /// From now on the client has the lease.
    Granted(V),
    /// All of this is to be asked back, in the order of sessions; when all of it was returned, the
    /// request is to be made again.
    Recall(Vec<Recall>),
}

/// What becomes of a session that is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Nothing is known of it any more.
    Gone,
    /// All of this is to be asked back first; when all of it was returned, the session is to be
    /// ended again.
    Recall(Vec<Recall>),
}

/// The choices that the report leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Policy {
    /// In C-3 (and in D-3, if shields are coerced).
    pub self_writes: SelfWrites,
    /// In D-3.
    pub unshielded: Unshielded,
}

/// How many `SelfWrite`s are recalled at a time, in the hope that few are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SelfWrites {
    /// All that may matter: one round, many messages.
    All,
    /// 1, then 2, then 4, ...: few messages where one in two is absorbing, and a number of rounds
    /// that grows with the logarithm of the clients.
    Growing,
}

/// What is done for a client that wants to write while others see it and somebody may be their
/// shield (D-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unshielded {
    /// `OtherRead` is recalled from all that see it: one round that is sure to help.
    RecallReaders,
    /// `SelfWrite` is recalled from those that may turn out to be shields; who sees the client
    /// keeps its `OtherRead` if one does.
    CoerceShield,
}

impl Policy {
    /// What Farsite does (BlackBox §4.8, §4.9).
    pub const FARSITE: Policy =
        Policy { self_writes: SelfWrites::All, unshielded: Unshielded::RecallReaders };
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::FARSITE
    }
}

impl<A: Aggregate> BlackBox<A> {
    /// Procedure E: `x` asks for `OtherRead` (BlackBox §4.8, Fig. E). `round` says how often
    /// recalls for this request have been returned.
    pub fn ask_other_read(&mut self, x: SessionId, policy: Policy, round: u32) -> Answer<A::Value> {
        let its = self.class(x);
        // E-1: X has it already.
        if its.reads {
            return Answer::Held(self.others_of(Some(its)).1);
        }
        let answer = self.look_at_others(Some((x, its)), policy, round);
        if let Answer::Granted(_) = answer {
            self.put(x, Class { reads: true, ..its });
        }
        answer
    }

    /// The server asks for itself what the values of all clients come to: procedure E for one who
    /// has no value of its own, and keeps no lease.
    pub fn ask_everyone(&self, policy: Policy, round: u32) -> Answer<A::Value> {
        self.look_at_others(None, policy, round)
    }

    /// Procedure F: `x` asks for `SelfWrite` (BlackBox §4.9, Fig. F). `round` says how often
    /// recalls for this request have been returned.
    ///
    /// The report counts shields, which only an aggregate has where one client alone can be
    /// absorbing. In general form: no shields means that the others' stuck values are not
    /// absorbing; one shield, that they are, and not without the client that is asked about.
    pub fn ask_self_write(&mut self, x: SessionId, policy: Policy, round: u32) -> Answer<()> {
        // F-1: X has it already.
        let its = self.class(x);
        if its.own == Own::Writing {
            return Answer::Held(());
        }
        // F-2 to F-4: with no shields, who is exposed is everybody else that holds OtherRead (F-3);
        // with one, that shield, if it does (F-4); with two, nobody.
        let recalls = match (self.state_d_of(its), policy.unshielded) {
            // F-5 (two shields, or one that ignores X), F-8 (no shields, and all others ignore X).
            (StateD::D1, _) => {
                self.put(x, Class { own: Own::Writing, ..its });
                return Answer::Granted(());
            }
            // Not in Fig. F: what Fig. D allows in D-3 beside it.
            (StateD::D3, Unshielded::CoerceShield) => self.coerced_for((x, its), policy.self_writes, round),
            // F-6 (no shields: all others that hold OtherRead), F-7 (one: the shield).
            (StateD::D2 | StateD::D3, _) => {
                self.all_in(self.exposed_to(its).collect(), Some(x), SubLease::OtherRead)
            }
        };
        Answer::Recall(recalls)
    }

    /// The session `x` ends, or is given up: a self-write to the identity, after which nothing is
    /// known of it (departs from BlackBox §4.7: because the identity is one value of many, only
    /// those are recalled whose view rests on the one that goes).
    ///
    /// It is over for `x` at the first call: whatever it was granted is void. Its value stays until
    /// no other client's view rests on it.
    pub fn leave(&mut self, x: SessionId) -> Departure {
        let its = Class { reads: false, ..self.class(x) };
        self.put(x, its);
        let recalls = self.all_in(self.resting_on(its).collect(), Some(x), SubLease::OtherRead);
        if recalls.is_empty() {
            self.members.put(x, None);
            Departure::Gone
        } else {
            Departure::Recall(recalls)
        }
    }

    /// E-2 to E-6.
    fn look_at_others(
        &self,
        x: Option<(SessionId, Class<A::Value>)>,
        policy: Policy,
        round: u32,
    ) -> Answer<A::Value> {
        match self.others_of(x.map(|(_, its)| its)) {
            // E-2, E-3: C-1, and X is told the absorbing value. E-4, E-5: C-2, and X is told what
            // the others are stuck at.
            (StateC::C1 | StateC::C2, value) => Answer::Granted(value),
            // E-6: C-3, by elimination.
            (StateC::C3, _) => {
                let writers = self.all_in(self.writing(), x.map(|(x, _)| x), SubLease::SelfWrite);
                Answer::Recall(policy.self_writes.some_of(writers, round))
            }
        }
    }

    /// D-3: the others' `SelfWrite`s that may come back with a shield. One client alone that is
    /// exposed is no shield for itself.
    fn coerced_for(
        &self,
        (x, its): (SessionId, Class<A::Value>),
        self_writes: SelfWrites,
        round: u32,
    ) -> Vec<Recall> {
        let exposed = self.all_in(self.exposed_to(its).collect(), Some(x), SubLease::OtherRead);
        let mut writers = self.all_in(self.writing(), Some(x), SubLease::SelfWrite);
        if let [alone] = exposed[..] {
            writers.retain(|writer| writer.session != alone.session);
        }
        self_writes.some_of(writers, round)
    }

    fn writing(&self) -> Vec<Class<A::Value>> {
        let classes = self.members.counts().map(|(class, _)| class);
        classes.filter(|class| class.own == Own::Writing).collect()
    }

    /// A recall of `lease` from everybody in these classes but `x`. In the order of sessions, so
    /// that every replica says the same.
    fn all_in(&self, classes: Vec<Class<A::Value>>, x: Option<SessionId>, lease: SubLease) -> Vec<Recall> {
        let asked = self.members.classes().filter(|(class, _)| classes.contains(class));
        let sessions = asked.flat_map(|(_, sessions)| sessions).copied();
        let others = sessions.filter(|session| Some(*session) != x);
        let mut recalls: Vec<Recall> = others.map(|session| Recall { session, lease }).collect();
        recalls.sort_unstable();
        recalls
    }
}

impl SelfWrites {
    fn some_of(self, mut writers: Vec<Recall>, round: u32) -> Vec<Recall> {
        if self == SelfWrites::Growing {
            writers.truncate(1_usize.checked_shl(round).unwrap_or(usize::MAX));
        }
        writers
    }
}
