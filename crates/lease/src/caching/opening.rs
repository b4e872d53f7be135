//! Opens: what they break, and what they are granted (MS-SMB2 §3.3.1.4, MS-FSA §2.1.5.18).

use super::access::{AccessMask, Sharing, conflict};
use super::act::Toll;
use super::holder::{LeaseHolder, LeaseId, OpenId, Own};
use super::object::{CachingHandle, Judgement, Object};
use super::record::{Break, LeaseVersion, Record, legal};
use super::state::CachingState;
use crate::Time;
use std::collections::BTreeSet;

/// A request to open the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opening {
    /// The rights.
    pub access: AccessMask,
    /// The sharing.
    pub sharing: Sharing,
    /// Whether it replaces what the file has: OVERWRITE, OVERWRITE_IF or SUPERSEDE.
    pub overwrites: bool,
    /// Whether a byte-range lock starts below the end of the file. After an overwriting open no
    /// lock does.
    pub locked: bool,
    /// Whether the object has a deletion disposition.
    pub deleting: bool,
    /// The state that is asked for. The caller has taken off what the share does not allow.
    pub asks: Asks,
}

/// The state that an open asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asks {
    /// No lease and no oplock.
    Nothing,
    /// A legacy oplock: R is level II, RW exclusive, RWH batch.
    Oplock(CachingState),
    /// A lease.
    Lease {
        /// The lease.
        lease: LeaseId,
        /// The state.
        state: CachingState,
        /// The version of the request.
        version: LeaseVersion,
    },
}

/// The state of a holder, for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The state. During a break, the one before.
    pub state: CachingState,
    /// Whether a break is under way (flag 0x2).
    pub is_breaking: bool,
    /// The version, which is that of the open that made the lease.
    pub version: LeaseVersion,
}

/// STATUS_SHARING_VIOLATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another open excludes this one by its access or its sharing; try again after it is closed")]
pub struct SharingViolation;

impl Grant {
    const NOTHING: Grant = Grant { state: CachingState::NONE, is_breaking: false, version: LeaseVersion::V1 };

    pub(super) fn of(record: &Record) -> Grant {
        Grant { state: record.state, is_breaking: record.is_breaking(), version: record.version }
    }
}

impl Opening {
    fn own(&self) -> Own {
        match self.asks {
            Asks::Lease { lease, .. } => Own::Key(lease.key),
            Asks::Oplock(_) | Asks::Nothing => Own::Nothing,
        }
    }

    fn toll(&self) -> Toll {
        if self.overwrites { Toll::DATA } else { Toll::WRITE }
    }

    /// Whether it breaks such a holder at all: a stat open does not, unless it overwrites.
    fn breaks(&self, holder: LeaseHolder) -> bool {
        self.overwrites
            || match holder {
                LeaseHolder::Lease(_) => !self.access.is_stat(),
                LeaseHolder::Oplock(_) => !self.access.is_stat_to_oplocks(),
            }
    }
}

impl Object {
    /// Judges the access and the sharing of an open, and nothing else. If its caller has to ask
    /// elsewhere, too, no data is taken from anybody before all have let the open in.
    ///
    /// Handle caching that is in the way goes first, and the open is judged again. If handles are
    /// in the way still, the open is refused, and write caching stays.
    ///
    /// Leases whose handles are not in the way are not asked. This departs from MS-FSA §2.1.4.12:
    /// because their handles would not help, and the open would wait for them.
    pub fn admit(
        &mut self,
        now: Time,
        opening: Opening,
        out: &mut Vec<Break>,
    ) -> Result<Judgement<()>, SharingViolation> {
        let (own, modes) = (opening.own(), opening.access.modes(opening.sharing));
        let mut in_the_way = self.opens.values().filter(|handle| conflict(handle.modes, modes)).peekable();
        if in_the_way.peek().is_none() {
            return Ok(Judgement::Go(()));
        }
        let holders: BTreeSet<LeaseHolder> = in_the_way.filter_map(|handle| handle.holder).collect();
        let others = |holder| own.is_not(Some(holder)) && holders.contains(&holder);
        match self.charge_each(now, Toll::HANDLE, out, others) {
            Judgement::Go(()) => Err(SharingViolation),
            Judgement::Waits(holders) => Ok(Judgement::Waits(holders)),
        }
    }

    /// Judges an open, breaks what it takes away, and if it may go on notes it as `open`. It is
    /// admitted first ([`Object::admit`]). An open that goes on breaks nothing by what it is
    /// granted.
    ///
    /// # Panics
    /// If `open` is the number of an open that has gone on.
    pub fn open(
        &mut self,
        now: Time,
        open: OpenId,
        opening: Opening,
        out: &mut Vec<Break>,
    ) -> Result<Judgement<Grant>, SharingViolation> {
        if let Judgement::Waits(holders) = self.admit(now, opening, out)? {
            return Ok(Judgement::Waits(holders));
        }
        let (own, modes) = (opening.own(), opening.access.modes(opening.sharing));
        let pays = |holder| own.is_not(Some(holder)) && opening.breaks(holder);
        if let Judgement::Waits(holders) = self.charge_each(now, opening.toll(), out, pays) {
            return Ok(Judgement::Waits(holders));
        }
        let (holder, grant) = self.grant(open, own, &opening);
        let handle = CachingHandle { holder, modes, is_stat: opening.access.is_stat() };
        assert!(self.opens.insert(open, handle).is_none(), "an open has a number of its own");
        Ok(Judgement::Go(grant))
    }

    /// Grants what fits. A first open gets the part of its request that fits. A further open of a
    /// lease gets all that it asks for, if that is a strict superset and fits, or changes nothing.
    ///
    /// A request that is no superset departs from MS-SMB2 §3.3.1.4, which takes it for the union
    /// with what is held: because Windows (MS-SMB2 §3.3.5.9.8) and the conformance tests
    /// (`upgrade2`) leave the state as it is.
    fn grant(&mut self, open: OpenId, own: Own, opening: &Opening) -> (Option<LeaseHolder>, Grant) {
        let (holder, asked, version) = match opening.asks {
            Asks::Nothing => return (None, Grant::NOTHING),
            Asks::Oplock(state) => (LeaseHolder::Oplock(open), state, LeaseVersion::V1),
            Asks::Lease { lease, state, version } => (LeaseHolder::Lease(lease), state, version),
        };
        let asks = legal(holder, if self.is_directory { asked.but(CachingState::WRITE) } else { asked });
        let fits = legal(holder, asks.and(self.room(holder, own, opening)));
        if let (LeaseHolder::Oplock(_), CachingState::NONE) = (holder, fits) {
            return (None, Grant::NOTHING);
        }
        let record = self.records.entry(holder).or_insert_with(|| Record::new(fits, version));
        if fits == asks {
            record.promote(asks);
        }
        record.opens += 1;
        (Some(holder), Grant::of(record))
    }

    /// Returns the flags that nobody else's state, open or lock stands in the way of.
    fn room(&self, holder: LeaseHolder, own: Own, opening: &Opening) -> CachingState {
        let is_oplock = matches!(holder, LeaseHolder::Oplock(_));
        // While any holder breaks, nothing is granted: otherwise a break might never end, and two
        // clients could be made to take a state from each other for ever.
        let is_breaking = self.records.values().any(Record::is_breaking);
        if is_breaking || (opening.locked && !opening.overwrites) || (is_oplock && self.is_directory) {
            return CachingState::NONE;
        }
        let mut room = self.cover;
        let is_opened = |handle: &CachingHandle| !handle.is_stat && own.is_not(handle.holder);
        if self.opens.values().any(is_opened) {
            room = room.but(CachingState::WRITE);
        }
        if opening.deleting {
            room = room.but(CachingState::HANDLE);
        }
        for (other, record) in self.records.iter().filter(|(other, _)| own.is_not(Some(**other))) {
            let (has, oplock) = (record.state, matches!(other, LeaseHolder::Oplock(_)));
            if has.has(CachingState::WRITE) || (is_oplock && has.has(CachingState::HANDLE)) {
                return CachingState::NONE;
            }
            if has != CachingState::NONE {
                room = room.but(if oplock {
                    CachingState::WRITE.or(CachingState::HANDLE)
                } else {
                    CachingState::WRITE
                });
            }
        }
        room
    }
}
