//! The record of what a decision rested on.

use crate::{Attributes, ContentHead, Disposition, Entry, Knowledge, Known, Links, Locks, Times, fold};
use ident::FileId;
use lease::{Field, Kind, Label, Lease};
use std::cell::RefCell;
use std::sync::Arc;

/// Knowledge that records each query.
///
/// A server decides on its state in this wrapper. With [`crate::Verdict::Done`] the record is the
/// proof, and so the leases to grant.
pub struct Traced<'a, K: ?Sized> {
    knowledge: &'a K,
    asked: RefCell<Vec<Lease>>,
}

impl<'a, K: Knowledge + ?Sized> Traced<'a, K> {
    /// Records from now on.
    pub fn new(knowledge: &'a K) -> Traced<'a, K> {
        Traced { knowledge, asked: RefCell::default() }
    }

    /// All leases that were asked for, in order and without repeats.
    pub fn into_leases(self) -> Vec<Lease> {
        self.asked.into_inner()
    }

    fn note(&self, file: &FileId, field: Field, kind: Kind) {
        let lease = Lease::new(file.clone(), field, kind);
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&lease) {
            asked.push(lease);
        }
    }
}

impl<K: Knowledge + ?Sized> Knowledge for Traced<'_, K> {
    fn attributes(&self, file: &FileId, kind: Kind) -> Known<Attributes> {
        self.note(file, Field::Attributes, kind);
        self.knowledge.attributes(file, kind)
    }

    fn content(&self, file: &FileId, kind: Kind) -> Known<ContentHead> {
        self.note(file, Field::Content, kind);
        self.knowledge.content(file, kind)
    }

    fn inline(&self, file: &FileId) -> Known<Vec<u8>> {
        self.note(file, Field::Content, Kind::Read);
        self.knowledge.inline(file)
    }

    fn times(&self, dir: &FileId, kind: Kind) -> Known<Times> {
        self.note(dir, Field::Times, kind);
        self.knowledge.times(dir, kind)
    }

    fn links(&self, file: &FileId, kind: Kind) -> Known<Links> {
        self.note(file, Field::Parent, kind);
        self.knowledge.links(file, kind)
    }

    fn child(&self, dir: &FileId, label: &Label, kind: Kind) -> Known<Entry> {
        self.note(dir, Field::Child(fold(label)), kind);
        self.knowledge.child(dir, label, kind)
    }

    fn childless(&self, dir: &FileId, kind: Kind) -> Known<bool> {
        self.note(dir, Field::Children, kind);
        self.knowledge.childless(dir, kind)
    }

    fn xattr(&self, file: &FileId, name: &Label, kind: Kind) -> Known<Vec<u8>> {
        self.note(file, Field::Xattr(name.clone()), kind);
        self.knowledge.xattr(file, name, kind)
    }

    fn xattrs(&self, file: &FileId) -> Known<Vec<(Label, usize)>> {
        self.note(file, Field::Xattrs, Kind::Read);
        self.knowledge.xattrs(file)
    }

    fn disposition(&self, file: &FileId, kind: Kind) -> Known<Option<Disposition>> {
        self.note(file, Field::Disposition, kind);
        self.knowledge.disposition(file, kind)
    }

    fn locks(&self, file: &FileId, kind: Kind) -> Known<Arc<Locks>> {
        self.note(file, Field::Locks, kind);
        self.knowledge.locks(file, kind)
    }

    fn others(&self, file: &FileId, field: &Field) -> Known<bool> {
        self.note(file, field.clone(), Kind::Read);
        self.knowledge.others(file, field)
    }

    fn is_above(&self, ancestor: &FileId, dir: &FileId) -> Known<bool> {
        self.note(dir, Field::Path, Kind::Read);
        self.knowledge.is_above(ancestor, dir)
    }

    fn holds(&self, file: &FileId, field: &Field, kind: Kind) -> bool {
        self.note(file, field.clone(), kind);
        self.knowledge.holds(file, field, kind)
    }
}
