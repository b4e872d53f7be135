//! The explicit table of leases and their holders, one row for each file.

use crate::blackbox::{
    self, BlackBox, BlackBoxAnswer, Departure, GrantPolicy, Or, Own, Recall, SubLease, TableRow,
};
use crate::{Field, Held, Kind, Label, OpenModes, SessionId};
use serde::{Deserialize, Deserializer, Serialize};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// The leases of all sessions on one file. Usually that is one session, which needs no allocation.
///
/// The table grants without a check: [`Holdings::in_the_way`] says beforehand whether a lease may
/// be granted. [`Holdings::check`] finds violations afterwards.
///
/// For the black-box fields it also lists the sessions that are stuck TRUE: they returned
/// `SelfWrite` with that value. All others are stuck at FALSE or hold `SelfWrite`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holdings {
    /// By session, ascending; no entry is empty.
    holders: SmallVec<[(SessionId, Held); 1]>,
    /// Sessions that have the file open and cannot change that, ascending, and in which ways. None
    /// holds `SelfWrite` of a box that it is stuck at.
    stuck: SmallVec<[(SessionId, OpenModes); 1]>,
}

/// A lease that must be released before another can be granted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InTheWay {
    /// The holder.
    pub session: SessionId,
    /// The field; for one label of an infinite lease, that label.
    pub field: Field,
    /// The kind that the holder may keep.
    pub keep: Option<Kind>,
}

/// Evidence that a rule of leases is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseViolation {
    /// Two sessions hold leases that cannot be held at once.
    #[error("{} holds {} and {} holds {} on the same {field}", first.0, first.1, second.0, second.1)]
    Disagreement {
        /// The field.
        field: Field,
        /// One session, and the kind that it holds.
        first: (SessionId, Kind),
        /// The other session, likewise.
        second: (SessionId, Kind),
    },
    /// Leases on a black box that conflict with the clients' values, or with each other.
    #[error("{field}: {broken}")]
    BlackBox {
        /// The black box.
        field: Field,
        /// The violation.
        broken: blackbox::ConditionViolation,
    },
    /// A session is noted as stuck at a box of which it holds `SelfWrite`. Its value can be
    /// anything, so nothing is known of it.
    #[error("{session} may change its own value of {field}, and is noted to be stuck at it")]
    StuckWriter {
        /// The black box.
        field: Field,
        /// The session.
        session: SessionId,
    },
    /// A kind of lease that does not exist on this field.
    #[error("{session} holds {kind} on {field}")]
    NoSuchLease {
        /// The holder.
        session: SessionId,
        /// The field.
        field: Field,
        /// The kind.
        kind: Kind,
    },
}

impl Holdings {
    /// Returns the leases of `session`, if it holds any.
    pub fn held(&self, session: SessionId) -> Option<&Held> {
        self.find(session).ok().and_then(|at| self.holders.get(at)).map(|(_, held)| held)
    }

    /// Returns whether `session` holds enough for `kind` on `field`.
    pub fn covers(&self, session: SessionId, field: &Field, kind: Kind) -> bool {
        self.held(session).is_some_and(|held| held.covers(field, kind))
    }

    /// Returns whether no session holds a lease, or has the file open.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.stuck.is_empty()
    }

    /// Returns whether no session but `session` holds a lease, or has the file open.
    pub fn is_alone(&self, session: SessionId) -> bool {
        self.holders.iter().all(|(holder, _)| *holder == session)
            && self.stuck.iter().all(|(stuck, _)| *stuck == session)
    }

    /// Returns the sessions that have the file open and cannot change that, in order, and in which
    /// ways.
    pub fn stuck(&self) -> &[(SessionId, OpenModes)] {
        &self.stuck
    }

    /// Returns whether `session` has the file open in any way and cannot change that.
    pub fn is_stuck(&self, session: SessionId) -> bool {
        !self.stuck_at(session).is_closed()
    }

    /// Builds the black box `field` from the holders and the stuck sessions. The time grows with
    /// the number of clients that hold anything of the file.
    pub fn black_box(&self, field: &Field) -> BlackBox<Or> {
        let own = |session: SessionId, kind: Option<Kind>| match kind {
            Some(kind) if SubLease::SelfWrite.is_in(kind) => Own::Writing,
            _ => Own::Stuck(self.stuck_at(session).has(field)),
        };
        let row = |session: SessionId, kind: Option<Kind>| TableRow {
            session,
            own: own(session, kind),
            reads: kind.is_some_and(|kind| SubLease::OtherRead.is_in(kind)),
        };
        let holders = self.holders.iter().map(|(session, held)| row(*session, held.kind(field)));
        let others = self.stuck.iter().filter(|(session, _)| self.held(*session).is_none());
        BlackBox::of(holders.chain(others.map(|(session, _)| row(*session, None))))
    }

    /// Returns the sessions and their leases, in the order of sessions.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Held)> {
        self.holders.iter().map(|(session, held)| (*session, held))
    }

    /// Returns exactly what others must release before `session` can be granted `kind` on `field`,
    /// in the order of sessions. A writer may keep what agrees with `kind`. The holder of an
    /// infinite lease releases only the one label that is asked for. A request for all labels
    /// conflicts with others' infinite leases and with their single labels. For a black box, these
    /// are the recalls of procedures E and F (BlackBox §4.8, §4.9).
    pub fn in_the_way(&self, session: SessionId, field: &Field, kind: Kind) -> Vec<InTheWay> {
        if field.is_black_box() {
            let mut black_box = self.black_box(field);
            let mut recalls = Vec::new();
            if SubLease::OtherRead.is_in(kind)
                && let BlackBoxAnswer::Recall(recalled) =
                    black_box.ask_other_read(session, GrantPolicy::FARSITE, 0)
            {
                recalls.extend(recalled);
            }
            if SubLease::SelfWrite.is_in(kind)
                && let BlackBoxAnswer::Recall(recalled) =
                    black_box.ask_self_write(session, GrantPolicy::FARSITE, 0)
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

    /// Returns the aggregate of all clients' values of the black box `field`, for the server
    /// itself.
    ///
    /// # Errors
    /// The leases that must be released before the aggregate is known.
    pub fn anybody(&self, field: &Field) -> Result<bool, Vec<InTheWay>> {
        match self.black_box(field).ask_everyone(GrantPolicy::FARSITE, 0) {
            BlackBoxAnswer::Held(value) | BlackBoxAnswer::Granted(value) => Ok(value),
            BlackBoxAnswer::Recall(recalls) => Err(self.to_be_returned(field, recalls)),
        }
    }

    /// Ends the stuck values of `session`, which is over.
    ///
    /// # Errors
    /// The views that rest on such a value, and must be released first.
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

    /// Returns the labels (attributes) that an infinite lease `field` for `session` has to exclude,
    /// so that no other session has to release anything. None if exclusions do not help, because
    /// another infinite lease is in the way.
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

    /// Grants `session` `kind` on `field`; an infinite lease goes without `excluded`.
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

    /// Grants `session` everything in write. No other session may have the file open.
    pub fn grant_whole(&mut self, session: SessionId) {
        self.change(session, |held| *held = Held::whole());
        self.stuck.retain(|(stuck, _)| *stuck != session);
    }

    /// Notes that `session` returned the black-box lease on `field` down to `keep`. If `SelfWrite`
    /// went with that, its own value is `value`.
    pub fn return_black_box(&mut self, session: SessionId, field: &Field, keep: Option<Kind>, value: bool) {
        let wrote = self.covers(session, field, Kind::Touch);
        self.release(session, field, keep);
        if value && wrote && !self.covers(session, field, Kind::Touch) {
            self.stick(session, field, true);
        }
    }

    /// Notes that `session` released `field` down to `keep`.
    pub fn release(&mut self, session: SessionId, field: &Field, keep: Option<Kind>) {
        if self.held(session).is_some() {
            self.change(session, |held| held.release(field, keep));
        }
    }

    /// Ends the leases of `session`. Its stuck values stay until it may [`Holdings::leave`].
    pub fn end(&mut self, session: SessionId) {
        self.retain(|holder| holder != session);
    }

    /// Ends the leases of all sessions but those that stay.
    pub fn retain(&mut self, mut stays: impl FnMut(SessionId) -> bool) {
        self.holders.retain(|(session, _)| stays(*session));
    }

    /// Checks every rule of leases. Different sessions' leases agree, label by label and on all
    /// labels that they do not name. All leases are of kinds that exist. The views of black boxes
    /// are fixed.
    pub fn check(&self) -> Result<(), LeaseViolation> {
        for (at, (session, held)) in self.holders.iter().enumerate() {
            if let Some((field, kind)) = held.iter().find(|(field, kind)| !field.admits(*kind)) {
                return Err(LeaseViolation::NoSuchLease { session: *session, field, kind });
            }
            for (other, theirs) in self.holders.iter().skip(at + 1) {
                for field in held.fields_with(theirs) {
                    if let (Some(a), Some(b)) = (held.kind(&field), theirs.kind(&field))
                        && !field.is_black_box()
                        && !a.agrees_with(b)
                    {
                        return Err(LeaseViolation::Disagreement {
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
                return Err(LeaseViolation::StuckWriter { field, session });
            }
            self.black_box(&field).check().map_err(|broken| LeaseViolation::BlackBox { field, broken })?;
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

    /// Returns the ways in which `session` has the file open and cannot change that.
    fn stuck_at(&self, session: SessionId) -> OpenModes {
        let at = self.stuck.binary_search_by_key(&session, |(stuck, _)| *stuck);
        at.ok().and_then(|at| self.stuck.get(at)).map_or(OpenModes::CLOSED, |(_, open)| *open)
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

    /// Turns recalls into what each holder may keep, in the order of sessions.
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
        /// The stored form.
        #[derive(Deserialize)]
        #[serde(rename = "Holdings")]
        struct StoredHoldings {
            holders: SmallVec<[(SessionId, Held); 1]>,
            stuck: SmallVec<[(SessionId, OpenModes); 1]>,
        }
        let StoredHoldings { holders, stuck } = StoredHoldings::deserialize(deserializer)?;
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
