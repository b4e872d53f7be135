//! The values that operations carry: the new file of a create, the mode of a rename, the attributes
//! to set.

use crate::{FileKind, Timestamp};
use ident::FileId;
use lease::Label;
use serde::{Deserialize, Serialize};

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

/// The name that another file loses to a rename or a link. A caller that has checked whether the
/// file may lose the name says so, and the operation is refused if the name is another file's by
/// then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The name: the new one, or another spelling of the new one.
    pub label: Label,
    /// The file that has the name.
    pub file: FileId,
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
