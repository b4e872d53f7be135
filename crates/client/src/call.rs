//! The file API of a machine: the calls of front doors, and the client's replies.

use bytes::Bytes;
use ident::FileId;
use lease::{Label, Open};
use namespace::{
    AttributeChange, Conflict, Entry, FileKind, Link, Links, LockChange, LockKind, LockRange, LockSpace,
    RenameMode, Stat, XattrMode,
};

/// A call of a front door on behalf of a user. Calls name files by identifier. The front door maps
/// its protocol's names for files to identifiers.
#[derive(Clone, Debug)]
pub enum Call {
    /// Finds `label` in `dir`: [`Reply::Node`], or [`Reply::Glimpsed`].
    Lookup { dir: FileId, label: Label },
    /// The directory that contains `dir`, or `dir` itself for the root: [`Reply::Node`].
    Parent { dir: FileId },
    /// The links of `file`: [`Reply::Links`].
    Links { file: FileId },
    /// The stat of `file`: [`Reply::Stat`].
    Stat { file: FileId },
    /// The same for a caller that looks only at a file's kind, mode and owner: [`Reply::Passing`].
    Glance { file: FileId },
    /// Checks whether the user may read (4), write (2), execute (1): [`Reply::Nothing`].
    Access { file: FileId, mask: u8 },
    /// The target of a symbolic link: [`Reply::Bytes`].
    ReadLink { file: FileId },
    /// Makes a file: [`Reply::Node`]. With `open`, a handle is opened on it in the same step.
    Create {
        dir: FileId,
        label: Label,
        kind: FileKind,
        mode: u16,
        umask: u16,
        rdev: u32,
        target: Vec<u8>,
        open: Option<Open>,
    },
    /// Links `file` once more: [`Reply::Node`].
    Link { file: FileId, dir: FileId, label: Label },
    /// unlink; rmdir if `directory`: [`Reply::Nothing`] or [`Reply::Lingers`].
    Unlink { dir: FileId, label: Label, directory: bool },
    /// Renames: [`Reply::Nothing`] or [`Reply::Lingers`]. `whiteout` leaves a whiteout in the old
    /// place, as overlays want it.
    Rename { from_dir: FileId, from: Label, to_dir: FileId, to: Label, mode: RenameMode, whiteout: bool },
    /// chmod, chown, utimens and truncate in one: [`Reply::Stat`].
    ///
    /// `through_handle` is a truncation by a handle opened for writing, so permissions are not
    /// checked again.
    SetAttributes { file: FileId, change: AttributeChange, size: Option<u64>, through_handle: bool },
    /// Opens a handle with modes, given permission to read (4), write (2), execute (1):
    /// [`Reply::Opened`]. The file stays until the handle is closed, whatever its links.
    Open { file: FileId, open: Open, mask: u8 },
    /// Deletes this link once no handle is open any more, or cancels that with `None` (Windows'
    /// deletion disposition): [`Reply::Nothing`]. Needs a handle that may delete.
    SetDisposition { file: FileId, link: Option<Link> },
    /// Logs the access time of a recent read, if it still counts: [`Reply::Nothing`]. The client
    /// makes this call itself.
    Accessed { file: FileId },
    /// Closes a handle with these modes: [`Reply::Nothing`].
    Close { file: FileId, open: Open },
    /// Reads: [`Reply::Data`], shorter at the end of the file.
    ///
    /// `kept` says that the front door caches the bytes as pages until they are invalidated.
    /// `quietly` says that the read moves no access time (O_NOATIME).
    Read { file: FileId, offset: u64, length: u32, kept: bool, quietly: bool },
    /// Writes: [`Reply::Written`]. With `append`, `offset` is ignored and the write goes to the
    /// authoritative end.
    Write { file: FileId, offset: u64, data: Bytes, append: bool },
    /// Reserves, punches, zeroes: the supported FALLOC_FL bits: [`Reply::Nothing`].
    Allocate { file: FileId, offset: u64, length: u64, what: Allocate },
    /// The next data (or hole) at or after `offset`: [`Reply::Offset`]. `Error::NotFound` beyond
    /// the end (ENXIO).
    Seek { file: FileId, offset: u64, hole: bool },
    /// Returns when content and metadata of `file` are durable: [`Reply::Nothing`].
    Sync { file: FileId },
    /// Returns when everything of this machine is durable: [`Reply::Nothing`].
    SyncAll,
    /// Entries of `dir` at positions above `after`, in order, at most `limit`: [`Reply::Listing`].
    ///
    /// A listing begins without `upto`, and its reply carries the value with which to go on. It
    /// ends at the last entry that existed when it began, however much is made or renamed
    /// meanwhile.
    List { dir: FileId, after: u64, upto: Option<Upto>, limit: usize, stat: bool },
    /// The value of an extended attribute: [`Reply::Bytes`].
    GetXattr { file: FileId, name: Label },
    /// The names of all extended attributes: [`Reply::Names`].
    ListXattrs { file: FileId },
    /// Sets an extended attribute: [`Reply::Nothing`].
    SetXattr { file: FileId, name: Label, value: Vec<u8>, mode: XattrMode },
    /// Removes an extended attribute: [`Reply::Nothing`].
    RemoveXattr { file: FileId, name: Label },
    /// The free space: [`Reply::Space`].
    Space,
    /// Locks, raises, lowers or unlocks a range: [`Reply::Nothing`]. With `wait` the call waits for
    /// conflicting locks to go. Otherwise a conflict is `Error::WouldBlock`.
    Lock { file: FileId, change: LockChange, wait: bool },
    /// The lock that keeps `owner` from locking `range` so: [`Reply::Lock`].
    GetLock { file: FileId, owner: u64, space: LockSpace, range: LockRange, kind: LockKind },
}

impl Call {
    /// Its name for people.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Call::Lookup { .. } => "lookup",
            Call::Parent { .. } | Call::Links { .. } => "lookup",
            Call::Stat { .. } | Call::Glance { .. } => "stat",
            Call::Access { .. } => "access",
            Call::ReadLink { .. } => "readlink",
            Call::Create { .. } => "create",
            Call::Link { .. } => "link",
            Call::Unlink { .. } => "unlink",
            Call::Rename { .. } => "rename",
            Call::SetAttributes { .. } => "setattr",
            Call::Open { .. } => "open",
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

    /// Whether the call is to change something, or to check that a change is allowed. A machine
    /// that may only read makes no request for such a call. A handle that excludes others does not
    /// count as a change.
    pub(crate) fn writes(&self) -> bool {
        const WRITE: u8 = 2;
        match self {
            Call::Access { mask, .. } | Call::Open { mask, .. } => mask & WRITE != 0,
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
            | Call::Parent { .. }
            | Call::Links { .. }
            | Call::Stat { .. }
            | Call::Glance { .. }
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

/// The mode of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Reserve space, and grow the file unless `keep_size`.
    Reserve { keep_size: bool },
    /// Make a hole; the size stays.
    Punch,
    /// Make the range read as zeros, and grow the file unless `keep_size`.
    Zero { keep_size: bool },
}

/// The reply to a front door.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Done.
    Nothing,
    /// Done, and this file has lost its last name by that.
    ///
    /// The file stays until the front door reports that it has forgotten it
    /// ([`crate::Input::Forgotten`]). A front door that does not know the file reports that at
    /// once.
    Lingers(FileId),
    /// A file found or made, and its stat.
    Node(Entry, Stat),
    /// Everything that stat shows.
    Stat(Stat),
    /// A link's target, or an attribute's value.
    Bytes(Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Label>),
    /// The wrapped reply was true once, and no lease says that it still is. No cache may keep it. A
    /// node's entry is leased and may be kept.
    Passing(Box<Reply>),
    /// The binding of a name, or its absence. No lease says that it still holds, so no cache may
    /// keep the entry or the attributes.
    Glimpsed(Option<(Entry, Stat)>),
    /// The handle is open.
    ///
    /// `keep_pages`: the pages that the kernel has cached of the file are still valid. `passing`:
    /// the file's content ping-pongs between machines, so reads through this handle should not be
    /// cached.
    Opened { keep_pages: bool, passing: bool },
    /// Content: the place of each part of the range. The host gathers the parts.
    Data(Vec<content::ReadPart>),
    /// The number of bytes taken.
    Written(u32),
    /// The names of a file.
    Links(Links),
    /// An offset.
    Offset(u64),
    /// Entries of a directory. `end` is true when none follow in this listing.
    Listing { entries: Vec<Listed>, upto: Upto, end: bool },
    /// The conflicting lock, if there is one.
    Lock(Option<Conflict>),
    /// Free space: bytes in all, bytes free, files in all.
    Space { total: u64, free: u64, files: u64 },
}

impl Reply {
    /// The inner reply, whether or not it may be kept.
    pub fn told(self) -> Reply {
        match self {
            Reply::Passing(reply) => *reply,
            Reply::Glimpsed(Some((entry, stat))) => Reply::Node(entry, stat),
            reply => reply,
        }
    }
}

/// The end of a listing: the last entry that existed when the listing began.
///
/// New entries take positions behind the last, or positions that this machine had at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upto {
    /// The last position.
    pub last: u64,
    /// Each half-open range of positions held no entry.
    pub unused: [(u64, u64); 2],
}

impl Upto {
    /// Whether an entry at this position may have existed when the listing began.
    pub fn has(&self, position: u64) -> bool {
        position <= self.last && !self.unused.iter().any(|(from, to)| (*from..*to).contains(&position))
    }
}

/// One entry of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its exact label.
    pub label: Label,
    /// The entry itself. Its `position` is the cookie.
    pub entry: Entry,
    /// Its stat, if the caller asked for it and the client knows it without another round trip.
    pub stat: Option<Stat>,
    /// Its stat was reported, and no cache may keep it.
    pub passing: bool,
}
