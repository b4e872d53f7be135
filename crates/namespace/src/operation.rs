//! Users' operations, in the form in which clients log them and servers replay them.
//!
//! An operation holds everything that its decision needs apart from knowledge: the user, the time,
//! and the numbers from the client's reservations. So a second decision elsewhere can only give the
//! same result.

use crate::{Cred, FileKind, Link, LockChange, LockKind, LockRange, LockSpace, ShareId, Timestamp};
use bytes::Bytes;
use ident::FileId;
use lease::{Label, Open};
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
    /// What the user asked for.
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

/// An operation. Labels of children are exact, and `namespace::fold` gives the leased label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    // Questions: they have no effects and are never logged.
    /// Looks up `label` in `dir` (needs search permission).
    Lookup { dir: FileId, label: Label, cred: Cred },
    /// `stat`.
    Stat { file: FileId },
    /// Checks whether `cred` may read, write, execute (bits 4, 2, 1).
    Access { file: FileId, mask: u8, cred: Cred },
    /// Checks whether `cred`, with these permissions, may have one more handle. `open` is that
    /// handle, and `own` are this client's handles so far. The check has no effect. The handle
    /// itself changes own values of black boxes, which no server keeps.
    Open { file: FileId, mask: u8, open: Open, own: Open, cred: Cred },
    /// Target of a symbolic link.
    ReadLink { file: FileId },
    /// Asks for all names and entries of `dir`.
    List { dir: FileId },
    /// Value of an extended attribute.
    GetXattr { file: FileId, name: Label, cred: Cred },
    /// Names of all extended attributes.
    ListXattrs { file: FileId },

    // Updates.
    /// create, mkdir, mknod, symlink.
    Create { dir: FileId, label: Label, position: u64, new: NewFile, cred: Cred, time: Timestamp },
    /// A further label for a file that is not a directory.
    Link { file: FileId, dir: FileId, label: Label, position: u64, cred: Cred, time: Timestamp },
    /// unlink, or rmdir when `directory`. `open` says that this client has handles on the file, so
    /// the file stays until they are closed.
    Unlink { dir: FileId, label: Label, directory: bool, open: bool, cred: Cred, time: Timestamp },
    /// Rename. `position` is the moved entry's new place in `to_dir`, unless an entry is replaced
    /// there or exchanged. A label that is bound throughout keeps its position, so that no listing
    /// misses it. `open` is as in `Unlink`, for a replaced file.
    Rename {
        from_dir: FileId,
        from: Label,
        to_dir: FileId,
        to: Label,
        mode: RenameMode,
        position: u64,
        whiteout: Option<Whiteout>,
        open: bool,
        cred: Cred,
        time: Timestamp,
    },
    /// chmod, chown, utimens.
    SetAttributes { file: FileId, change: AttributeChange, cred: Cred, time: Timestamp },
    /// setxattr. ACLs are the attributes `system.posix_acl_access` and `system.posix_acl_default`.
    SetXattr {
        file: FileId,
        name: Label,
        #[serde(with = "serde_bytes")]
        value: Vec<u8>,
        mode: XattrMode,
        cred: Cred,
        time: Timestamp,
    },
    /// removexattr.
    RemoveXattr { file: FileId, name: Label, cred: Cred, time: Timestamp },
    /// New content, under the content's write lease. The user's right to write was decided when the
    /// file was opened (POSIX checks then, and only then), so only the lease counts here.
    Publish {
        file: FileId,
        version: u64,
        size: u64,
        mtime: Timestamp,
        ctime: Timestamp,
        change: ContentChange,
    },
    /// The file was read at `time`. A program that has read the file may set the time, so only the
    /// lease counts, and a lease to read attributes is enough. Many clients move an access time,
    /// and no lease is recalled for it.
    Accessed { file: FileId, time: Timestamp },
    /// Sets the deletion disposition (Windows, BlackBox §3.3). From now on `link` goes with the
    /// last handle on `file` of any client, or with none if it is `None`. `own` are this client's
    /// handles, with the right to delete among them.
    SetDisposition { file: FileId, link: Option<Link>, own: Open, cred: Cred, time: Timestamp },
    /// Ends a file at the close of its last handle, if it has no links or its disposition is set.
    /// The setter of the disposition had the permission.
    Dispose { file: FileId, time: Timestamp },
    /// Locks or unlocks a range of bytes. Needs a handle and no other permission.
    Lock { file: FileId, change: LockChange },
    /// Asks for the lock that keeps `owner` from locking `range` so (fcntl's F_GETLK), without
    /// effect.
    GetLock { file: FileId, owner: u64, space: LockSpace, range: LockRange, kind: LockKind },
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
            Operation::Lookup { cred, .. }
            | Operation::Access { cred, .. }
            | Operation::Open { cred, .. }
            | Operation::GetXattr { cred, .. }
            | Operation::Create { cred, .. }
            | Operation::Link { cred, .. }
            | Operation::Unlink { cred, .. }
            | Operation::Rename { cred, .. }
            | Operation::SetAttributes { cred, .. }
            | Operation::SetXattr { cred, .. }
            | Operation::RemoveXattr { cred, .. }
            | Operation::SetDisposition { cred, .. } => Some(cred),
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
            Operation::Lookup { dir, .. }
            | Operation::List { dir }
            | Operation::Create { dir, .. }
            | Operation::Unlink { dir, .. } => smallvec![dir],
            Operation::Link { file, dir, .. } => smallvec![file, dir],
            Operation::Rename { from_dir, to_dir, .. } => smallvec![from_dir, to_dir],
            Operation::SetDisposition { file, link: Some(link), .. } => smallvec![file, &link.dir],
            Operation::Stat { file }
            | Operation::Access { file, .. }
            | Operation::Open { file, .. }
            | Operation::ReadLink { file }
            | Operation::GetXattr { file, .. }
            | Operation::ListXattrs { file }
            | Operation::SetAttributes { file, .. }
            | Operation::SetXattr { file, .. }
            | Operation::RemoveXattr { file, .. }
            | Operation::Publish { file, .. }
            | Operation::Accessed { file, .. }
            | Operation::Lock { file, .. }
            | Operation::GetLock { file, .. }
            | Operation::SetDisposition { file, link: None, .. }
            | Operation::Dispose { file, .. } => smallvec![file],
        }
    }
}
