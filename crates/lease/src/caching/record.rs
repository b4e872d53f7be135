//! One lease or oplock: what its client was told, and what is needed now.

use super::act::Toll;
use super::holder::{LeaseHolder, LeaseKey};
use super::state::CachingState;
use crate::Time;

/// The time in which a client has to acknowledge a break. It is less than the time for which an SMB
/// client waits for an answer to a request of its own (60 s).
pub const ACKNOWLEDGE_WITHIN_MS: u64 = 35_000;

/// The version of a lease: that of the create context of the open that made it. Later opens do not
/// change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseVersion {
    /// No epoch and no parent key (SMB 2.1).
    V1,
    /// SMB 3.x.
    V2 {
        /// In a request the client's epoch, in an answer and a break the lease's. It wraps.
        epoch: u16,
        /// The key of the lease on the parent directory. An answer has the one of the open that
        /// made the lease.
        parent: Option<LeaseKey>,
    },
}

impl LeaseVersion {
    /// The flag of a version 2 context that says that its parent key counts.
    pub const PARENT_KEY_SET: u32 = 0x4;

    /// Returns the version 2 of a request. Its parent key is ignored without the flag, and so is
    /// every other flag.
    pub fn v2(epoch: u16, flags: u32, parent: [u8; 16]) -> LeaseVersion {
        let parent = if flags & LeaseVersion::PARENT_KEY_SET != 0 { LeaseKey::new(parent) } else { None };
        LeaseVersion::V2 { epoch, parent }
    }

    /// Returns the epoch for a message; 0 in version 1.
    pub fn epoch(self) -> u16 {
        match self {
            LeaseVersion::V1 => 0,
            LeaseVersion::V2 { epoch, .. } => epoch,
        }
    }

    fn advance(&mut self) {
        if let LeaseVersion::V2 { epoch, .. } = self {
            *epoch = epoch.wrapping_add(1);
        }
    }
}

/// A notification to a holder that its state falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Break {
    /// The addressee.
    pub holder: LeaseHolder,
    /// The state before.
    pub from: CachingState,
    /// The new state. An oplock's is level II (R) or none.
    pub to: CachingState,
    /// The epoch; 0 for leases of version 1 and for oplocks.
    pub epoch: u16,
    /// Whether the holder has to acknowledge. Otherwise the new state counts already.
    pub acknowledge: bool,
}

/// A refusal of an acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcknowledgeError {
    /// STATUS_OBJECT_NAME_NOT_FOUND.
    #[error("the client acknowledges a lease that it does not have: it has closed the last open")]
    Unknown,
    /// STATUS_UNSUCCESSFUL.
    #[error("the client acknowledges a break that is over, or that there was not: an open says what it has")]
    NotBreaking,
    /// STATUS_REQUEST_NOT_ACCEPTED. The break stays open.
    #[error("the client wants to keep more than it was told: it may keep {told} at most")]
    MoreThanTold {
        /// The state that the break has.
        told: CachingState,
    },
}

/// The state of a holder, and its break.
///
/// A break goes through up to three notifications, one at a time. The first has all flags that the
/// act takes. A further act sends nothing and tightens `needed`. After the acknowledgment the rest
/// falls in steps, first to R and then to none, as Windows does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    /// While a step is not acknowledged, the state before it.
    pub(super) state: CachingState,
    breaking: Option<Breaking>,
    /// Whether the acknowledgment of a break is owed that ended by its time. Nothing is granted
    /// until it has come, late, and has been refused. This departs from MS-SMB2 §3.3.6.5: because
    /// an acknowledgment does not say which break it is for, and the late one would be taken for
    /// the answer to a later break.
    owes: bool,
    pub(super) version: LeaseVersion,
    /// The number of opens. The record lives as long as there are any, even at none.
    pub(super) opens: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Breaking {
    /// The state before the first step.
    began: CachingState,
    /// The state of the last notification, by which an acknowledgment is judged.
    told: CachingState,
    /// The state that all acts so far leave. It is within `told`, and only gets tighter.
    needed: CachingState,
    deadline: Time,
}

impl Record {
    /// Makes the record of a first open, with what it was granted.
    pub(super) fn new(state: CachingState, mut version: LeaseVersion) -> Record {
        if state != CachingState::NONE {
            version.advance();
        }
        Record { state, breaking: None, owes: false, version, opens: 0 }
    }

    pub(super) fn is_breaking(&self) -> bool {
        self.breaking.is_some()
    }

    /// Returns whether an act with this toll waits.
    ///
    /// A break with all its steps is one: an act that has to wait for any part of it waits for its
    /// end, and so does an open that comes later (`breaking3`). An act that need not wait for the
    /// acknowledgment still waits until the holder has been told of all that it takes.
    pub(super) fn holds_up(&self, toll: Toll) -> bool {
        let holds_up = |it: &Breaking| it.began.meets(toll.awaits) || it.told.meets(toll.takes);
        self.breaking.as_ref().is_some_and(holds_up)
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.breaking.as_ref().map(|breaking| breaking.deadline)
    }

    /// Takes flags away. Sends nothing if they are not there, or if a break is under way.
    pub(super) fn take(&mut self, now: Time, holder: LeaseHolder, takes: CachingState, out: &mut Vec<Break>) {
        if let Some(breaking) = &mut self.breaking {
            breaking.needed = left(holder, breaking.needed, takes);
            return;
        }
        let left = left(holder, self.state, takes);
        if left != self.state {
            self.version.advance();
            self.step(holder, Breaking::new(now, self.state, left, left), out);
        }
    }

    /// Takes the acknowledgment, and goes on to the next step, if there is one. Returns the state
    /// that counts now.
    pub(super) fn acknowledge(
        &mut self,
        now: Time,
        holder: LeaseHolder,
        keeps: CachingState,
        out: &mut Vec<Break>,
    ) -> Result<CachingState, AcknowledgeError> {
        let Some(breaking) = &self.breaking else {
            self.owes = false;
            return Err(AcknowledgeError::NotBreaking);
        };
        let (began, told, needed) = (breaking.began, breaking.told, breaking.needed);
        if !told.has(keeps) {
            return Err(AcknowledgeError::MoreThanTold { told });
        }
        let kept = legal(holder, keeps);
        (self.state, self.breaking) = (kept, None);
        if !needed.has(kept) {
            // The state that is needed has fewer flags than the one that was told, of which there
            // were two at most. So the next step is R, or none at once.
            let to = if kept == CachingState::READ { CachingState::NONE } else { CachingState::READ };
            self.step(holder, Breaking::new(now, began, to, needed), out);
        }
        Ok(kept)
    }

    /// Ends a break that nobody acknowledged in time. Returns whether it did.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let expired = self.deadline().is_some_and(|deadline| deadline <= now);
        if expired {
            (self.state, self.breaking, self.owes) = (CachingState::NONE, None, true);
        }
        expired
    }

    /// Returns the last notification, if its acknowledgment has not come.
    pub(super) fn told(&self, holder: LeaseHolder) -> Option<Break> {
        let to = self.breaking.as_ref()?.told;
        Some(Break { holder, from: self.state, to, epoch: self.version.epoch(), acknowledge: true })
    }

    /// Grants all that a further open asks for and that fits, or changes nothing.
    pub(super) fn promote(&mut self, state: CachingState) {
        if !self.owes && state.has(self.state) && state != self.state {
            self.state = state;
            self.version.advance();
        }
    }

    /// Tells the holder. R falls to none at once, without an acknowledgment.
    fn step(&mut self, holder: LeaseHolder, next: Breaking, out: &mut Vec<Break>) {
        let (from, to, acknowledge) = (self.state, next.told, self.state != CachingState::READ);
        if acknowledge {
            self.breaking = Some(next);
        } else {
            self.state = to;
        }
        out.push(Break { holder, from, to, epoch: self.version.epoch(), acknowledge });
    }
}

impl Breaking {
    fn new(now: Time, began: CachingState, told: CachingState, needed: CachingState) -> Breaking {
        Breaking { began, told, needed, deadline: now.after_ms(ACKNOWLEDGE_WITHIN_MS) }
    }
}

/// Returns the largest state within `flags` that the holder can have.
pub(super) fn legal(holder: LeaseHolder, flags: CachingState) -> CachingState {
    match holder {
        LeaseHolder::Lease(_) => flags.of_lease(),
        LeaseHolder::Oplock(_) => flags.of_oplock(),
    }
}

/// Returns the state without the flags that are taken. An oplock that loses anything falls to level
/// II at least: batch does not break to exclusive.
fn left(holder: LeaseHolder, state: CachingState, takes: CachingState) -> CachingState {
    match holder {
        LeaseHolder::Lease(_) => state.but(takes).of_lease(),
        LeaseHolder::Oplock(_) if !state.meets(takes) => state,
        LeaseHolder::Oplock(_) => state.but(takes).and(CachingState::READ),
    }
}
