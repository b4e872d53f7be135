//! The values of a file's fields.

use crate::{Capabilities, Capability};
use ident::FileId;
use lease::Label;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

pub(crate) const SET_UID: u16 = 0o4000;
pub(crate) const SET_GID: u16 = 0o2000;
/// Execution by the group: what makes [`SET_GID`] mean anything on a file.
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
    /// The next representable instant: what a touch adds at least, so that two touches differ.
    pub fn next(self) -> Timestamp {
        if self.nanos >= 999_999_999 {
            Timestamp { secs: self.secs.saturating_add(1), nanos: 0 }
        } else {
            Timestamp { secs: self.secs, nanos: self.nanos + 1 }
        }
    }

    /// When something changes at `time` that changed last at this: later in any case, though the
    /// clock of who changes it may be behind.
    pub fn moved(self, time: Timestamp) -> Timestamp {
        time.max(self.next())
    }
}

/// What a file is; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// What it is.
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
    /// When attributes last changed; shown is the latest of this, [`ContentHead::ctime`] and
    /// [`Times::ctime`].
    pub ctime: Timestamp,
    /// When the file was made.
    pub btime: Timestamp,
    /// When it was last read (relatime).
    pub atime: Timestamp,
}

impl Attributes {
    /// The mode that a chown by `cred` leaves, whether or not the owner really changes (Linux since 2.2.13):
    /// no program runs as its new owner by its old owner's wish. Set-gid without execution by the
    /// group is no program (that once meant mandatory locking), and stays for members (Linux'
    /// `setattr_should_drop_sgid`).
    pub fn mode_after_chown(&self, cred: &Cred) -> u16 {
        let no_program = self.mode & GROUP_EXECUTE == 0;
        let kept = if no_program && cred.may_set_gid(self.gid) { SET_GID } else { 0 };
        self.mode & !(SET_UID | SET_GID) | self.mode & kept
    }

    /// The mode that a write or a truncation by `cred` leaves: what is in a program then is
    /// somebody else's.
    pub fn mode_after_write(&self, cred: &Cred) -> u16 {
        let keeps = self.kind != FileKind::Regular || cred.has(Capability::Fsetid);
        if keeps { self.mode } else { self.mode_after_chown(cred) }
    }
}

/// The head of [`lease::Field::Content`]; the extents stand in rows of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentHead {
    /// Length in bytes.
    pub size: u64,
    /// When content last changed.
    pub mtime: Timestamp,
    /// When anything of this field last changed.
    pub ctime: Timestamp,
    /// Counts publications; the next one must say this plus one.
    pub version: u64,
    /// Bytes that extents or inline content occupy (holes do not).
    pub occupied: u64,
    /// The key of the file's own that seals its extents; absent until it first has one.
    pub key: Option<[u8; 32]>,
}

/// [`lease::Field::Times`] of a directory: moved forward by everyone who changes an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// When an entry last changed.
    pub mtime: Timestamp,
    /// The same, but not settable.
    pub ctime: Timestamp,
    /// Raised by each explicit utimes. A touch need not name it: explicit times want the field in
    /// write, so every touch decided under a lease stands before them in its client's log.
    pub generation: u64,
}

impl Times {
    /// A touch at `time`: both times become max(`time`, stored + 1 ns).
    pub fn touched(self, time: Timestamp) -> Times {
        Times { mtime: self.mtime.moved(time), ctime: self.ctime.moved(time), ..self }
    }
}

/// What a label is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The file.
    pub file: FileId,
    /// Its kind, so that reading a directory needs no attributes.
    pub kind: FileKind,
    /// Its inode number, for the same reason.
    pub ino: u64,
    /// Place in the directory's order: given when linked, below 2^63, at least 1, never reused in
    /// this directory.
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

/// Deletion is pending: the file loses this link, and goes with it if that is its last, when nobody
/// has it open any more (BlackBox §3.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disposition {
    /// The link that it was opened by.
    pub link: Link,
    /// When that was decided.
    pub since: Timestamp,
}

/// [`lease::Field::Parent`]: a directory has exactly one, the root none, a data file as many as links.
pub type Links = SmallVec<[Link; 1]>;

/// Who asks, as the machine asserts it: all that a decision may depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cred {
    /// User; 0 has every capability. A root without some is refused by the kernel, which checks
    /// first.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, as far as the decision needs them (a front door adds them only after a
    /// refusal).
    pub groups: SmallVec<[u32; 2]>,
    /// What a user who is not root may all the same; likewise.
    pub capabilities: Capabilities,
}

impl Cred {
    /// Whether `gid` is among the asker's groups.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether the asker has a capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.uid == 0 || self.capabilities.has(capability)
    }

    /// Whether a set-gid bit for `gid` is the asker's to set and to keep (Linux'
    /// `in_group_or_capable`).
    pub fn may_set_gid(&self, gid: u32) -> bool {
        self.in_group(gid) || self.has(Capability::Fsetid)
    }
}
