//! Three-valued knowledge: leases do not convey values, they convey knowledge of values (Farsite
//! §6).

use crate::{Attributes, ContentHead, Disposition, Entry, FileKind, Links, Locks, Times};
use ident::FileId;
use lease::{Kind, Label};
use std::sync::Arc;

/// What is known of something that may be absent. `!known_used()` is not `known_unused()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// No lease says anything.
    Unknown,
    /// Known to be absent: no such file, label, attribute.
    Unused,
    /// Known to be this.
    Used(T),
}

impl<T> Known<T> {
    /// I know that it is there.
    pub fn known_used(&self) -> bool {
        matches!(self, Known::Used(_))
    }

    /// I know that it is not there.
    pub fn known_unused(&self) -> bool {
        matches!(self, Known::Unused)
    }

    /// Authoritative state turned into knowledge.
    pub fn of(value: Option<T>) -> Known<T> {
        value.map_or(Known::Unused, Known::Used)
    }
}

/// What a decision may rest on. Each question names the kind of lease that the answer must rest on:
/// `Write` where the operation will change the field. An implementation answers `Unknown` rather
/// than guess; more leases may turn `Unknown` into another answer and change nothing else, which
/// makes [`crate::decide()`] monotone.
pub trait Knowledge {
    /// The attributes of `file`.
    fn attributes(&self, file: &FileId, kind: Kind) -> Known<Attributes>;
    /// What it is. That never changes, so who knows the file at all may know it without a lease.
    fn kind(&self, file: &FileId) -> Known<FileKind> {
        match self.attributes(file, Kind::Read) {
            Known::Used(attributes) => Known::Used(attributes.kind),
            Known::Unused => Known::Unused,
            Known::Unknown => Known::Unknown,
        }
    }
    /// The head of its content.
    fn content(&self, file: &FileId, kind: Kind) -> Known<ContentHead>;
    /// A symbolic link's target, or sealed inline content; empty if there is none (leased with the
    /// content).
    fn inline(&self, file: &FileId) -> Known<Vec<u8>>;
    /// A directory's times.
    fn times(&self, dir: &FileId, kind: Kind) -> Known<Times>;
    /// Where it is linked.
    fn links(&self, file: &FileId, kind: Kind) -> Known<Links>;
    /// What exactly `label` is bound to in `dir` (leased by its fold).
    fn child(&self, dir: &FileId, label: &Label, kind: Kind) -> Known<Entry>;
    /// Whether `dir` has no children at all (rests on the infinite child lease).
    fn childless(&self, dir: &FileId, kind: Kind) -> Known<bool>;
    /// The value of an extended attribute.
    fn xattr(&self, file: &FileId, name: &Label, kind: Kind) -> Known<Vec<u8>>;
    /// The names of all extended attributes, and how long their values are.
    fn xattrs(&self, file: &FileId) -> Known<Vec<(Label, usize)>>;
    /// Its deletion, if that is pending.
    fn disposition(&self, file: &FileId, kind: Kind) -> Known<Option<Disposition>>;
    /// What of it is locked, as the asker may know it.
    fn locks(&self, file: &FileId, kind: Kind) -> Known<Arc<Locks>>;
    /// What the values of everybody *else* in the black box `field` come to: whether others have
    /// `file` open, or open in a mode (rests on `OtherRead`, [`Kind::Read`] of the field; BlackBox
    /// §4.3, §4.4).
    fn others(&self, file: &FileId, field: &lease::Field) -> Known<bool>;
    /// Whether `ancestor` is `dir` or above it. Only a server knows (from its path leases or its
    /// own state).
    fn is_above(&self, ancestor: &FileId, dir: &FileId) -> Known<bool>;
    /// May the field be touched or changed without asking for its value? (`Times`/`Touch`,
    /// `Parent`/`Write`.)
    fn holds(&self, file: &FileId, field: &lease::Field, kind: Kind) -> bool;
}
