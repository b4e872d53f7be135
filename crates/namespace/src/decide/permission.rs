//! Who may do what: mode bits, access control lists, sticky directories; as Linux has them
//! (fs/namei.c).

use super::case::{Case, Stop};
use crate::acl::{ACCESS_LABEL, Acl};
use crate::{Attributes, Capability, Cred, Error, FileKind, Knowledge};
use ident::FileId;
use lease::{Kind, Label};

/// Bits of [`permits`], as in one digit of the mode.
pub(super) const READ: u16 = 4;
pub(super) const WRITE: u16 = 2;
/// To execute a file, to search a directory.
pub(super) const EXECUTE: u16 = 1;

pub(super) const STICKY: u16 = 0o1000;

/// Whether `cred` may do all of `wanted`.
///
/// The access control list is asked for only where it can count: not for the owner or for whom a
/// capability lets, and, as in Linux, not where the group's bits (which then are its mask) are all
/// zero.
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

/// Whether a capability lets `cred`, whatever the bits say (Linux' `generic_permission`).
fn is_overridden(attributes: &Attributes, cred: &Cred, wanted: u16) -> bool {
    let (reads, is_directory) = (wanted & WRITE == 0, attributes.kind == FileKind::Directory);
    // What nobody may execute is no program.
    let is_program = is_directory || attributes.mode & 0o111 != 0;
    let overrides = cred.has(Capability::DacOverride) && (wanted & EXECUTE == 0 || is_program);
    // Searching goes with reading, executing does not.
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

/// The owner, or who counts as one: who may do what permission bits do not govern.
pub(super) fn owns(attributes: &Attributes, cred: &Cred) -> bool {
    cred.uid == attributes.uid || cred.has(Capability::Fowner)
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

/// Whether the asker may bind and unbind labels of `dir`; nobody may in a directory that was
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
    // Both at once, because one entry of an access control list has to grant both.
    if !permits(case, dir, attributes, cred, WRITE | EXECUTE)? {
        return Err(Error::AccessDenied.into());
    }
    Ok(())
}

/// Whether the asker may take `file` out of a directory: from a sticky one only its owner or the
/// file's.
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
