//! The floor: a file system in memory that does as little as it can, on the same mount flags, caches and threads as ours. What it costs is what FUSE costs.
//!
//! It keeps names, attributes and content and gives them back; it checks nothing that the kernel checks, and loses everything.

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// As long as ours while its session lasts, which is long enough for a measurement.
const TTL: Duration = Duration::from_secs(3600);
const GENERATION: Generation = Generation(0);
const ROOT: usize = 1;

/// Mounts it on `dir`, calls `ready`, and serves until it is unmounted or this process is told to end.
pub fn run(dir: &Path, ready: impl FnOnce()) -> io::Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    let started = |unmount: fuse::bare::Unmount| {
        std::thread::spawn(move || signals.forever().next().map(|_| unmount.now()));
        ready();
    };
    fuse::bare::serve(Floor::new(), dir, &fuse::Options::default(), started).map_err(io::Error::other)
}

struct Floor(Mutex<Tree>);

struct Tree {
    /// By inode number, which is the node id too. Numbers are not reused.
    nodes: Vec<Node>,
}

struct Node {
    attr: FileAttr,
    lookups: u64,
    content: Vec<u8>,
    names: Names,
}

/// A directory's entries: where each is in the order, and the order. Removed ones leave a gap.
#[derive(Default)]
struct Names {
    places: FxHashMap<OsString, usize>,
    order: Vec<Option<(OsString, usize)>>,
}

impl Names {
    fn find(&self, name: &OsStr) -> Option<usize> {
        self.places.get(name).and_then(|place| self.order[*place].as_ref()).map(|entry| entry.1)
    }

    fn insert(&mut self, name: &OsStr, ino: usize) {
        self.places.insert(name.to_owned(), self.order.len());
        self.order.push(Some((name.to_owned(), ino)));
    }

    fn remove(&mut self, name: &OsStr) -> Option<usize> {
        let place = self.places.remove(name)?;
        self.order[place].take().map(|entry| entry.1)
    }
}

impl Floor {
    fn new() -> Floor {
        let mut tree = Tree { nodes: Vec::new() };
        // There is no node 0.
        for _ in 0..=ROOT {
            tree.add(FileType::Directory, 0o1777, (0, 0));
        }
        Floor(Mutex::new(tree))
    }

    fn make(&self, req: &Request, parent: INodeNo, name: &OsStr, kind: FileType, mode: u32) -> FileAttr {
        let mut tree = self.0.lock();
        let ino = tree.add(kind, (mode & 0o7777) as u16, (req.uid(), req.gid()));
        tree.node(parent).names.insert(name, ino);
        tree.nodes[ino].lookups = 1;
        tree.nodes[ino].attr
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut tree = self.0.lock();
        let removed = tree.node(parent).names.remove(name);
        if let Some(ino) = removed {
            tree.drop_link(ino);
        }
        drop(tree);
        match removed {
            Some(_) => reply.ok(),
            None => reply.error(fuser::Errno::ENOENT),
        }
    }
}

impl Tree {
    fn add(&mut self, kind: FileType, perm: u16, (uid, gid): (u32, u32)) -> usize {
        let (ino, now) = (self.nodes.len(), SystemTime::now());
        let attr = FileAttr {
            ino: INodeNo(ino as u64),
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 1 << 16,
            flags: 0,
        };
        self.nodes.push(Node { attr, lookups: 0, content: Vec::new(), names: Names::default() });
        ino
    }

    /// The kernel asks only for what it was given.
    fn node(&mut self, ino: INodeNo) -> &mut Node {
        &mut self.nodes[ino.0 as usize]
    }

    fn drop_link(&mut self, ino: usize) {
        self.nodes[ino].attr.nlink -= 1;
        self.let_go(ino);
    }

    fn let_go(&mut self, ino: usize) {
        let node = &mut self.nodes[ino];
        if node.attr.nlink == 0 && node.lookups == 0 {
            (node.content, node.names) = (Vec::new(), Names::default());
        }
    }
}

fn resize(node: &mut Node, size: usize) {
    node.content.resize(size, 0);
    node.attr.size = size as u64;
    node.attr.blocks = node.attr.size.div_ceil(512);
}

impl Filesystem for Floor {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        fuse::bare::negotiate(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut tree = self.0.lock();
        let found = tree.node(parent).names.find(name);
        // Node 0 is the negative entry.
        let node = &mut tree.nodes[found.unwrap_or(0)];
        node.lookups += 1;
        let attr = node.attr;
        drop(tree);
        reply.entry(&TTL, &attr, GENERATION);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        let mut tree = self.0.lock();
        let node = tree.node(ino);
        node.lookups = node.lookups.saturating_sub(nlookup);
        tree.let_go(ino.0 as usize);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let attr = self.0.lock().node(ino).attr;
        reply.attr(&TTL, &attr);
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let time = |time| match time {
            TimeOrNow::SpecificTime(at) => at,
            TimeOrNow::Now => SystemTime::now(),
        };
        let mut tree = self.0.lock();
        let node = tree.node(ino);
        let of = &mut node.attr;
        of.perm = mode.map_or(of.perm, |mode| (mode & 0o7777) as u16);
        of.uid = uid.unwrap_or(of.uid);
        of.gid = gid.unwrap_or(of.gid);
        of.atime = atime.map_or(of.atime, time);
        of.mtime = mtime.map_or(of.mtime, time);
        if let Some(size) = size {
            resize(node, size as usize);
        }
        let attr = node.attr;
        drop(tree);
        reply.attr(&TTL, &attr);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        reply.entry(&TTL, &self.make(req, parent, name, FileType::Directory, mode & !umask), GENERATION);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let attr = self.make(req, parent, name, FileType::RegularFile, mode & !umask);
        reply.created(&TTL, &attr, GENERATION, FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let mut attr = self.make(req, parent, link_name, FileType::Symlink, 0o777);
        let mut tree = self.0.lock();
        let node = tree.node(attr.ino);
        node.content = target.as_os_str().as_bytes().to_vec();
        node.attr.size = node.content.len() as u64;
        attr.size = node.attr.size;
        drop(tree);
        reply.entry(&TTL, &attr, GENERATION);
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        reply.data(&self.0.lock().node(ino).content);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(fuser::Errno::EINVAL);
        }
        let mut tree = self.0.lock();
        let Some(ino) = tree.node(parent).names.remove(name) else {
            return reply.error(fuser::Errno::ENOENT);
        };
        if let Some(replaced) = tree.node(newparent).names.remove(newname) {
            tree.drop_link(replaced);
        }
        tree.node(newparent).names.insert(newname, ino);
        drop(tree);
        reply.ok();
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.0 & libc::O_TRUNC != 0 {
            resize(self.0.lock().node(ino), 0);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut tree = self.0.lock();
        let content = &tree.node(ino).content;
        let from = content.len().min(offset as usize);
        let to = content.len().min(from + size as usize);
        reply.data(&content[from..to]);
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut tree = self.0.lock();
        let node = tree.node(ino);
        let from = offset as usize;
        let overwritten = node.content.len().saturating_sub(from).min(data.len());
        if from > node.content.len() {
            resize(node, from);
        }
        node.content[from..from + overwritten].copy_from_slice(&data[..overwritten]);
        node.content.extend_from_slice(&data[overwritten..]);
        node.attr.size = node.content.len() as u64;
        node.attr.blocks = node.attr.size.div_ceil(512);
        node.attr.mtime = SystemTime::now();
        drop(tree);
        reply.written(data.len() as u32);
    }

    /// As ours: so that the kernel stops asking.
    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let tree = self.0.lock();
        let from = offset as usize;
        let places = tree.nodes[ino.0 as usize].names.order.get(from..).unwrap_or_default();
        for (at, place) in places.iter().enumerate() {
            let Some((name, child)) = place else { continue };
            let attr = &tree.nodes[*child].attr;
            if reply.add(attr.ino, (from + at + 1) as u64, attr.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut tree = self.0.lock();
        let (from, dir) = (offset as usize, ino.0 as usize);
        let last = tree.nodes[dir].names.order.len();
        for at in from..last {
            let Some((_, child)) = tree.nodes[dir].names.order[at] else { continue };
            let attr = tree.nodes[child].attr;
            let Some((name, _)) = &tree.nodes[dir].names.order[at] else { continue };
            if reply.add(attr.ino, (at + 1) as u64, name, &TTL, &attr, GENERATION) {
                break;
            }
            tree.nodes[child].lookups += 1;
        }
        reply.ok();
    }

    /// The kernel asks for `security.capability` before it first writes to a file, of any file system that has attributes.
    fn getxattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(fuser::Errno::from_i32(libc::ENODATA));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let files = self.0.lock().nodes.len() as u64;
        reply.statfs(1 << 30, 1 << 29, 1 << 29, files + (1 << 29), 1 << 29, 4096, 255, 4096);
    }
}
