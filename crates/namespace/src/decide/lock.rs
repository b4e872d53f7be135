//! Locks of byte ranges: POSIX fcntl, BSD flock. They need a handle and no further permission. The
//! front door checks the handle.

use super::case::{Case, Decided};
use crate::{Answer, Effect, Error, Knowledge, LOCKS_MAX, LockChange, LockKind, LockRange, LockSpace};
use ident::FileId;
use lease::{Field, Kind};
use serde::{Deserialize, Serialize};

/// Locks or unlocks a range of bytes. Needs a handle and no other permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub file: FileId,
    pub change: LockChange,
}

impl Lock {
    /// Locks, unlocks, raises or lowers. A conflict is knowledge like any other. A second try that
    /// fails for the same reason costs no message (Farsite §6).
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Lock { file, change } = self;
        // A change without effect needs only a lease to read.
        let locks = case.locks(file, Kind::Read)?;
        if locks.has(change) {
            return Ok(Answer::Nothing);
        }
        if locks.in_the_way(change).next().is_some() {
            return Err(Error::WouldBlock.into());
        }
        // A change adds two locks at most: it cuts one in two and puts one between.
        if locks.len() + 2 > LOCKS_MAX {
            let mut after = (*locks).clone();
            after.change(change);
            if after.len() > LOCKS_MAX.max(locks.len()) {
                return Err(Error::TooManyLocks.into());
            }
        }
        case.hold(file, Field::Locks, Kind::Write);
        case.effects.push(Effect::Lock { file: file.clone(), change: *change });
        Ok(Answer::Nothing)
    }
}

/// Asks for the lock that keeps `owner` from locking `range` so (fcntl's F_GETLK), without
/// effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetLock {
    pub file: FileId,
    pub owner: u64,
    pub space: LockSpace,
    pub range: LockRange,
    pub kind: LockKind,
}

impl GetLock {
    /// The conflicting lock, if there is one (`F_GETLK`).
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let GetLock { file, owner, space, range, kind } = self;
        let locks = case.locks(file, Kind::Read)?;
        Ok(Answer::Lock(locks.conflict(*space, *owner, *range, *kind)))
    }
}
