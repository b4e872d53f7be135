//! Who may do what: mode bits, access control lists, sticky directories; as Linux has them (fs/namei.c).

use super::case::{Case, Stop};
use crate::acl::{ACCESS_LABEL, Acl};
use crate::{Attributes, Cred, Error, FileKind, Knowledge};
use ident::FileId;
use lease::{Kind, Label};

/// Bits of [`permits`], as in one digit of the mode.
pub(super) const READ: u16 = 4;
pub(super) const WRITE: u16 = 2;
/// To execute a file, to search a directory.
pub(super) const EXECUTE: u16 = 1;

pub(super) const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
pub(super) const STICKY: u16 = 0o1000;
/// Execution by the group: what makes [`SET_GID`] mean anything on a file.
pub(super) const GROUP_EXECUTE: u16 = 0o010;

/// Whether `cred` may do all of `wanted`.
///
/// The access control list is asked for only where it can count: not for root or the owner, and, as in Linux, not where the group's bits (which then are
/// its mask) are all zero.
pub(super) fn permits<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    attributes: &Attributes,
    cred: &Cred,
    wanted: u16,
) -> Result<bool, Stop> {
    let mode = attributes.mode;
    if cred.uid == 0 {
        // Root reads and writes anything, but executes only what somebody may execute.
        let executable = attributes.kind == FileKind::Directory || mode & 0o111 != 0;
        return Ok(wanted & EXECUTE == 0 || executable);
    }
    let bits = if cred.uid == attributes.uid {
        mode >> 6
    } else {
        if mode & 0o070 != 0
            && attributes.kind != FileKind::Symlink
            && let Some(acl) = stored_acl(case, file, &ACCESS_LABEL)?
        {
            return Ok(acl.permits(attributes, cred, wanted));
        }
        if cred.in_group(attributes.gid) { mode >> 3 } else { mode }
    };
    Ok(bits & wanted == wanted)
}

/// The access control list that is stored as `name`.
pub(super) fn stored_acl<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    name: &Label,
) -> Result<Option<Acl>, Stop> {
    match case.xattr(file, name, Kind::Read)? {
        // Only valid lists are ever stored.
        Some(bytes) => Acl::parse(&bytes).map_err(|_| Error::Damaged.into()),
        None => Ok(None),
    }
}

/// Root, or the owner: who may do what permission bits do not govern.
pub(super) fn owns(attributes: &Attributes, cred: &Cred) -> bool {
    cred.uid == 0 || cred.uid == attributes.uid
}

/// The attributes of `dir`, which must be a directory that the asker may search.
pub(super) fn enter<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    dir: &FileId,
    cred: &Cred,
) -> Result<Attributes, Stop> {
    let attributes = case.attributes(dir, Kind::Read)?;
    if attributes.kind != FileKind::Directory {
        return Err(Error::NotDirectory.into());
    }
    if !permits(case, dir, &attributes, cred, EXECUTE)? {
        return Err(Error::AccessDenied.into());
    }
    Ok(attributes)
}

/// Whether the asker may bind and unbind labels of `dir`; nobody may in a directory that was removed while it was open.
pub(super) fn may_change<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    dir: &FileId,
    attributes: &Attributes,
    cred: &Cred,
) -> Result<(), Stop> {
    if attributes.links == 0 {
        return Err(Error::NotFound.into());
    }
    // Both at once, because one entry of an access control list has to grant both.
    if !permits(case, dir, attributes, cred, WRITE | EXECUTE)? {
        return Err(Error::AccessDenied.into());
    }
    Ok(())
}

/// Whether the asker may take `file` out of a directory: from a sticky one only its owner, the file's, or root.
pub(super) fn may_take<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    dir: &Attributes,
    file: &FileId,
    cred: &Cred,
) -> Result<(), Stop> {
    if dir.mode & STICKY == 0 || owns(dir, cred) {
        return Ok(());
    }
    // Asked for in write, because taking it out changes them.
    if owns(&case.attributes(file, Kind::Write)?, cred) { Ok(()) } else { Err(Error::NotPermitted.into()) }
}
