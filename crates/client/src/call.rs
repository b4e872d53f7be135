//! The calls of front doors. Each is a struct, and front doors know its reply by its type
//! (`file_service::FileCall`). The client takes any of them as a [`Call`].

use bytes::Bytes;
use ident::FileId;
use lease::Label;
use namespace::{
    AttributeChange, FileSpec, LockChange, LockKind, LockRange, LockSpace, RenameMode, Replaced, XattrMode,
};

use crate::Upto;

/// A call of a front door on behalf of a user. Calls name files by identifier. The front door maps
/// its protocol's names for files to identifiers.
#[derive(Clone, Debug)]
pub enum Call {
    Lookup(Lookup),
    Find(Find),
    Spellings(Spellings),
    Parent(Parent),
    Links(Links),
    Stat(Stat),
    Glance(Glance),
    Peek(Peek),
    Access(Access),
    ReadLink(ReadLink),
    Create(Create),
    Link(Link),
    Unlink(Unlink),
    Rename(Rename),
    SetAttributes(SetAttributes),
    OpenFile(OpenFile),
    Cover(Cover),
    SetDisposition(SetDisposition),
    Accessed(Accessed),
    Close(Close),
    Read(Read),
    Write(Write),
    Allocate(Allocate),
    Seek(Seek),
    Sync(Sync),
    SyncAll,
    List(List),
    GetXattr(GetXattr),
    ListXattrs(ListXattrs),
    SetXattr(SetXattr),
    RemoveXattr(RemoveXattr),
    Space,
    Lock(Lock),
    GetLock(GetLock),
}

impl Call {
    /// Its name for people.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Call::Lookup { .. } | Call::Find { .. } | Call::Spellings { .. } => "lookup",
            Call::Parent { .. } | Call::Links { .. } => "lookup",
            Call::Stat { .. } | Call::Glance { .. } | Call::Peek { .. } => "stat",
            Call::Access { .. } => "access",
            Call::ReadLink { .. } => "readlink",
            Call::Create { .. } => "create",
            Call::Link { .. } => "link",
            Call::Unlink { .. } => "unlink",
            Call::Rename { .. } => "rename",
            Call::SetAttributes { .. } => "setattr",
            Call::OpenFile { .. } => "open",
            Call::Cover { .. } => "cover",
            Call::SetDisposition { .. } => "delete on close",
            Call::Close { .. } => "close",
            Call::Read { .. } => "read",
            Call::Write { .. } => "write",
            Call::Allocate { .. } => "fallocate",
            Call::Seek { .. } => "seek",
            Call::Sync { .. } => "fsync",
            Call::SyncAll => "sync",
            Call::List { .. } => "list",
            Call::GetXattr { .. } => "getxattr",
            Call::ListXattrs { .. } => "listxattr",
            Call::SetXattr { .. } => "setxattr",
            Call::RemoveXattr { .. } => "removexattr",
            Call::Space => "statfs",
            Call::Accessed { .. } => "access time",
            Call::Lock { .. } => "lock",
            Call::GetLock { .. } => "getlk",
        }
    }

    /// The file that it is about, or the directory of its name (of a rename, the new name). A call
    /// about everything has none.
    pub fn file(&self) -> Option<&FileId> {
        match self {
            Call::Lookup(Lookup { dir: file, .. })
            | Call::Find(Find { dir: file, .. })
            | Call::Spellings(Spellings { dir: file, .. })
            | Call::Parent(Parent { dir: file })
            | Call::Create(Create { dir: file, .. })
            | Call::Link(Link { dir: file, .. })
            | Call::Unlink(Unlink { dir: file, .. })
            | Call::Rename(Rename { to_dir: file, .. })
            | Call::List(List { dir: file, .. })
            | Call::Links(Links { file })
            | Call::Stat(Stat { file })
            | Call::Glance(Glance { file })
            | Call::Peek(Peek { file })
            | Call::Access(Access { file, .. })
            | Call::ReadLink(ReadLink { file })
            | Call::SetAttributes(SetAttributes { file, .. })
            | Call::OpenFile(OpenFile { file, .. })
            | Call::Cover(Cover { file, .. })
            | Call::SetDisposition(SetDisposition { file, .. })
            | Call::Accessed(Accessed { file })
            | Call::Close(Close { file, .. })
            | Call::Read(Read { file, .. })
            | Call::Write(Write { file, .. })
            | Call::Allocate(Allocate { file, .. })
            | Call::Seek(Seek { file, .. })
            | Call::Sync(Sync { file })
            | Call::GetXattr(GetXattr { file, .. })
            | Call::ListXattrs(ListXattrs { file })
            | Call::SetXattr(SetXattr { file, .. })
            | Call::RemoveXattr(RemoveXattr { file, .. })
            | Call::Lock(Lock { file, .. })
            | Call::GetLock(GetLock { file, .. }) => Some(file),
            Call::SyncAll | Call::Space => None,
        }
    }

    /// Whether the call is to change something, or to check that a change is allowed. A machine
    /// that may only read makes no request for such a call. A handle that excludes others does not
    /// count as a change.
    pub(crate) fn writes(&self) -> bool {
        const WRITE: u8 = 2;
        match self {
            Call::Access(Access { mask, .. }) | Call::OpenFile(OpenFile { mask, .. }) => mask & WRITE != 0,
            Call::Create { .. }
            | Call::Link { .. }
            | Call::Unlink { .. }
            | Call::Rename { .. }
            | Call::SetAttributes { .. }
            | Call::SetDisposition { .. }
            | Call::Accessed { .. }
            | Call::Write { .. }
            | Call::Allocate { .. }
            | Call::SetXattr { .. }
            | Call::RemoveXattr { .. } => true,
            Call::Lookup { .. }
            | Call::Find { .. }
            | Call::Spellings { .. }
            | Call::Cover { .. }
            | Call::Parent { .. }
            | Call::Links { .. }
            | Call::Stat { .. }
            | Call::Glance { .. }
            | Call::Peek { .. }
            | Call::ReadLink { .. }
            | Call::Close { .. }
            | Call::Read { .. }
            | Call::Seek { .. }
            | Call::Sync { .. }
            | Call::SyncAll
            | Call::List { .. }
            | Call::GetXattr { .. }
            | Call::ListXattrs { .. }
            | Call::Lock { .. }
            | Call::GetLock { .. }
            | Call::Space => false,
        }
    }
}

/// Finds `label` in `dir`: [`crate::Reply::Node`], or [`crate::Reply::Glimpsed`].
#[derive(Clone, Debug)]
pub struct Lookup {
    pub dir: FileId,
    pub label: Label,
}

/// Finds `label` in `dir` and takes the content from nobody: [`crate::Reply::Found`].
#[derive(Clone, Debug)]
pub struct Find {
    pub dir: FileId,
    pub label: Label,
}

/// The labels in `dir` that differ from `label` in case only, itself included:
/// [`crate::Reply::Names`]. No lookup of a name that ignores case looks at the whole directory.
#[derive(Clone, Debug)]
pub struct Spellings {
    pub dir: FileId,
    pub label: Label,
}

/// The directory that contains `dir`, or `dir` itself for the root: [`crate::Reply::Node`].
#[derive(Clone, Debug)]
pub struct Parent {
    pub dir: FileId,
}

/// The links of `file`: [`crate::Reply::Links`].
#[derive(Clone, Debug)]
pub struct Links {
    pub file: FileId,
}

/// The stat of `file`: [`crate::Reply::Stat`].
#[derive(Clone, Debug)]
pub struct Stat {
    pub file: FileId,
}

/// The same for a caller that looks only at a file's kind, mode and owner:
/// [`crate::Reply::Uncached`].
#[derive(Clone, Debug)]
pub struct Glance {
    pub file: FileId,
}

/// The stat of `file`, for a caller that takes nothing from another machine: [`crate::Reply::Stat`]
/// under leases, or [`crate::Reply::Uncached`] if another machine may be changing the file. That
/// machine tells what it has.
#[derive(Clone, Debug)]
pub struct Peek {
    pub file: FileId,
}

/// Checks whether the user may read (4), write (2), execute (1): [`crate::Reply::Nothing`].
#[derive(Clone, Debug)]
pub struct Access {
    pub file: FileId,
    pub mask: u8,
}

/// The target of a symbolic link: [`crate::Reply::Bytes`].
#[derive(Clone, Debug)]
pub struct ReadLink {
    pub file: FileId,
}

/// Makes a file: [`crate::Reply::Node`]. With `open`, a handle is opened on it in the same step.
#[derive(Clone, Debug)]
pub struct Create {
    pub dir: FileId,
    pub label: Label,
    pub spec: FileSpec,
    pub open: Option<lease::OpenModes>,
}

/// Links `file` once more: [`crate::Reply::Node`]. The file that `replaced` names loses its name to
/// this one, in the same step.
#[derive(Clone, Debug)]
pub struct Link {
    pub file: FileId,
    pub dir: FileId,
    pub label: Label,
    pub replaced: Option<Box<Replaced>>,
}

/// unlink; rmdir if `directory`: [`crate::Reply::Nothing`] or [`crate::Reply::Lingers`]. With
/// `pending` the deletion of this name is carried out that is pending for that file:
/// [`namespace::Error::AnotherFile`] if the name is another's, and [`namespace::Error::Invalid`] if
/// no deletion is pending.
#[derive(Clone, Debug)]
pub struct Unlink {
    pub dir: FileId,
    pub label: Label,
    pub pending: Option<FileId>,
    pub directory: bool,
}

/// Renames: [`crate::Reply::Nothing`] or [`crate::Reply::Lingers`]. `whiteout` leaves a whiteout in
/// the old place, as overlays want it. `source` is the file that is meant, if the caller means one,
/// and `replaced` the one that may lose its name: [`namespace::Error::AnotherFile`], if a name is
/// another file's.
#[derive(Clone, Debug)]
pub struct Rename {
    pub from_dir: FileId,
    pub from: Label,
    pub source: Option<FileId>,
    pub to_dir: FileId,
    pub to: Label,
    pub mode: RenameMode,
    pub replaced: Option<Box<Replaced>>,
    pub whiteout: bool,
}

/// chmod, chown, utimens and truncate in one: [`crate::Reply::Stat`].
///
/// `through_handle` is a truncation by a handle opened for writing, so permissions are not
/// checked again.
#[derive(Clone, Debug)]
pub struct SetAttributes {
    pub file: FileId,
    pub change: AttributeChange,
    pub size: Option<u64>,
    pub through_handle: bool,
}

/// Opens a handle with modes, given permission to read (4), write (2), execute (1):
/// [`crate::Reply::Opened`]. The file stays until the handle is closed, whatever its links.
#[derive(Clone, Debug)]
pub struct OpenFile {
    pub file: FileId,
    pub open: lease::OpenModes,
    pub mask: u8,
}

/// Has the machine hold the content and the locks of `file` for clients of the front door that
/// cache it: [`crate::Reply::Covered`]. With `write` the machine holds them to write, unless
/// another may have the file open. A caller that is about to empty the file says so, and then the
/// content is taken from all others at once. With `xattr` the extended attribute takes the place of
/// both. From then on [`crate::Invalidation::Caching`] says what they may keep.
#[derive(Clone, Debug)]
pub struct Cover {
    pub file: FileId,
    pub write: bool,
    pub empties: bool,
    pub xattr: Option<Label>,
}

/// Deletes this link once no handle is open any more, or cancels that with `None` (Windows'
/// deletion disposition): [`crate::Reply::Nothing`]. Needs a handle that may delete.
#[derive(Clone, Debug)]
pub struct SetDisposition {
    pub file: FileId,
    pub link: Option<namespace::Link>,
}

/// Logs the access time of a recent read, if it still counts: [`crate::Reply::Nothing`]. The client
/// makes this call itself.
#[derive(Clone, Debug)]
pub struct Accessed {
    pub file: FileId,
}

/// Closes a handle with these modes: [`crate::Reply::Nothing`].
#[derive(Clone, Debug)]
pub struct Close {
    pub file: FileId,
    pub open: lease::OpenModes,
}

/// Reads: [`crate::Reply::Data`], shorter at the end of the file.
///
/// `kept` says that the front door caches the bytes as pages until they are invalidated.
/// `quietly` says that the read moves no access time (O_NOATIME).
#[derive(Clone, Debug)]
pub struct Read {
    pub file: FileId,
    pub offset: u64,
    pub length: u32,
    pub kept: bool,
    pub quietly: bool,
}

/// Writes: [`crate::Reply::Written`]. With `append`, `offset` is ignored and the write goes to the
/// authoritative end.
#[derive(Clone, Debug)]
pub struct Write {
    pub file: FileId,
    pub offset: u64,
    pub data: Bytes,
    pub append: bool,
}

/// Reserves, punches, zeroes: the supported FALLOC_FL bits: [`crate::Reply::Nothing`].
#[derive(Clone, Debug)]
pub struct Allocate {
    pub file: FileId,
    pub offset: u64,
    pub length: u64,
    pub what: AllocateMode,
}

/// The next data (or hole) at or after `offset`: [`crate::Reply::Offset`]. `Error::NotFound` beyond
/// the end (ENXIO).
#[derive(Clone, Debug)]
pub struct Seek {
    pub file: FileId,
    pub offset: u64,
    pub hole: bool,
}

/// Returns when content and metadata of `file` are durable: [`crate::Reply::Nothing`].
#[derive(Clone, Debug)]
pub struct Sync {
    pub file: FileId,
}

/// Returns when everything of this machine is durable: [`crate::Reply::Nothing`].
#[derive(Clone, Debug)]
pub struct SyncAll;

/// Entries of `dir` at positions above `after`, in order, at most `limit`:
/// [`crate::Reply::Listing`].
///
/// A listing begins without `upto`, and its reply carries the value with which to go on. It
/// ends at the last entry that existed when it began, however much is made or renamed
/// meanwhile.
#[derive(Clone, Debug)]
pub struct List {
    pub dir: FileId,
    pub after: u64,
    pub upto: Option<Upto>,
    pub limit: usize,
    pub stat: bool,
}

/// The value of an extended attribute: [`crate::Reply::Bytes`].
#[derive(Clone, Debug)]
pub struct GetXattr {
    pub file: FileId,
    pub name: Label,
}

/// The names of all extended attributes: [`crate::Reply::Names`].
#[derive(Clone, Debug)]
pub struct ListXattrs {
    pub file: FileId,
}

/// Sets an extended attribute: [`crate::Reply::Nothing`].
#[derive(Clone, Debug)]
pub struct SetXattr {
    pub file: FileId,
    pub name: Label,
    pub value: Vec<u8>,
    pub mode: XattrMode,
}

/// Removes an extended attribute: [`crate::Reply::Nothing`].
#[derive(Clone, Debug)]
pub struct RemoveXattr {
    pub file: FileId,
    pub name: Label,
}

/// The free space: [`crate::Reply::Space`].
#[derive(Clone, Debug)]
pub struct Space;

/// Locks, raises, lowers or unlocks a range: [`crate::Reply::Nothing`]. With `wait` the call waits
/// for conflicting locks to go. Otherwise a conflict is `Error::WouldBlock`.
#[derive(Clone, Debug)]
pub struct Lock {
    pub file: FileId,
    pub change: LockChange,
    pub wait: bool,
}

/// The lock that keeps `owner` from locking `range` so: [`crate::Reply::Lock`].
#[derive(Clone, Debug)]
pub struct GetLock {
    pub file: FileId,
    pub owner: u64,
    pub space: LockSpace,
    pub range: LockRange,
    pub kind: LockKind,
}

/// The mode of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserve space, and grow the file unless `keep_size`.
    Reserve { keep_size: bool },
    /// Make a hole; the size stays.
    Punch,
    /// Make the range read as zeros, and grow the file unless `keep_size`.
    Zero { keep_size: bool },
}

macro_rules! calls {
    ($($call:ident)*) => {
        $(
            impl From<$call> for Call {
                fn from(call: $call) -> Call {
                    Call::$call(call)
                }
            }
        )*
    };
}

calls! { Lookup Find Spellings Parent Links Stat Glance Peek Access ReadLink Create Link Unlink Rename SetAttributes OpenFile Cover SetDisposition Accessed Close Read Write Allocate Seek Sync List GetXattr ListXattrs SetXattr RemoveXattr Lock GetLock }

impl From<SyncAll> for Call {
    fn from(_: SyncAll) -> Call {
        Call::SyncAll
    }
}

impl From<Space> for Call {
    fn from(_: Space) -> Call {
        Call::Space
    }
}
