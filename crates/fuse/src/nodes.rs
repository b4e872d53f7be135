//! What the kernel knows: node ids, the files they stand for, and which entries of directories it was given.

use ident::FileId;
use lease::Label;
use namespace::{Attributes, FileKind, Stat};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::errno::Errno;

/// The root's node id, by protocol.
pub(crate) const ROOT: u64 = 1;

/// Enough that two threads seldom meet in one.
const SHARDS: usize = 16;

/// Nodes with neighbouring ids stand together: files that were made together are listed together, and each miss of the processor's
/// cache costs as much as all else that is done for an entry.
const CHUNK: u64 = 8;

/// For so long after an entry was taken back, or its times were told by a report, a directory counts as one that others work in.
const LATELY: Duration = Duration::from_secs(10);
/// Such directories that are remembered.
const LATELY_MAX: usize = 4096;

/// Beyond this many, a directory's given labels are no longer told apart: 64 Ki × about 5 bytes.
const GIVEN_MAX: usize = 1 << 16;

/// The nodes of one mount.
///
/// A node's id is the file's inode number, the root's excepted: inode numbers are unique in the cluster and never reused, so generations are all
/// 0. The table says which file a node is, and how often the kernel was given it.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// Of what is mounted.
    root: FileId,
    chunks: [RwLock<FxHashMap<u64, Chunk>>; SHARDS],
    /// The way back, for invalidations. Locked after `chunks` where both are.
    ids: [RwLock<FxHashMap<FileId, u64>>; SHARDS],
    /// Directories of which an entry was taken back lately.
    contended: Lately<()>,
    /// What was told by a report lately, and not leased.
    passing: Lately<Passing>,
    /// How often something was taken back of a file that is no node.
    missed: AtomicU64,
}

/// What of a node passes to and fro between machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// A directory's times.
    Times,
    /// A file's size; that which the kernel has.
    Size(u64),
}

/// Nodes to which something happened, until when that counts, and what is remembered of it.
#[derive(Debug)]
struct Lately<T>(RwLock<FxHashMap<u64, (Instant, T)>>);

impl<T> Default for Lately<T> {
    fn default() -> Lately<T> {
        Lately(RwLock::default())
    }
}

impl<T: Copy> Lately<T> {
    fn note(&self, node: u64, what: T) {
        let now = Instant::now();
        let mut nodes = self.0.write();
        if nodes.len() >= LATELY_MAX {
            nodes.retain(|_, (until, _)| *until > now);
        }
        if nodes.len() < LATELY_MAX {
            nodes.insert(node, (now + LATELY, what));
        }
    }

    fn get(&self, node: u64) -> Option<T> {
        let nodes = self.0.read();
        // Nearly always there is none, and the clock is not asked.
        let (until, what) = nodes.get(&node)?;
        (*until > Instant::now()).then_some(*what)
    }

    fn forget(&self, node: u64) {
        self.0.write().remove(&node);
    }
}

type Chunk = [Option<Node>; CHUNK as usize];

#[derive(Debug)]
struct Node {
    file: FileId,
    /// Of a directory.
    directory: Option<Box<Directory>>,
    /// How many of our answers named it; the kernel's forgets count down. At the most that it can hold it stays, and so does the node.
    lookups: u32,
    /// It may have set-id bits, which a write by an unprivileged user clears.
    setid: bool,
}

const _: () = assert!(size_of::<Option<Node>>() == 32, "two to a cache line");

/// What is remembered of a directory.
#[derive(Debug, Default)]
struct Directory {
    given: Given,
    /// As the kernel was given it: all that there is to show of it once another machine has removed it, while somebody here is still in it.
    was: Option<Attributes>,
}

/// Labels of a directory whose entries, positive or negative, the kernel may hold. Kept until the directory is forgotten, since the
/// kernel does not say when it drops one. Hashes do, and after a listing nothing at all, because a label too many costs only a
/// notification.
#[derive(Debug)]
enum Given {
    Some(FxHashSet<u32>),
    All,
}

impl Default for Given {
    fn default() -> Given {
        Given::Some(FxHashSet::default())
    }
}

impl Nodes {
    /// With the root of what is mounted, which the kernel never forgets.
    pub(crate) fn new(root: FileId) -> Nodes {
        let nodes = Nodes {
            root: root.clone(),
            contended: Lately::default(),
            passing: Lately::default(),
            missed: AtomicU64::default(),
            chunks: std::array::from_fn(|_| RwLock::default()),
            ids: std::array::from_fn(|_| RwLock::default()),
        };
        let node = Node { file: root.clone(), directory: None, lookups: u32::MAX, setid: false };
        nodes.shard(ROOT).write().entry(ROOT / CHUNK).or_default()[slot(ROOT)] = Some(node);
        nodes.back(&root).write().insert(root, ROOT);
        nodes
    }

    /// The file that `node` stands for.
    pub(crate) fn file(&self, node: u64) -> Result<FileId, Errno> {
        self.look(node, |n| n.file.clone()).ok_or(Errno::STALE)
    }

    /// The node of `file`, if the kernel has one.
    pub(crate) fn node(&self, file: &FileId) -> Option<u64> {
        self.back(file).read().get(file).copied()
    }

    /// The kernel is about to be given `file` once more. Before the answer is sent, lest its forget comes first.
    pub(crate) fn give(&self, file: &FileId, stat: &Stat) -> Result<u64, Errno> {
        let node = stat.attributes.ino;
        // Whatever number the directory has of its own, that is the kernel's for a root.
        if *file == self.root {
            return Ok(ROOT);
        }
        if node <= ROOT {
            tracing::error!(%file, node, "an inode number that only the root may have");
            return Err(Errno::IO);
        }
        let setid = may_have_setid(stat);
        let is_directory = stat.attributes.kind == FileKind::Directory;
        let mut shard = self.shard(node).write();
        match &mut shard.entry(node / CHUNK).or_default()[slot(node)] {
            Some(known) if known.file != *file => {
                tracing::error!(%file, other = %known.file, node, "two files have one inode number");
                return Err(Errno::IO);
            }
            Some(known) => {
                known.lookups = known.lookups.saturating_add(1);
                known.setid = setid;
                if is_directory {
                    known.directory.get_or_insert_default().was = Some(stat.attributes);
                }
            }
            empty => {
                let directory = is_directory
                    .then(|| Box::new(Directory { was: Some(stat.attributes), ..Directory::default() }));
                *empty = Some(Node { file: file.clone(), directory, lookups: 1, setid });
                self.back(file).write().insert(file.clone(), node);
            }
        }
        Ok(node)
    }

    /// Something is taken back of a file that is no node yet; an answer that makes it one may be on its way.
    pub(crate) fn miss(&self) {
        self.missed.fetch_add(1, SeqCst);
    }

    /// How often that was: whoever finds, when it has given a file, that it was again since it asked, may have given what was taken back. Trap: who takes something back looks for the node after that, and so finds it if it was
    /// given before.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(SeqCst)
    }

    /// The kernel has dropped `lookups` of what it was given.
    pub(crate) fn forget(&self, node: u64, lookups: u64) {
        let mut shard = self.shard(node).write();
        let Some(chunk) = shard.get_mut(&(node / CHUNK)) else { return };
        let place = &mut chunk[slot(node)];
        let Some(known) = place.as_mut().filter(|known| known.lookups != u32::MAX) else { return };
        known.lookups = known.lookups.saturating_sub(u32::try_from(lookups).unwrap_or(u32::MAX));
        if known.lookups == 0
            && let Some(gone) = place.take()
        {
            self.back(&gone.file).write().remove(&gone.file);
            if chunk.iter().all(Option::is_none) {
                shard.remove(&(node / CHUNK));
            }
        }
    }

    /// `stat` of `node` was seen: remembers whether it may have set-id bits.
    pub(crate) fn see(&self, node: u64, stat: &Stat) {
        let setid = may_have_setid(stat);
        if self.look(node, |n| n.setid) == Some(!setid) {
            self.change(node, |n| n.setid = setid);
        }
    }

    /// What was seen of `node` is no longer certain.
    pub(crate) fn doubt(&self, node: u64) {
        self.change(node, |n| n.setid = true);
    }

    /// Whether `node` may have set-id bits.
    pub(crate) fn may_have_setid(&self, node: u64) -> bool {
        self.look(node, |n| n.setid).unwrap_or(false)
    }

    /// The kernel is about to be told what `label` in directory `dir` is, or that it is nothing.
    pub(crate) fn give_entry(&self, dir: u64, label: &Label) {
        self.change(dir, |n| match &mut n.directory.get_or_insert_default().given {
            Given::All => {}
            Given::Some(hashes) if hashes.len() < GIVEN_MAX => {
                hashes.insert(hash_of(label));
            }
            full => *full = Given::All,
        });
    }

    /// An entry of `dir` is taken back: others work there too.
    pub(crate) fn contend(&self, dir: u64) {
        self.contended.note(dir, ());
    }

    /// The kernel is told what a report has told of `node`.
    pub(crate) fn pass(&self, node: u64, stat: &Stat) {
        match stat.attributes.kind {
            FileKind::Directory => self.passing.note(node, Passing::Times),
            // Trap: what is mapped ends where the kernel believes that the file does. Content passes that is a page at most, so with any size but this all of it is there.
            _ if stat.size == 0 => {}
            _ => self.passing.note(node, Passing::Size(stat.size)),
        }
    }

    /// The kernel may come to have another size of `node`.
    pub(crate) fn resize(&self, node: u64) {
        if let Some(Passing::Size(_)) = self.passing.get(node) {
            self.passing.forget(node);
        }
    }

    /// What of `node` passes to and fro between machines: who does not look at it need not be told.
    pub(crate) fn passing(&self, node: u64) -> Option<Passing> {
        self.passing.get(node)
    }

    /// Whether others work in `dir`. Trap: taking an entry back needs the directory's lock, which whoever waits for a lease in there holds. So the kernel is
    /// given entries of such a directory for no time at all: it asks again before it uses one, and there is nothing to be taken back.
    pub(crate) fn is_contended(&self, dir: u64) -> bool {
        self.contended.get(dir).is_some()
    }

    /// The kernel is about to be told of many entries of `dir`, as a listing does.
    pub(crate) fn give_every_entry(&self, dir: u64) {
        self.change(dir, |n| n.directory.get_or_insert_default().given = Given::All);
    }

    /// Whether the kernel may hold an entry for `label` in `dir`.
    pub(crate) fn entry_given(&self, dir: u64, label: &Label) -> bool {
        let given = |n: &Node| match n.directory.as_ref().map(|directory| &directory.given) {
            None => false,
            Some(Given::Some(hashes)) => hashes.contains(&hash_of(label)),
            Some(Given::All) => true,
        };
        self.look(dir, given).unwrap_or(false)
    }

    /// What stat shows of directory `node` after it was removed: as it was when the kernel was given it, with no link. Nothing for other files.
    pub(crate) fn removed_directory(&self, node: u64) -> Option<Stat> {
        let was = self.look(node, |n| n.directory.as_ref().and_then(|directory| directory.was))??;
        Some(Stat { attributes: Attributes { links: 0, ..was }, size: 0, occupied: 0, mtime: was.ctime })
    }

    /// Every node, to invalidate all.
    pub(crate) fn all(&self) -> Vec<u64> {
        let ids = |(first, chunk): (&u64, &Chunk)| {
            let first = first * CHUNK;
            (first..first + CHUNK).filter(|node| chunk[slot(*node)].is_some()).collect::<Vec<_>>()
        };
        self.chunks.iter().flat_map(|shard| shard.read().iter().flat_map(ids).collect::<Vec<_>>()).collect()
    }

    fn look<T>(&self, node: u64, look: impl FnOnce(&Node) -> T) -> Option<T> {
        self.shard(node).read().get(&(node / CHUNK))?[slot(node)].as_ref().map(look)
    }

    fn change(&self, node: u64, change: impl FnOnce(&mut Node)) {
        let mut shard = self.shard(node).write();
        if let Some(known) = shard.get_mut(&(node / CHUNK)).and_then(|chunk| chunk[slot(node)].as_mut()) {
            change(known);
        }
    }

    fn shard(&self, node: u64) -> &RwLock<FxHashMap<u64, Chunk>> {
        &self.chunks[(node / CHUNK) as usize % SHARDS]
    }

    fn back(&self, file: &FileId) -> &RwLock<FxHashMap<FileId, u64>> {
        // The map inside uses the hash's high bits and its low ones; these are from the middle.
        &self.ids[(hash(file) >> 32) as usize % SHARDS]
    }
}

fn slot(node: u64) -> usize {
    (node % CHUNK) as usize
}

fn may_have_setid(stat: &Stat) -> bool {
    let mode = u32::from(stat.attributes.mode);
    stat.attributes.kind == FileKind::Regular && mode & (libc::S_ISUID | libc::S_ISGID) != 0
}

fn hash_of(label: &Label) -> u32 {
    (hash(label.as_bytes()) >> 16) as u32
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use namespace::Timestamp;

    fn stat(ino: u64, mode: u16) -> Stat {
        let now = Timestamp::default();
        let kind = FileKind::Regular;
        let attributes = Attributes {
            kind,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            ino,
            rdev: 0,
            ctime: now,
            btime: now,
            atime: now,
        };
        Stat { attributes, size: 0, occupied: 0, mtime: now }
    }

    #[test]
    fn a_node_lives_until_all_its_lookups_are_forgotten() {
        let (nodes, file) = (Nodes::new(FileId::root()), FileId::root().child(9));
        for _ in 0..3 {
            assert_eq!(nodes.give(&file, &stat(5, 0)), Ok(5));
        }
        nodes.forget(5, 2);
        assert_eq!((nodes.file(5), nodes.node(&file)), (Ok(file.clone()), Some(5)));
        nodes.forget(5, 1);
        assert_eq!((nodes.file(5), nodes.node(&file)), (Err(Errno::STALE), None));
        nodes.forget(ROOT, u64::MAX);
        assert_eq!(nodes.file(ROOT), Ok(FileId::root()));
        assert_eq!(nodes.all(), [ROOT]);
    }

    #[test]
    fn a_node_is_one_file_only() {
        let nodes = Nodes::new(FileId::root());
        assert_eq!(nodes.give(&FileId::root().child(9), &stat(5, 0)), Ok(5));
        assert_eq!(nodes.give(&FileId::root().child(8), &stat(5, 0)), Err(Errno::IO));
        assert_eq!(nodes.give(&FileId::root().child(7), &stat(ROOT, 0)), Err(Errno::IO));
        assert_eq!(nodes.give(&FileId::root(), &stat(77, 0)), Ok(ROOT));
    }

    #[test]
    fn given_entries_are_remembered_up_to_a_bound() {
        let nodes = Nodes::new(FileId::root());
        let label = |n: usize| Label::new(format!("label {n}").as_bytes()).unwrap();
        assert!(!nodes.entry_given(ROOT, &label(0)));
        nodes.give_entry(ROOT, &label(0));
        assert!(nodes.entry_given(ROOT, &label(0)) && !nodes.entry_given(ROOT, &label(1)));
        for n in 0..=GIVEN_MAX + 100 {
            nodes.give_entry(ROOT, &label(n));
        }
        assert!(nodes.entry_given(ROOT, &label(usize::MAX)), "too many to tell apart");
    }

    #[test]
    fn a_directory_that_was_removed_has_no_link_and_its_kind() {
        let nodes = Nodes::new(FileId::root());
        let mut dir = stat(5, 0o750);
        dir.attributes.kind = FileKind::Directory;
        nodes.give(&FileId::root().child(9), &dir).unwrap();
        nodes.give(&FileId::root().child(8), &stat(6, 0o644)).unwrap();
        let left = nodes.removed_directory(5).unwrap().attributes;
        assert_eq!((left.kind, left.mode, left.ino, left.links), (FileKind::Directory, 0o750, 5, 0));
        assert_eq!((nodes.removed_directory(6), nodes.removed_directory(7)), (None, None));
    }

    #[test]
    fn what_was_taken_back_is_contended_for_a_while_and_within_bounds() {
        let nodes = Nodes::new(FileId::root());
        assert!(!nodes.is_contended(7));
        (0..2 * LATELY_MAX as u64).for_each(|dir| nodes.contend(dir));
        assert!(nodes.is_contended(7));
        assert_eq!(nodes.contended.0.read().len(), LATELY_MAX);
    }

    #[test]
    fn set_id_bits_are_doubted_after_an_invalidation() {
        let (nodes, file) = (Nodes::new(FileId::root()), FileId::root().child(9));
        nodes.give(&file, &stat(5, 0o755)).unwrap();
        assert!(!nodes.may_have_setid(5));
        nodes.doubt(5);
        assert!(nodes.may_have_setid(5));
        nodes.see(5, &stat(5, 0o755));
        assert!(!nodes.may_have_setid(5));
        nodes.see(5, &stat(5, 0o4755));
        assert!(nodes.may_have_setid(5));
    }
}
