//! An operation being decided: queries to knowledge, missing leases, effects so far.

use crate::{
    Answer, Attributes, ContentHead, Disposition, Effect, Effects, Entry, Error, FileKind, Knowledge, Known,
    Links, Locks, Times, Timestamp, fold,
};
use ident::FileId;
use lease::{Field, Kind, Label, Lease};
use std::sync::Arc;

/// The reason why a rule ends without success.
pub(super) enum Stop {
    /// The file system refuses.
    Refused(Error),
    /// A field is not known. [`Case::wants`] names the missing leases.
    Unknown,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Refused(error)
    }
}

/// The result of a rule. Its effects are collected in the [`Case`].
pub(super) type Decided = Result<Answer, Stop>;

/// The state of one decision.
///
/// A rule asks for each field with the kind of lease that its *success* needs. If that is `Write`
/// and only `Read` is held, the rule goes on with the value, and the lease is noted as wanted. (The
/// operation may be refused, and then reading was enough.) So a rule that comes to its end has
/// succeeded if nothing is wanted.
pub(super) struct Case<'k, K: ?Sized> {
    knowledge: &'k K,
    /// Missing leases, in order, without repeats.
    pub wants: Vec<Lease>,
    /// The effects of the operation, if it succeeds.
    pub effects: Effects,
}

impl<'k, K: Knowledge + ?Sized> Case<'k, K> {
    pub fn new(knowledge: &'k K) -> Case<'k, K> {
        Case { knowledge, wants: Vec::new(), effects: Effects::new() }
    }

    /// The attributes of a file; [`Error::Stale`] if it is gone.
    pub fn attributes(&mut self, file: &FileId, kind: Kind) -> Result<Attributes, Stop> {
        let known = self.ask(
            kind,
            |k| Lease::new(file.clone(), Field::Attributes, k),
            |k, kind| k.attributes(file, kind),
        );
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// The kind of a file.
    pub fn kind(&mut self, file: &FileId) -> Result<FileKind, Stop> {
        let lease = |kind| Lease::new(file.clone(), Field::Attributes, kind);
        self.ask(Kind::Read, lease, |k, _| k.kind(file))?.ok_or(Stop::Refused(Error::Stale))
    }

    /// The head of its content.
    pub fn content(&mut self, file: &FileId, kind: Kind) -> Result<ContentHead, Stop> {
        let known =
            self.ask(kind, |k| Lease::new(file.clone(), Field::Content, k), |k, kind| k.content(file, kind));
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// A symbolic link's target.
    pub fn target(&mut self, file: &FileId) -> Result<Vec<u8>, Stop> {
        let known =
            self.ask(Kind::Read, |k| Lease::new(file.clone(), Field::Content, k), |k, _| k.inline(file));
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// A directory's times.
    pub fn times(&mut self, dir: &FileId, kind: Kind) -> Result<Times, Stop> {
        let known =
            self.ask(kind, |k| Lease::new(dir.clone(), Field::Times, k), |k, kind| k.times(dir, kind));
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// The entry that a label is bound to.
    pub fn child(&mut self, dir: &FileId, label: &Label, kind: Kind) -> Result<Option<Entry>, Stop> {
        let lease = |kind| Lease::new(dir.clone(), Field::Child(fold(label)), kind);
        self.ask(kind, lease, |k, kind| k.child(dir, label, kind))
    }

    /// Whether a directory has no children.
    pub fn childless(&mut self, dir: &FileId) -> Result<bool, Stop> {
        let lease = |kind| Lease::new(dir.clone(), Field::Children, kind);
        let known = self.ask(Kind::Read, lease, |k, kind| k.childless(dir, kind));
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// The value of an extended attribute.
    pub fn xattr(&mut self, file: &FileId, name: &Label, kind: Kind) -> Result<Option<Vec<u8>>, Stop> {
        let lease = |kind| Lease::new(file.clone(), Field::Xattr(name.clone()), kind);
        self.ask(kind, lease, |k, kind| k.xattr(file, name, kind))
    }

    /// The names of all extended attributes.
    pub fn xattrs(&mut self, file: &FileId) -> Result<Vec<(Label, usize)>, Stop> {
        let known =
            self.ask(Kind::Read, |k| Lease::new(file.clone(), Field::Xattrs, k), |k, _| k.xattrs(file));
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// The links of a file.
    pub fn links(&mut self, file: &FileId, kind: Kind) -> Result<Links, Stop> {
        let known =
            self.ask(kind, |k| Lease::new(file.clone(), Field::Parent, k), |k, kind| k.links(file, kind));
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// The pending deletion of a file, if there is one.
    pub fn disposition(&mut self, file: &FileId, kind: Kind) -> Result<Option<Disposition>, Stop> {
        let lease = |kind| Lease::new(file.clone(), Field::Disposition, kind);
        let known = self.ask(kind, lease, |k, kind| k.disposition(file, kind));
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// The locks of a file.
    pub fn locks(&mut self, file: &FileId, kind: Kind) -> Result<Arc<Locks>, Stop> {
        let lease = |kind| Lease::new(file.clone(), Field::Locks, kind);
        let known = self.ask(kind, lease, |k, kind| k.locks(file, kind));
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// The aggregate of the others' values of a black box. If it is not known, the rule goes on
    /// with FALSE. From then on it can only find more missing leases.
    pub fn others(&mut self, file: &FileId, field: Field) -> Result<bool, Stop> {
        match self.knowledge.others(file, &field) {
            Known::Used(value) => Ok(value),
            Known::Unused => Err(Stop::Refused(Error::Stale)),
            Known::Unknown => {
                self.want(Lease::new(file.clone(), field, Kind::Read));
                Ok(false)
            }
        }
    }

    /// Refuses a directory that is about to be deleted: it gets no more entries.
    pub fn may_gain_entries(&mut self, dir: &FileId) -> Result<(), Stop> {
        match self.disposition(dir, Kind::Read)? {
            Some(_) => Err(Error::DeletePending.into()),
            None => Ok(()),
        }
    }

    /// Whether `ancestor` is `dir` or one of its ancestors.
    pub fn is_above(&mut self, ancestor: &FileId, dir: &FileId) -> Result<bool, Stop> {
        let lease = |kind| Lease::new(dir.clone(), Field::Path, kind);
        let known = self.ask(Kind::Read, lease, |k, _| k.is_above(ancestor, dir));
        known?.ok_or(Stop::Refused(Error::Stale))
    }

    /// Wants this lease for success. The value does not matter.
    pub fn hold(&mut self, file: &FileId, field: Field, kind: Kind) {
        if !self.knowledge.holds(file, &field, kind) {
            self.want(Lease::new(file.clone(), field, kind));
        }
    }

    /// An entry of `dir` changes.
    pub fn touch(&mut self, dir: &FileId, time: Timestamp) {
        self.hold(dir, Field::Times, Kind::Touch);
        self.effects.push(Effect::Touch { dir: dir.clone(), time });
    }

    /// Drops all wants: success changes nothing after all, so it needs no lease to write.
    pub fn change_nothing(&mut self) {
        self.wants.clear();
    }

    fn ask<T>(
        &mut self,
        kind: Kind,
        lease: impl Fn(Kind) -> Lease,
        question: impl Fn(&K, Kind) -> Known<T>,
    ) -> Result<Option<T>, Stop> {
        let mut known = question(self.knowledge, kind);
        if matches!(known, Known::Unknown) {
            self.want(lease(kind));
            if kind == Kind::Write {
                known = question(self.knowledge, Kind::Read);
            }
        }
        match known {
            Known::Unknown => Err(Stop::Unknown),
            Known::Unused => Ok(None),
            Known::Used(value) => Ok(Some(value)),
        }
    }

    fn want(&mut self, lease: Lease) {
        if !self.wants.contains(&lease) {
            self.wants.push(lease);
        }
    }
}
