//! Turns the kernel's requests into requests of the front door, and its results into answers.

use client::AllocateMode;
use file_service::{FreeSpace, Kind};
use namespace::{
    AttributeChange, Conflict, FileKind, FileSpec, LockKind, LockRange, LockSpace, RenameMode, SetTime, Stat,
    XattrMode,
};
use std::sync::Arc;
use std::time::Duration;

use super::call::{Call, KernelLock, KernelRequest, REQUEST_BYTES_MAX, SetAttr};
use super::reply::{Attr, EntryReply, KernelReply, Lines, Pages, Totals};
use super::serve::Serve;
use crate::errno::Errno;
use crate::flight::RENAMES;
use crate::front::{
    CreateRequest, Front, Handle, ListingLine, LockRequest, LookedUp, Opened, Outcome, Page, ReadRequest,
    SetattrChange, Shown, Writes, XattrRequest,
};
use crate::groups::Asker;
use crate::watches::{Ghost, PhantomAnswer};

/// The block size in which statfs counts.
const STATFS_BLOCK_BYTES: u32 = 4096;

const INVALID: Errno = Errno(libc::EINVAL);

/// The front door, as the transport calls it.
pub(super) struct Requests(pub(super) Arc<Front>);

impl Serve for Requests {
    fn serve(&self, KernelRequest { asker, node, call }: KernelRequest, reply: KernelReply) {
        let front = &self.0;
        front.intake.asks(asker.pid);
        let reply = counted(front, node, &call, reply);
        let reply = if is_kept(&call) { under_way(front, node, &call, reply) } else { reply };
        if front.watches.is_hand(asker.pid)
            && let Some(answer) = front.watches.phantom(node, front.nodes.file(node).ok().as_ref(), &call)
        {
            return phantom(front, asker, node, (&call, answer), reply);
        }
        match call {
            Call::Lookup { name } => front.lookup(asker, node, &name, move |found| match found {
                Ok(LookedUp::File(shown)) => reply.entry(&entry(&shown)),
                Ok(LookedUp::Missing(ttl)) => reply.entry(&missing(ttl)),
                Err(errno) => reply.error(errno),
            }),
            Call::Forget(forgotten) => {
                front.forget(forgotten.iter().map(|of| (of.node, of.times)));
            }
            Call::GetAttr => front.getattr(asker, node, move |shown| attributes(shown, reply)),
            Call::StatX => front.getattr(asker, node, move |shown| match shown {
                Ok(shown) => reply.statx(&attr(&shown.stat), shown.ttl),
                Err(errno) => reply.error(errno),
            }),
            Call::SetAttr(change) => {
                let asker = Asker { keeps_set_ids: change.keeps_set_ids, ..asker };
                front.setattr(asker, node, self::change(&change), move |shown| attributes(shown, reply));
            }
            Call::ReadLink => front.readlink(asker, node, move |target| match target {
                Ok(target) => reply.data(&target),
                Err(errno) => reply.error(errno),
            }),
            Call::Open { flags } => front.open(asker, node, flags, move |opened| match opened {
                Ok(opened) => reply.opened(opened.handle.0, pages(opened)),
                Err(errno) => reply.error(errno),
            }),
            Call::Read { handle, offset, size, flags } => {
                let (handle, length) = (Handle(handle), size.min(REQUEST_BYTES_MAX));
                let read = ReadRequest { handle, offset, length, flags };
                front.read(asker, node, read, move |parts| match parts {
                    Ok(parts) => reply.parts(&parts),
                    Err(errno) => reply.error(errno),
                });
            }
            Call::Write { offset, data, from_pages, flags, keeps_set_ids, .. } => {
                // The kernel writes back pages of a mapping by any handle at hand. Their content
                // belongs at its offset.
                let how = match () {
                    () if from_pages => Writes::WriteBack,
                    () if flags & libc::O_APPEND != 0 => Writes::Append,
                    () if flags & libc::O_DIRECT != 0 => Writes::Direct,
                    () => Writes::Paged,
                };
                let asker = if from_pages { Asker::KERNEL } else { Asker { keeps_set_ids, ..asker } };
                front.write(asker, node, (offset, data), how, move |written| match written {
                    Ok(bytes) => reply.written(bytes),
                    Err(errno) => reply.error(errno),
                });
            }
            Call::Flush { owner } => front.flush(asker, node, owner, move |outcome| empty(outcome, reply)),
            Call::Release { handle } => {
                front.release(asker, node, Handle(handle), move |outcome| empty(outcome, reply));
            }
            Call::Fsync => front.sync(asker, node, move |outcome| empty(outcome, reply)),
            Call::OpenDir => reply.opened(front.listings.open(), Pages::Drop),
            Call::ReleaseDir { handle } => {
                front.listings.close(handle);
                reply.done();
            }
            Call::ReadDir { handle, offset, size, plus } => {
                front.list(
                    asker,
                    node,
                    (handle, offset),
                    ListingPage { lines: Lines::new(size), plus, reply },
                );
            }
            Call::StatFs => front.space(asker, node, move |space| match space {
                Ok(space) => reply.totals(&totals(&space)),
                Err(errno) => reply.error(errno),
            }),
            Call::Access { mask } => {
                // The kernel does not ask this under `default_permissions`.
                front.access(asker, node, (mask & 7) as u8, move |outcome| empty(outcome, reply));
            }
            Call::GetLock(lock) => get_lock(front, asker, node, &lock, reply),
            Call::SetLock { lock, wait } => match lock_request(&lock, wait) {
                Some(request) => {
                    front.set_lock(asker, node, request, move |outcome| empty(outcome, reply));
                }
                None => reply.error(INVALID),
            },
            Call::Allocate { offset, length, mode } => match allocate(mode) {
                Some(what) => {
                    front.allocate(asker, node, (offset, length), what, move |outcome| empty(outcome, reply));
                }
                None => reply.error(Errno(libc::EOPNOTSUPP)),
            },
            Call::Seek { offset, whence } => seek(front, asker, node, offset, whence, reply),
            Call::Interrupt { request } => front.waits.interrupt(request),
            Call::IoCtl => reply.error(Errno(libc::ENOTTY)),
            // The kernel then does without: copy_file_range (it copies by reading and writing),
            // bmap, poll, and syncfs. It sends syncfs to file systems on a block device only:
            // `fsync` of a directory is the way to flush.
            Call::Other(_) => reply.error(Errno(libc::ENOSYS)),
            call => names(front, asker, node, call, reply),
        }
    }

    fn look(&self) {
        self.0.file_service().look();
    }
}

/// Answers the event raiser, whose requests change nothing: see [`crate::watches`].
fn phantom(
    front: &Arc<Front>,
    asker: Asker,
    node: u64,
    (call, answer): (&Call, PhantomAnswer),
    reply: KernelReply,
) {
    /// Attributes of a phantom do not change; its name is asked for each time.
    const STAYS: Duration = Duration::from_secs(10);
    let attr = |of: Ghost| {
        let mode = if of.directory { libc::S_IFDIR | 0o700 } else { libc::S_IFREG | 0o600 };
        Attr { ino: of.node, mode, links: 1, uid: asker.uid, gid: asker.gid, ..Attr::default() }
    };
    match answer {
        PhantomAnswer::Missing => reply.entry(&missing(Duration::ZERO)),
        PhantomAnswer::Entry(of) => reply.entry(&EntryReply {
            node: of.node,
            attr: attr(of),
            entry_ttl: Duration::ZERO,
            attr_ttl: STAYS,
        }),
        PhantomAnswer::Attributes(of) if *call == Call::StatX => reply.statx(&attr(of), STAYS),
        PhantomAnswer::Attributes(of) => reply.attr(&attr(of), STAYS),
        PhantomAnswer::Done => reply.done(),
        PhantomAnswer::AsItIs => front.unchanged(asker, node, move |shown| attributes(shown, reply)),
        PhantomAnswer::Refused => reply.error(Errno(libc::EPERM)),
    }
}

/// Counts the operation. For an operation on a name the directory is the node. For all others it is
/// the directory in which the file was made.
fn counted(front: &Front, node: u64, call: &Call, reply: KernelReply) -> KernelReply {
    let (Some(activity), Some((kind, is_directory))) = (front.file_service().activity(), kind(call)) else {
        return reply;
    };
    let directory = || {
        let file = front.nodes.file(node).ok()?;
        if is_directory { Some(file) } else { file.parent().or(Some(file)) }
    };
    reply.ends(activity.begin(kind, directory))
}

/// The operation's kind, and whether its node is a directory. Nothing for a request that the kernel
/// waits for no answer to.
fn kind(call: &Call) -> Option<(Kind, bool)> {
    Some(match call {
        Call::Lookup { .. } => (Kind::Lookup, true),
        Call::Symlink { .. } => (Kind::Symlink, true),
        Call::MkNod { .. } => (Kind::MakeNode, true),
        Call::MkDir { .. } => (Kind::MakeDirectory, true),
        Call::Unlink { .. } => (Kind::Unlink, true),
        Call::RmDir { .. } => (Kind::RemoveDirectory, true),
        Call::Rename { .. } => (Kind::Rename, true),
        Call::Link { .. } => (Kind::Link, true),
        Call::Create { .. } => (Kind::Create, true),
        Call::OpenDir => (Kind::OpenDirectory, true),
        Call::ReadDir { .. } => (Kind::ReadDirectory, true),
        Call::ReleaseDir { .. } => (Kind::ReleaseDirectory, true),
        Call::StatFs => (Kind::Space, true),
        Call::GetAttr | Call::StatX => (Kind::Stat, false),
        Call::SetAttr(_) => (Kind::SetAttributes, false),
        Call::ReadLink => (Kind::ReadLink, false),
        Call::Open { .. } => (Kind::Open, false),
        Call::Read { .. } => (Kind::Read, false),
        Call::Write { .. } => (Kind::Write, false),
        Call::Flush { .. } => (Kind::Flush, false),
        Call::Release { .. } => (Kind::Release, false),
        Call::Fsync => (Kind::Sync, false),
        Call::SetXattr { .. } => (Kind::SetXattr, false),
        Call::GetXattr { .. } => (Kind::GetXattr, false),
        Call::ListXattr { .. } => (Kind::ListXattr, false),
        Call::RemoveXattr { .. } => (Kind::RemoveXattr, false),
        Call::Access { .. } => (Kind::Access, false),
        Call::GetLock(_) => (Kind::GetLock, false),
        Call::SetLock { .. } => (Kind::SetLock, false),
        Call::Allocate { .. } => (Kind::Allocate, false),
        Call::Seek { .. } => (Kind::Seek, false),
        Call::IoCtl | Call::Other(_) => (Kind::Other, false),
        Call::Forget(_) | Call::Interrupt { .. } => return None,
    })
}

/// Whether the kernel caches anything of the answer. It caches nothing of answers on locks and
/// closing, and some of these take long.
fn is_kept(call: &Call) -> bool {
    !matches!(
        call,
        Call::Forget(_)
            | Call::Flush { .. }
            | Call::Release { .. }
            | Call::ReleaseDir { .. }
            | Call::GetLock(_)
            | Call::SetLock { .. }
            | Call::Interrupt { .. }
            | Call::Other(_)
    )
}

/// Counts the answer as under way, from before the first call until the kernel has it.
fn under_way(front: &Arc<Front>, node: u64, call: &Call, reply: KernelReply) -> KernelReply {
    let (other, renames) = match call {
        Call::Rename { to, .. } => (Some(*to).filter(|to| *to != node), Some(RENAMES)),
        _ => (None, None),
    };
    let nodes = [Some(node), other, renames];
    nodes.iter().flatten().for_each(|node| front.flight.begin(*node));
    let front = Arc::clone(front);
    reply.before(move || nodes.iter().flatten().for_each(|node| front.flight.end(*node)))
}

/// Serves requests that make, move and remove names. It also serves extended attributes, which have
/// names, too.
fn names(front: &Arc<Front>, asker: Asker, node: u64, call: Call, reply: KernelReply) {
    let made = move |shown: Outcome<Shown>, reply: KernelReply| match shown {
        Ok(shown) => reply.entry(&entry(&shown)),
        Err(errno) => reply.error(gives_way(errno)),
    };
    match call {
        Call::MkNod { name, mode, umask, rdev } => {
            let Some(kind) = kind_of_mode(mode) else { return reply.error(INVALID) };
            let spec = FileSpec { rdev, ..spec(kind, mode, umask) };
            front.make(asker, node, &name, spec, move |shown| made(shown, reply));
        }
        Call::MkDir { name, mode, umask } => {
            let spec = spec(FileKind::Directory, mode, umask);
            front.make(asker, node, &name, spec, move |shown| made(shown, reply));
        }
        Call::Symlink { name, target } => {
            let spec = FileSpec { target: target.to_vec(), ..spec(FileKind::Symlink, 0o777, 0) };
            front.make(asker, node, &name, spec, move |shown| made(shown, reply));
        }
        Call::Create { name, flags, mode, umask } => {
            let spec = spec(FileKind::Regular, mode, umask);
            let create = CreateRequest { name: &name, spec, flags };
            front.create(asker, node, create, move |made| match made {
                Ok((shown, opened)) => reply.created(&entry(&shown), opened.handle.0, pages(opened)),
                Err(errno) => reply.error(gives_way(errno)),
            });
        }
        Call::Link { file, name } => front.link(asker, file, node, &name, move |shown| made(shown, reply)),
        Call::Unlink { name } => {
            front.unlink(asker, node, &name, false, move |outcome| empty(outcome.map_err(gives_way), reply));
        }
        Call::RmDir { name } => {
            front.unlink(asker, node, &name, true, move |outcome| empty(outcome.map_err(gives_way), reply));
        }
        Call::Rename { name, to, to_name, flags } => {
            let whiteout = flags & libc::RENAME_WHITEOUT != 0;
            let mode = match flags & !libc::RENAME_WHITEOUT {
                0 => RenameMode::Replace,
                libc::RENAME_NOREPLACE => RenameMode::NoReplace,
                libc::RENAME_EXCHANGE if !whiteout => RenameMode::Exchange,
                _ => return reply.error(INVALID),
            };
            let (from, to) = ((node, &name[..]), (to, &to_name[..]));
            front.rename(asker, from, to, (mode, whiteout), move |outcome| {
                empty(outcome.map_err(gives_way), reply)
            });
        }
        Call::SetXattr { name, value, flags, keeps_set_ids } => {
            let asker = Asker { keeps_set_ids, ..asker };
            let mode = match flags {
                0 => XattrMode::Set,
                libc::XATTR_CREATE => XattrMode::Create,
                libc::XATTR_REPLACE => XattrMode::Replace,
                _ => return reply.error(INVALID),
            };
            let xattr = XattrRequest { name: &name, value: &value, mode };
            front.setxattr(asker, node, xattr, move |outcome| empty(outcome, reply));
        }
        Call::GetXattr { name, size } => {
            front.getxattr(asker, node, &name, move |value| sized(value, size, reply));
        }
        Call::ListXattr { size } => front.listxattr(asker, node, move |names| sized(names, size, reply)),
        Call::RemoveXattr { name } => {
            front.removexattr(asker, node, &name, move |outcome| empty(outcome, reply));
        }
        other => {
            tracing::error!(?other, "a request that nobody serves");
            reply.error(Errno::IO);
        }
    }
}

fn get_lock(front: &Arc<Front>, asker: Asker, node: u64, lock: &KernelLock, reply: KernelReply) {
    let Some(request) = lock_request(lock, false) else { return reply.error(INVALID) };
    let KernelLock { first, last, .. } = *lock;
    front.get_lock(asker, node, request, move |conflict| match conflict {
        Ok(Some(Conflict { range, kind, pid })) => {
            // A process of another machine has no number here.
            reply.lock(range.first, range.last.min(LOCK_END), lock_type(Some(kind)), pid.unwrap_or(0));
        }
        Ok(None) => reply.lock(first, last, lock_type(None), 0),
        Err(errno) => reply.error(errno),
    });
}

fn seek(front: &Arc<Front>, asker: Asker, node: u64, offset: i64, whence: i32, reply: KernelReply) {
    let hole = match whence {
        libc::SEEK_DATA => false,
        libc::SEEK_HOLE => true,
        _ => return reply.error(INVALID),
    };
    let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno(libc::ENXIO)) };
    front.seek(asker, node, offset, hole, move |at| match at {
        Ok(at) if i64::try_from(at).is_ok() => reply.offset(at),
        Ok(_) => reply.error(Errno(libc::EOVERFLOW)),
        Err(errno) => reply.error(errno),
    });
}

fn change(of: &SetAttr) -> SetattrChange {
    let mode = of.mode.map(|mode| (mode & 0o7777) as u16);
    let time = |time: Option<Option<_>>| time.map(|at| at.map_or(SetTime::Now, SetTime::At));
    let (uid, gid, atime, mtime) = (of.uid, of.gid, time(of.atime), time(of.mtime));
    // Only a chown that keeps the owner asks for no change.
    let keeps_owner = (mode, uid, gid, of.size, atime, mtime) == (None, None, None, None, None, None);
    let attributes = AttributeChange { mode, uid, gid, atime, mtime, keeps_owner };
    SetattrChange { attributes, size: of.size, through_handle: of.handle.is_some() }
}

fn allocate(mode: i32) -> Option<AllocateMode> {
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    Some(match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => AllocateMode::Reserve { keep_size },
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => AllocateMode::Punch,
        libc::FALLOC_FL_ZERO_RANGE => AllocateMode::Zero { keep_size },
        _ => return None,
    })
}

/// The kernel's number for a file's last byte, and for "to the end" as well.
const LOCK_END: u64 = i64::MAX as u64;

/// The front door's form of a lock. Nothing for an unknown sort of lock.
fn lock_request(lock: &KernelLock, wait: bool) -> Option<LockRequest> {
    let kind = match lock.kind {
        libc::F_RDLCK => Some(LockKind::Read),
        libc::F_WRLCK => Some(LockKind::Write),
        libc::F_UNLCK => None,
        _ => return None,
    };
    let last = if lock.last >= LOCK_END { u64::MAX } else { lock.last };
    Some(LockRequest {
        handle: Handle(lock.handle),
        owner: lock.owner,
        pid: lock.pid,
        space: if lock.flock { LockSpace::Flock } else { LockSpace::Posix },
        range: LockRange { first: lock.first, last },
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

/// The error for a change of names that was interrupted. It is interrupted only to give way
/// ([`crate::way`]), or because its thread is being killed.
fn gives_way(errno: Errno) -> Errno {
    if errno == Errno(libc::EINTR) { Errno::STALE } else { errno }
}

fn empty(outcome: Outcome<()>, reply: KernelReply) {
    match outcome {
        Ok(()) => reply.done(),
        Err(errno) => reply.error(errno),
    }
}

fn attributes(shown: Outcome<Shown>, reply: KernelReply) {
    match shown {
        Ok(shown) => reply.attr(&attr(&shown.stat), shown.ttl),
        Err(errno) => reply.error(errno),
    }
}

/// Answers an attribute's value, or only its size to an asker without a buffer.
fn sized(value: Outcome<Vec<u8>>, room: u32, reply: KernelReply) {
    match value {
        Ok(value) if room == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > room as usize => reply.error(Errno(libc::ERANGE)),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

fn entry(shown: &Shown) -> EntryReply {
    let attr = attr(&shown.stat);
    EntryReply { node: shown.node, attr, entry_ttl: shown.entry_ttl, attr_ttl: shown.ttl }
}

/// The entry for a name that is known not to exist: node 0, which the kernel caches as a negative
/// entry.
fn missing(ttl: Duration) -> EntryReply {
    EntryReply { node: 0, attr: Attr::default(), entry_ttl: ttl, attr_ttl: ttl }
}

fn attr(stat: &Stat) -> Attr {
    let of = &stat.attributes;
    Attr {
        ino: of.ino,
        size: stat.size,
        blocks: stat.occupied.div_ceil(512),
        atime: of.atime,
        mtime: stat.mtime,
        ctime: of.ctime,
        btime: of.btime,
        mode: mode_of_kind(of.kind) | u32::from(of.mode),
        links: of.links,
        uid: of.uid,
        gid: of.gid,
        rdev: of.rdev,
    }
}

fn pages(opened: Opened) -> Pages {
    match opened {
        Opened { handle, .. } if !handle.is_paged() => Pages::Past,
        Opened { keep_pages: true, .. } => Pages::Keep,
        Opened { keep_pages: false, .. } => Pages::Drop,
    }
}

/// A new file of `kind`, with the permission bits of the kernel's `mode`.
fn spec(kind: FileKind, mode: u32, umask: u32) -> FileSpec {
    FileSpec::new(kind, (mode & 0o7777) as u16, (umask & 0o777) as u16)
}

fn totals(&FreeSpace { total, free, files }: &FreeSpace) -> Totals {
    let block = u64::from(STATFS_BLOCK_BYTES);
    // Only space limits the number of files.
    let files_free = free / block;
    Totals {
        block_bytes: STATFS_BLOCK_BYTES,
        blocks: total / block,
        blocks_free: free / block,
        files: files.saturating_add(files_free),
        files_free,
        name_bytes_max: lease::LABEL_BYTES_MAX as u32,
    }
}

fn mode_of_kind(kind: FileKind) -> u32 {
    match kind {
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Regular => libc::S_IFREG,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    }
}

/// The kind of file that mknod makes by its mode.
fn kind_of_mode(mode: u32) -> Option<FileKind> {
    Some(match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => FileKind::Regular,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFBLK => FileKind::BlockDevice,
        _ => return None,
    })
}

/// A page of a listing, and the reply that waits for it.
struct ListingPage {
    lines: Lines,
    plus: bool,
    reply: KernelReply,
}

impl Page for ListingPage {
    fn plus(&self) -> bool {
        self.plus
    }

    fn push(&mut self, line: &ListingLine<'_>) -> bool {
        let entry = self.plus.then(|| match &line.shown {
            Some(shown) => entry(shown),
            None => missing(Duration::ZERO),
        });
        self.lines.push(entry.as_ref(), line.ino, line.cookie, mode_of_kind(line.kind), line.name)
    }

    fn finish(self, outcome: Outcome<()>) {
        match outcome {
            Ok(()) => self.reply.lines(&self.lines),
            Err(errno) => self.reply.error(errno),
        }
    }
}
