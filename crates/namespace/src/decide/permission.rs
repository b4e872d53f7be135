//! Permissions as Linux has them (fs/namei.c): mode bits, access control lists, sticky directories.

use super::case::{Case, Stop};
use crate::acl::{ACCESS_LABEL, Acl};
use crate::{Attributes, Capability, Cred, Error, FileKind, Knowledge};
use ident::FileId;
use lease::{Kind, Label};

/// Bits of [`permits`], as in one digit of the mode.
pub(super) const READ: u16 = 4;
pub(super) const WRITE: u16 = 2;
/// The right to execute a file or to search a directory.
pub(super) const EXECUTE: u16 = 1;

pub(super) const STICKY: u16 = 0o1000;

/// Whether `cred` may do all of `wanted`.
///
/// The access control list is asked for only where it can count. It does not count for the owner
/// and for a user with the capability. As in Linux, it does not count if the group's bits (then its
/// mask) are all zero.
pub(super) fn permits<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    attributes: &Attributes,
    cred: &Cred,
    wanted: u16,
) -> Result<bool, Stop> {
    let mode = attributes.mode;
    if is_overridden(attributes, cred, wanted) {
        return Ok(true);
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

/// Whether a capability permits it to `cred`, regardless of the bits (Linux' `generic_permission`).
fn is_overridden(attributes: &Attributes, cred: &Cred, wanted: u16) -> bool {
    let (reads, is_directory) = (wanted & WRITE == 0, attributes.kind == FileKind::Directory);
    // A file that no user may execute is no program.
    let is_program = is_directory || attributes.mode & 0o111 != 0;
    let overrides = cred.has(Capability::DacOverride) && (wanted & EXECUTE == 0 || is_program);
    // The capability to read includes searching, but not executing.
    overrides || cred.has(Capability::DacReadSearch) && reads && (is_directory || wanted & EXECUTE == 0)
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

/// Whether `cred` is the owner or counts as one, and may do what permission bits do not govern.
pub(super) fn owns(attributes: &Attributes, cred: &Cred) -> bool {
    cred.uid == attributes.uid || cred.has(Capability::Fowner)
}

/// The attributes of `dir`, which must be a directory that the user may search.
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

/// Checks that the user may bind and unbind labels of `dir`. No user may in a directory that was
/// removed while it was open.
pub(super) fn may_change<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    dir: &FileId,
    attributes: &Attributes,
    cred: &Cred,
) -> Result<(), Stop> {
    if attributes.links == 0 {
        return Err(Error::NotFound.into());
    }
    // Both are checked at once, because one entry of an access control list has to grant both.
    if !permits(case, dir, attributes, cred, WRITE | EXECUTE)? {
        return Err(Error::AccessDenied.into());
    }
    Ok(())
}

/// Checks that the user may take `file` out of a directory. From a sticky one, only its owner or
/// the file's owner may.
pub(super) fn may_take<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    dir: &Attributes,
    file: &FileId,
    cred: &Cred,
) -> Result<(), Stop> {
    if dir.mode & STICKY == 0 || owns(dir, cred) {
        return Ok(());
    }
    // The attributes are asked for to write, because the removal changes them.
    if owns(&case.attributes(file, Kind::Write)?, cred) { Ok(()) } else { Err(Error::NotPermitted.into()) }
}
