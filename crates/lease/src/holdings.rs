//! The explicit table of who holds what, one row for each file.

use crate::{Field, Held, Kind, Label, SessionId};
use serde::{Deserialize, Deserializer, Serialize};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Who holds what of one file. Usually that is one session, which needs no allocation.
///
/// The table does what it is told: whether a lease may be granted is what [`Holdings::in_the_way`] says. [`Holdings::check`] finds out
/// afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Holdings(
    /// By session, ascending; none holds nothing.
    SmallVec<[(SessionId, Held); 1]>,
);

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
    #[error("{first:?} and {second:?} both on {field:?}")]
    Disagreement {
        /// On which field.
        field: Field,
        /// One, and what it holds.
        first: (SessionId, Kind),
        /// The other.
        second: (SessionId, Kind),
    },
    /// A kind of lease that does not exist on this field.
    #[error("{session:?} holds {kind:?} on {field:?}")]
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
        self.find(session).ok().and_then(|at| self.0.get(at)).map(|(_, held)| held)
    }

    /// Whether `session` holds enough for `kind` on `field`.
    pub fn covers(&self, session: SessionId, field: &Field, kind: Kind) -> bool {
        self.held(session).is_some_and(|held| held.covers(field, kind))
    }

    /// Whether nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nobody but `session` holds anything.
    pub fn is_alone(&self, session: SessionId) -> bool {
        self.0.iter().all(|(holder, _)| *holder == session)
    }

    /// Sessions and what they hold, in the order of sessions.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Held)> {
        self.0.iter().map(|(session, held)| (*session, held))
    }

    /// Exactly what others must let go before `session` can be granted `kind` on `field`, in the order of sessions. A writer is asked down to
    /// what goes with `kind`; the holder of an infinite lease, asked for one label, for that label only. One who asks for all labels is in conflict with others'
    /// infinite leases and with their single labels.
    pub fn in_the_way(&self, session: SessionId, field: &Field, kind: Kind) -> Vec<InTheWay> {
        let mut all = Vec::new();
        for (holder, held) in self.others(session) {
            held.against(field, kind, |field, keep| all.push(InTheWay { session: holder, field, keep }));
        }
        all
    }

    /// The labels (attributes) that an infinite lease `field` for `session` has to exclude, so that nobody need let go of anything.
    /// Nothing if excluding does not help: another infinite lease is in the way.
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

    /// `session` holds `kind` on `field` from now on, if that is an infinite lease, without `excluded`.
    pub fn grant(
        &mut self,
        session: SessionId,
        field: &Field,
        kind: Kind,
        excluded: impl IntoIterator<Item = Label>,
    ) {
        self.change(session, |held| held.add_infinite(field.clone(), kind, excluded));
    }

    /// `session` holds everything in write from now on.
    pub fn grant_whole(&mut self, session: SessionId) {
        self.change(session, |held| *held = Held::whole());
    }

    /// `session` has let go of `field` down to `keep`.
    pub fn release(&mut self, session: SessionId, field: &Field, keep: Option<Kind>) {
        if self.held(session).is_some() {
            self.change(session, |held| held.release(field, keep));
        }
    }

    /// `session` holds nothing any more.
    pub fn end(&mut self, session: SessionId) {
        self.retain(|holder| holder != session);
    }

    /// Only the sessions that are to stay hold anything from now on.
    pub fn retain(&mut self, mut stays: impl FnMut(SessionId) -> bool) {
        self.0.retain(|(session, _)| stays(*session));
    }

    /// Whether every rule of leases holds: what different sessions hold agrees, label by label and in all that they do not name; and leases
    /// are of kinds that exist.
    pub fn check(&self) -> Result<(), Violation> {
        for (at, (session, held)) in self.0.iter().enumerate() {
            if let Some((field, kind)) = held.iter().find(|(field, kind)| !field.admits(*kind)) {
                return Err(Violation::NoSuchLease { session: *session, field, kind });
            }
            for (other, theirs) in self.0.iter().skip(at + 1) {
                for field in held.fields_with(theirs) {
                    if let (Some(a), Some(b)) = (held.kind(&field), theirs.kind(&field))
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
        Ok(())
    }

    fn others(&self, session: SessionId) -> impl Iterator<Item = (SessionId, &Held)> {
        self.iter().filter(move |(holder, _)| *holder != session)
    }

    fn find(&self, session: SessionId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&session, |(holder, _)| *holder)
    }

    fn change(&mut self, session: SessionId, change: impl FnOnce(&mut Held)) {
        let at = self.find(session).unwrap_or_else(|at| {
            self.0.insert(at, (session, Held::default()));
            at
        });
        change(&mut self.0[at].1);
        if self.0[at].1.is_empty() {
            self.0.remove(at);
        }
    }
}

impl<'de> Deserialize<'de> for Holdings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Holdings, D::Error> {
        let rows: SmallVec<[(SessionId, Held); 1]> = Deserialize::deserialize(deserializer)?;
        let ascending = rows.is_sorted_by(|(a, _), (b, _)| a < b);
        if ascending && rows.iter().all(|(_, held)| !held.is_empty()) {
            Ok(Holdings(rows))
        } else {
            Err(serde::de::Error::custom("holders not in their one order"))
        }
    }
}
