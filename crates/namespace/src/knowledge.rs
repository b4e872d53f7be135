//! Three-valued knowledge: leases do not convey values, they convey knowledge of values (Farsite
//! §6).

use crate::{Attributes, ContentHead, Disposition, Entry, FileKind, Links, Locks, Times};
use ident::FileId;
use lease::{Kind, Label};
use std::sync::Arc;

/// Knowledge of a value that may be absent. `!known_used()` is not `known_unused()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// No lease covers it.
    Unknown,
    /// Known to be absent: no such file, label, attribute.
    Unused,
    /// Known to be this.
    Used(T),
}

impl<T> Known<T> {
    /// Whether the value is known to exist.
    pub fn known_used(&self) -> bool {
        matches!(self, Known::Used(_))
    }

    /// Whether the value is known to be absent.
    pub fn known_unused(&self) -> bool {
        matches!(self, Known::Unused)
    }

    /// Turns authoritative state into knowledge.
    pub fn of(value: Option<T>) -> Known<T> {
        value.map_or(Known::Unused, Known::Used)
    }
}

/// The knowledge that a decision may rest on.
///
/// Each query names the kind of lease that its answer must rest on. This is `Write` where the
/// operation will change the field. An implementation answers `Unknown` rather than guess. More
/// leases may turn `Unknown` into another answer, and must change nothing else. That makes
/// [`crate::decide()`] monotone.
pub trait Knowledge {
    /// The attributes of `file`.
    fn attributes(&self, file: &FileId, kind: Kind) -> Known<Attributes>;
    /// The kind of `file`. It never changes, so a client that knows the file at all may know it
    /// without a lease.
    fn kind(&self, file: &FileId) -> Known<FileKind> {
        match self.attributes(file, Kind::Read) {
            Known::Used(attributes) => Known::Used(attributes.kind),
            Known::Unused => Known::Unused,
            Known::Unknown => Known::Unknown,
        }
    }
    /// The head of its content.
    fn content(&self, file: &FileId, kind: Kind) -> Known<ContentHead>;
    /// A symbolic link's target, or sealed inline content. Empty if there is none (leased with the
    /// content).
    fn inline(&self, file: &FileId) -> Known<Vec<u8>>;
    /// A directory's times.
    fn times(&self, dir: &FileId, kind: Kind) -> Known<Times>;
    /// The links of `file`.
    fn links(&self, file: &FileId, kind: Kind) -> Known<Links>;
    /// The binding of exactly `label` in `dir` (leased by its fold).
    fn child(&self, dir: &FileId, label: &Label, kind: Kind) -> Known<Entry>;
    /// Whether `dir` has no children at all (rests on the infinite child lease).
    fn childless(&self, dir: &FileId, kind: Kind) -> Known<bool>;
    /// The value of an extended attribute.
    fn xattr(&self, file: &FileId, name: &Label, kind: Kind) -> Known<Vec<u8>>;
    /// The names of all extended attributes, and the lengths of their values.
    fn xattrs(&self, file: &FileId) -> Known<Vec<(Label, usize)>>;
    /// The pending deletion of `file`, if there is one.
    fn disposition(&self, file: &FileId, kind: Kind) -> Known<Option<Disposition>>;
    /// The locks of `file`, as far as the caller may know them.
    fn locks(&self, file: &FileId, kind: Kind) -> Known<Arc<Locks>>;
    /// The aggregate of the *other* clients' values in the black box `field`: whether others have
    /// `file` open, or open in a mode. It rests on `OtherRead` ([`Kind::Read`] of the field;
    /// BlackBox §4.3, §4.4).
    fn others(&self, file: &FileId, field: &lease::Field) -> Known<bool>;
    /// Whether `ancestor` is `dir` or one of its ancestors. Only a server knows that, from its path
    /// leases or its own state.
    fn is_above(&self, ancestor: &FileId, dir: &FileId) -> Known<bool>;
    /// Whether the field may be touched or changed without its value. (`Times`/`Touch`,
    /// `Parent`/`Write`.)
    fn holds(&self, file: &FileId, field: &lease::Field, kind: Kind) -> bool;
}
