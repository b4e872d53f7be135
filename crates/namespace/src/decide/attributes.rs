//! chmod, chown, utimens: Linux' fs/attr.c.

use super::case::{Case, Decided, Stop};
use super::permission::{WRITE, owns, permits, stored_acl};
use crate::acl::ACCESS_LABEL;
use crate::attributes::SET_GID;
use crate::{
    Answer, AttributeChange, Attributes, Capability, ContentChange, ContentHead, Cred, Effect, Error,
    FileKind, Knowledge, SetTime, Times, Timestamp,
};
use ident::FileId;
use lease::Kind;
use serde::{Deserialize, Serialize};

/// chmod, chown, utimens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttributes {
    pub file: FileId,
    pub change: AttributeChange,
    pub cred: Cred,
    pub time: Timestamp,
}

impl SetAttributes {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let SetAttributes { file, change, cred, time } = self;
        // Modification times are in other fields, so a change of them alone writes no attributes.
        let writes_attributes = change.mode.is_some() || change.chowns() || change.atime.is_some();
        let old = case.attributes(file, if writes_attributes { Kind::Write } else { Kind::Read })?;
        may_set_owner(&old, change, cred)?;
        may_set_mode(&old, change, cred)?;
        may_set_times(case, file, &old, change, cred)?;
        if writes_attributes {
            let ctime = old.ctime.moved(*time);
            let attributes = Attributes { ctime, ..changed(&old, change, cred, *time) };
            follow_mode(case, file, &old, &attributes)?;
            case.effects.push(Effect::Attributes { file: file.clone(), attributes });
        }
        if let Some(mtime) = change.mtime {
            set_mtime(case, file, old.kind, at(mtime, *time), *time)?;
        }
        Ok(Answer::Nothing)
    }
}

/// The file was read at `time`. A program that has read the file may set the time, so only the
/// lease counts, and a lease to read attributes is enough. Many clients move an access time,
/// and no lease is recalled for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accessed {
    pub file: FileId,
    pub time: Timestamp,
}

impl Accessed {
    /// Moves the access time after a read, and no other time, since the file has not changed.
    ///
    /// Every client that may read the attributes may do that. The latest time counts, in whatever
    /// order they come. No lease is recalled for it.
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Accessed { file, time } = self;
        let old = case.attributes(file, Kind::Read)?;
        let attributes = Attributes { atime: old.atime.max(*time), ..old };
        case.effects.push(Effect::Attributes { file: file.clone(), attributes });
        Ok(Answer::Nothing)
    }
}

/// Checks a chown. A capability lets a user give files away. An owner may give a file to a group
/// that he is in, and may "change" an owner or group to what it is.
fn may_set_owner(old: &Attributes, change: &AttributeChange, cred: &Cred) -> Result<(), Stop> {
    let owner = cred.uid == old.uid;
    let uid = change.uid.is_none_or(|uid| owner && uid == old.uid);
    let gid = change.gid.is_none_or(|gid| owner && (gid == old.gid || cred.in_group(gid)));
    if cred.has(Capability::Chown) || (uid && gid) { Ok(()) } else { Err(Error::NotPermitted.into()) }
}

/// Whether the change of owner clears set-id bits.
fn costs_set_ids(old: &Attributes, change: &AttributeChange, cred: &Cred) -> bool {
    change.chowns() && old.kind != FileKind::Directory && old.mode_after_chown(cred) != old.mode
}

fn may_set_mode(old: &Attributes, change: &AttributeChange, cred: &Cred) -> Result<(), Stop> {
    // Linux: CAP_CHOWN alone gives no set-id program away.
    if change.mode.is_none() {
        let may = !costs_set_ids(old, change, cred) || owns(old, cred);
        return if may { Ok(()) } else { Err(Error::NotPermitted.into()) };
    }
    if old.kind == FileKind::Symlink {
        return Err(Error::NotSupported.into());
    }
    if owns(old, cred) { Ok(()) } else { Err(Error::NotPermitted.into()) }
}

/// Checks a change of times. A writer may set both times to now, as a write does. All else, one
/// time alone included, is for the owner (POSIX utimensat).
fn may_set_times<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    old: &Attributes,
    change: &AttributeChange,
    cred: &Cred,
) -> Result<(), Stop> {
    match (change.atime, change.mtime) {
        (None, None) => Ok(()),
        _ if owns(old, cred) => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) if permits(case, file, old, cred, WRITE)? => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) => Err(Error::AccessDenied.into()),
        _ => Err(Error::NotPermitted.into()),
    }
}

fn changed(old: &Attributes, change: &AttributeChange, cred: &Cred, time: Timestamp) -> Attributes {
    let gid = change.gid.unwrap_or(old.gid);
    let mode = match change.mode {
        // A user must not make a way into a group that he is not in.
        Some(mode) if !cred.may_set_gid(gid) => mode & !SET_GID,
        Some(mode) => mode,
        // Once the mode changes, the usual rule for set-gid applies.
        None if costs_set_ids(old, change, cred) && !cred.may_set_gid(gid) => {
            old.mode_after_chown(cred) & !SET_GID
        }
        None if costs_set_ids(old, change, cred) => old.mode_after_chown(cred),
        None => old.mode,
    };
    Attributes {
        mode,
        uid: change.uid.unwrap_or(old.uid),
        gid,
        atime: change.atime.map_or(old.atime, |atime| at(atime, time)),
        ..*old
    }
}

/// Makes the access list follow the permission bits: both say the same of owner, mask and others.
fn follow_mode<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    old: &Attributes,
    new: &Attributes,
) -> Result<(), Stop> {
    if (old.mode ^ new.mode) & 0o777 == 0 {
        return Ok(());
    }
    // The list is first asked for to read. Nearly all files have none, and then nothing of the
    // field is written. No other client adds a list meanwhile, as that changes attributes too.
    if let Some(mut acl) = stored_acl(case, file, &ACCESS_LABEL)? {
        case.xattr(file, &ACCESS_LABEL, Kind::Write)?;
        acl.set_mode_bits(new.mode);
        let name = ACCESS_LABEL.clone();
        case.effects.push(Effect::Xattr { file: file.clone(), name, value: Some(acl.emit()) });
    }
    Ok(())
}

fn set_mtime<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    kind: FileKind,
    mtime: Timestamp,
    time: Timestamp,
) -> Result<(), Stop> {
    if kind == FileKind::Directory {
        let old = case.times(file, Kind::Write)?;
        let ctime = old.ctime.moved(time);
        let times = Times { mtime, ctime, generation: old.generation.saturating_add(1) };
        case.effects.push(Effect::Times { dir: file.clone(), times });
    } else {
        let old = case.content(file, Kind::Write)?;
        let head = ContentHead { mtime, ctime: old.ctime.moved(time), ..old };
        case.effects.push(Effect::Content { file: file.clone(), head, change: ContentChange::None });
    }
    Ok(())
}

fn at(set: SetTime, now: Timestamp) -> Timestamp {
    match set {
        SetTime::Now => now,
        SetTime::At(time) => time,
    }
}
