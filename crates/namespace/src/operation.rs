//! Users' operations, in the form in which clients log them and servers replay them.
//!
//! An operation holds everything that its decision needs apart from knowledge: the user, the time,
//! and the numbers from the client's reservations. So a second decision elsewhere can only give the
//! same result.

pub use crate::decide::{
    Access, Accessed, Create, Dispose, Find, GetLock, GetXattr, Link, List, ListXattrs, Lock, Lookup, Open,
    Publish, ReadLink, RemoveXattr, Rename, SetAttributes, SetDisposition, SetXattr, Stat, Unlink,
};
use crate::{Cred, Timestamp};
use ident::FileId;
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

/// An operation. Each is a struct that stands with its rule in `decide`. Labels of children are
/// exact, and `namespace::fold` gives the leased label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    // Questions: they have no effects and are never logged.
    Lookup(Lookup),
    Find(Find),
    Stat(Stat),
    Access(Access),
    Open(Open),
    ReadLink(ReadLink),
    List(List),
    GetXattr(GetXattr),
    ListXattrs(ListXattrs),

    // Updates.
    Create(Create),
    Link(Link),
    Unlink(Unlink),
    Rename(Rename),
    SetAttributes(SetAttributes),
    SetXattr(SetXattr),
    RemoveXattr(RemoveXattr),
    Publish(Publish),
    Accessed(Accessed),
    SetDisposition(SetDisposition),
    Dispose(Dispose),
    Lock(Lock),
    GetLock(GetLock),
}

/// Makes an operation of each of these structs.
macro_rules! operations {
    ($($operation:ident),* $(,)?) => { $(
        impl From<$operation> for Operation {
            fn from(operation: $operation) -> Operation {
                Operation::$operation(operation)
            }
        }
    )* };
}

operations! {
    Access, Accessed, Create, Dispose, Find, GetLock, GetXattr, Link, List, ListXattrs, Lock, Lookup, Open,
    Publish, ReadLink, RemoveXattr, Rename, SetAttributes, SetDisposition, SetXattr, Stat, Unlink,
}

impl Operation {
    /// Its name for people.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Lookup { .. } | Operation::Find { .. } => "lookup",
            Operation::Stat { .. } => "stat",
            Operation::Access { .. } => "access",
            Operation::Open { .. } => "open",
            Operation::ReadLink { .. } => "readlink",
            Operation::List { .. } => "list",
            Operation::GetXattr { .. } => "getxattr",
            Operation::ListXattrs { .. } => "listxattr",
            Operation::Create { .. } => "create",
            Operation::Link { .. } => "link",
            Operation::Unlink { .. } => "unlink",
            Operation::Rename { .. } => "rename",
            Operation::SetAttributes { .. } => "setattr",
            Operation::SetXattr { .. } => "setxattr",
            Operation::RemoveXattr { .. } => "removexattr",
            Operation::Publish { .. } => "write",
            Operation::Accessed { .. } => "read",
            Operation::SetDisposition { .. } => "delete on close",
            Operation::Dispose { .. } => "last close",
            Operation::Lock { .. } => "lock",
            Operation::GetLock { .. } => "getlk",
        }
    }

    /// Whether it may have effects. If so it is logged and replayed.
    pub fn is_update(&self) -> bool {
        !matches!(
            self,
            Operation::Lookup { .. }
                | Operation::Find { .. }
                | Operation::Stat { .. }
                | Operation::Access { .. }
                | Operation::Open { .. }
                | Operation::ReadLink { .. }
                | Operation::List { .. }
                | Operation::GetXattr { .. }
                | Operation::ListXattrs { .. }
                | Operation::GetLock { .. }
        )
    }

    /// The asking user, or `None` where only leases count.
    pub fn cred(&self) -> Option<&Cred> {
        match self {
            Operation::Lookup(Lookup { cred, .. })
            | Operation::Find(Find { cred, .. })
            | Operation::Access(Access { cred, .. })
            | Operation::Open(Open { cred, .. })
            | Operation::GetXattr(GetXattr { cred, .. })
            | Operation::Create(Create { cred, .. })
            | Operation::Link(Link { cred, .. })
            | Operation::Unlink(Unlink { cred, .. })
            | Operation::Rename(Rename { cred, .. })
            | Operation::SetAttributes(SetAttributes { cred, .. })
            | Operation::SetXattr(SetXattr { cred, .. })
            | Operation::RemoveXattr(RemoveXattr { cred, .. })
            | Operation::SetDisposition(SetDisposition { cred, .. }) => Some(cred),
            Operation::Stat { .. }
            | Operation::ReadLink { .. }
            | Operation::List { .. }
            | Operation::ListXattrs { .. }
            | Operation::Publish { .. }
            | Operation::Accessed { .. }
            | Operation::Lock { .. }
            | Operation::GetLock { .. }
            | Operation::Dispose { .. } => None,
        }
    }

    /// The time that its user's change has: `None` for questions and locks.
    pub fn time(&self) -> Option<Timestamp> {
        match self {
            Operation::Create(Create { time, .. })
            | Operation::Link(Link { time, .. })
            | Operation::Unlink(Unlink { time, .. })
            | Operation::Rename(Rename { time, .. })
            | Operation::SetAttributes(SetAttributes { time, .. })
            | Operation::SetXattr(SetXattr { time, .. })
            | Operation::RemoveXattr(RemoveXattr { time, .. })
            | Operation::Publish(Publish { mtime: time, .. })
            | Operation::Accessed(Accessed { time, .. })
            | Operation::SetDisposition(SetDisposition { time, .. })
            | Operation::Dispose(Dispose { time, .. }) => Some(*time),
            Operation::Lookup { .. }
            | Operation::Find { .. }
            | Operation::Stat { .. }
            | Operation::Access { .. }
            | Operation::Open { .. }
            | Operation::ReadLink { .. }
            | Operation::List { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattrs { .. }
            | Operation::Lock { .. }
            | Operation::GetLock { .. } => None,
        }
    }

    /// The file whose server leads the operation: the directory that gets or loses an entry (of a
    /// rename the destination's), or the one file that changes.
    pub fn leading_file(&self) -> &FileId {
        match self {
            Operation::Link(Link { dir, .. }) => dir,
            Operation::Rename(Rename { to_dir, .. }) => to_dir,
            _ => self.files()[0],
        }
    }

    /// The files that it names, except one that it makes.
    pub fn files(&self) -> SmallVec<[&FileId; 2]> {
        match self {
            Operation::Lookup(Lookup { dir, .. })
            | Operation::Find(Find { dir, .. })
            | Operation::List(List { dir })
            | Operation::Create(Create { dir, .. })
            | Operation::Unlink(Unlink { dir, .. }) => smallvec![dir],
            Operation::Link(Link { file, dir, .. }) => smallvec![file, dir],
            Operation::Rename(Rename { from_dir, to_dir, .. }) => smallvec![from_dir, to_dir],
            Operation::SetDisposition(SetDisposition { file, link: Some(link), .. }) => {
                smallvec![file, &link.dir]
            }
            Operation::Stat(Stat { file })
            | Operation::Access(Access { file, .. })
            | Operation::Open(Open { file, .. })
            | Operation::ReadLink(ReadLink { file })
            | Operation::GetXattr(GetXattr { file, .. })
            | Operation::ListXattrs(ListXattrs { file })
            | Operation::SetAttributes(SetAttributes { file, .. })
            | Operation::SetXattr(SetXattr { file, .. })
            | Operation::RemoveXattr(RemoveXattr { file, .. })
            | Operation::Publish(Publish { file, .. })
            | Operation::Accessed(Accessed { file, .. })
            | Operation::Lock(Lock { file, .. })
            | Operation::GetLock(GetLock { file, .. })
            | Operation::SetDisposition(SetDisposition { file, link: None, .. })
            | Operation::Dispose(Dispose { file, .. }) => smallvec![file],
        }
    }
}
