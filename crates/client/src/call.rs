//! The file API of a machine: what front doors ask of the client, and what they are told.

use bytes::Bytes;
use ident::FileId;
use lease::{Label, Open};
use namespace::{
    AttributeChange, Conflict, Entry, FileKind, Link, Links, LockChange, LockKind, LockRange, LockSpace,
    RenameMode, Stat, XattrMode,
};

/// What a front door asks on behalf of a user. Files are addressed by identifier; the front door
/// keeps its own table from what its protocol calls them.
#[derive(Clone, Debug)]
pub enum Call {
    /// Finds `label` in `dir`: [`Reply::Node`], or [`Reply::Glimpsed`].
    Lookup { dir: FileId, label: Label },
    /// The directory that `dir` is linked in, itself for the root: [`Reply::Node`].
    Parent { dir: FileId },
    /// Where `file` is linked: [`Reply::Links`].
    Links { file: FileId },
    /// [`Reply::Stat`].
    Stat { file: FileId },
    /// The same for who looks at nothing but what kind of file it is, its mode and its owner:
    /// [`Reply::Passing`].
    Glance { file: FileId },
    /// May the asker read (4), write (2), execute (1)? [`Reply::Nothing`].
    Access { file: FileId, mask: u8 },
    /// [`Reply::Bytes`].
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
    /// `whiteout`: leaves a whiteout in the old place, as overlays want it: [`Reply::Nothing`] or
    /// [`Reply::Lingers`].
    Rename { from_dir: FileId, from: Label, to_dir: FileId, to: Label, mode: RenameMode, whiteout: bool },
    /// chmod, chown, utimens and truncate in one: [`Reply::Stat`]. `through_handle`: truncation by
    /// a handle opened for writing, so permissions are not checked again.
    SetAttributes { file: FileId, change: AttributeChange, size: Option<u64>, through_handle: bool },
    /// Opens a handle with modes, given permission to read (4), write (2), execute (1); the file
    /// stays until it is closed, whatever its links: [`Reply::Opened`].
    Open { file: FileId, open: Open, mask: u8 },
    /// Has this link go when nobody has the file open any more, or takes that back (Windows'
    /// deletion disposition). Needs a handle that may delete: [`Reply::Nothing`].
    SetDisposition { file: FileId, link: Option<Link> },
    /// What was read lately is to have its access time for everybody, if it still counts:
    /// [`Reply::Nothing`]. The client calls this itself.
    Accessed { file: FileId },
    /// Closes a handle that was opened so: [`Reply::Nothing`].
    Close { file: FileId, open: Open },
    /// [`Reply::Data`], shorter at the end of the file. `kept`: below, as pages, until that is
    /// taken back. `quietly`: it counts for no access (O_NOATIME).
    Read { file: FileId, offset: u64, length: u32, kept: bool, quietly: bool },
    /// [`Reply::Written`]. With `append`, `offset` is ignored and the write goes to the
    /// authoritative end.
    Write { file: FileId, offset: u64, data: Bytes, append: bool },
    /// Reserves, punches, zeroes: the FALLOC_FL bits that are known here: [`Reply::Nothing`].
    Allocate { file: FileId, offset: u64, length: u64, what: Allocate },
    /// The next data (or hole) at or after `offset`: [`Reply::Offset`]; `Error::NotFound` beyond
    /// the end (ENXIO).
    Seek { file: FileId, offset: u64, hole: bool },
    /// Returns when content and metadata of `file` are durable: [`Reply::Nothing`].
    Sync { file: FileId },
    /// Returns when everything of this machine is durable: [`Reply::Nothing`].
    SyncAll,
    /// Entries of `dir` whose position is above `after`, in order, at most `limit`:
    /// [`Reply::Listing`]. A listing begins without `upto`, and is told with which to go on: it
    /// ends at what was there when it began, however much is made or renamed meanwhile.
    List { dir: FileId, after: u64, upto: Option<Upto>, limit: usize, stat: bool },
    /// [`Reply::Bytes`].
    GetXattr { file: FileId, name: Label },
    /// [`Reply::Names`].
    ListXattrs { file: FileId },
    /// [`Reply::Nothing`].
    SetXattr { file: FileId, name: Label, value: Vec<u8>, mode: XattrMode },
    /// [`Reply::Nothing`].
    RemoveXattr { file: FileId, name: Label },
    /// What is free: [`Reply::Space`].
    Space,
    /// Locks, raises, lowers or unlocks a range: [`Reply::Nothing`]. What is in the way is waited
    /// for with `wait`, and is `Error::WouldBlock` otherwise.
    Lock { file: FileId, change: LockChange, wait: bool },
    /// What keeps `owner` from locking `range` so: [`Reply::Lock`].
    GetLock { file: FileId, owner: u64, space: LockSpace, range: LockRange, kind: LockKind },
}

impl Call {
    /// What people call it.
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

    /// Whether it is to change anything, or to make sure that it may be: what a machine that may
    /// only read need not ask for. A handle may exclude others all the same.
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

/// What `fallocate` is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Set space aside; grow the file unless `keep_size`.
    Reserve { keep_size: bool },
    /// Make a hole; the size stays.
    Punch,
    /// Read as zeros afterwards; grow unless `keep_size`.
    Zero { keep_size: bool },
}

/// What a front door is told.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Done.
    Nothing,
    /// Done. This file has lost its last name by that, and stays until the front door has forgotten
    /// it, which it is to say ([`crate::Input::Forgotten`]): at once, if it does not know the file.
    Lingers(FileId),
    /// A file found or made, and its stat.
    Node(Entry, Stat),
    /// Everything that stat shows.
    Stat(Stat),
    /// A link's target, or an attribute's value.
    Bytes(Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Label>),
    /// This was so, and no lease says that it still is: nobody may keep it. A node's entry is
    /// leased, and may be kept.
    Passing(Box<Reply>),
    /// What a name stood for, or that there was none, and no lease says that it still is so: nobody
    /// may keep the entry either.
    Glimpsed(Option<(Entry, Stat)>),
    /// The handle is open. `keep_pages`: what the kernel has cached of the file is still what it
    /// says. `passing`: the file's content passes to and fro between machines, so what is read of
    /// it is better not kept.
    Opened { keep_pages: bool, passing: bool },
    /// Content: where each part of what was asked for is to be had. The host gathers it.
    Data(Vec<content::ReadPart>),
    /// Bytes taken.
    Written(u32),
    /// The names of a file.
    Links(Links),
    /// An offset.
    Offset(u64),
    /// Entries of a directory; `end` when none follow in this listing.
    Listing { entries: Vec<Listed>, upto: Upto, end: bool },
    /// The lock that is in the way, if one is.
    Lock(Option<Conflict>),
    /// Free space: bytes in all, bytes free, files in all.
    Space { total: u64, free: u64, files: u64 },
}

impl Reply {
    /// The same, whether or not it may be kept.
    pub fn told(self) -> Reply {
        match self {
            Reply::Passing(reply) => *reply,
            Reply::Glimpsed(Some((entry, stat))) => Reply::Node(entry, stat),
            reply => reply,
        }
    }
}

/// Where a listing ends: at what was there when it began. What is made meanwhile takes positions
/// behind the last, or such as this machine had at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upto {
    /// The last position.
    pub last: u64,
    /// From the first of each on and before the second nothing stood.
    pub unused: [(u64, u64); 2],
}

impl Upto {
    /// Whether an entry at this position may have been there.
    pub fn has(&self, position: u64) -> bool {
        position <= self.last && !self.unused.iter().any(|(from, to)| (*from..*to).contains(&position))
    }
}

/// One entry of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its exact label.
    pub label: Label,
    /// What it is bound to; `position` is the cookie.
    pub entry: Entry,
    /// Its stat, if asked for and known without another round trip.
    pub stat: Option<Stat>,
    /// Its stat came by a report, and may not be kept.
    pub passing: bool,
}
