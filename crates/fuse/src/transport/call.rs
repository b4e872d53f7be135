//! The kernel's requests, as linux/fuse.h has them, minor version 45.

use bytes::Bytes;
use namespace::Timestamp;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::groups::Asker;

/// The most bytes that one request carries: 256 pages, the kernel's own limit.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Bytes of `struct fuse_in_header`.
pub(super) const HEADER_BYTES: usize = 40;

/// A request of the kernel.
#[derive(Debug)]
pub struct KernelRequest {
    /// The user and thread that ask.
    pub asker: Asker,
    /// The file; for names, the directory.
    pub node: u64,
    /// The operation.
    pub call: Call,
}

/// A request's operation. Fields that we do not look at are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Call {
    Lookup {
        name: Bytes,
    },
    Forget(Vec<Forget>),
    GetAttr,
    /// The same, and the time of creation.
    StatX,
    SetAttr(SetAttr),
    ReadLink,
    Symlink {
        name: Bytes,
        target: Bytes,
    },
    MkNod {
        name: Bytes,
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    MkDir {
        name: Bytes,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: Bytes,
    },
    RmDir {
        name: Bytes,
    },
    /// `flags` are renameat2's.
    Rename {
        name: Bytes,
        to: u64,
        to_name: Bytes,
        flags: u32,
    },
    /// `node` is the directory of the new name.
    Link {
        file: u64,
        name: Bytes,
    },
    Open {
        flags: i32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
        /// The flags with which the file was opened.
        flags: i32,
    },
    Write {
        handle: u64,
        offset: u64,
        data: Bytes,
        from_pages: bool,
        flags: i32,
        keeps_set_ids: bool,
    },
    StatFs,
    Release {
        handle: u64,
    },
    Fsync,
    SetXattr {
        name: Bytes,
        value: Bytes,
        flags: i32,
        /// For an access list: whether a set-gid bit stays.
        keeps_set_ids: bool,
    },
    GetXattr {
        name: Bytes,
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: Bytes,
    },
    Flush {
        owner: u64,
    },
    OpenDir,
    ReadDir {
        handle: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    ReleaseDir {
        handle: u64,
    },
    GetLock(KernelLock),
    SetLock {
        lock: KernelLock,
        wait: bool,
    },
    Access {
        mask: u32,
    },
    Create {
        name: Bytes,
        flags: i32,
        mode: u32,
        umask: u32,
    },
    Allocate {
        offset: u64,
        length: u64,
        mode: i32,
    },
    Seek {
        offset: i64,
        whence: i32,
    },
    IoCtl,
    /// An earlier request's thread has received a signal.
    Interrupt {
        request: u64,
    },
    /// An operation that we do not know.
    Other(u32),
}

/// A node that the kernel drops, and the number of times that it was given the node which this
/// counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Forget {
    pub node: u64,
    pub times: u64,
}

/// The changes of `setattr`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    /// Without a time inside, it is set to now.
    pub atime: Option<Option<Timestamp>>,
    pub mtime: Option<Option<Timestamp>>,
    pub handle: Option<u64>,
    pub keeps_set_ids: bool,
}

/// A lock on a file's bytes from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct KernelLock {
    pub handle: u64,
    pub owner: u64,
    pub first: u64,
    pub last: u64,
    /// `F_RDLCK`, `F_WRLCK`, `F_UNLCK`.
    pub kind: i32,
    pub pid: u32,
    /// The lock is flock's, not fcntl's.
    pub flock: bool,
}

/// A request's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) operation: u32,
    pub(super) unique: u64,
    pub(super) node: u64,
    pub(super) asker: Asker,
}

impl Header {
    /// Reads a header. Nothing if it is cut short.
    pub(super) fn read(bytes: &[u8]) -> Option<Header> {
        let mut fields = NumberReader(bytes);
        let _length = fields.u32()?;
        let (operation, unique, node) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let _lengths = fields.u32()?;
        let asker = Asker { uid, gid, pid, request: unique, keeps_set_ids: true };
        Some(Header { operation, unique, node, asker })
    }

    /// Whether the kernel waits for an answer.
    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.operation, FORGET | BATCH_FORGET | NOTIFY_REPLY | INTERRUPT)
    }

    /// Bytes of the operation's fixed part. Names and content follow behind it.
    pub(super) fn fixed_bytes(&self) -> usize {
        fixed_bytes(self.operation)
    }

    /// Reads the operation. `fixed` has its part of fixed size, and maybe more; `rest` has names
    /// and content. Nothing if anything is cut short.
    pub(super) fn call(&self, fixed: &[u8], rest: &[u8]) -> Option<Call> {
        let fields = NumberReader(fixed.get(..self.fixed_bytes())?);
        self.names(fields, rest).or_else(|| self.content(fields, rest))
    }

    /// Reads operations on names.
    fn names(&self, mut fields: NumberReader<'_>, rest: &[u8]) -> Option<Call> {
        let mut names =
            NamesCall(Bytes::copy_from_slice(if takes_names(self.operation) { rest } else { &[] }));
        Some(match self.operation {
            LOOKUP => Call::Lookup { name: names.next()? },
            SYMLINK => Call::Symlink { name: names.next()?, target: names.next()? },
            MKNOD => {
                let (mode, rdev, umask) = (fields.u32()?, fields.u32()?, fields.u32()?);
                Call::MkNod { name: names.next()?, mode, umask, rdev }
            }
            MKDIR => Call::MkDir { mode: fields.u32()?, umask: fields.u32()?, name: names.next()? },
            UNLINK => Call::Unlink { name: names.next()? },
            RMDIR => Call::RmDir { name: names.next()? },
            RENAME => {
                Call::Rename { to: fields.u64()?, flags: 0, name: names.next()?, to_name: names.next()? }
            }
            RENAME2 => {
                let (to, flags) = (fields.u64()?, fields.u32()?);
                Call::Rename { to, flags, name: names.next()?, to_name: names.next()? }
            }
            LINK => Call::Link { file: fields.u64()?, name: names.next()? },
            CREATE => {
                let (flags, mode, umask) = (fields.i32()?, fields.u32()?, fields.u32()?);
                Call::Create { name: names.next()?, flags, mode, umask }
            }
            SETXATTR => {
                let (size, flags) = (fields.u32()? as usize, fields.i32()?);
                let keeps_set_ids = fields.u32().is_none_or(|more| more & ACL_KILL_SGID == 0);
                let name = names.next()?;
                let value = (names.0.len() >= size).then(|| names.0.slice(..size))?;
                Call::SetXattr { name, value, flags, keeps_set_ids }
            }
            GETXATTR => Call::GetXattr { size: fields.u32()?, name: names.next()? },
            REMOVEXATTR => Call::RemoveXattr { name: names.next()? },
            _ => return None,
        })
    }

    /// Reads all other operations.
    fn content(&self, mut fields: NumberReader<'_>, rest: &[u8]) -> Option<Call> {
        Some(match self.operation {
            FORGET => Call::Forget(vec![Forget { node: self.node, times: fields.u64()? }]),
            BATCH_FORGET => {
                let (count, mut rest) = (fields.u32()?, NumberReader(rest));
                let forget = |_| Some(Forget { node: rest.u64()?, times: rest.u64()? });
                Call::Forget((0..count).map_while(forget).collect())
            }
            GETATTR => Call::GetAttr,
            STATX => Call::StatX,
            SETATTR => Call::SetAttr(fields.set_attr()?),
            READLINK => Call::ReadLink,
            OPEN => Call::Open { flags: fields.i32()? },
            READ => {
                let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
                let (_read_flags, _owner, flags) = (fields.u32()?, fields.u64()?, fields.i32()?);
                Call::Read { handle, offset, size, flags }
            }
            WRITE => {
                let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
                let how = fields.u32()?;
                let (from_pages, keeps_set_ids) = (how & WRITE_CACHE != 0, how & WRITE_KILL_SUIDGID == 0);
                let (_owner, flags) = (fields.u64()?, fields.i32()?);
                let data = Bytes::copy_from_slice(rest.get(..size as usize)?);
                Call::Write { handle, offset, data, from_pages, flags, keeps_set_ids }
            }
            STATFS => Call::StatFs,
            RELEASE => Call::Release { handle: fields.u64()? },
            // On a file or a directory, on content alone or not: all are one flush.
            FSYNC | FSYNCDIR => Call::Fsync,
            LISTXATTR => Call::ListXattr { size: fields.u32()? },
            FLUSH => {
                let (_handle, _unused) = (fields.u64()?, fields.u64()?);
                Call::Flush { owner: fields.u64()? }
            }
            OPENDIR => Call::OpenDir,
            READDIR | READDIRPLUS => {
                let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
                Call::ReadDir { handle, offset, size, plus: self.operation == READDIRPLUS }
            }
            RELEASEDIR => Call::ReleaseDir { handle: fields.u64()? },
            GETLK => Call::GetLock(fields.lock()?),
            SETLK | SETLKW => Call::SetLock { lock: fields.lock()?, wait: self.operation == SETLKW },
            ACCESS => Call::Access { mask: fields.u32()? },
            FALLOCATE => {
                let (_handle, offset, length) = (fields.u64()?, fields.u64()?, fields.u64()?);
                Call::Allocate { offset, length, mode: fields.i32()? }
            }
            LSEEK => {
                let (_handle, offset) = (fields.u64()?, fields.u64()?);
                Call::Seek { offset: offset as i64, whence: fields.i32()? }
            }
            IOCTL => Call::IoCtl,
            INTERRUPT => Call::Interrupt { request: fields.u64()? },
            // An operation with names comes here only if it was cut short.
            other if takes_names(other) => return None,
            other => Call::Other(other),
        })
    }
}

/// Reads numbers one after the other, in this machine's byte order.
#[derive(Clone, Copy)]
struct NumberReader<'a>(&'a [u8]);

impl NumberReader<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*first))
    }

    fn i32(&mut self) -> Option<i32> {
        self.u32().map(u32::cast_signed)
    }

    /// `struct fuse_setattr_in`.
    fn set_attr(&mut self) -> Option<SetAttr> {
        let (valid, _) = (self.u32()?, self.u32()?);
        let (handle, size, _owner) = (self.u64()?, self.u64()?, self.u64()?);
        let (atime, mtime, _ctime) = (self.u64()?, self.u64()?, self.u64()?);
        let (atime_nanos, mtime_nanos, _ctime_nanos) = (self.u32()?, self.u32()?, self.u32()?);
        let (mode, _, uid, gid) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        // The bit numbers are those of FATTR_*.
        const KILL_SUIDGID: u32 = 11;
        let given = |bit: u32| valid & 1 << bit != 0;
        let time = |bit: u32, now: u32, secs: u64, nanos: u32| {
            let at = Timestamp { secs: secs.cast_signed(), nanos: nanos.min(999_999_999) };
            given(bit).then_some((!given(now)).then_some(at))
        };
        Some(SetAttr {
            mode: given(0).then_some(mode),
            uid: given(1).then_some(uid),
            gid: given(2).then_some(gid),
            size: given(3).then_some(size),
            atime: time(4, 7, atime, atime_nanos),
            mtime: time(5, 8, mtime, mtime_nanos),
            handle: given(6).then_some(handle),
            keeps_set_ids: !given(KILL_SUIDGID),
        })
    }

    /// `struct fuse_lk_in`.
    fn lock(&mut self) -> Option<KernelLock> {
        Some(KernelLock {
            handle: self.u64()?,
            owner: self.u64()?,
            first: self.u64()?,
            last: self.u64()?,
            kind: self.i32()?,
            pid: self.u32()?,
            // FUSE_LK_FLOCK.
            flock: self.u32()? & 1 != 0,
        })
    }
}

/// Names, each followed by a zero byte.
struct NamesCall(Bytes);

impl NamesCall {
    fn next(&mut self) -> Option<Bytes> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = self.0.split_to(end);
        bytes::Buf::advance(&mut self.0, 1);
        Some(name)
    }
}

fn takes_names(operation: u32) -> bool {
    matches!(
        operation,
        LOOKUP
            | SYMLINK
            | MKNOD
            | MKDIR
            | UNLINK
            | RMDIR
            | RENAME
            | RENAME2
            | LINK
            | CREATE
            | SETXATTR
            | GETXATTR
            | REMOVEXATTR
    )
}

/// Bytes of the kernel's structure for each operation. Operations without one are left out.
fn fixed_bytes(operation: u32) -> usize {
    match operation {
        SETATTR => 88,
        SETXATTR if !LONG_SETXATTR.load(Relaxed) => 8,
        LINK | RENAME | MKDIR | OPEN | OPENDIR | GETXATTR | LISTXATTR | ACCESS | FORGET | BATCH_FORGET
        | INTERRUPT => 8,
        MKNOD | RENAME2 | CREATE | SETXATTR | GETATTR | FSYNC | FSYNCDIR => 16,
        RELEASE | RELEASEDIR | FLUSH | LSEEK | STATX => 24,
        FALLOCATE | IOCTL => 32,
        READ | WRITE | READDIR | READDIRPLUS => 40,
        GETLK | SETLK | SETLKW => 48,
        _ => 0,
    }
}

/// Whether the kernel's `fuse_setxattr_in` has flags of its own (`FUSE_SETXATTR_EXT`). All mounts
/// of one kernel agree on it.
pub(super) static LONG_SETXATTR: AtomicBool = AtomicBool::new(true);

/// `FUSE_SETXATTR_ACL_KILL_SGID`: the setter of the list is not in the file's group, and may not
/// keep the bit for another reason.
const ACL_KILL_SGID: u32 = 1;
/// `FUSE_WRITE_CACHE`: the data was written through a mapping, or cached.
const WRITE_CACHE: u32 = 1;
/// `FUSE_WRITE_KILL_SUIDGID`: the writer has no CAP_FSETID.
const WRITE_KILL_SUIDGID: u32 = 4;

// `enum fuse_opcode`.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const READLINK: u32 = 5;
const SYMLINK: u32 = 6;
const MKNOD: u32 = 8;
const MKDIR: u32 = 9;
const UNLINK: u32 = 10;
const RMDIR: u32 = 11;
const RENAME: u32 = 12;
const LINK: u32 = 13;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const SETXATTR: u32 = 21;
const GETXATTR: u32 = 22;
const LISTXATTR: u32 = 23;
const REMOVEXATTR: u32 = 24;
const FLUSH: u32 = 25;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const FSYNCDIR: u32 = 30;
const GETLK: u32 = 31;
const SETLK: u32 = 32;
const SETLKW: u32 = 33;
const ACCESS: u32 = 34;
const CREATE: u32 = 35;
const INTERRUPT: u32 = 36;
const IOCTL: u32 = 39;
const NOTIFY_REPLY: u32 = 41;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;
const READDIRPLUS: u32 = 44;
const RENAME2: u32 = 45;
const LSEEK: u32 = 46;
const STATX: u32 = 52;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(operation: u32) -> Header {
        Header { operation, unique: 1, node: 9, asker: Asker { uid: 1, gid: 2, pid: 3, ..Asker::KERNEL } }
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_header() {
        let bytes = words(&[40, LOOKUP, 7, 0, 9, 0, 1, 2, 3, 0]);
        let read = Header::read(&bytes).unwrap();
        assert_eq!((read.operation, read.unique, read.node), (LOOKUP, 7, 9));
        assert_eq!((read.asker.uid, read.asker.gid, read.asker.pid), (1, 2, 3));
        assert!(bytes.len() == HEADER_BYTES && Header::read(&bytes[..39]).is_none());
    }

    #[test]
    fn names_come_behind_what_is_fixed() {
        let name = |name: &'static str| Bytes::from_static(name.as_bytes());
        assert_eq!(header(LOOKUP).call(&[], b"a b\0"), Some(Call::Lookup { name: name("a b") }));
        assert_eq!(header(LOOKUP).call(&[], b"a b"), None);
        assert_eq!(
            header(RENAME2).call(&words(&[5, 0, 1, 0]), b"from\0to\0"),
            Some(Call::Rename { name: name("from"), to: 5, to_name: name("to"), flags: 1 })
        );
        assert_eq!(
            header(SETXATTR).call(&words(&[3, 0, ACL_KILL_SGID, 0]), b"user.a\0x\0y"),
            Some(Call::SetXattr {
                name: name("user.a"),
                value: Bytes::from_static(b"x\0y"),
                flags: 0,
                keeps_set_ids: false
            })
        );
        assert_eq!(header(SETXATTR).call(&words(&[4, 0, 0, 0]), b"user.a\0x\0y"), None);
    }

    #[test]
    fn times_are_now_or_given_also_before_the_epoch() {
        let mut setattr = [0u32; 22];
        // Sets both times, the second of them to now, and a mode.
        setattr[0] = 1 | 1 << 4 | 1 << 5 | 1 << 8;
        setattr[8..10].copy_from_slice(&[-2i32 as u32, u32::MAX]);
        (setattr[14], setattr[17]) = (800_000_000, 0o600);
        let changed = SetAttr {
            mode: Some(0o600),
            atime: Some(Some(Timestamp { secs: -2, nanos: 800_000_000 })),
            mtime: Some(None),
            keeps_set_ids: true,
            ..SetAttr::default()
        };
        assert_eq!(header(SETATTR).call(&words(&setattr), &[]), Some(Call::SetAttr(changed)));
    }

    #[test]
    fn whose_lock_it_is() {
        let lock = header(SETLKW).call(&words(&[1, 0, 2, 0, 3, 0, 4, 0, 1, 77, 1, 0]), &[]);
        let expected =
            KernelLock { handle: 1, owner: 2, first: 3, last: 4, kind: libc::F_WRLCK, pid: 77, flock: true };
        assert_eq!(lock, Some(Call::SetLock { lock: expected, wait: true }));
    }

    #[test]
    fn as_many_are_forgotten_as_there_are() {
        let two = words(&[3, 0, 1, 0, 4, 0, 1, 0]);
        let forgotten = |count| header(BATCH_FORGET).call(&words(&[count, 0]), &two);
        let both = vec![Forget { node: 3, times: 1 }, Forget { node: 4, times: 1 }];
        assert_eq!(forgotten(2), Some(Call::Forget(both.clone())));
        // No room is reserved for a count that the request merely claims.
        assert_eq!(forgotten(u32::MAX), Some(Call::Forget(both)));
    }

    proptest! {
        #[test]
        fn nothing_panics(
            operation in 0u32..60,
            fixed in proptest::collection::vec(any::<u8>(), 0..128),
            rest in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let header = header(operation);
            let call = header.call(&fixed, &rest);
            // A complete request is understood.
            prop_assert!(call.is_some() || fixed.len() < header.fixed_bytes() || takes_names(operation) || operation == WRITE);
        }
    }
}
