//! Our values as fuser's, and back.

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use namespace::{FileKind, SetTime, Stat, Timestamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::errno::Errno;

/// What programs are advised to read and write at once. Each write(2) is one request, so that stdio should not do it by pages.
const BLOCK_BYTES: u32 = 1 << 16;

impl From<Errno> for fuser::Errno {
    fn from(errno: Errno) -> fuser::Errno {
        fuser::Errno::from_i32(errno.0)
    }
}

pub(super) fn attr(stat: &Stat) -> FileAttr {
    let of = &stat.attributes;
    FileAttr {
        ino: INodeNo(of.ino),
        size: stat.size,
        blocks: stat.occupied.div_ceil(512),
        atime: system_time(of.atime),
        mtime: system_time(stat.mtime),
        ctime: system_time(of.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(of.kind),
        perm: of.mode,
        nlink: of.links,
        uid: of.uid,
        gid: of.gid,
        rdev: of.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// What a name that is known to be none is told as: node 0, which the kernel caches as a negative entry.
pub(super) fn missing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Directory => FileType::Directory,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// What mknod's mode makes.
pub(super) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    Some(match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => FileKind::Regular,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFBLK => FileKind::BlockDevice,
        _ => return None,
    })
}

fn system_time(at: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(at.nanos.min(999_999_999)));
    let whole = if at.secs >= 0 {
        UNIX_EPOCH.checked_add(Duration::from_secs(at.secs.unsigned_abs()))
    } else {
        UNIX_EPOCH.checked_sub(Duration::from_secs(at.secs.unsigned_abs()))
    };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

pub(super) fn set_time(time: Option<TimeOrNow>) -> Option<SetTime> {
    Some(match time? {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::At(timestamp(at)),
    })
}

/// Undoes what fuser 0.18 does to `(secs, nanos)` of setattr. Before the epoch that is `epoch - (-secs + nanos)`, where it should
/// be `epoch - (-secs - nanos)`; the test at the mount's level sees it if that changes.
fn timestamp(at: SystemTime) -> Timestamp {
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp {
            secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            Timestamp { secs: 0i64.saturating_sub_unsigned(before.as_secs()), nanos: before.subsec_nanos() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch() {
        let at = |secs, nanos| system_time(Timestamp { secs, nanos });
        assert_eq!(UNIX_EPOCH.duration_since(at(-2, 800_000_000)).unwrap(), Duration::new(1, 200_000_000));
        assert_eq!(at(3, 4).duration_since(UNIX_EPOCH).unwrap(), Duration::new(3, 4));
        // No panic at the ends.
        at(i64::MAX, u32::MAX);
        at(i64::MIN, u32::MAX);
        let mangled = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(timestamp(mangled), Timestamp { secs: -2, nanos: 800_000_000 });
    }
}
