//! Questions: no effects.

use super::case::{Case, Decided, Stop};
use super::permission::{enter, permits};
use crate::{Answer, Cred, Error, FileKind, Knowledge};
use ident::FileId;
use lease::{Kind, Label};
use serde::{Deserialize, Serialize};

/// Looks up `label` in `dir` (needs search permission).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    pub dir: FileId,
    pub label: Label,
    pub cred: Cred,
}

impl Lookup {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Lookup { dir, label, cred } = self;
        enter(case, dir, cred)?;
        let entry = case.child(dir, label, Kind::Read)?.ok_or(Error::NotFound)?;
        Ok(Answer::Entry(entry))
    }
}

/// Looks up `label` in `dir` for somebody who needs the kind, mode and owner of the file, and
/// nothing that a holder may be changing all the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Find {
    pub dir: FileId,
    pub label: Label,
    pub cred: Cred,
}

impl Find {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Find { dir, label, cred } = self;
        enter(case, dir, cred)?;
        let entry = case.child(dir, label, Kind::Read)?.ok_or(Error::NotFound)?;
        let attributes = case.attributes(&entry.file, Kind::Read)?;
        Ok(Answer::Found(entry, attributes))
    }
}

/// `stat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    pub file: FileId,
}

impl Stat {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let mut attributes = case.attributes(&self.file, Kind::Read)?;
        let stat = if attributes.kind == FileKind::Directory {
            let times = case.times(&self.file, Kind::Read)?;
            attributes.ctime = attributes.ctime.max(times.ctime);
            crate::Stat { attributes, size: 0, occupied: 0, mtime: times.mtime }
        } else {
            let head = case.content(&self.file, Kind::Read)?;
            attributes.ctime = attributes.ctime.max(head.ctime);
            crate::Stat { attributes, size: head.size, occupied: head.occupied, mtime: head.mtime }
        };
        Ok(Answer::Stat(stat))
    }
}

/// Checks whether `cred` may read, write, execute (bits 4, 2, 1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    pub file: FileId,
    pub mask: u8,
    pub cred: Cred,
}

impl Access {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        may_access(case, &self.file, self.mask, &self.cred)?;
        Ok(Answer::Nothing)
    }
}

/// Refuses an access that `mask` says (bits 4, 2, 1) unless `cred` may have it.
pub(super) fn may_access<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    mask: u8,
    cred: &Cred,
) -> Result<(), Stop> {
    let attributes = case.attributes(file, Kind::Read)?;
    if permits(case, file, &attributes, cred, mask.into())? {
        Ok(())
    } else {
        Err(Error::AccessDenied.into())
    }
}

/// Target of a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLink {
    pub file: FileId,
}

impl ReadLink {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let attributes = case.attributes(&self.file, Kind::Read)?;
        if attributes.kind != FileKind::Symlink {
            return Err(Error::Invalid.into());
        }
        Ok(Answer::Bytes(case.target(&self.file)?))
    }
}

/// Asks for all names and entries of `dir`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    pub dir: FileId,
}

impl List {
    /// Succeeds if all entries are known. The caller reads them from its own knowledge.
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let attributes = case.attributes(&self.dir, Kind::Read)?;
        if attributes.kind != FileKind::Directory {
            return Err(Error::NotDirectory.into());
        }
        case.childless(&self.dir)?;
        Ok(Answer::Nothing)
    }
}
