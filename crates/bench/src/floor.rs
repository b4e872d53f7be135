//! The floor: a file system in memory that does as little as it can. Mount flags, caches and
//! threads are the same as ours, so its cost is the cost of FUSE.
//!
//! The floor keeps names, attributes and content. It repeats no check that the kernel makes, and
//! loses everything at its end.

use fuse::bare::{
    Asker, Attr, Call, EntryReply, Errno, KernelReply, KernelRequest, Lines, Pages, Serve, SetAttr, Totals,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The same as ours during a session: long enough for a measurement.
const TTL: Duration = Duration::from_secs(3600);
const ROOT: u64 = 1;

/// Mounts the floor on `dir`, calls `ready`, and serves until the mount or this process ends.
pub fn run(dir: &Path, ready: impl FnOnce()) -> io::Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    let started = |unmount: fuse::bare::Unmount| {
        // A mount with open files stays. The next signal comes when they are closed.
        std::thread::spawn(move || signals.forever().find(|_| unmount.now().is_ok()));
        ready();
    };
    fuse::bare::serve(Floor::new(), dir, &fuse::Options::default(), started).map_err(io::Error::other)
}

struct Floor(Mutex<FloorTree>);

struct FloorTree {
    /// By inode number, which is also the node id. Numbers are not reused.
    nodes: Vec<Node>,
}

struct Node {
    attr: Attr,
    lookups: u64,
    content: Vec<u8>,
    names: FloorNames,
}

/// A directory's entries: their order, and each name's place in that order. Removed entries leave a
/// gap.
#[derive(Default)]
struct FloorNames {
    places: FxHashMap<Vec<u8>, usize>,
    order: Vec<Option<(Vec<u8>, u64)>>,
}

impl FloorNames {
    fn find(&self, name: &[u8]) -> Option<u64> {
        self.places.get(name).and_then(|place| self.order[*place].as_ref()).map(|entry| entry.1)
    }

    fn insert(&mut self, name: &[u8], ino: u64) {
        self.places.insert(name.to_owned(), self.order.len());
        self.order.push(Some((name.to_owned(), ino)));
    }

    fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let place = self.places.remove(name)?;
        self.order[place].take().map(|entry| entry.1)
    }
}

impl Floor {
    fn new() -> Floor {
        let mut tree = FloorTree { nodes: Vec::new() };
        // Node 0 is no file: the table begins with a place for it.
        for _ in 0..=ROOT {
            tree.add(libc::S_IFDIR | 0o1777, Asker::KERNEL);
        }
        Floor(Mutex::new(tree))
    }

    fn make(&self, asker: Asker, parent: u64, name: &[u8], mode: u32) -> Attr {
        let mut tree = self.0.lock();
        let ino = tree.add(mode, asker);
        tree.node(parent).names.insert(name, ino);
        let node = tree.node(ino);
        node.lookups = 1;
        node.attr
    }

    fn remove(&self, parent: u64, name: &[u8], reply: KernelReply) {
        let mut tree = self.0.lock();
        let removed = tree.node(parent).names.remove(name);
        if let Some(ino) = removed {
            tree.drop_link(ino);
        }
        drop(tree);
        match removed {
            Some(_) => reply.done(),
            None => reply.error(Errno(libc::ENOENT)),
        }
    }

    fn lookup(&self, parent: u64, name: &[u8], reply: KernelReply) {
        let mut tree = self.0.lock();
        // Node 0 is the negative entry.
        let found = tree.node(parent).names.find(name).unwrap_or(0);
        let node = tree.node(found);
        node.lookups += 1;
        let attr = node.attr;
        drop(tree);
        reply.entry(&entry(attr));
    }

    fn set(&self, ino: u64, change: &SetAttr, reply: KernelReply) {
        let mut tree = self.0.lock();
        let node = tree.node(ino);
        let of = &mut node.attr;
        of.mode = change.mode.map_or(of.mode, |mode| of.mode & libc::S_IFMT | mode & 0o7777);
        of.uid = change.uid.unwrap_or(of.uid);
        of.gid = change.gid.unwrap_or(of.gid);
        of.atime = change.atime.map_or(of.atime, |at| at.unwrap_or_else(now));
        of.mtime = change.mtime.map_or(of.mtime, |at| at.unwrap_or_else(now));
        if let Some(size) = change.size {
            resize(node, size as usize);
        }
        let attr = node.attr;
        drop(tree);
        reply.attr(&attr, TTL);
    }

    fn link(&self, asker: Asker, parent: u64, name: &[u8], target: &[u8], reply: KernelReply) {
        let mut attr = self.make(asker, parent, name, libc::S_IFLNK | 0o777);
        let mut tree = self.0.lock();
        let node = tree.node(attr.ino);
        node.content = target.to_vec();
        node.attr.size = node.content.len() as u64;
        attr.size = node.attr.size;
        drop(tree);
        reply.entry(&entry(attr));
    }

    fn rename(&self, (from, name): (u64, &[u8]), (to, to_name): (u64, &[u8]), reply: KernelReply) {
        let mut tree = self.0.lock();
        let Some(ino) = tree.node(from).names.remove(name) else {
            return reply.error(Errno(libc::ENOENT));
        };
        if let Some(replaced) = tree.node(to).names.remove(to_name) {
            tree.drop_link(replaced);
        }
        tree.node(to).names.insert(to_name, ino);
        drop(tree);
        reply.done();
    }

    fn read(&self, ino: u64, offset: u64, size: u32, reply: KernelReply) {
        let mut tree = self.0.lock();
        let content = &tree.node(ino).content;
        let from = content.len().min(offset as usize);
        let to = content.len().min(from + size as usize);
        reply.data(&content[from..to]);
    }

    fn write(&self, ino: u64, offset: u64, data: &[u8], reply: KernelReply) {
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
        node.attr.mtime = now();
        drop(tree);
        reply.written(data.len() as u32);
    }

    fn list(&self, dir: u64, offset: u64, size: u32, plus: bool, reply: KernelReply) {
        let mut tree = self.0.lock();
        let mut lines = Lines::new(size);
        let from = offset as usize;
        for at in from..tree.node(dir).names.order.len() {
            let Some((_, child)) = tree.node(dir).names.order[at] else { continue };
            let attr = tree.node(child).attr;
            let Some((name, _)) = &tree.node(dir).names.order[at] else { continue };
            let entry = plus.then(|| entry(attr));
            if !lines.push(entry.as_ref(), attr.ino, (at + 1) as u64, attr.mode, name) {
                break;
            }
            if plus {
                tree.node(child).lookups += 1;
            }
        }
        reply.lines(&lines);
    }
}

impl FloorTree {
    fn add(&mut self, mode: u32, Asker { uid, gid, .. }: Asker) -> u64 {
        let (ino, now) = (self.nodes.len() as u64, now());
        let attr =
            Attr { ino, atime: now, mtime: now, ctime: now, mode, links: 1, uid, gid, ..Attr::default() };
        self.nodes.push(Node { attr, lookups: 0, content: Vec::new(), names: FloorNames::default() });
        ino
    }

    /// The kernel asks only for nodes that it was given.
    fn node(&mut self, ino: u64) -> &mut Node {
        &mut self.nodes[ino as usize]
    }

    fn drop_link(&mut self, ino: u64) {
        self.node(ino).attr.links -= 1;
        self.forget_unused(ino);
    }

    fn forget_unused(&mut self, ino: u64) {
        let node = self.node(ino);
        if node.attr.links == 0 && node.lookups == 0 {
            (node.content, node.names) = (Vec::new(), FloorNames::default());
        }
    }
}

fn now() -> namespace::Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    namespace::Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

/// The kernel's entry for a node; node 0 gives a negative entry.
fn entry(attr: Attr) -> EntryReply {
    EntryReply { node: attr.ino, attr, entry_ttl: TTL, attr_ttl: TTL }
}

fn resize(node: &mut Node, size: usize) {
    node.content.resize(size, 0);
    node.attr.size = size as u64;
    node.attr.blocks = node.attr.size.div_ceil(512);
}

impl Serve for Floor {
    fn serve(&self, KernelRequest { asker, node, call }: KernelRequest, reply: KernelReply) {
        match call {
            Call::Lookup { name } => self.lookup(node, &name, reply),
            Call::Forget(forgotten) => {
                let mut tree = self.0.lock();
                for of in forgotten {
                    let node = tree.node(of.node);
                    node.lookups = node.lookups.saturating_sub(of.times);
                    tree.forget_unused(of.node);
                }
            }
            Call::GetAttr => {
                let attr = self.0.lock().node(node).attr;
                reply.attr(&attr, TTL);
            }
            Call::SetAttr(change) => self.set(node, &change, reply),
            Call::MkDir { name, mode, umask } => {
                reply.entry(&entry(self.make(asker, node, &name, libc::S_IFDIR | mode & !umask & 0o7777)));
            }
            Call::Create { name, mode, umask, .. } => {
                let attr = self.make(asker, node, &name, libc::S_IFREG | mode & !umask & 0o7777);
                reply.created(&entry(attr), 0, Pages::Keep);
            }
            Call::Symlink { name, target } => self.link(asker, node, &name, &target, reply),
            Call::ReadLink => reply.data(&self.0.lock().node(node).content),
            Call::Unlink { name } | Call::RmDir { name } => self.remove(node, &name, reply),
            Call::Rename { name, to, to_name, flags: 0 } => {
                self.rename((node, &name), (to, &to_name), reply);
            }
            Call::Open { flags } => {
                if flags & libc::O_TRUNC != 0 {
                    resize(self.0.lock().node(node), 0);
                }
                reply.opened(0, Pages::Keep);
            }
            Call::Read { offset, size, .. } => self.read(node, offset, size, reply),
            Call::Write { offset, data, .. } => self.write(node, offset, &data, reply),
            Call::OpenDir => reply.opened(0, Pages::Drop),
            Call::ReadDir { offset, size, plus, .. } => self.list(node, offset, size, plus, reply),
            Call::Fsync | Call::Release { .. } | Call::ReleaseDir { .. } => reply.done(),
            // Before the first write to a file the kernel asks for `security.capability`, of every
            // file system that has attributes.
            Call::GetXattr { .. } => reply.error(Errno(libc::ENODATA)),
            Call::StatFs => {
                let files = self.0.lock().nodes.len() as u64;
                reply.totals(&Totals {
                    block_bytes: 4096,
                    blocks: 1 << 30,
                    blocks_free: 1 << 29,
                    files: files + (1 << 29),
                    files_free: 1 << 29,
                    name_bytes_max: 255,
                });
            }
            // ENOSYS makes the kernel stop asking.
            _ => reply.error(Errno(libc::ENOSYS)),
        }
    }
}
