//! The shape of operations: checks that hold in every state, made before any query. A correct
//! client never sends a malformed operation. So a server that gets one is not talking to a correct
//! client.

use crate::{
    AttributeChange, FileKind, FileSpec, LockRange, LockSpace, NewFile, Operation, RenameMode, Replaced,
    SetTime, Timestamp, fold, operation,
};
use ident::FileId;
use lease::{Field, Label};

/// The longest target of a symbolic link, in bytes (Linux' PATH_MAX less the zero byte).
pub const TARGET_BYTES_MAX: usize = 4095;

/// The greatest position of an entry, and the greatest inode number.
pub const POSITION_MAX: u64 = (1 << 63) - 1;

pub(super) fn makes_sense(operation: &Operation) -> bool {
    match operation {
        Operation::Lookup(operation::Lookup { label, .. })
        | Operation::Find(operation::Find { label, .. }) => label.is_child(),
        Operation::Access(operation::Access { mask, .. }) => *mask <= 7,
        // A handle may ask for every permission, and must be a handle.
        Operation::Open(operation::Open { mask, open, .. }) => *mask <= 7 && open.has(&Field::Handles),
        Operation::Create(operation::Create { dir, label, position, new, time, .. }) => {
            label.is_child() && is_number(*position) && is_time(*time) && is_new(dir, *position, new)
        }
        Operation::Link(operation::Link { label, replaced, position, time, .. }) => {
            label.is_child()
                && is_spelling(replaced.as_deref(), label)
                && is_number(*position)
                && is_time(*time)
        }
        Operation::Unlink(operation::Unlink { label, time, .. }) => label.is_child() && is_time(*time),
        Operation::Rename(operation::Rename {
            from_dir,
            from,
            to_dir,
            to,
            mode,
            replaced,
            position,
            whiteout,
            time,
            ..
        }) => {
            let left = whiteout.is_none_or(|left| {
                *mode != RenameMode::Exchange
                    && is_number(left.integer)
                    && is_number(left.ino)
                    && (from_dir != to_dir || *position != left.integer)
            });
            let taken = replaced.is_none() || *mode == RenameMode::Replace;
            let spelt = taken && is_spelling(replaced.as_deref(), to);
            from.is_child() && to.is_child() && spelt && is_number(*position) && left && is_time(*time)
        }
        Operation::SetAttributes(operation::SetAttributes { change, time, .. }) => {
            is_change(change) && is_time(*time)
        }
        Operation::SetXattr(operation::SetXattr { time, .. })
        | Operation::RemoveXattr(operation::RemoveXattr { time, .. })
        | Operation::SetDisposition(operation::SetDisposition { time, .. })
        | Operation::Dispose(operation::Dispose { time, .. })
        | Operation::Accessed(operation::Accessed { time, .. }) => is_time(*time),
        Operation::Publish(operation::Publish { mtime, ctime, .. }) => is_time(*mtime) && is_time(*ctime),
        Operation::Lock(operation::Lock { change, .. }) => is_lockable(change.space, change.range),
        Operation::GetLock(operation::GetLock { space, range, .. }) => is_lockable(*space, *range),
        Operation::Stat { .. }
        | Operation::ReadLink { .. }
        | Operation::List { .. }
        | Operation::GetXattr { .. }
        | Operation::ListXattrs { .. } => true,
    }
}

/// Whether a name that is replaced is leased together with the new one.
fn is_spelling(replaced: Option<&Replaced>, label: &Label) -> bool {
    replaced.is_none_or(|replaced| replaced.label.is_child() && fold(&replaced.label) == fold(label))
}

fn is_lockable(space: LockSpace, range: LockRange) -> bool {
    match space {
        LockSpace::Posix => range.makes_sense(),
        LockSpace::Flock => range == LockRange::WHOLE,
    }
}

fn is_number(n: u64) -> bool {
    (1..=POSITION_MAX).contains(&n)
}

fn is_time(time: Timestamp) -> bool {
    time.nanos < 1_000_000_000
}

fn is_new(dir: &FileId, position: u64, new: &NewFile) -> bool {
    let FileSpec { kind, mode, umask, rdev, target } = &new.spec;
    let has_target = match kind {
        FileKind::Symlink => is_target(target),
        _ => target.is_empty(),
    };
    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    has_target
        && (device || *rdev == 0)
        && *mode <= 0o7777
        && *umask <= 0o777
        && is_number(new.ino)
        && new.file == FileId::for_child(dir, position, new.ino)
}

fn is_target(target: &[u8]) -> bool {
    (1..=TARGET_BYTES_MAX).contains(&target.len()) && !target.contains(&0)
}

fn is_change(change: &AttributeChange) -> bool {
    // In system calls all ones say "leave it", so this is no user's or group's number.
    let is_owner = |id: Option<u32>| id != Some(u32::MAX);
    let is_set_time = |time: Option<SetTime>| match time {
        Some(SetTime::At(time)) => is_time(time),
        Some(SetTime::Now) | None => true,
    };
    change.mode.is_none_or(|mode| mode <= 0o7777)
        && is_owner(change.uid)
        && is_owner(change.gid)
        && is_set_time(change.atime)
        && is_set_time(change.mtime)
}
