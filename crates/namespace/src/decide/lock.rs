//! Locks of byte ranges: POSIX fcntl, BSD flock. They need a handle and no further permission. The
//! front door checks the handle.

use super::Decided;
use super::case::Case;
use crate::{Answer, Effect, Error, Knowledge, LOCKS_MAX, LockChange, LockKind, LockRange, LockSpace};
use ident::FileId;
use lease::{Field, Kind};

/// Locks, unlocks, raises or lowers. A conflict is knowledge like any other. A second try that
/// fails for the same reason costs no message (Farsite §6).
pub(super) fn lock<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    change: &LockChange,
) -> Decided {
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

/// The conflicting lock, if there is one (`F_GETLK`).
pub(super) fn get_lock<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    owner: u64,
    space: LockSpace,
    range: LockRange,
    kind: LockKind,
) -> Decided {
    let locks = case.locks(file, Kind::Read)?;
    Ok(Answer::Lock(locks.conflict(space, owner, range, kind)))
}
