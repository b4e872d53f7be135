//! Handles as Windows has them, with those of POSIX as a part: opening, the deletion disposition,
//! and the last close (BlackBox §3.3, §4.3, §4.4).
//!
//! The handles of others are knowledge, never a refused lease. A second try that fails for the same
//! reason costs no message (Farsite §6, "The lease mechanism is not overloaded with semantics").

use super::case::{Case, Decided};
use super::lookup::may_access;
use super::permission::{WRITE, enter, may_change, may_take};
use super::unlink::lose_link;
use super::xattr::POLICY_LABEL;
use crate::{Answer, Cred, Disposition, Effect, Error, FileKind, Knowledge, Link, Links, Timestamp};
use ident::FileId;
use lease::{Field, Kind, Mode};
use serde::{Deserialize, Serialize};

/// Checks whether `cred`, with these permissions, may have one more handle. `open` is that
/// handle, and `own` are this client's handles so far. The check has no effect. The handle
/// itself changes own values of black boxes, which no server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    pub file: FileId,
    pub mask: u8,
    pub open: lease::OpenModes,
    pub own: lease::OpenModes,
    pub cred: Cred,
}

impl Open {
    /// Decides whether a client may have one more handle. It conflicts with the client's own
    /// handles as with those of others. Own values that are true already need no lease to become
    /// true.
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Open { file, mask, open: wanted, own, cred } = self;
        may_access(case, file, *mask, cred)?;
        if u16::from(*mask) & WRITE != 0 {
            // Nothing of the answer rests on it: whoever writes has to know how what he writes is
            // to be spread.
            case.xattr(file, &POLICY_LABEL, Kind::Read)?;
        }
        if case.disposition(file, Kind::Read)?.is_some() {
            return Err(Error::DeletePending.into());
        }
        if wanted.modes().any(|mode| own.has_mode(mode.against())) {
            return Err(Error::SharingViolation.into());
        }
        for mode in wanted.modes() {
            if case.others(file, Field::Mode(mode.against()))? {
                return Err(Error::SharingViolation.into());
            }
        }
        for field in wanted.but(*own).fields() {
            case.hold(file, field, Kind::Touch);
        }
        Ok(Answer::Nothing)
    }
}

/// Sets the deletion disposition (Windows, BlackBox §3.3). From now on `link` goes with the
/// last handle on `file` of any client, or with none if it is `None`. `own` are this client's
/// handles, with the right to delete among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDisposition {
    pub file: FileId,
    pub link: Option<Link>,
    pub own: lease::OpenModes,
    pub cred: Cred,
    pub time: Timestamp,
}

impl SetDisposition {
    /// Sets or clears the deletion disposition. Setting it decides the deletion, so the checks of
    /// unlink and rmdir happen here, and not at the last close.
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let SetDisposition { file, link, own, cred, time } = self;
        if !own.has_mode(Mode::AccessDelete) {
            return Err(Error::AccessDenied.into());
        }
        let before = case.disposition(file, Kind::Write)?;
        if before.as_ref().map(|disposition| &disposition.link) == link.as_ref() {
            case.change_nothing();
            return Ok(Answer::Nothing);
        }
        if let Some(link) = link {
            if !case.links(file, Kind::Read)?.contains(link) {
                return Err(Error::NotFound.into());
            }
            let parent = enter(case, &link.dir, cred)?;
            may_change(case, &link.dir, &parent, cred)?;
            may_take(case, &parent, file, cred)?;
            if case.attributes(file, Kind::Read)?.kind == FileKind::Directory && !case.childless(file)? {
                return Err(Error::NotEmpty.into());
            }
        }
        let disposition = link.clone().map(|link| Disposition { link, since: *time });
        case.effects.push(Effect::Disposition { file: file.clone(), disposition });
        Ok(Answer::Nothing)
    }
}

/// Ends a file at the close of its last handle, if it has no links or its disposition is set.
/// The setter of the disposition had the permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispose {
    pub file: FileId,
    pub time: Timestamp,
}

impl Dispose {
    /// Disposes of a file whose last handle was closed, by this client's own values and its
    /// knowledge of the others'.
    ///
    /// A file without links dies. Otherwise it loses the link that the disposition names. If that
    /// is impossible, deletion is off. [`Error::Invalid`] only says that nothing was pending.
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Dispose { file, time } = self;
        let attributes = case.attributes(file, Kind::Write)?;
        let disposition = if attributes.links == 0 {
            None
        } else {
            Some(case.disposition(file, Kind::Write)?.ok_or(Error::Invalid)?)
        };
        if case.others(file, Field::Handles)? {
            return Err(Error::Invalid.into());
        }
        let Some(disposition) = disposition else {
            case.effects.push(Effect::Death { file: file.clone() });
            return Ok(Answer::Nothing);
        };
        let links = case.links(file, Kind::Write)?;
        let keeps_entries = attributes.kind == FileKind::Directory && !case.childless(file)?;
        let Some(link) = doomed(&links, disposition.link).filter(|_| !keeps_entries) else {
            case.effects.push(Effect::Disposition { file: file.clone(), disposition: None });
            return Ok(Answer::Nothing);
        };
        if case.child(&link.dir, &link.label, Kind::Write)?.is_none_or(|entry| entry.file != *file) {
            return Err(Error::Stale.into());
        }
        if attributes.links > 1 && attributes.kind != FileKind::Directory {
            case.effects.push(Effect::Disposition { file: file.clone(), disposition: None });
        }
        case.effects.push(Effect::Unbind { dir: link.dir.clone(), label: link.label.clone() });
        case.touch(&link.dir, *time);
        lose_link(case, file, link, false, *time)?;
        Ok(Answer::Nothing)
    }
}

/// The link that the file loses: the named one, if it is there still. A rename takes the
/// disposition along. So another link, even the only one left, is not the one that was to go.
fn doomed(links: &Links, link: Link) -> Option<Link> {
    links.contains(&link).then_some(link)
}
