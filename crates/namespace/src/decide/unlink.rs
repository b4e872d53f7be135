//! unlink, rmdir, and the end of a file that loses its last link.

use super::case::{Case, Decided, Stop};
use super::permission::{enter, may_change, may_take};
use crate::{Answer, Attributes, Cred, Effect, Entry, Error, FileKind, Knowledge, Link, Replaced, Timestamp};
use ident::FileId;
use lease::{Field, Kind, Label};
use serde::{Deserialize, Serialize};

/// unlink, or rmdir when `directory`. `open` says that this client has handles on the file, so the
/// file stays until they are closed.
///
/// `pending` is the file of which a deletion is carried out that is pending for this name, though
/// handles are open still. If the name is another file's, or the deletion is not pending any more,
/// the operation is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlink {
    pub dir: FileId,
    pub label: Label,
    pub pending: Option<FileId>,
    pub directory: bool,
    pub open: bool,
    pub cred: Cred,
    pub time: Timestamp,
}

impl Unlink {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Unlink { dir, label, pending, directory, open, cred, time } = self;
        let parent = enter(case, dir, cred)?;
        let entry = case.child(dir, label, Kind::Write)?.ok_or(Error::NotFound)?;
        must_be_meant(&entry, pending.as_ref())?;
        may_change(case, dir, &parent, cred)?;
        may_take(case, &parent, &entry.file, cred)?;
        must_be(&entry, *directory)?;
        must_be_empty(case, &entry)?;
        let link = Link { dir: dir.clone(), label: label.clone() };
        if pending.is_some() {
            let disposition = case.disposition(&entry.file, Kind::Write)?;
            if disposition.is_none_or(|disposition| disposition.link != link) {
                return Err(Error::Invalid.into());
            }
            case.effects.push(Effect::Disposition { file: entry.file.clone(), disposition: None });
        }
        case.effects.push(Effect::Unbind { dir: dir.clone(), label: label.clone() });
        lose_link(case, &entry.file, link, *open, *time)?;
        case.touch(dir, *time);
        Ok(Answer::Nothing)
    }
}

/// Checks that the name still leads to the file that the operation means, if it means one.
pub(super) fn must_be_meant(entry: &Entry, file: Option<&FileId>) -> Result<(), Stop> {
    match file {
        Some(file) if entry.file != *file => Err(Error::AnotherFile.into()),
        _ => Ok(()),
    }
}

/// The entry that has the name `label`, or that loses `replaced` to an operation that binds
/// `label`. Another spelling is replaced only if nothing has `label` itself.
pub(super) fn entry_at<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    (dir, label): (&FileId, &Label),
    replaced: Option<&Replaced>,
) -> Result<Option<Entry>, Stop> {
    let bound = case.child(dir, label, Kind::Write)?;
    let Some(replaced) = replaced else { return Ok(bound) };
    let entry = match bound {
        bound if replaced.label == *label => bound,
        Some(_) => return Err(Error::Exists.into()),
        None => case.child(dir, &replaced.label, Kind::Write)?,
    };
    if let Some(entry) = &entry {
        must_be_meant(entry, Some(&replaced.file))?;
    }
    Ok(entry)
}

/// Checks that the entry is of the kind that the operation is for.
pub(super) fn must_be(entry: &Entry, directory: bool) -> Result<(), Stop> {
    match (directory, entry.kind == FileKind::Directory) {
        (true, false) => Err(Error::NotDirectory.into()),
        (false, true) => Err(Error::IsDirectory.into()),
        _ => Ok(()),
    }
}

/// Refuses to remove a directory with children.
pub(super) fn must_be_empty<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    entry: &Entry,
) -> Result<(), Stop> {
    if entry.kind == FileKind::Directory && !case.childless(&entry.file)? {
        return Err(Error::NotEmpty.into());
    }
    Ok(())
}

/// Removes the link `link` of `file`.
///
/// With its last link the file dies, or is orphaned if a client has it open. The operation says so
/// of this client, and the other-value of the others (BlackBox §4.3). Either result is success, so
/// no client has to close a handle for it.
///
/// Death needs no lease on content. Unpublished content of a file without a name or handle cannot
/// be missed. So a [`crate::Operation::Publish`] that finds its file gone ([`Error::Stale`]) lost
/// nothing. The other fields need no lease because each of their changes changes attributes too, or
/// needs a handle or a child.
pub(super) fn lose_link<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    file: &FileId,
    link: Link,
    open: bool,
    time: Timestamp,
) -> Result<(), Stop> {
    let attributes = case.attributes(file, Kind::Write)?;
    case.hold(file, Field::Parent, Kind::Write);
    let links = attributes.links.saturating_sub(1);
    if links == 0 && !open && !case.others(file, Field::Handles)? {
        case.effects.push(Effect::Death { file: file.clone() });
        return Ok(());
    }
    let attributes = Attributes { links, ctime: attributes.ctime.moved(time), ..attributes };
    case.effects.push(Effect::DropLink { file: file.clone(), link });
    case.effects.push(Effect::Attributes { file: file.clone(), attributes });
    if links == 0 {
        case.effects.push(Effect::Orphan { file: file.clone() });
    }
    Ok(())
}
