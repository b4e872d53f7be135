//! create, mkdir, mknod, symlink.

use super::case::{Case, Decided, Stop};
use super::permission::{STICKY, enter, may_change, stored_acl};
use super::xattr::POLICY_LABEL;
use crate::acl::{ACCESS_LABEL, DEFAULT_LABEL};
use crate::attributes::{GROUP_EXECUTE, SET_GID};
use crate::{
    Answer, Attributes, Capability, ContentHead, Cred, Effect, Entry, Error, FileKind, FileSpec, Knowledge,
    Link, NewFile, Times, Timestamp,
};
use ident::FileId;
use lease::{Kind, Label};
use serde::{Deserialize, Serialize};

/// create, mkdir, mknod, symlink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    pub dir: FileId,
    pub label: Label,
    pub position: u64,
    pub new: NewFile,
    pub cred: Cred,
    pub time: Timestamp,
}

impl Create {
    /// Decides a create. The manager of reservations checks that `new.file` was unused: no integer
    /// is reserved twice.
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Create { dir, label, new, cred, time, .. } = self;
        let parent = enter(case, dir, cred)?;
        if case.child(dir, label, Kind::Write)?.is_some() {
            return Err(Error::Exists.into());
        }
        may_change(case, dir, &parent, cred)?;
        case.may_gain_entries(dir)?;
        if is_privileged(&new.spec) && !cred.has(Capability::Mknod) {
            return Err(Error::NotPermitted.into());
        }
        let entry = self.make(case, &parent)?;
        case.touch(dir, *time);
        Ok(Answer::Entry(entry))
    }

    /// Makes the new file at its label, which is unused, in a directory with the attributes
    /// `parent`.
    pub(super) fn make<K: Knowledge + ?Sized>(
        &self,
        case: &mut Case<'_, K>,
        parent: &Attributes,
    ) -> Result<Entry, Stop> {
        let Create { dir, label, position, new, cred, time } = self;
        let born = Born::of(case, dir, parent, &new.spec, cred)?;
        let entry = Entry { file: new.file.clone(), kind: new.spec.kind, ino: new.ino, position: *position };
        let link = Link { dir: dir.clone(), label: label.clone() };
        case.effects.push(birth(new, &born, *time));
        case.effects.push(Effect::Bind { dir: dir.clone(), label: label.clone(), entry: entry.clone() });
        case.effects.push(Effect::AddLink { file: new.file.clone(), link });
        for (name, value) in
            [(&ACCESS_LABEL, born.access), (&DEFAULT_LABEL, born.default), (&POLICY_LABEL, born.policy)]
        {
            if value.is_some() {
                case.effects.push(Effect::Xattr { file: new.file.clone(), name: (**name).clone(), value });
            }
        }
        Ok(entry)
    }
}

/// Whether only a privileged user may make it. Linux lets all users make the character device 0,
/// with which overlays mark deletions.
fn is_privileged(spec: &FileSpec) -> bool {
    spec.kind == FileKind::BlockDevice || (spec.kind == FileKind::CharDevice && spec.rdev != 0)
}

/// The values that a new file takes from its directory and its maker.
struct Born {
    mode: u16,
    uid: u32,
    gid: u32,
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
    policy: Option<Vec<u8>>,
}

impl Born {
    fn of<K: Knowledge + ?Sized>(
        case: &mut Case<'_, K>,
        dir: &FileId,
        parent: &Attributes,
        spec: &FileSpec,
        cred: &Cred,
    ) -> Result<Born, Stop> {
        let (mode, gid) = mode_and_group(parent, spec, cred);
        let mut born = Born { mode, uid: cred.uid, gid, access: None, default: None, policy: None };
        if spec.kind == FileKind::Symlink {
            return Ok(born);
        }
        if matches!(spec.kind, FileKind::Regular | FileKind::Directory) {
            born.policy = case.xattr(dir, &POLICY_LABEL, Kind::Read)?;
        }
        let Some(mut acl) = stored_acl(case, dir, &DEFAULT_LABEL)? else {
            born.mode &= !spec.umask;
            return Ok(born);
        };
        // The umask applies only without a default list (POSIX.1e 23.3.4).
        if spec.kind == FileKind::Directory {
            born.default = Some(acl.emit());
        }
        born.mode = acl.inherit(mode);
        born.access = acl.is_extended().then(|| acl.emit());
        Ok(born)
    }
}

/// The mode before umask or default list, and the group.
///
/// A new file in a set-gid directory belongs to that directory's group, and a new directory there
/// is set-gid too. A set-gid program for a group without its maker would be a way into the group
/// (Linux' `mode_strip_sgid`).
fn mode_and_group(parent: &Attributes, spec: &FileSpec, cred: &Cred) -> (u16, u32) {
    let passes_group_on = parent.mode & SET_GID != 0;
    let gid = if passes_group_on { parent.gid } else { cred.gid };
    let mode = match spec.kind {
        FileKind::Symlink => 0o777,
        FileKind::Directory if passes_group_on => spec.mode & (0o777 | STICKY) | SET_GID,
        FileKind::Directory => spec.mode & (0o777 | STICKY),
        _ if passes_group_on && !cred.may_set_gid(gid) && spec.mode & GROUP_EXECUTE != 0 => {
            spec.mode & !SET_GID
        }
        _ => spec.mode,
    };
    (mode, gid)
}

fn birth(new: &NewFile, born: &Born, time: Timestamp) -> Effect {
    let attributes = Attributes {
        kind: new.spec.kind,
        mode: born.mode,
        uid: born.uid,
        gid: born.gid,
        links: 1,
        ino: new.ino,
        rdev: new.spec.rdev,
        ctime: time,
        btime: time,
        atime: time,
    };
    let (content, times) = if new.spec.kind == FileKind::Directory {
        (ContentHead::default(), Times { mtime: time, ctime: time, generation: 0 })
    } else {
        let size = new.spec.target.len() as u64;
        let head = ContentHead { size, mtime: time, ctime: time, version: 0, occupied: size, key: None };
        (head, Times::default())
    };
    Effect::Birth { file: new.file.clone(), attributes, content, target: new.spec.target.clone(), times }
}
