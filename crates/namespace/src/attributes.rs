//! The values of a file's fields.

use crate::{Capabilities, Capability};
use ident::FileId;
use lease::Label;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

pub(crate) const SET_UID: u16 = 0o4000;
pub(crate) const SET_GID: u16 = 0o2000;
/// Execution by the group. Without it [`SET_GID`] has no meaning on a file.
pub(crate) const GROUP_EXECUTE: u16 = 0o010;

/// A point in wall-clock time, in nanoseconds' resolution, as POSIX counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub secs: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// The next representable instant. A touch adds at least this much, so that two touches differ.
    pub fn next(self) -> Timestamp {
        if self.nanos >= 999_999_999 {
            Timestamp { secs: self.secs.saturating_add(1), nanos: 0 }
        } else {
            Timestamp { secs: self.secs, nanos: self.nanos + 1 }
        }
    }

    /// The time of a change at `time` after an earlier one at `self`. The result is later in any
    /// case, even if the clock of the changing machine is behind.
    pub fn moved(self, time: Timestamp) -> Timestamp {
        time.max(self.next())
    }
}

/// The kind of a file, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file with children.
    Directory,
    /// A data file.
    Regular,
    /// A symbolic link; its content is the target.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// [`lease::Field::Attributes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The kind of the file.
    pub kind: FileKind,
    /// Permission bits with set-uid, set-gid and sticky: the low 12 bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Labels that are bound to it; a directory reports one.
    pub links: u32,
    /// Inode number: unique in the cluster, never reused.
    pub ino: u64,
    /// Device number of a device file.
    pub rdev: u32,
    /// When attributes last changed. Stat shows the latest of this, [`ContentHead::ctime`] and
    /// [`Times::ctime`].
    pub ctime: Timestamp,
    /// When the file was made.
    pub btime: Timestamp,
    /// When it was last read (relatime).
    pub atime: Timestamp,
}

impl Attributes {
    /// The mode after a chown by `cred`.
    ///
    /// The owner need not really change (Linux since 2.2.13). The old owner must not make a program
    /// run as the new owner. A set-gid file without execution by the group is no program (the
    /// combination once meant mandatory locking). For members of the group it keeps the bit (Linux'
    /// `setattr_should_drop_sgid`).
    pub fn mode_after_chown(&self, cred: &Cred) -> u16 {
        let no_program = self.mode & GROUP_EXECUTE == 0;
        let kept = if no_program && cred.may_set_gid(self.gid) { SET_GID } else { 0 };
        self.mode & !(SET_UID | SET_GID) | self.mode & kept
    }

    /// The mode after a write or a truncation by `cred`: the writer's content must not run with the
    /// owner's rights.
    pub fn mode_after_write(&self, cred: &Cred) -> u16 {
        let keeps = self.kind != FileKind::Regular || cred.has(Capability::Fsetid);
        if keeps { self.mode } else { self.mode_after_chown(cred) }
    }
}

/// The head of [`lease::Field::Content`]. The extents are in rows of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentHead {
    /// Length in bytes.
    pub size: u64,
    /// When content last changed.
    pub mtime: Timestamp,
    /// When anything of this field last changed.
    pub ctime: Timestamp,
    /// The number of publications. The next one must carry this plus one.
    pub version: u64,
    /// Bytes that extents or inline content occupy (holes do not).
    pub occupied: u64,
    /// The file's own key, which seals its extents. Absent until the first sealing.
    pub key: Option<[u8; 32]>,
}

/// [`lease::Field::Times`] of a directory. Each change of an entry moves them forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// When an entry last changed.
    pub mtime: Timestamp,
    /// The same, but not settable.
    pub ctime: Timestamp,
    /// The number of explicit utimes. A touch need not name it. Explicit times need the lease to
    /// write, so every touch decided under a lease stands before them in its client's log.
    pub generation: u64,
}

impl Times {
    /// The times after a touch at `time`: both become max(`time`, stored + 1 ns).
    pub fn touched(self, time: Timestamp) -> Times {
        Times { mtime: self.mtime.moved(time), ctime: self.ctime.moved(time), ..self }
    }
}

/// The binding of a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The file.
    pub file: FileId,
    /// Its kind. So a listing needs no attributes.
    pub kind: FileKind,
    /// Its inode number, for the same reason.
    pub ino: u64,
    /// Its place in the directory's order. It is assigned when the file is linked, at least 1,
    /// smaller than 2^63, and never reused in this directory.
    pub position: u64,
}

/// One place where a file is linked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Link {
    /// The directory.
    pub dir: FileId,
    /// The label in it.
    pub label: Label,
}

/// A pending deletion. The file loses this link when no handle is open any more, and dies if the
/// link is its last (BlackBox §3.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disposition {
    /// The link by which the file was opened.
    pub link: Link,
    /// When the deletion was decided.
    pub since: Timestamp,
}

/// The links of a file: [`lease::Field::Parent`]. A directory has exactly one, the root none, a
/// data file as many as it has labels.
pub type Links = SmallVec<[Link; 1]>;

/// The user, as the machine asserts it: all of the user that a decision may depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cred {
    /// User. Number 0 has every capability. The kernel, which checks first, refuses a root without
    /// some of them.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, as far as the decision needs them. (A front door adds them only after
    /// a refusal.)
    pub groups: SmallVec<[u32; 2]>,
    /// Capabilities of a user who is not root, as far as the decision needs them.
    pub capabilities: Capabilities,
}

impl Cred {
    /// Whether `gid` is among the user's groups.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether the user has a capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.uid == 0 || self.capabilities.has(capability)
    }

    /// Whether the user may set and keep a set-gid bit for `gid` (Linux' `in_group_or_capable`).
    pub fn may_set_gid(&self, gid: u32) -> bool {
        self.in_group(gid) || self.has(Capability::Fsetid)
    }
}
