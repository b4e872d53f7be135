//! The explicit table of who holds what, one row for each file.

use crate::blackbox::{self, Answer, BlackBox, Departure, Or, Own, Policy, Recall, Row, SubLease};
use crate::{Field, Held, Kind, Label, Open, SessionId};
use serde::{Deserialize, Deserializer, Serialize};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Who holds what of one file. Usually that is one session, which needs no allocation.
///
/// The table does what it is told: whether a lease may be granted is what [`Holdings::in_the_way`]
/// says. [`Holdings::check`] finds out afterwards.
///
/// Of the black-box fields it is known beside who holds which of their two leases whose own value
/// is stuck TRUE: whoever returned `SelfWrite` with that value. All others are stuck at FALSE or
/// hold `SelfWrite`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holdings {
    /// By session, ascending; none holds nothing.
    holders: SmallVec<[(SessionId, Held); 1]>,
    /// Who has the file open and cannot change that, ascending, and in which ways; nobody holds
    /// `SelfWrite` of what it is stuck at.
    stuck: SmallVec<[(SessionId, Open); 1]>,
}

/// What must be let go before a lease can be granted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InTheWay {
    /// Who holds it.
    pub session: SessionId,
    /// On which field; of an infinite lease asked for one label only, that label.
    pub field: Field,
    /// What may be kept.
    pub keep: Option<Kind>,
}

/// Evidence that a rule of leases is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two sessions hold what cannot be held at once.
    #[error("{} holds {} and {} holds {} on the same {field}", first.0, first.1, second.0, second.1)]
    Disagreement {
        /// On which field.
        field: Field,
        /// One, and what it holds.
        first: (SessionId, Kind),
        /// The other.
        second: (SessionId, Kind),
    },
    /// What is held of a black box goes ill with the clients' values, or with what else is held of
    /// it.
    #[error("{field}: {broken}")]
    BlackBox {
        /// Which.
        field: Field,
        /// How.
        broken: blackbox::Violation,
    },
    /// Who holds `SelfWrite` can have any value, so nothing is known of it.
    #[error("{session} may change its own value of {field}, and is noted to be stuck at it")]
    StuckWriter {
        /// Of which black box.
        field: Field,
        /// Who.
        session: SessionId,
    },
    /// A kind of lease that does not exist on this field.
    #[error("{session} holds {kind} on {field}")]
    NoSuchLease {
        /// Who.
        session: SessionId,
        /// On which field.
        field: Field,
        /// What.
        kind: Kind,
    },
}

impl Holdings {
    /// What `session` holds, if anything.
    pub fn held(&self, session: SessionId) -> Option<&Held> {
        self.find(session).ok().and_then(|at| self.holders.get(at)).map(|(_, held)| held)
    }

    /// Whether `session` holds enough for `kind` on `field`.
    pub fn covers(&self, session: SessionId, field: &Field, kind: Kind) -> bool {
        self.held(session).is_some_and(|held| held.covers(field, kind))
    }

    /// Whether nobody holds anything, or has the file open.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.stuck.is_empty()
    }

    /// Whether nobody but `session` holds anything, or has the file open.
    pub fn is_alone(&self, session: SessionId) -> bool {
        self.holders.iter().all(|(holder, _)| *holder == session)
            && self.stuck.iter().all(|(stuck, _)| *stuck == session)
    }

    /// Who has the file open and cannot change that, in the order of sessions, and in which ways.
    pub fn stuck(&self) -> &[(SessionId, Open)] {
        &self.stuck
    }

    /// Whether `session` has the file open in any way and cannot change that.
    pub fn is_stuck(&self, session: SessionId) -> bool {
        !self.stuck_at(session).is_closed()
    }

    /// What is known of the black box `field`: put together from who holds what and who is stuck,
    /// in time that grows with the clients that hold anything of the file.
    pub fn black_box(&self, field: &Field) -> BlackBox<Or> {
        let own = |session: SessionId, kind: Option<Kind>| match kind {
            Some(kind) if SubLease::SelfWrite.is_in(kind) => Own::Writing,
            _ => Own::Stuck(self.stuck_at(session).has(field)),
        };
        let row = |session: SessionId, kind: Option<Kind>| Row {
            session,
            own: own(session, kind),
            reads: kind.is_some_and(|kind| SubLease::OtherRead.is_in(kind)),
        };
        let holders = self.holders.iter().map(|(session, held)| row(*session, held.kind(field)));
        let others = self.stuck.iter().filter(|(session, _)| self.held(*session).is_none());
        BlackBox::of(holders.chain(others.map(|(session, _)| row(*session, None))))
    }

    /// Sessions and what they hold, in the order of sessions.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Held)> {
        self.holders.iter().map(|(session, held)| (*session, held))
    }

    /// Exactly what others must let go before `session` can be granted `kind` on `field`, in the
    /// order of sessions. A writer is asked down to what goes with `kind`; the holder of an
    /// infinite lease, asked for one label, for that label only. One who asks for all labels is in
    /// conflict with others' infinite leases and with their single labels. Of a black box: what
    /// procedures E and F recall (BlackBox §4.8, §4.9).
    pub fn in_the_way(&self, session: SessionId, field: &Field, kind: Kind) -> Vec<InTheWay> {
        if field.is_black_box() {
            let mut black_box = self.black_box(field);
            let mut recalls = Vec::new();
            if SubLease::OtherRead.is_in(kind)
                && let Answer::Recall(recalled) = black_box.ask_other_read(session, Policy::FARSITE, 0)
            {
                recalls.extend(recalled);
            }
            if SubLease::SelfWrite.is_in(kind)
                && let Answer::Recall(recalled) = black_box.ask_self_write(session, Policy::FARSITE, 0)
            {
                recalls.extend(recalled);
            }
            return self.to_be_returned(field, recalls);
        }
        let mut all = Vec::new();
        for (holder, held) in self.others(session) {
            held.against(field, kind, |field, keep| all.push(InTheWay { session: holder, field, keep }));
        }
        all
    }

    /// What everybody's values of the black box `field` come to, for the server itself: or what
    /// must be let go before that is known.
    pub fn anybody(&self, field: &Field) -> Result<bool, Vec<InTheWay>> {
        match self.black_box(field).ask_everyone(Policy::FARSITE, 0) {
            Answer::Held(value) | Answer::Granted(value) => Ok(value),
            Answer::Recall(recalls) => Err(self.to_be_returned(field, recalls)),
        }
    }

    /// `session` is over and no longer stuck: unless somebody sees that it was, who has to let go
    /// of that first.
    pub fn leave(&mut self, session: SessionId) -> Result<(), Vec<InTheWay>> {
        let mut seen = Vec::new();
        for field in self.stuck_at(session).fields() {
            match self.black_box(&field).leave(session) {
                Departure::Gone => self.stick(session, &field, false),
                Departure::Recall(recalls) => seen.extend(self.to_be_returned(&field, recalls)),
            }
        }
        if seen.is_empty() { Ok(()) } else { Err(seen) }
    }

    /// The labels (attributes) that an infinite lease `field` for `session` has to exclude, so that
    /// nobody need let go of anything. Nothing if excluding does not help: another infinite lease
    /// is in the way.
    pub fn excluded_for(&self, session: SessionId, field: &Field, kind: Kind) -> Option<Vec<Label>> {
        let mut labels = BTreeSet::new();
        for in_the_way in self.in_the_way(session, field, kind) {
            match in_the_way.field {
                Field::Child(label) | Field::Xattr(label) => labels.insert(label),
                _ => return None,
            };
        }
        Some(labels.into_iter().collect())
    }

    /// `session` holds `kind` on `field` from now on, if that is an infinite lease, without
    /// `excluded`.
    pub fn grant(
        &mut self,
        session: SessionId,
        field: &Field,
        kind: Kind,
        excluded: impl IntoIterator<Item = Label>,
    ) {
        self.change(session, |held| held.add_infinite(field.clone(), kind, excluded));
        if field.is_black_box() && SubLease::SelfWrite.is_in(kind) {
            self.stick(session, field, false);
        }
    }

    /// `session` holds everything in write from now on. Nobody else may have the file open.
    pub fn grant_whole(&mut self, session: SessionId) {
        self.change(session, |held| *held = Held::whole());
        self.stuck.retain(|(stuck, _)| *stuck != session);
    }

    /// `session` has let go of the black-box lease on `field` down to `keep`. If `SelfWrite` went
    /// with that, its own value is `value`.
    pub fn return_black_box(&mut self, session: SessionId, field: &Field, keep: Option<Kind>, value: bool) {
        let wrote = self.covers(session, field, Kind::Touch);
        self.release(session, field, keep);
        if value && wrote && !self.covers(session, field, Kind::Touch) {
            self.stick(session, field, true);
        }
    }

    /// `session` has let go of `field` down to `keep`.
    pub fn release(&mut self, session: SessionId, field: &Field, keep: Option<Kind>) {
        if self.held(session).is_some() {
            self.change(session, |held| held.release(field, keep));
        }
    }

    /// `session` holds nothing any more. What it is stuck at stays until it may
    /// [`Holdings::leave`].
    pub fn end(&mut self, session: SessionId) {
        self.retain(|holder| holder != session);
    }

    /// Only the sessions that are to stay hold anything from now on.
    pub fn retain(&mut self, mut stays: impl FnMut(SessionId) -> bool) {
        self.holders.retain(|(session, _)| stays(*session));
    }

    /// Whether every rule of leases holds: what different sessions hold agrees, label by label and
    /// in all that they do not name; and leases are of kinds that exist; and what is seen of black
    /// boxes is fixed.
    pub fn check(&self) -> Result<(), Violation> {
        for (at, (session, held)) in self.holders.iter().enumerate() {
            if let Some((field, kind)) = held.iter().find(|(field, kind)| !field.admits(*kind)) {
                return Err(Violation::NoSuchLease { session: *session, field, kind });
            }
            for (other, theirs) in self.holders.iter().skip(at + 1) {
                for field in held.fields_with(theirs) {
                    if let (Some(a), Some(b)) = (held.kind(&field), theirs.kind(&field))
                        && !field.is_black_box()
                        && !a.agrees_with(b)
                    {
                        return Err(Violation::Disagreement {
                            field,
                            first: (*session, a),
                            second: (*other, b),
                        });
                    }
                }
            }
        }
        for field in Field::BLACK_BOXES {
            if let Some(session) = self.stuck_writer(&field) {
                return Err(Violation::StuckWriter { field, session });
            }
            self.black_box(&field).check().map_err(|broken| Violation::BlackBox { field, broken })?;
        }
        Ok(())
    }

    fn others(&self, session: SessionId) -> impl Iterator<Item = (SessionId, &Held)> {
        self.iter().filter(move |(holder, _)| *holder != session)
    }

    fn find(&self, session: SessionId) -> Result<usize, usize> {
        self.holders.binary_search_by_key(&session, |(holder, _)| *holder)
    }

    fn change(&mut self, session: SessionId, change: impl FnOnce(&mut Held)) {
        let at = self.find(session).unwrap_or_else(|at| {
            self.holders.insert(at, (session, Held::default()));
            at
        });
        change(&mut self.holders[at].1);
        if self.holders[at].1.is_empty() {
            self.holders.remove(at);
        }
    }

    /// In which ways `session` has the file open and cannot change that.
    fn stuck_at(&self, session: SessionId) -> Open {
        let at = self.stuck.binary_search_by_key(&session, |(stuck, _)| *stuck);
        at.ok().and_then(|at| self.stuck.get(at)).map_or(Open::CLOSED, |(_, open)| *open)
    }

    fn stick(&mut self, session: SessionId, field: &Field, value: bool) {
        let mut open = self.stuck_at(session);
        open.set(field, value);
        match self.stuck.binary_search_by_key(&session, |(stuck, _)| *stuck) {
            Ok(at) if open.is_closed() => _ = self.stuck.remove(at),
            Ok(at) => self.stuck[at].1 = open,
            Err(_) if open.is_closed() => {}
            Err(at) => self.stuck.insert(at, (session, open)),
        }
    }

    fn stuck_writer(&self, field: &Field) -> Option<SessionId> {
        let stuck = self.stuck.iter().filter(|(_, open)| open.has(field));
        stuck.map(|(session, _)| *session).find(|session| self.covers(*session, field, Kind::Touch))
    }

    /// The recalls as what may be kept, in the order of sessions.
    fn to_be_returned(&self, field: &Field, recalls: Vec<Recall>) -> Vec<InTheWay> {
        let mut kept: BTreeMap<SessionId, Option<Kind>> = BTreeMap::new();
        for Recall { session, lease } in recalls {
            let keep =
                kept.entry(session).or_insert_with(|| self.held(session).and_then(|held| held.kind(field)));
            *keep = keep.and_then(|kind| kind.without(lease.kind()));
        }
        kept.into_iter().map(|(session, keep)| InTheWay { session, field: field.clone(), keep }).collect()
    }
}

impl<'de> Deserialize<'de> for Holdings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Holdings, D::Error> {
        /// As it is written.
        #[derive(Deserialize)]
        #[serde(rename = "Holdings")]
        struct Written {
            holders: SmallVec<[(SessionId, Held); 1]>,
            stuck: SmallVec<[(SessionId, Open); 1]>,
        }
        let Written { holders, stuck } = Written::deserialize(deserializer)?;
        let ascending =
            holders.is_sorted_by(|(a, _), (b, _)| a < b) && stuck.is_sorted_by(|(a, _), (b, _)| a < b);
        let some = holders.iter().all(|(_, held)| !held.is_empty())
            && stuck.iter().all(|(_, open)| !open.is_closed());
        let holdings = Holdings { holders, stuck };
        if ascending && some && Field::BLACK_BOXES.iter().all(|field| holdings.stuck_writer(field).is_none())
        {
            Ok(holdings)
        } else {
            Err(serde::de::Error::custom("holders not in their one order"))
        }
    }
}
