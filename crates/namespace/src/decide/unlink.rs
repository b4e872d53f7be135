//! unlink, rmdir, and the end of a file that loses its last link.

use super::case::{Case, Decided, Stop};
use super::permission::{enter, may_change, may_take};
use crate::{Answer, Attributes, Cred, Effect, Entry, Error, FileKind, Knowledge, Link, Timestamp};
use ident::FileId;
use lease::{Field, Kind, Label};
use serde::{Deserialize, Serialize};

/// unlink, or rmdir when `directory`. `open` says that this client has handles on the file, so
/// the file stays until they are closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlink {
    pub dir: FileId,
    pub label: Label,
    pub directory: bool,
    pub open: bool,
    pub cred: Cred,
    pub time: Timestamp,
}

impl Unlink {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Unlink { dir, label, directory, open, cred, time } = self;
        let parent = enter(case, dir, cred)?;
        let entry = case.child(dir, label, Kind::Write)?.ok_or(Error::NotFound)?;
        may_change(case, dir, &parent, cred)?;
        may_take(case, &parent, &entry.file, cred)?;
        must_be(&entry, *directory)?;
        must_be_empty(case, &entry)?;
        case.effects.push(Effect::Unbind { dir: dir.clone(), label: label.clone() });
        let link = Link { dir: dir.clone(), label: label.clone() };
        lose_link(case, &entry.file, link, *open, *time)?;
        case.touch(dir, *time);
        Ok(Answer::Nothing)
    }
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
