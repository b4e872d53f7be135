//! Handles as Windows has them, POSIX' among them: opening, the deletion disposition, and what the
//! last close does (BlackBox §3.3, §4.3, §4.4).
//!
//! What others have open is knowledge, never a lease refused: a second try that fails for the same
//! reason costs no message (Farsite §6, "The lease mechanism is not overloaded with semantics").

use super::Decided;
use super::case::Case;
use super::lookup::access;
use super::permission::{WRITE, enter, may_change, may_take};
use super::unlink::lose_link;
use crate::{Answer, Cred, Disposition, Effect, Error, FileKind, Knowledge, Link, Links, Timestamp};
use ident::FileId;
use lease::{Field, Kind, Mode, Open};

/// One more handle. It conflicts with this client's own others as with anybody's; what is true of
/// those already needs no leave to become so.
pub(super) fn open<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    mask: u8,
    wanted: Open,
    own: Open,
    cred: &Cred,
) -> Decided {
    access(case, file, mask, cred)?;
    if u16::from(mask) & WRITE != 0 {
        // Nothing of the answer rests on it: whoever writes has to know how what he writes is to be
        // spread.
        case.policy(file)?;
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
    for field in wanted.but(own).fields() {
        case.hold(file, field, Kind::Touch);
    }
    Ok(Answer::Nothing)
}

/// Sets the deletion disposition, or takes it back. Setting it is what deletes, so what unlink and
/// rmdir ask is asked here, and not at the last close.
pub(super) fn set_disposition<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    link: Option<&Link>,
    own: Open,
    cred: &Cred,
    time: Timestamp,
) -> Decided {
    if !own.has_mode(Mode::AccessDelete) {
        return Err(Error::AccessDenied.into());
    }
    let before = case.disposition(file, Kind::Write)?;
    if before.as_ref().map(|disposition| &disposition.link) == link {
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
    let disposition = link.cloned().map(|link| Disposition { link, since: time });
    case.effects.push(Effect::Disposition { file: file.clone(), disposition });
    Ok(Answer::Nothing)
}

/// The last handle was closed, as this client says of its own and knows of the others'. What has no
/// links dies; of what has, the link goes that the disposition names. If that cannot be, deletion
/// is off: [`Error::Invalid`] only says that nothing was pending.
pub(super) fn dispose<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    time: Timestamp,
) -> Decided {
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
    case.touch(&link.dir, time);
    lose_link(case, file, link, false, time)?;
    Ok(Answer::Nothing)
}

/// The name that the file was to lose; or its only one, if it has been renamed since.
fn doomed(links: &Links, link: Link) -> Option<Link> {
    match links.as_slice() {
        [only] => Some(only.clone()),
        _ => links.contains(&link).then_some(link),
    }
}
