//! Users' operations, in the form in which clients log them and servers replay them.
//!
//! An operation holds everything that its decision needs apart from knowledge: the user, the time,
//! and the numbers from the client's reservations. So a second decision elsewhere can only give the
//! same result.

pub use crate::decide::{
    Access, Accessed, Create, Dispose, GetLock, GetXattr, Link, List, ListXattrs, Lock, Lookup, Open,
    Publish, ReadLink, RemoveXattr, Rename, SetAttributes, SetDisposition, SetXattr, Stat, Unlink,
};
use crate::{Cred, FileKind, ShareId, Timestamp};
use bytes::Bytes;
use ident::FileId;
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

/// The file that a create asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// The kind of the file.
    pub kind: FileKind,
    /// The requested permission bits.
    pub mode: u16,
    /// Bits that `mode` loses unless the directory has a default ACL, which takes the umask's place
    /// (POSIX.1e).
    pub umask: u16,
    /// Device number, for devices.
    pub rdev: u32,
    /// Target, for symbolic links.
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
}

impl FileSpec {
    /// A file of `kind` that is neither a device nor a symbolic link.
    pub fn new(kind: FileKind, mode: u16, umask: u16) -> FileSpec {
        FileSpec { kind, mode, umask, rdev: 0, target: Vec::new() }
    }
}

/// The file that a create makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFile {
    /// Its identifier: `FileId::for_child(parent, position, ino)`.
    pub file: FileId,
    /// Its inode number, from the session's block.
    pub ino: u64,
    /// The kind, mode and target that the user asked for.
    pub spec: FileSpec,
}

/// The character device 0 that a rename leaves in the old place. An overlay reads it as "nothing is
/// there".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whiteout {
    /// The integer of its identifier in its directory, and its position there.
    pub integer: u64,
    /// Its inode number, from the session's block.
    pub ino: u64,
}

impl Whiteout {
    /// The new file, in `dir`.
    pub fn new_file(self, dir: &FileId) -> NewFile {
        let file = FileId::for_child(dir, self.integer, self.ino);
        NewFile { file, ino: self.ino, spec: FileSpec::new(FileKind::CharDevice, 0, 0) }
    }
}

/// How a rename treats the target label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// POSIX: replace the target if the kinds allow it (the four-file case that Farsite §4.2 leaves
    /// out).
    Replace,
    /// Windows, and RENAME_NOREPLACE: fail on an existing target.
    NoReplace,
    /// RENAME_EXCHANGE: both exist and change places.
    Exchange,
}

/// A time given to `utimensat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The operation's own time (UTIME_NOW); needs write permission only.
    Now,
    /// Exactly this; needs ownership.
    At(Timestamp),
}

/// The attributes to set. `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeChange {
    /// The 12 permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time (of content, or of a directory's entries).
    pub mtime: Option<SetTime>,
    /// The chown names neither owner nor group. That clears set-id bits, too (Linux'
    /// `chown_common`).
    pub keeps_owner: bool,
}

impl AttributeChange {
    /// Whether the change is a chown.
    pub fn chowns(&self) -> bool {
        self.uid.is_some() || self.gid.is_some() || self.keeps_owner
    }
}

/// How setting an extended attribute treats an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Set it in either case.
    Set,
    /// Fail if it exists (XATTR_CREATE).
    Create,
    /// Fail if it does not exist (XATTR_REPLACE).
    Replace,
}

/// A stored piece of content: bytes `offset..offset + length` of the file.
///
/// `B` is the type of ciphertext that stands in the metadata. Code that only needs to know where
/// extents are borrows it from a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent<B = Bytes> {
    /// Place in the file, in bytes.
    pub offset: u64,
    /// Bytes of the file in it: at most the rest of the piece from `skip` on.
    pub length: u32,
    /// Bytes to skip in the opened piece. Overwriting may have left a part that does not start at
    /// its beginning.
    pub skip: u32,
    /// The sealed piece.
    pub piece: Piece<B>,
}

/// A sealed (encrypted) run of bytes: the unit of hashing, sealing and reading. `B` as of an
/// [`Extent`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece<B = Bytes> {
    /// Bytes of plain content in it. Its ciphertext is 16 longer (the authentication tag).
    pub length: u32,
    /// Nonce, never used twice under one file's key.
    pub nonce: [u8; 12],
    /// BLAKE3 of the ciphertext. Every reader checks it.
    pub hash: [u8; 32],
    /// The place of the ciphertext.
    pub place: Place<B>,
}

/// The place of a piece's ciphertext. `B` as of an [`Extent`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place<B = Bytes> {
    /// In the metadata: a small synchronous write, pending until it is folded into a share.
    Inline(B),
    /// In a share of this file, from byte `at` of it.
    Share {
        /// The share's name: random, never derived from content.
        share: ShareId,
        /// Byte offset of the ciphertext in the share.
        at: u32,
    },
}

impl<B> Place<B> {
    /// The share, if it is in one.
    pub fn share(&self) -> Option<ShareId> {
        match self {
            Place::Inline(_) => None,
            Place::Share { share, .. } => Some(*share),
        }
    }
}

/// The change that a publication makes to content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentChange {
    /// The content becomes these bytes, at most [`crate::INLINE_BYTES_MAX`]. Extents, if any, go.
    Inline {
        /// Nonce and ciphertext, [`crate::INLINE_SEAL_BYTES`] longer than the content. Empty if the
        /// content is.
        #[serde(with = "serde_bytes")]
        sealed: Vec<u8>,
        /// The file's key, in the first publication that needs one.
        key: Option<[u8; 32]>,
    },
    /// The content changes in three steps. First content beyond `truncate_to` goes (if the file was
    /// shorter in between). Then each range in `punch` becomes a hole. Then each extent replaces
    /// the content of its range. Inline content, if any, goes: the publisher has carried it over.
    Extents {
        /// The smallest size of the file since the last publication, if it ever shrank.
        truncate_to: Option<u64>,
        /// Ranges (offset, length) that are holes now.
        punch: Vec<(u64, u64)>,
        /// In order of offset, without overlap.
        put: Vec<Extent>,
        /// The file's key, in the first publication that needs one.
        key: Option<[u8; 32]>,
    },
    /// Only size and times change.
    None,
}

/// An operation. Each is a struct that stands with its rule in `decide`. Labels of children are
/// exact, and `namespace::fold` gives the leased label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    // Questions: they have no effects and are never logged.
    Lookup(Lookup),
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

impl Operation {
    /// Its name for people.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Lookup { .. } => "lookup",
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

    /// The files that it names, except one that it makes.
    pub fn files(&self) -> SmallVec<[&FileId; 2]> {
        match self {
            Operation::Lookup(Lookup { dir, .. })
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
