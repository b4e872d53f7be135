//! One object that is open on this machine, with its opens and the states of their holders.

use super::act::{Act, Actor, Toll};
use super::holder::{LeaseHolder, LeaseId, OpenId, Own};
use super::opening::Grant;
use super::record::{AcknowledgeError, Break, Record};
use super::state::CachingState;
use crate::{OpenModes, Time};
use std::collections::BTreeMap;

/// An open file, directory or stream.
///
/// Its memory grows with its opens, and each input takes time that grows with them. The caller
/// bounds the opens of each client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    pub(super) is_directory: bool,
    /// The state that the machine's own leases allow its clients.
    pub(super) cover: CachingState,
    pub(super) opens: BTreeMap<OpenId, CachingHandle>,
    pub(super) records: BTreeMap<LeaseHolder, Record>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CachingHandle {
    pub holder: Option<LeaseHolder>,
    pub modes: OpenModes,
    pub is_stat: bool,
}

/// The judgement of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement<T> {
    /// The act is done now, before the next input.
    Go(T),
    /// The act waits for these holders. It is judged again when one of them has acknowledged, has
    /// closed its last open, or has let its time pass.
    Waits(Vec<LeaseHolder>),
}

impl Object {
    /// Makes a file or stream that nobody has open. `cover` is the state that the machine's own
    /// leases allow.
    pub fn file(cover: CachingState) -> Object {
        Object { is_directory: false, cover, opens: BTreeMap::new(), records: BTreeMap::new() }
    }

    /// Makes a directory that nobody has open.
    pub fn directory(cover: CachingState) -> Object {
        Object { is_directory: true, ..Object::file(cover) }
    }

    /// Judges an act, and breaks what it takes away.
    pub fn act(&mut self, now: Time, act: Act, by: Actor, out: &mut Vec<Break>) -> Judgement<()> {
        let own = match by {
            Actor::Open(open) => Own::of(self.opens.get(&open).and_then(|handle| handle.holder)),
            Actor::Child(parent) => parent.map_or(Own::Nothing, Own::Key),
            Actor::Other => Own::Nothing,
        };
        let toll = Toll::of(act);
        // Level II goes with any change of the data, its own open's as well (MS-FSA §2.1.4.12).
        let own_level_ii = match own {
            Own::Oplock(open) if toll.takes.has(CachingState::READ) && act != Act::Overwrite => {
                let holder = LeaseHolder::Oplock(open);
                self.records.get(&holder).filter(|record| record.state == CachingState::READ).map(|_| holder)
            }
            _ => None,
        };
        self.charge_each(now, toll, out, |holder| own.is_not(Some(holder)) || own_level_ii == Some(holder))
    }

    /// Judges a recall of what the machine has above `keep`. Nothing above it is granted from here
    /// on. When the recall may go on, nobody here has any of it, and the caller answers it.
    pub fn recall(&mut self, now: Time, keep: CachingState, out: &mut Vec<Break>) -> Judgement<()> {
        self.cover = self.cover.and(keep.of_lease());
        self.charge(now, Own::Nothing, Toll::of_recall(keep), out)
    }

    /// Notes that the machine's own leases now allow this state, too. No recall of it may be
    /// unanswered.
    pub fn extend_cover(&mut self, state: CachingState) {
        self.cover = self.cover.or(state);
    }

    /// Takes an acknowledgment, over whichever connection. Returns the state for its answer, which
    /// goes out before the breaks.
    pub fn acknowledge(
        &mut self,
        now: Time,
        holder: LeaseHolder,
        keeps: CachingState,
        out: &mut Vec<Break>,
    ) -> Result<CachingState, AcknowledgeError> {
        let record = self.records.get_mut(&holder).ok_or(AcknowledgeError::Unknown)?;
        record.acknowledge(now, holder, keeps, out)
    }

    /// Closes an open. Returns the lease whose last open it was: that lease is over, and so is a
    /// break of it.
    pub fn close(&mut self, open: OpenId) -> Option<LeaseId> {
        let holder = self.opens.remove(&open)?.holder?;
        let record = self.records.get_mut(&holder)?;
        record.opens -= 1;
        if record.opens > 0 {
            return None;
        }
        self.records.remove(&holder);
        match holder {
            LeaseHolder::Lease(lease) => Some(lease),
            LeaseHolder::Oplock(_) => None,
        }
    }

    /// Returns the time at which [`Object::expire`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.records.values().filter_map(Record::deadline).min()
    }

    /// Ends the breaks that nobody acknowledged in time. Returns their holders, which now have
    /// nothing. Their opens stay good.
    pub fn expire(&mut self, now: Time) -> Vec<LeaseHolder> {
        let expired =
            self.records.iter_mut().filter_map(|(holder, record)| record.expire(now).then_some(*holder));
        expired.collect()
    }

    /// Returns what a holder has, as an answer to an open of its own would say.
    pub fn held(&self, holder: LeaseHolder) -> Option<Grant> {
        self.records.get(&holder).map(Grant::of)
    }

    /// Returns the notification of a break that is not acknowledged, for a holder that may not have
    /// heard it: the connection was lost.
    pub fn told(&self, holder: LeaseHolder) -> Option<Break> {
        self.records.get(&holder)?.told(holder)
    }

    /// Returns whether anybody has the object open.
    pub fn is_open(&self) -> bool {
        !self.opens.is_empty()
    }

    /// Takes the toll from all but the own holder.
    pub(super) fn charge(&mut self, now: Time, own: Own, toll: Toll, out: &mut Vec<Break>) -> Judgement<()> {
        self.charge_each(now, toll, out, |holder| own.is_not(Some(holder)))
    }

    pub(super) fn charge_each(
        &mut self,
        now: Time,
        toll: Toll,
        out: &mut Vec<Break>,
        pays: impl Fn(LeaseHolder) -> bool,
    ) -> Judgement<()> {
        let mut waits = Vec::new();
        for (holder, record) in self.records.iter_mut().filter(|(holder, _)| pays(**holder)) {
            record.take(now, *holder, toll.takes, out);
            if record.holds_up(toll) {
                waits.push(*holder);
            }
        }
        if waits.is_empty() { Judgement::Go(()) } else { Judgement::Waits(waits) }
    }
}
