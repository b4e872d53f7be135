//! What users ask for, in the form in which clients log it and servers replay it.
//!
//! An operation holds everything that its decision needs beside knowledge: who asks, when, and the
//! numbers drawn from the client's reservations. So deciding it again elsewhere can only give the
//! same result.

use crate::{Cred, FileKind, Link, LockChange, LockKind, LockRange, LockSpace, ShareId, Timestamp};
use bytes::Bytes;
use ident::FileId;
use lease::{Label, Open};
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

/// What a create makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFile {
    /// Its identifier: `FileId::for_child(parent, position, ino)`.
    pub file: FileId,
    /// Its inode number, from the session's block.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// Wanted permission bits.
    pub mode: u16,
    /// Bits that `mode` loses unless the directory has a default ACL, which takes the umask's place
    /// (POSIX.1e).
    pub umask: u16,
    /// For devices.
    pub rdev: u32,
    /// For symbolic links.
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
}

/// The character device 0 that a rename leaves in the old place: with it an overlay says that
/// nothing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whiteout {
    /// That of its identifier in the directory which it stands in, and its position there.
    pub integer: u64,
    /// Its inode number, from the session's block.
    pub ino: u64,
}

impl Whiteout {
    /// What is made in `dir`.
    pub fn new_file(self, dir: &FileId) -> NewFile {
        let (file, kind) = (FileId::for_child(dir, self.integer, self.ino), FileKind::CharDevice);
        NewFile { file, ino: self.ino, kind, mode: 0, umask: 0, rdev: 0, target: Vec::new() }
    }
}

/// How a rename treats the target label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// POSIX: replace what is there if kinds allow (the four-file case that Farsite §4.2 leaves
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

/// Which attributes to set; `None` leaves one as it is.
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
    /// It is a chown that names neither owner nor group. That costs set-id bits, too (Linux'
    /// `chown_common`).
    pub keeps_owner: bool,
}

impl AttributeChange {
    /// Whether it is a chown.
    pub fn chowns(&self) -> bool {
        self.uid.is_some() || self.gid.is_some() || self.keeps_owner
    }
}

/// How setting an extended attribute treats an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Either way.
    Set,
    /// XATTR_CREATE.
    Create,
    /// XATTR_REPLACE.
    Replace,
}

/// A stored piece of content: bytes `offset..offset + length` of the file. `B` is what ciphertext
/// is in that is here: bytes of a row, for who only wants to know where extents are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent<B = Bytes> {
    /// Place in the file, bytes.
    pub offset: u64,
    /// How many bytes of the file it gives: at most what the piece holds from `skip` on.
    pub length: u32,
    /// Bytes of the opened piece to skip (what overwriting left of it need not begin at its
    /// beginning).
    pub skip: u32,
    /// The sealed piece.
    pub piece: Piece<B>,
}

/// A sealed (encrypted) run of bytes: the unit that is hashed, sealed and read whole. `B` as of an
/// [`Extent`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece<B = Bytes> {
    /// Bytes of plain content in it (its ciphertext is 16 longer, the authentication tag).
    pub length: u32,
    /// Nonce; never used twice under one file's key.
    pub nonce: [u8; 12],
    /// BLAKE3 of the ciphertext; every reader checks it.
    pub hash: [u8; 32],
    /// Where the ciphertext is.
    pub place: Place<B>,
}

/// Where a piece's ciphertext is. `B` as of an [`Extent`].
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

/// What a publication does to content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentChange {
    /// The whole content, at most [`crate::INLINE_BYTES_MAX`], is what this holds; extents, if any,
    /// go.
    Inline {
        /// Nonce and ciphertext, [`crate::INLINE_SEAL_BYTES`] longer than the content; empty, if
        /// that is.
        #[serde(with = "serde_bytes")]
        sealed: Vec<u8>,
        /// The file's key, the first time that it needs one.
        key: Option<[u8; 32]>,
    },
    /// Content beyond `truncate_to` goes first (when the file was cut shorter in between); then
    /// each range in `punch` becomes a hole; then each extent replaces whatever its range had.
    /// Inline content, if any, goes: who publishes has carried it over.
    Extents {
        /// Smallest size that the file had since the last publication, if it ever shrank.
        truncate_to: Option<u64>,
        /// Ranges (offset, length) that are holes now.
        punch: Vec<(u64, u64)>,
        /// In order of offset, without overlap.
        put: Vec<Extent>,
        /// The file's key, the first time that it needs one.
        key: Option<[u8; 32]>,
    },
    /// Only size and times change.
    None,
}

/// An operation. Labels of children are exact; `namespace::fold` gives what is leased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    // Questions: they have no effects and are never logged.
    /// What is `label` in `dir`? (needs search permission)
    Lookup { dir: FileId, label: Label, cred: Cred },
    /// `stat`.
    Stat { file: FileId },
    /// May `cred` read, write, execute (bits 4, 2, 1)?
    Access { file: FileId, mask: u8, cred: Cred },
    /// May `cred`, with these permissions, have one more handle: `open` beside `own`, which is what
    /// this client has? A question: the handle itself is a change of own values of black boxes,
    /// which no server keeps.
    Open { file: FileId, mask: u8, open: Open, own: Open, cred: Cred },
    /// Target of a symbolic link.
    ReadLink { file: FileId },
    /// All names and entries of `dir` are wanted.
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
    /// unlink, or rmdir when `directory`. `open`: this client has handles on the file, so it stays
    /// until they are closed.
    Unlink { dir: FileId, label: Label, directory: bool, open: bool, cred: Cred, time: Timestamp },
    /// Rename. `position` is the moved entry's new place in `to_dir`, unless something is replaced
    /// there (or exchanged): a label that is there throughout stays where it is, so that no listing
    /// misses it. `open` as in `Unlink`, of a replaced file.
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
    /// setxattr; ACLs are the attributes `system.posix_acl_access` and `system.posix_acl_default`.
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
    /// New content, under the content's write lease. Whether the user might write was decided when
    /// the file was opened (POSIX checks then, and only then), so what counts here is the lease.
    Publish {
        file: FileId,
        version: u64,
        size: u64,
        mtime: Timestamp,
        ctime: Timestamp,
        change: ContentChange,
    },
    /// The file was read at `time`. What has read it may, so only the lease counts, and one to read
    /// attributes is enough: many move an access time, none is recalled for it.
    Accessed { file: FileId, time: Timestamp },
    /// From now on `link` goes with the last handle of `file` that anybody has, or none does after
    /// all (Windows' deletion disposition, BlackBox §3.3). `own` is what this client has open, the
    /// right to delete among it.
    SetDisposition { file: FileId, link: Option<Link>, own: Open, cred: Cred, time: Timestamp },
    /// The last handle of a file was closed that has no links, or whose disposition is set. Who set
    /// it had the permission.
    Dispose { file: FileId, time: Timestamp },
    /// Locks a range of bytes or unlocks it. Needs a handle and no other permission.
    Lock { file: FileId, change: LockChange },
    /// A question: what keeps `owner` from locking `range` so? (fcntl's F_GETLK)
    GetLock { file: FileId, owner: u64, space: LockSpace, range: LockRange, kind: LockKind },
}

impl Operation {
    /// What people call it.
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

    /// Whether it may have effects, and so is logged and replayed.
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

    /// Who asks; nobody where only leases count.
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

    /// The files that it names, but for one that it makes.
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
