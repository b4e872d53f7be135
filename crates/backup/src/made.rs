//! The attributes of an extracted file: owner, mode, extended attributes, times.

use directory::Found;
use lease::Label;
use namespace::{FileKind, POLICY, Timestamp};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_BITS: u16 = 0o070;
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// A part of a file that a place may refuse.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum FilePart {
    /// The owner and the group.
    Owner,
    /// The permission bits.
    Mode,
    /// An extended attribute.
    Xattr {
        /// Its name.
        attribute: String,
    },
    /// The times.
    Times,
    /// The file itself, a named pipe.
    NamedPipe,
    /// The file itself, a socket.
    Socket,
    /// The file itself, a character device.
    CharacterDevice,
    /// The file itself, a block device.
    BlockDevice,
}

/// The user and group of the files that this process makes.
pub(crate) struct Owning {
    uid: Uid,
    gid: Gid,
}

impl Owning {
    pub(crate) fn of_this_process() -> Owning {
        Owning { uid: rustix::process::geteuid(), gid: rustix::process::getegid() }
    }
}

/// A file that was made. An open file stays the same, whatever its name stands for by now.
pub(crate) enum Made<'p> {
    /// A file or directory.
    Open(File),
    /// A symbolic link or special file, in a place where no other user can put another.
    Named(&'p Path),
}

impl Made<'_> {
    /// Sets the attributes from the backup. Returns the refused ones, with the system's error.
    pub(crate) fn finish(
        &self,
        found: &Found,
        xattrs: &[(Label, Vec<u8>)],
        owning: &Owning,
    ) -> Vec<(FilePart, Errno)> {
        let (attributes, mut refused) = (&found.attributes, Vec::new());
        let mut note = |part: FilePart, done: Result<(), Errno>| {
            refused.extend(done.err().map(|error| (part, error)));
            done.is_ok()
        };
        // The owner comes first: a change of owner costs set-id bits and capabilities. Only root
        // gives files away.
        let is_theirs =
            owning.uid.is_root() && note(FilePart::Owner, self.chown(attributes.uid, attributes.gid));
        let mut mode = attributes.mode & 0o7777;
        // A program that runs as its owner must not run as the user who restores it.
        if !is_theirs && attributes.uid != owning.uid.as_raw() {
            mode &= !SET_UID;
        }
        if !is_theirs && attributes.gid != owning.gid.as_raw() {
            mode &= !SET_GID;
        }
        if attributes.kind != FileKind::Symlink {
            note(FilePart::Mode, self.chmod(mode));
        }
        // The policy is Leasehold's own. The user may not copy it.
        for (name, value) in xattrs.iter().filter(|(name, _)| name.as_bytes() != POLICY) {
            let name = OsStr::from_bytes(name.as_bytes());
            let attribute = Path::new(name).display().to_string();
            if !note(FilePart::Xattr { attribute }, self.set_xattr(name, value))
                && name.as_bytes() == ACCESS_LIST
            {
                // With an access list, these bits are the most that any group in the list may do.
                note(FilePart::Mode, self.chmod(mode & !GROUP_BITS));
            }
        }
        let times =
            Timestamps { last_access: timespec(attributes.atime), last_modification: timespec(found.mtime) };
        note(FilePart::Times, self.set_times(&times));
        refused
    }

    fn chown(&self, uid: u32, gid: u32) -> Result<(), Errno> {
        // All ones would leave the owner unchanged.
        if uid == u32::MAX || gid == u32::MAX {
            return Err(Errno::INVAL);
        }
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        match self {
            Made::Open(file) => rustix::fs::fchown(file, uid, gid),
            Made::Named(path) => rustix::fs::chownat(CWD, *path, uid, gid, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    fn chmod(&self, mode: u16) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode.into());
        match self {
            Made::Open(file) => rustix::fs::fchmod(file, mode),
            Made::Named(path) => rustix::fs::chmodat(CWD, *path, mode, AtFlags::empty()),
        }
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<(), Errno> {
        match self {
            Made::Open(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Made::Named(path) => rustix::fs::lsetxattr(*path, name, value, XattrFlags::empty()),
        }
    }

    fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Made::Open(file) => rustix::fs::futimens(file, times),
            Made::Named(path) => rustix::fs::utimensat(CWD, *path, times, AtFlags::SYMLINK_NOFOLLOW),
        }
    }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() }
}
