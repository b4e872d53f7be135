//! Questions: no effects.

use super::Decided;
use super::case::Case;
use super::permission::{enter, permits};
use crate::{Answer, Cred, Error, FileKind, Knowledge, Stat};
use ident::FileId;
use lease::{Kind, Label};

pub(super) fn lookup<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    dir: &FileId,
    label: &Label,
    cred: &Cred,
) -> Decided {
    enter(case, dir, cred)?;
    let entry = case.child(dir, label, Kind::Read)?.ok_or(Error::NotFound)?;
    Ok(Answer::Entry(entry))
}

pub(super) fn stat<K: Knowledge + ?Sized>(case: &mut Case<'_, K>, file: &FileId) -> Decided {
    let mut attributes = case.attributes(file, Kind::Read)?;
    let stat = if attributes.kind == FileKind::Directory {
        let times = case.times(file, Kind::Read)?;
        attributes.ctime = attributes.ctime.max(times.ctime);
        Stat { attributes, size: 0, occupied: 0, mtime: times.mtime }
    } else {
        let head = case.content(file, Kind::Read)?;
        attributes.ctime = attributes.ctime.max(head.ctime);
        Stat { attributes, size: head.size, occupied: head.occupied, mtime: head.mtime }
    };
    Ok(Answer::Stat(stat))
}

pub(super) fn access<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    mask: u8,
    cred: &Cred,
) -> Decided {
    let attributes = case.attributes(file, Kind::Read)?;
    if permits(case, file, &attributes, cred, mask.into())? {
        Ok(Answer::Nothing)
    } else {
        Err(Error::AccessDenied.into())
    }
}

pub(super) fn read_link<K: Knowledge + ?Sized>(case: &mut Case<'_, K>, file: &FileId) -> Decided {
    let attributes = case.attributes(file, Kind::Read)?;
    if attributes.kind != FileKind::Symlink {
        return Err(Error::Invalid.into());
    }
    Ok(Answer::Bytes(case.target(file)?))
}

/// Succeeds if all entries are known. The caller reads them from its own knowledge.
pub(super) fn list<K: Knowledge + ?Sized>(case: &mut Case<'_, K>, dir: &FileId) -> Decided {
    let attributes = case.attributes(dir, Kind::Read)?;
    if attributes.kind != FileKind::Directory {
        return Err(Error::NotDirectory.into());
    }
    case.childless(dir)?;
    Ok(Answer::Nothing)
}
