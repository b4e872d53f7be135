//! The unit of leases: one field of one file (Farsite §5.1).

use crate::{Label, Mode};
use ident::FileId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A client's session at one server. Its number is never reused; a machine that restarts gets a new
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// The rights that a lease gives its holder on the field.
///
/// On the multi-writer field ([`Field::Times`]) any number of clients may move a directory's times
/// forward at once. So `Touch` agrees with `Touch`, and with no other kind. `Write` is `Read` and
/// `Touch` for one holder alone.
///
/// On a black-box field ([`Field::is_black_box`]) `Read` is `OtherRead`, `Touch` is `SelfWrite`,
/// and `Write` is both (BlackBox §4.5). There the clients' values decide which leases agree, see
/// [`crate::blackbox`]. [`Kind::agrees_with`] does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Knows the value; of a black box, the aggregate of the others' values.
    Read,
    /// May move the value forward without knowing it ([`Field::Times`]), or change its own value
    /// without seeing the others' (black boxes).
    Touch,
    /// Knows the value and may change it: authority has left the server.
    Write,
}

impl Kind {
    /// Returns whether a lease of kind `self` is enough for a need of kind `need`.
    pub fn covers(self, need: Kind) -> bool {
        self == Kind::Write || self == need
    }

    /// Returns whether two clients may hold `self` and `other` on the same field at the same time.
    /// It does not apply to black boxes.
    pub fn agrees_with(self, other: Kind) -> bool {
        matches!((self, other), (Kind::Read, Kind::Read) | (Kind::Touch, Kind::Touch))
    }

    /// Returns the kind that both together amount to. `Read` and `Touch` on one field agree with no
    /// other client's lease, so together they are `Write`.
    pub fn and(self, other: Kind) -> Kind {
        if self == other { self } else { Kind::Write }
    }

    /// Returns the rest of the lease when it is released down to `keep`: never more than it was.
    pub fn within(self, keep: Option<Kind>) -> Option<Kind> {
        match (self, keep?) {
            (kind, Kind::Write) => Some(kind),
            (Kind::Write, keep) => Some(keep),
            (kind, keep) => (kind == keep).then_some(kind),
        }
    }

    /// Returns the rest of the lease without `other`.
    pub(crate) fn without(self, other: Kind) -> Option<Kind> {
        match (self, other) {
            (Kind::Write, Kind::Read) => Some(Kind::Touch),
            (Kind::Write, Kind::Touch) => Some(Kind::Read),
            (kind, other) => (!other.covers(kind)).then_some(kind),
        }
    }

    /// Returns what another holder of `self` may keep when `asked` is requested: all of it exactly
    /// if the two agree.
    pub(crate) fn beside(self, asked: Kind) -> Option<Kind> {
        self.within((asked != Kind::Write).then_some(asked))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Read => "read",
            Kind::Touch => "touch",
            Kind::Write => "write",
        })
    }
}

/// One separately leased piece of a file's metadata.
///
/// Requests queue in the order of fields, so there is no deadlock among requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Field {
    /// Mode, owner, group, flags, link count, change time, birth time, access time, inode number.
    /// One field (departs from Farsite §5.1: because POSIX ties each of them to ctime, and `stat`
    /// reads them all).
    Attributes,
    /// Size, modification time, version, and the tree of extents.
    Content,
    /// A directory's modification and change times: the multi-writer field.
    Times,
    /// Whether the file is deleted at its last close, and by which name (BlackBox §3.3).
    Disposition,
    /// The links of the file: one (directory, label) for a directory, a set for anything else.
    Parent,
    /// Whether any client has the file open: the black box over OR of "this client has a handle"
    /// (BlackBox §4.3).
    Handles,
    /// Whether any client has the file open in this mode: likewise a black box over OR (BlackBox
    /// §4.4).
    Mode(Mode),
    /// The chain of identifiers up to the root; directories only, between servers only (Farsite
    /// §4.3). A client never holds it, and an operation that wants it is shipped.
    Path,
    /// The binding of one label; the label is a *fold* (see `namespace::fold`).
    Child(Label),
    /// All labels but those that the lease excludes: the infinite child lease (Farsite §5.1).
    Children,
    /// One extended attribute.
    Xattr(Label),
    /// All extended attributes but those that the lease excludes, likewise.
    Xattrs,
    /// The locked ranges of the file, by fcntl and by flock (docs/internals/leases.md, "Locks of
    /// ranges"). It is last, so that rows written before it existed read as they did.
    Locks,
}

impl Field {
    /// Returns whether leases of this kind exist on the field.
    pub fn admits(&self, kind: Kind) -> bool {
        kind != Kind::Touch || *self == Field::Times || self.is_black_box()
    }

    /// The black boxes of each file.
    pub const BLACK_BOXES: [Field; 7] = [
        Field::Handles,
        Field::Mode(Mode::AccessRead),
        Field::Mode(Mode::AccessWrite),
        Field::Mode(Mode::AccessDelete),
        Field::Mode(Mode::ExcludeRead),
        Field::Mode(Mode::ExcludeWrite),
        Field::Mode(Mode::ExcludeDelete),
    ];

    /// Returns whether each client has a value of its own of this field, and sees the aggregate of
    /// the others' values (BlackBox §4.2).
    pub fn is_black_box(&self) -> bool {
        matches!(self, Field::Handles | Field::Mode(_))
    }

    /// Returns whether leases on the two fields can concern the same thing: the same field, or one
    /// label (attribute) and all of them.
    pub fn overlaps(&self, other: &Field) -> bool {
        self == other
            || matches!(
                (self, other),
                (Field::Child(_), Field::Children)
                    | (Field::Children, Field::Child(_))
                    | (Field::Xattr(_), Field::Xattrs)
                    | (Field::Xattrs, Field::Xattr(_))
            )
    }
}

impl Field {
    /// The name of the field, without that of its label, attribute or mode.
    pub fn name(&self) -> &'static str {
        match self {
            Field::Attributes => "attributes",
            Field::Content => "content",
            Field::Times => "times",
            Field::Disposition => "disposition",
            Field::Parent => "parent",
            Field::Handles => "handles",
            Field::Mode(_) => "mode",
            Field::Path => "path",
            Field::Child(_) => "child",
            Field::Children => "children",
            Field::Xattr(_) => "attribute",
            Field::Xattrs => "xattrs",
            Field::Locks => "locks",
        }
    }

    /// The label, attribute or mode, if the field is that of one.
    pub fn of(&self) -> Option<String> {
        match self {
            Field::Mode(mode) => Some(mode.to_string()),
            Field::Child(label) | Field::Xattr(label) => {
                Some(String::from_utf8_lossy(label.as_bytes()).into_owned())
            }
            _ => None,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.of().map_or(Ok(()), |of| write!(f, " {of}"))
    }
}

/// A lease as messages name it: a kind on a field of a file. Before the grant it is a want.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The file.
    pub file: FileId,
    /// Its field.
    pub field: Field,
    /// The holder's rights.
    pub kind: Kind,
}

impl Lease {
    /// Makes the lease of `kind` on `field` of `file`.
    pub fn new(file: FileId, field: Field, kind: Kind) -> Lease {
        Lease { file, field, kind }
    }
}

/// A released lease, wholly or down to `keep`. For one label (or attribute) of an infinite lease,
/// `field` is that `Child` (`Xattr`) field. The holder then keeps the infinite lease, and excludes
/// the label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Released {
    /// The file.
    pub file: FileId,
    /// Its field.
    pub field: Field,
    /// The kind that is still held afterwards.
    pub keep: Option<Kind>,
}
