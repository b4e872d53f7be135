//! The server's answer to a request: procedures E and F (BlackBox §4.8, §4.9), and the end of a
//! session.

use super::{Aggregate, BlackBox, Class, Own, StateC, StateD};
use crate::{Kind, SessionId};
use serde::{Deserialize, Serialize};

/// The two leases on one field (BlackBox §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SubLease {
    /// Its holder may change its own value.
    SelfWrite,
    /// Its holder sees the aggregate of the others' values.
    OtherRead,
}

impl SubLease {
    /// Returns the kind of lease that it is on a black-box field.
    pub fn kind(self) -> Kind {
        match self {
            SubLease::SelfWrite => Kind::Touch,
            SubLease::OtherRead => Kind::Read,
        }
    }

    /// Returns whether a lease of this kind on a black-box field includes it.
    pub fn is_in(self, kind: Kind) -> bool {
        kind.covers(self.kind())
    }
}

/// A recall of one lease. The session is the addressee. A recall does not say which client asked
/// for the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Recall {
    /// The holder.
    pub session: SessionId,
    /// The lease, one of the two.
    pub lease: SubLease,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlackBoxAnswer<V> {
    /// The client has the lease already.
    Held(V),
    /// The client now has the lease.
    Granted(V),
    /// These leases must be recalled, in the order of sessions. When all are returned, the request
    /// is made again.
    Recall(Vec<Recall>),
}

/// The result of ending a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The session is no longer listed.
    Gone,
    /// These leases must be recalled first. When all are returned, the session is ended again.
    Recall(Vec<Recall>),
}

/// The choices that the report leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GrantPolicy {
    /// In C-3 (and in D-3, if shields are coerced).
    pub self_writes: SelfWrites,
    /// In D-3.
    pub unshielded: Unshielded,
}

/// The number of `SelfWrite`s recalled at a time; a few may be enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SelfWrites {
    /// All that may matter: one round, many messages.
    All,
    /// 1, then 2, then 4, ...: few messages where one in two values is absorbing. The number of
    /// rounds grows with the logarithm of the clients.
    Growing,
}

/// The choice in D-3: a client wants to write, others see it, and some client may be their shield.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unshielded {
    /// Recall `OtherRead` from all clients that see it: one round, which always helps.
    RecallReaders,
    /// Recall `SelfWrite` from clients that may turn out to be shields. If one does, the clients
    /// that see the writer keep `OtherRead`.
    CoerceShield,
}

impl GrantPolicy {
    /// The policy of Farsite (BlackBox §4.8, §4.9).
    pub const FARSITE: GrantPolicy =
        GrantPolicy { self_writes: SelfWrites::All, unshielded: Unshielded::RecallReaders };
}

impl Default for GrantPolicy {
    fn default() -> GrantPolicy {
        GrantPolicy::FARSITE
    }
}

impl<A: Aggregate> BlackBox<A> {
    /// Procedure E: `x` asks for `OtherRead` (BlackBox §4.8, Fig. E). `round` is how often recalls
    /// for this request were returned.
    pub fn ask_other_read(
        &mut self,
        x: SessionId,
        policy: GrantPolicy,
        round: u32,
    ) -> BlackBoxAnswer<A::Value> {
        let its = self.class(x);
        // E-1: X has it already.
        if its.reads {
            return BlackBoxAnswer::Held(self.others_of(Some(its)).1);
        }
        let answer = self.look_at_others(Some((x, its)), policy, round);
        if let BlackBoxAnswer::Granted(_) = answer {
            self.put(x, Class { reads: true, ..its });
        }
        answer
    }

    /// Asks for the aggregate of all clients' values, for the server itself. It is procedure E for
    /// an asker that has no value of its own and keeps no lease.
    pub fn ask_everyone(&self, policy: GrantPolicy, round: u32) -> BlackBoxAnswer<A::Value> {
        self.look_at_others(None, policy, round)
    }

    /// Procedure F: `x` asks for `SelfWrite` (BlackBox §4.9, Fig. F). `round` is how often recalls
    /// for this request were returned.
    ///
    /// The report counts shields. Only an aggregate in which one client alone can be absorbing has
    /// shields. In general form, no shields means that the others' stuck values are not absorbing.
    /// One shield means that they are, but not without the client in question.
    pub fn ask_self_write(&mut self, x: SessionId, policy: GrantPolicy, round: u32) -> BlackBoxAnswer<()> {
        // F-1: X has it already.
        let its = self.class(x);
        if its.own == Own::Writing {
            return BlackBoxAnswer::Held(());
        }
        // F-2 to F-4. With no shields, every other client that holds OtherRead is exposed (F-3).
        // With one, only that shield is exposed, if it holds OtherRead (F-4). With two, no client
        // is.
        let recalls = match (self.state_d_of(its), policy.unshielded) {
            // F-5 (two shields, or one that ignores X), F-8 (no shields, and all others ignore X).
            (StateD::D1, _) => {
                self.put(x, Class { own: Own::Writing, ..its });
                return BlackBoxAnswer::Granted(());
            }
            // Not in Fig. F: the other choice that Fig. D allows in D-3.
            (StateD::D3, Unshielded::CoerceShield) => self.coerced_for((x, its), policy.self_writes, round),
            // F-6 (no shields: all others that hold OtherRead), F-7 (one: the shield).
            (StateD::D2 | StateD::D3, _) => {
                self.all_in(self.exposed_to(its).collect(), Some(x), SubLease::OtherRead)
            }
        };
        BlackBoxAnswer::Recall(recalls)
    }

    /// Ends the session `x`, or gives it up. This is a self-write to the identity, after which
    /// nothing is known of the session. It departs from BlackBox §4.7: because the identity is one
    /// value of many, only the views that rest on the departing value are recalled.
    ///
    /// The session is over for `x` at the first call, and its grants are void. Its value stays
    /// until no other client's view rests on it.
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
        policy: GrantPolicy,
        round: u32,
    ) -> BlackBoxAnswer<A::Value> {
        match self.others_of(x.map(|(_, its)| its)) {
            // E-2, E-3: C-1, and X gets the absorbing value. E-4, E-5: C-2, and X gets the
            // aggregate of the others' stuck values.
            (StateC::C1 | StateC::C2, value) => BlackBoxAnswer::Granted(value),
            // E-6: C-3, by elimination.
            (StateC::C3, _) => {
                let writers = self.all_in(self.writing(), x.map(|(x, _)| x), SubLease::SelfWrite);
                BlackBoxAnswer::Recall(policy.self_writes.some_of(writers, round))
            }
        }
    }

    /// D-3: returns recalls of the others' `SelfWrite`s that may come back with a shield. If one
    /// client alone is exposed, it is no shield for itself.
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

    /// Returns recalls of `lease` from all clients in these classes but `x`. They are in the order
    /// of sessions, so that every replica has the same.
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
