//! Extended attributes, and access control lists as a part of them: Linux' fs/xattr.c and
//! fs/posix_acl.c.

use super::case::{Case, Decided, Stop};
use super::permission::{READ, STICKY, WRITE, owns, permits};
use crate::acl::{ACCESS, Acl, DEFAULT, constant_label};
use crate::attributes::SET_GID;
use crate::{
    Answer, Attributes, Capability, Cred, Effect, Error, FileKind, Knowledge, Spread, Timestamp, XattrMode,
};
use ident::FileId;
use lease::{Kind, Label};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// The longest value, in bytes (Linux' XATTR_SIZE_MAX).
pub const XATTR_BYTES_MAX: usize = 65_536;
/// All names of one file with a zero byte after each, in bytes (Linux' XATTR_LIST_MAX).
pub const XATTR_LIST_BYTES_MAX: usize = 65_536;
/// Names and values of one file, in bytes. An access list beyond that is never refused. There are
/// two of them at most.
pub const XATTRS_BYTES_MAX: usize = 256 << 10;

/// The attribute with the policy of a file's content: its spread over hosts ([`Spread`]).
///
/// A new file has the policy of its directory. Users can neither list nor copy it, so it has no
/// usual name.
pub const POLICY: &[u8] = b"leasehold.policy";
/// `POLICY` as a label.
pub static POLICY_LABEL: LazyLock<Label> = LazyLock::new(|| constant_label(POLICY));
const CAPABILITY: &[u8] = b"security.capability";
/// The attribute that gives a program capabilities, whichever user runs it (capabilities(7)).
pub static CAPABILITY_LABEL: LazyLock<Label> = LazyLock::new(|| constant_label(CAPABILITY));

/// The permissions on an attribute, by the first part of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Permissions as for content.
    User,
    /// For administrators alone.
    Trusted,
    /// All users read, administrators write.
    Security,
    /// The capabilities of a program. The kernel removes them, in the user's name, whenever a user
    /// writes to the file or chowns it.
    Capability,
    /// An access control list.
    Acl(AclKind),
    /// The spread of content: all users read, the owner writes.
    Policy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AclKind {
    Access,
    Default,
}

impl Class {
    fn of(name: &Label) -> Result<Class, Error> {
        let classes: [(&[u8], Class); 3] =
            [(b"user.", Class::User), (b"trusted.", Class::Trusted), (b"security.", Class::Security)];
        match name.as_bytes() {
            ACCESS => return Ok(Class::Acl(AclKind::Access)),
            DEFAULT => return Ok(Class::Acl(AclKind::Default)),
            CAPABILITY => return Ok(Class::Capability),
            POLICY => return Ok(Class::Policy),
            _ => {}
        }
        for (prefix, class) in classes {
            match name.as_bytes().strip_prefix(prefix) {
                Some([]) => return Err(Error::Invalid),
                Some(_) => return Ok(class),
                None => {}
            }
        }
        Err(Error::NotSupported)
    }
}

/// Value of an extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetXattr {
    pub file: FileId,
    pub name: Label,
    pub cred: Cred,
}

impl GetXattr {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let GetXattr { file, name, cred } = self;
        match Class::of(name)? {
            Class::User => {
                let attributes = case.attributes(file, Kind::Read)?;
                if !has_user_attributes(&attributes) {
                    return Err(Error::NoAttribute.into());
                }
                if !permits(case, file, &attributes, cred, READ)? {
                    return Err(Error::AccessDenied.into());
                }
            }
            Class::Trusted if !cred.has(Capability::SysAdmin) => return Err(Error::NoAttribute.into()),
            Class::Trusted | Class::Security | Class::Capability | Class::Acl(_) | Class::Policy => {}
        }
        Ok(Answer::Bytes(case.xattr(file, name, Kind::Read)?.ok_or(Error::NoAttribute)?))
    }
}

/// Names of all extended attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListXattrs {
    pub file: FileId,
}

impl ListXattrs {
    /// All names. The front door decides which of them a user sees.
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        Ok(Answer::Names(case.xattrs(&self.file)?.into_iter().map(|(name, _)| name).collect()))
    }
}

/// setxattr. ACLs are the attributes `system.posix_acl_access` and `system.posix_acl_default`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetXattr {
    pub file: FileId,
    pub name: Label,
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    pub mode: XattrMode,
    pub cred: Cred,
    pub time: Timestamp,
}

impl SetXattr {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let SetXattr { file, name, value, mode, cred, time } = self;
        let class = Class::of(name)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(Error::TooBig.into());
        }
        if let Class::Acl(kind) = class {
            // `mode` does not count here, as in Linux.
            let acl = Acl::parse(value).map_err(|_| Error::Invalid)?;
            return AclChange { file, name, kind, acl, cred, time: *time }.decide(case);
        }
        if class == Class::Policy
            && std::str::from_utf8(value).ok().and_then(|text| text.parse::<Spread>().ok()).is_none()
        {
            return Err(Error::Invalid.into());
        }
        let attributes = case.attributes(file, Kind::Write)?;
        may_write(case, class, file, &attributes, cred)?;
        let old = case.xattr(file, name, Kind::Write)?;
        match (mode, &old) {
            (XattrMode::Create, Some(_)) => return Err(Error::Exists.into()),
            (XattrMode::Replace, None) => return Err(Error::NoAttribute.into()),
            _ => {}
        }
        if old.is_none_or(|old| old.len() < value.len()) {
            must_fit(case, file, name, value)?;
        }
        change(case, (file, name), Some(value.clone()), attributes, *time);
        Ok(Answer::Nothing)
    }
}

/// Refuses a value that makes a file's attributes too large. They travel with leases on the file,
/// so a message must hold them. ext4 answers ENOSPC, too.
fn must_fit<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    name: &Label,
    value: &[u8],
) -> Result<(), Stop> {
    let others = case.xattrs(file)?.into_iter().filter(|(other, _)| other != name);
    let (mut names, mut bytes) = (name.as_bytes().len() + 1, value.len());
    for (name, length) in others {
        names += name.as_bytes().len() + 1;
        bytes += length;
    }
    if names > XATTR_LIST_BYTES_MAX {
        return Err(Error::TooBig.into());
    }
    if names + bytes > XATTRS_BYTES_MAX { Err(Error::NoSpace.into()) } else { Ok(()) }
}

/// removexattr.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveXattr {
    pub file: FileId,
    pub name: Label,
    pub cred: Cred,
    pub time: Timestamp,
}

impl RemoveXattr {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let RemoveXattr { file, name, cred, time } = self;
        let class = Class::of(name)?;
        if let Class::Acl(kind) = class {
            return AclChange { file, name, kind, acl: None, cred, time: *time }.decide(case);
        }
        let attributes = case.attributes(file, Kind::Write)?;
        let gives_up = class == Class::Capability
            && (owns(&attributes, cred) || permits(case, file, &attributes, cred, WRITE)?);
        if !gives_up {
            may_write(case, class, file, &attributes, cred)?;
        }
        if case.xattr(file, name, Kind::Write)?.is_none() {
            return Err(Error::NoAttribute.into());
        }
        change(case, (file, name), None, attributes, *time);
        Ok(Answer::Nothing)
    }
}

/// A change of an access control list.
struct AclChange<'o> {
    file: &'o FileId,
    name: &'o Label,
    kind: AclKind,
    acl: Option<Acl>,
    cred: &'o Cred,
    time: Timestamp,
}

impl AclChange<'_> {
    fn decide<K: Knowledge + ?Sized>(self, case: &mut Case<'_, K>) -> Decided {
        let AclChange { file, name, kind, acl, cred, time } = self;
        let old = case.attributes(file, Kind::Write)?;
        if old.kind == FileKind::Symlink {
            return Err(Error::NotSupported.into());
        }
        if kind == AclKind::Default && old.kind != FileKind::Directory {
            if acl.is_some() {
                return Err(Error::AccessDenied.into());
            }
            case.change_nothing();
            return Ok(Answer::Nothing);
        }
        if !owns(&old, cred) {
            return Err(Error::NotPermitted.into());
        }
        let (mode, value) = match (kind, acl) {
            (AclKind::Access, Some(acl)) => {
                let kept = if cred.may_set_gid(old.gid) { 0o7000 } else { 0o7000 & !SET_GID };
                // A list with nothing beyond permission bits becomes permission bits.
                ((old.mode & kept) | acl.mode_bits(), acl.is_extended().then(|| acl.emit()))
            }
            (_, acl) => (old.mode, acl.map(|acl| acl.emit())),
        };
        let stored = case.xattr(file, name, Kind::Write)?;
        if stored.is_none() && value.is_none() && mode == old.mode {
            case.change_nothing();
            return Ok(Answer::Nothing);
        }
        change(case, (file, name), value, Attributes { mode, ..old }, time);
        Ok(Answer::Nothing)
    }
}

/// Changes the extended attribute, and the file's attributes: at least ctime.
fn change<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    (file, name): (&FileId, &Label),
    value: Option<Vec<u8>>,
    attributes: Attributes,
    time: Timestamp,
) {
    let attributes = Attributes { ctime: attributes.ctime.moved(time), ..attributes };
    case.effects.push(Effect::Xattr { file: file.clone(), name: name.clone(), value });
    case.effects.push(Effect::Attributes { file: file.clone(), attributes });
}

fn may_write<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    class: Class,
    file: &FileId,
    attributes: &Attributes,
    cred: &Cred,
) -> Result<(), Stop> {
    if class == Class::Policy {
        return match attributes.kind {
            FileKind::Regular | FileKind::Directory if owns(attributes, cred) => Ok(()),
            FileKind::Regular | FileKind::Directory => Err(Error::NotPermitted.into()),
            _ => Err(Error::NotSupported.into()),
        };
    }
    if class != Class::User {
        let needed = if class == Class::Capability { Capability::Setfcap } else { Capability::SysAdmin };
        return if cred.has(needed) { Ok(()) } else { Err(Error::NotPermitted.into()) };
    }
    // In a sticky directory all users may make files, and could add attributes to the directory
    // without end.
    let sticky = attributes.kind == FileKind::Directory && attributes.mode & STICKY != 0;
    if !has_user_attributes(attributes) || (sticky && !owns(attributes, cred)) {
        return Err(Error::NotPermitted.into());
    }
    if permits(case, file, attributes, cred, WRITE)? { Ok(()) } else { Err(Error::AccessDenied.into()) }
}

/// Whether the file's permission bits govern `user.*` attributes. Those of other kinds of files do
/// not say who may fill a disk with attributes (Linux' `xattr_permission`).
fn has_user_attributes(attributes: &Attributes) -> bool {
    matches!(attributes.kind, FileKind::Regular | FileKind::Directory)
}
