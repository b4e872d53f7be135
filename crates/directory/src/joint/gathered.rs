//! The knowledge that the leader of a joint operation decides on: what is lent to the operation,
//! and nothing else.

use super::{Borrowed, Standing};
use crate::requests::authority::Replay;
use ident::FileId;
use lease::{Field, Kind, Label};
use namespace::{Attributes, ContentHead, Disposition, Entry, Knowledge, Known, Links, Locks, Times, fold};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::{FileGrant, Values};

/// Fields of the leader's own files that are lent to the operation, and the values of the fields
/// that other servers have lent.
pub(super) struct Gathered<'a, 's> {
    /// This server's files, as the operation's session knows them.
    pub own: Replay<'a, 's>,
    pub files: &'a BTreeMap<FileId, Borrowed>,
}

impl Gathered<'_, '_> {
    fn of<T>(
        &self,
        file: &FileId,
        field: &Field,
        kind: Kind,
        lent: impl FnOnce(&Values) -> Known<T>,
        own: impl FnOnce(&Replay<'_, '_>) -> Known<T>,
    ) -> Known<T> {
        match self.files.get(file).map(|borrowed| &borrowed.standing) {
            Some(Standing::LentHere) => own(&self.own),
            Some(Standing::Lent(grant)) if covers(grant, field, kind) => lent(&grant.values),
            Some(Standing::Gone) => Known::Unused,
            Some(Standing::Lent(_) | Standing::Waits) | None => Known::Unknown,
        }
    }
}

/// Whether the lent fields are enough for `kind` on `field`.
pub(super) fn covers(grant: &FileGrant, field: &Field, kind: Kind) -> bool {
    grant.fields.iter().any(|(lent, of)| lent == field && of.covers(kind))
}

/// A value that has to be there; a lender that leaves it out has not said that it is absent.
fn there<T>(value: Option<T>) -> Known<T> {
    value.map_or(Known::Unknown, Known::Used)
}

impl Knowledge for Gathered<'_, '_> {
    fn attributes(&self, file: &FileId, kind: Kind) -> Known<Attributes> {
        let lent = |values: &Values| there(values.attributes);
        self.of(file, &Field::Attributes, kind, lent, |own| own.attributes(file, kind))
    }

    fn content(&self, file: &FileId, kind: Kind) -> Known<ContentHead> {
        let lent = |values: &Values| there(values.content);
        self.of(file, &Field::Content, kind, lent, |own| own.content(file, kind))
    }

    fn inline(&self, file: &FileId) -> Known<Vec<u8>> {
        let lent = |values: &Values| there(values.inline.clone());
        self.of(file, &Field::Content, Kind::Read, lent, |own| own.inline(file))
    }

    fn times(&self, dir: &FileId, kind: Kind) -> Known<Times> {
        let lent = |values: &Values| there(values.times);
        self.of(dir, &Field::Times, kind, lent, |own| own.times(dir, kind))
    }

    fn links(&self, file: &FileId, kind: Kind) -> Known<Links> {
        let lent = |values: &Values| there(values.links.clone());
        self.of(file, &Field::Parent, kind, lent, |own| own.links(file, kind))
    }

    fn child(&self, dir: &FileId, label: &Label, kind: Kind) -> Known<Entry> {
        let lent = |values: &Values| {
            let entry = values.children.iter().find(|(exact, _)| exact == label);
            Known::of(entry.map(|(_, entry)| entry.clone()))
        };
        self.of(dir, &Field::Child(fold(label)), kind, lent, |own| own.child(dir, label, kind))
    }

    /// A lender tells the first entry, if there is any.
    fn childless(&self, dir: &FileId, kind: Kind) -> Known<bool> {
        let lent = |values: &Values| there(values.children_up_to.map(|up_to| up_to == u64::MAX));
        self.of(dir, &Field::Children, kind, lent, |own| own.childless(dir, kind))
    }

    fn xattr(&self, file: &FileId, name: &Label, kind: Kind) -> Known<Vec<u8>> {
        let lent = |values: &Values| {
            Known::of(values.xattrs.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone()))
        };
        self.of(file, &Field::Xattr(name.clone()), kind, lent, |own| own.xattr(file, name, kind))
    }

    fn xattrs(&self, file: &FileId) -> Known<Vec<(Label, usize)>> {
        let lent = |values: &Values| {
            Known::Used(values.xattrs.iter().map(|(name, value)| (name.clone(), value.len())).collect())
        };
        self.of(file, &Field::Xattrs, Kind::Read, lent, |own| own.xattrs(file))
    }

    fn disposition(&self, file: &FileId, kind: Kind) -> Known<Option<Disposition>> {
        let lent = |values: &Values| there(values.disposition.clone());
        self.of(file, &Field::Disposition, kind, lent, |own| own.disposition(file, kind))
    }

    fn locks(&self, file: &FileId, kind: Kind) -> Known<Arc<Locks>> {
        let lent = |values: &Values| there(values.locks.clone().map(Arc::new));
        self.of(file, &Field::Locks, kind, lent, |own| own.locks(file, kind))
    }

    /// The operation has no handle of its own: the others are all clients, its asker too.
    fn others(&self, file: &FileId, field: &Field) -> Known<bool> {
        let lent = |values: &Values| there(values.others.get(field));
        self.of(file, field, Kind::Read, lent, |own| own.others(file, field))
    }

    /// As far up as this server manages the directories, their parents change by its own entries
    /// only. Further up they change only once the path lease has come back (Farsite §4.3). So the
    /// answer holds at the moment of the decision, and no lease needs to be kept until then.
    fn is_above(&self, ancestor: &FileId, dir: &FileId) -> Known<bool> {
        self.own.authority.is_above(ancestor, dir)
    }

    fn holds(&self, file: &FileId, field: &Field, kind: Kind) -> bool {
        let (lent, own) = (
            |_: &Values| Known::Used(()),
            |own: &Replay<'_, '_>| {
                if own.holds(file, field, kind) { Known::Used(()) } else { Known::Unknown }
            },
        );
        self.of(file, field, kind, lent, own).known_used()
    }
}
