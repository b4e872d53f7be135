//! fuser's requests as the front door's, and its results as fuser's replies.

use bytes::Bytes;
use client::Allocate;
use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use namespace::{AttributeChange, Conflict, FileKind, LockKind, LockRange, RenameMode, XattrMode};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::convert::{attr, file_type, kind_of_mode, missing, set_time};
use super::sort::sort_of;
use super::{REQUEST_BYTES_MAX, negotiate};
use crate::front::{
    Change, Found, Front, Handle, Line, LockRequest, NewNode, Opened, Outcome, Page, Shown, Space,
};
use crate::groups::Asker;

/// Inode numbers are never reused, so neither are node ids.
const GENERATION: Generation = Generation(0);

/// What statfs counts in.
const STATFS_BLOCK_BYTES: u32 = 4096;

/// What fuser calls.
pub(super) struct Requests(pub(super) Arc<Front>);

impl Filesystem for Requests {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(config);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.lookup(asker(req), parent.0, name.as_bytes(), move |found| match found {
            Ok(Found::File(shown)) => entry(Ok(shown), reply),
            Ok(Found::Missing(ttl)) => reply.entry(&ttl, &missing(), GENERATION),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.0.forget(ino.0, nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.0.getattr(asker(req), ino.0, move |shown| attributes(shown, reply));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mode = mode.map(|mode| (mode & 0o7777) as u16);
        let attributes = AttributeChange { mode, uid, gid, atime: set_time(atime), mtime: set_time(mtime) };
        let change = Change { attributes, size, through_handle: fh.is_some() };
        self.0.setattr(asker(req), ino.0, change, move |shown| self::attributes(shown, reply));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.0.readlink(asker(req), ino.0, move |target| match target {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = kind_of_mode(mode) else { return reply.error(fuser::Errno::EINVAL) };
        let new = NewNode { rdev, ..NewNode::new(kind, mode, umask) };
        self.0.make(asker(req), parent.0, name.as_bytes(), new, move |shown| entry(shown, reply));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let new = NewNode::new(FileKind::Directory, mode, umask);
        self.0.make(asker(req), parent.0, name.as_bytes(), new, move |shown| entry(shown, reply));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.0.unlink(asker(req), parent.0, name.as_bytes(), false, move |outcome| empty(outcome, reply));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.0.unlink(asker(req), parent.0, name.as_bytes(), true, move |outcome| empty(outcome, reply));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes().to_vec();
        let new = NewNode { target, ..NewNode::new(FileKind::Symlink, 0o777, 0) };
        self.0.make(asker(req), parent.0, link_name.as_bytes(), new, move |shown| entry(shown, reply));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            flags if flags.is_empty() => RenameMode::Replace,
            // RENAME_WHITEOUT is for overlay file systems.
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let (from, to) = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        self.0.rename(asker(req), from, to, mode, move |outcome| empty(outcome, reply));
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.0.link(asker(req), ino.0, newparent.0, newname.as_bytes(), move |shown| entry(shown, reply));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.0.open(asker(req), ino.0, flags.0, move |opened| match opened {
            Ok(opened) => reply.opened(FileHandle(opened.handle.0), open_flags(opened)),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let range = (offset, size.min(REQUEST_BYTES_MAX));
        self.0.read(asker(req), ino.0, Handle(fh.0), range, move |parts| match parts {
            Ok(parts) => data(&parts, reply),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Pages that were written through a mapping come back with whatever handle was at hand, and belong where they are.
        let from_pages = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let append = flags.0 & libc::O_APPEND != 0 && !from_pages;
        let asker = if from_pages { Asker::KERNEL } else { asker(req) };
        // fuser reads the next request into the same buffer.
        let data = Bytes::copy_from_slice(data);
        self.0.write(asker, ino.0, offset, data, append, move |written| match written {
            Ok(bytes) => reply.written(bytes),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn flush(&self, req: &Request, ino: INodeNo, _fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        self.0.flush(asker(req), ino.0, lock_owner.0, move |outcome| empty(outcome, reply));
    }

    fn getlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let Some(request) = lock_request(fh, lock_owner, (start, end), typ, pid, false) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        self.0.get_lock(asker(req), ino.0, request, move |conflict| match conflict {
            Ok(Some(Conflict { range, kind, pid })) => {
                // No process here has a number for one of another machine.
                reply.locked(range.first, range.last.min(LOCK_END), lock_type(Some(kind)), pid.unwrap_or(0));
            }
            Ok(None) => reply.locked(start, end, lock_type(None), 0),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let Some(request) = lock_request(fh, lock_owner, (start, end), typ, pid, sleep) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        let sort = || sort_of(req.pid());
        self.0.set_lock(asker(req), ino.0, request, sort, move |outcome| empty(outcome, reply));
    }

    fn release(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        // What was locked by this handle is known, and more than this says.
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.0.release(asker(req), ino.0, Handle(fh.0), move |outcome| empty(outcome, reply));
    }

    fn fsync(&self, req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.0.sync(asker(req), ino.0, move |outcome| empty(outcome, reply));
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.0.sync(asker(req), ino.0, move |outcome| empty(outcome, reply));
    }

    fn readdir(&self, req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.0.list(asker(req), ino.0, offset, Plain(reply));
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.0.list(asker(req), ino.0, offset, Plus(reply));
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.0.space(asker(req), ino.0, move |space| match space {
            Ok(Space { total, free, files }) => {
                let (size, name) = (STATFS_BLOCK_BYTES, lease::LABEL_BYTES_MAX as u32);
                let (blocks, free) = (total / u64::from(size), free / u64::from(size));
                // Files are limited by space only.
                reply.statfs(blocks, free, free, files.saturating_add(free), free, size, name, size);
            }
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => XattrMode::Set,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        self.0
            .setxattr(asker(req), ino.0, name.as_bytes(), value, mode, move |outcome| empty(outcome, reply));
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.0.getxattr(asker(req), ino.0, name.as_bytes(), move |value| sized(value, size, reply));
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.0.listxattr(asker(req), ino.0, move |names| sized(names, size, reply));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.0.removexattr(asker(req), ino.0, name.as_bytes(), move |outcome| empty(outcome, reply));
    }

    /// Not asked under `default_permissions`.
    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        self.0.access(asker(req), ino.0, (mask.bits() & 7) as u8, move |outcome| empty(outcome, reply));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let new = NewNode::new(FileKind::Regular, mode, umask);
        self.0.create(asker(req), parent.0, name.as_bytes(), new, flags, move |made| match made {
            Ok((shown, opened)) => {
                reply.created(
                    &shown.shorter_ttl(),
                    &attr(&shown.stat),
                    GENERATION,
                    FileHandle(opened.handle.0),
                    open_flags(opened),
                );
            }
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(fuser::Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let what = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Allocate::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Allocate::Punch,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::Zero { keep_size },
            _ => return reply.error(fuser::Errno::EOPNOTSUPP),
        };
        self.0.allocate(asker(req), ino.0, (offset, length), what, move |outcome| empty(outcome, reply));
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let hole = match whence {
            libc::SEEK_DATA => false,
            libc::SEEK_HOLE => true,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(fuser::Errno::ENXIO) };
        self.0.seek(asker(req), ino.0, offset, hole, move |at| match at.map(i64::try_from) {
            Ok(Ok(at)) => reply.offset(at),
            Ok(Err(_)) => reply.error(fuser::Errno::EOVERFLOW),
            Err(errno) => reply.error(errno.into()),
        });
    }

    // Left to fuser, which answers ENOSYS, after which the kernel does without: copy_file_range (it copies by reading and writing), bmap, poll, syncfs
    // (which it sends to file systems on a block device only: `fsync` of a directory is the way to flush).
    // FUSE_INTERRUPT is answered so as well: see `crate::interrupt`.
    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        _fh_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _fh_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }
}

/// The kernel's last byte of a file, and "to the end" as well.
const LOCK_END: u64 = i64::MAX as u64;

/// Nothing for a sort of lock that there is not.
fn lock_request(
    fh: FileHandle,
    owner: LockOwner,
    (first, last): (u64, u64),
    typ: i32,
    pid: u32,
    wait: bool,
) -> Option<LockRequest> {
    let kind = match typ {
        libc::F_RDLCK => Some(LockKind::Read),
        libc::F_WRLCK => Some(LockKind::Write),
        libc::F_UNLCK => None,
        _ => return None,
    };
    let last = if last >= LOCK_END { u64::MAX } else { last };
    Some(LockRequest {
        handle: Handle(fh.0),
        owner: owner.0,
        pid,
        range: LockRange { first, last },
        kind,
        wait,
    })
}

fn lock_type(kind: Option<LockKind>) -> i32 {
    match kind {
        Some(LockKind::Read) => libc::F_RDLCK,
        Some(LockKind::Write) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    }
}

fn asker(req: &Request) -> Asker {
    Asker { uid: req.uid(), gid: req.gid(), pid: req.pid() }
}

fn empty(outcome: Outcome<()>, reply: ReplyEmpty) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno.into()),
    }
}

fn entry(shown: Outcome<Shown>, reply: ReplyEntry) {
    match shown {
        Ok(shown) => reply.entry_with_ttls(&shown.ttl, &shown.entry_ttl, &attr(&shown.stat), GENERATION),
        Err(errno) => reply.error(errno.into()),
    }
}

fn attributes(shown: Outcome<Shown>, reply: ReplyAttr) {
    match shown {
        Ok(shown) => reply.attr(&shown.ttl, &attr(&shown.stat)),
        Err(errno) => reply.error(errno.into()),
    }
}

fn open_flags(opened: Opened) -> FopenFlags {
    match opened {
        Opened { handle, .. } if !handle.is_paged() => FopenFlags::FOPEN_DIRECT_IO,
        Opened { keep_pages: true, .. } => FopenFlags::FOPEN_KEEP_CACHE,
        Opened { keep_pages: false, .. } => FopenFlags::empty(),
    }
}

/// An attribute's value, or only its size for who brings no buffer.
fn sized(value: Outcome<Vec<u8>>, room: u32, reply: ReplyXattr) {
    match value {
        Ok(value) if room == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > room as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno.into()),
    }
}

thread_local! {
    /// Where parts are put together: fresh memory for each reply would cost a page fault per page.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// fuser takes a reply in one piece.
fn data(parts: &[Bytes], reply: ReplyData) {
    if let [whole] = parts {
        return reply.data(whole);
    }
    GATHERED.with_borrow_mut(|gathered| {
        gathered.clear();
        for part in parts {
            gathered.extend_from_slice(part);
        }
        reply.data(gathered);
    });
}

/// readdir's buffer.
struct Plain(ReplyDirectory);

impl Page for Plain {
    fn plus(&self) -> bool {
        false
    }

    fn push(&mut self, line: &Line<'_>) -> bool {
        !self.0.add(INodeNo(line.ino), line.cookie, file_type(line.kind), OsStr::from_bytes(line.name))
    }

    fn finish(self, outcome: Outcome<()>) {
        match outcome {
            Ok(()) => self.0.ok(),
            Err(errno) => self.0.error(errno.into()),
        }
    }
}

/// readdirplus' buffer.
struct Plus(ReplyDirectoryPlus);

impl Page for Plus {
    fn plus(&self) -> bool {
        true
    }

    fn push(&mut self, line: &Line<'_>) -> bool {
        let (ttl, mut attr) = match &line.shown {
            Some(shown) => (shown.shorter_ttl(), attr(&shown.stat)),
            None => (Duration::ZERO, missing()),
        };
        attr.ino = INodeNo(line.ino);
        !self.0.add(attr.ino, line.cookie, OsStr::from_bytes(line.name), &ttl, &attr, GENERATION)
    }

    fn finish(self, outcome: Outcome<()>) {
        match outcome {
            Ok(()) => self.0.ok(),
            Err(errno) => self.0.error(errno.into()),
        }
    }
}
