//! What the kernel knows: node ids, the files they stand for, and which entries of directories it was given.

use ident::FileId;
use lease::Label;
use namespace::{FileKind, Stat};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};

use crate::errno::Errno;

/// The root's node id, by protocol.
pub(crate) const ROOT: u64 = 1;

/// Enough that two threads seldom meet in one.
const SHARDS: usize = 16;

/// Beyond this many, a directory's given labels are no longer told apart: 64 Ki × about 5 bytes.
const GIVEN_MAX: usize = 1 << 16;

/// The nodes of one mount.
///
/// A node's id is the file's inode number, the root's excepted: fuser puts the inode number of an entry's attributes into the reply's node id and takes
/// no other. That is sound because inode numbers are unique in the cluster and never reused (so generations are all 0); the table is there
/// nevertheless, since only it says which file a node is, and how often the kernel was given it.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: [RwLock<FxHashMap<u64, Node>>; SHARDS],
    /// The way back, for invalidations. Locked after `nodes` where both are.
    ids: [RwLock<FxHashMap<FileId, u64>>; SHARDS],
}

#[derive(Debug)]
struct Node {
    file: FileId,
    /// How many of our answers named it; the kernel's forgets count down.
    lookups: u64,
    /// It may have set-id bits, which a write by an unprivileged user clears.
    setid: bool,
    given: Given,
}

/// Labels of a directory whose entries, positive or negative, the kernel may hold. Kept until the directory is forgotten, since the kernel does not say when it
/// drops one; hashes do, because a label too many costs only a notification.
#[derive(Debug)]
enum Given {
    None,
    Some(Box<FxHashSet<u32>>),
    All,
}

impl Nodes {
    /// With the root, which the kernel never forgets.
    pub(crate) fn new() -> Nodes {
        let nodes = Nodes {
            nodes: std::array::from_fn(|_| RwLock::default()),
            ids: std::array::from_fn(|_| RwLock::default()),
        };
        let root = Node { file: FileId::root(), lookups: u64::MAX / 2, setid: false, given: Given::None };
        nodes.shard(ROOT).write().insert(ROOT, root);
        nodes.back(&FileId::root()).write().insert(FileId::root(), ROOT);
        nodes
    }

    /// The file that `node` stands for.
    pub(crate) fn file(&self, node: u64) -> Result<FileId, Errno> {
        self.shard(node).read().get(&node).map(|n| n.file.clone()).ok_or(Errno::STALE)
    }

    /// The node of `file`, if the kernel has one.
    pub(crate) fn node(&self, file: &FileId) -> Option<u64> {
        self.back(file).read().get(file).copied()
    }

    /// The kernel is about to be given `file` once more. Before the answer is sent, lest its forget comes first.
    pub(crate) fn give(&self, file: &FileId, stat: &Stat) -> Result<u64, Errno> {
        let node = stat.attributes.ino;
        if *file == FileId::root() {
            return Ok(ROOT);
        }
        if node <= ROOT {
            tracing::error!(%file, node, "an inode number that only the root may have");
            return Err(Errno::IO);
        }
        let mut shard = self.shard(node).write();
        if let Some(known) = shard.get_mut(&node) {
            if known.file != *file {
                tracing::error!(%file, other = %known.file, node, "two files have one inode number");
                return Err(Errno::IO);
            }
            known.lookups += 1;
            known.setid = may_have_setid(stat);
        } else {
            shard.insert(
                node,
                Node { file: file.clone(), lookups: 1, setid: may_have_setid(stat), given: Given::None },
            );
            self.back(file).write().insert(file.clone(), node);
        }
        Ok(node)
    }

    /// The kernel has dropped `lookups` of what it was given.
    pub(crate) fn forget(&self, node: u64, lookups: u64) {
        let mut shard = self.shard(node).write();
        let Some(known) = shard.get_mut(&node) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0
            && node != ROOT
            && let Some(gone) = shard.remove(&node)
        {
            self.back(&gone.file).write().remove(&gone.file);
        }
    }

    /// `stat` of `node` was seen: remembers whether it may have set-id bits.
    pub(crate) fn see(&self, node: u64, stat: &Stat) {
        let setid = may_have_setid(stat);
        let differs = self.shard(node).read().get(&node).is_some_and(|n| n.setid != setid);
        if differs {
            self.set_setid(node, setid);
        }
    }

    /// What was seen of `node` is no longer certain.
    pub(crate) fn doubt(&self, node: u64) {
        self.set_setid(node, true);
    }

    /// Whether `node` may have set-id bits.
    pub(crate) fn may_have_setid(&self, node: u64) -> bool {
        self.shard(node).read().get(&node).is_some_and(|n| n.setid)
    }

    /// The kernel is about to be told what `label` in directory `dir` is, or that it is nothing.
    pub(crate) fn give_entry(&self, dir: u64, label: &Label) {
        let mut shard = self.shard(dir).write();
        let Some(known) = shard.get_mut(&dir) else { return };
        match &mut known.given {
            Given::All => {}
            Given::Some(hashes) if hashes.len() < GIVEN_MAX => {
                hashes.insert(hash_of(label));
            }
            Given::Some(_) => known.given = Given::All,
            Given::None => known.given = Given::Some(Box::new([hash_of(label)].into_iter().collect())),
        }
    }

    /// Whether the kernel may hold an entry for `label` in `dir`.
    pub(crate) fn entry_given(&self, dir: u64, label: &Label) -> bool {
        match self.shard(dir).read().get(&dir).map(|n| &n.given) {
            None | Some(Given::None) => false,
            Some(Given::Some(hashes)) => hashes.contains(&hash_of(label)),
            Some(Given::All) => true,
        }
    }

    /// Every node, to invalidate all.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.nodes.iter().flat_map(|shard| shard.read().keys().copied().collect::<Vec<_>>()).collect()
    }

    fn set_setid(&self, node: u64, setid: bool) {
        if let Some(known) = self.shard(node).write().get_mut(&node) {
            known.setid = setid;
        }
    }

    fn shard(&self, node: u64) -> &RwLock<FxHashMap<u64, Node>> {
        &self.nodes[node as usize % SHARDS]
    }

    fn back(&self, file: &FileId) -> &RwLock<FxHashMap<FileId, u64>> {
        // The map inside uses the hash's high bits and its low ones; these are from the middle.
        &self.ids[(hash(file) >> 32) as usize % SHARDS]
    }
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
    use namespace::{Attributes, Timestamp};

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
        let (nodes, file) = (Nodes::new(), FileId::root().child(9));
        for _ in 0..3 {
            assert_eq!(nodes.give(&file, &stat(5, 0)), Ok(5));
        }
        nodes.forget(5, 2);
        assert_eq!((nodes.file(5), nodes.node(&file)), (Ok(file.clone()), Some(5)));
        nodes.forget(5, 1);
        assert_eq!((nodes.file(5), nodes.node(&file)), (Err(Errno::STALE), None));
        nodes.forget(ROOT, u64::MAX);
        assert_eq!(nodes.file(ROOT), Ok(FileId::root()));
    }

    #[test]
    fn a_node_is_one_file_only() {
        let nodes = Nodes::new();
        assert_eq!(nodes.give(&FileId::root().child(9), &stat(5, 0)), Ok(5));
        assert_eq!(nodes.give(&FileId::root().child(8), &stat(5, 0)), Err(Errno::IO));
        assert_eq!(nodes.give(&FileId::root().child(7), &stat(ROOT, 0)), Err(Errno::IO));
        assert_eq!(nodes.give(&FileId::root(), &stat(77, 0)), Ok(ROOT));
    }

    #[test]
    fn given_entries_are_remembered_up_to_a_bound() {
        let nodes = Nodes::new();
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
    fn set_id_bits_are_doubted_after_an_invalidation() {
        let (nodes, file) = (Nodes::new(), FileId::root().child(9));
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
