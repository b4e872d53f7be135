//! The places at which the kernel has directories, and their node numbers.
//!
//! Trap: Linux has a directory at one place only. When it looks up the new name of a directory that
//! another machine has moved, it finds its old entry and moves that (`d_splice_alias`). A move from
//! one directory to another takes locks which it only tries. It fails with `ESTALE` if any thread
//! is renaming. It always fails if the asker renames, since that thread holds one of these locks.
//!
//! Linux does not try to move a directory that it does not know to be the same. So where it could
//! not move its entry, the directory gets a further node, of the same file. The old node stays good
//! for programs that are in there or have it open. Where the kernel can move its entry it does,
//! since shells and mounts go along with that.

use ident::FileId;
use lease::Label;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::hash::hash;
use crate::syscall::SystemCall;

/// Numbers of further nodes begin here. No inode number is as large.
pub(crate) const FIRST_FURTHER: u64 = 1 << 63;

/// Directories above one another that are searched for a loop, at most.
const DEPTH_MAX: usize = 4096;

/// An entry: the node of its directory, and a hash of the label. If two entries are mistaken for
/// one, a further node is the worst result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryPlace {
    dir: u64,
    label: u64,
}

impl EntryPlace {
    pub(crate) fn new(dir: u64, label: &Label) -> EntryPlace {
        EntryPlace { dir, label: hash(label.as_bytes()) }
    }
}

/// The places of one mount's directories.
#[derive(Debug, Default)]
pub(crate) struct Places(pub(crate) RwLock<PlaceTable>);

#[derive(Debug, Default)]
pub(crate) struct PlaceTable {
    /// The node that the kernel was last given at a place.
    at: FxHashMap<EntryPlace, u64>,
    /// The place of each node, as far as it is known.
    of: FxHashMap<u64, At>,
    /// Nodes other than the one with a directory's own number.
    further: FxHashMap<FileId, SmallVec<[u64; 2]>>,
    /// The number of further nodes made so far.
    made: u64,
}

#[derive(Clone, Copy, Debug)]
struct At {
    place: EntryPlace,
    move_to: MoveTo,
}

/// Whether the kernel has moved its entry to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveTo {
    /// It has, or need not: it was given the directory there once more, or for the first time.
    Sure,
    /// It had to when it answered this system call. Trap: if it could not, it walks the path again
    /// within the same call, and shows the program an error if it cannot a second time.
    Tried(Option<ThreadCall>),
}

/// A thread, and the system call in which it waits.
pub(crate) type ThreadCall = (u32, SystemCall);

impl At {
    fn is_sure(&self) -> bool {
        self.move_to == MoveTo::Sure
    }
}

impl Places {
    /// The further nodes of `file`.
    pub(crate) fn further(&self, file: &FileId) -> SmallVec<[u64; 2]> {
        let table = self.0.read();
        // Nearly always there is none.
        if table.further.is_empty() {
            SmallVec::new()
        } else {
            table.further.get(file).cloned().unwrap_or_default()
        }
    }
}

impl PlaceTable {
    /// Whether the kernel has `node` at `place` for certain.
    pub(crate) fn is_settled(&self, place: EntryPlace, node: u64) -> bool {
        self.at.get(&place) == Some(&node) && self.of.get(&node).is_some_and(At::is_sure)
    }

    /// The node as which `file` is given at `place`: see [`crate::nodes::Nodes::give_at`]. `first`
    /// is the node with its own number, `ino`, if the kernel has that. `asks` tells the asking
    /// thread and its system call.
    pub(crate) fn choose(
        &mut self,
        place: EntryPlace,
        file: &FileId,
        (first, ino): (Option<u64>, u64),
        anew: bool,
        can_splice: impl Fn(u64) -> bool,
        asks: impl Fn() -> Option<ThreadCall>,
    ) -> Option<u64> {
        let further = self.further.get(file).into_iter().flatten().copied();
        let nodes: SmallVec<[u64; 3]> = first.into_iter().chain(further).collect();
        if nodes.is_empty() {
            return Some(self.put(ino, place, MoveTo::Sure));
        }
        let here = self.at.get(&place).copied().filter(|node| nodes.contains(node));
        if let Some((node, at)) = here.and_then(|node| Some((node, self.of.get(&node)?))) {
            let has_failed = |by: Option<ThreadCall>| anew && by.is_some() && by == asks();
            let is_there = match at.move_to {
                MoveTo::Sure => true,
                MoveTo::Tried(by) => can_splice(place.dir) && !has_failed(by),
            };
            if is_there {
                return Some(self.put(node, place, MoveTo::Sure));
            }
        }
        // Within one directory the kernel can always move it.
        let stays =
            |node: &&u64| self.of.get(node).is_some_and(|at| at.place.dir == place.dir && at.is_sure());
        if let Some(node) = nodes.iter().find(stays).copied() {
            return Some(self.put(node, place, MoveTo::Sure));
        }
        // A node that the kernel has by a file handle alone has no place. It is put where it is
        // found.
        if let Some(node) = nodes.iter().find(|node| !self.of.contains_key(node)).copied() {
            return Some(self.put(node, place, MoveTo::Sure));
        }
        let can_move = |node: &&u64| {
            let at = self.of.get(node).filter(|at| at.is_sure());
            at.is_some_and(|at| !self.is_above(**node, place.dir) && can_splice(at.place.dir))
        };
        if let Some(node) = nodes.iter().find(can_move).copied() {
            return Some(self.put(node, place, MoveTo::Tried(asks())));
        }
        anew.then(|| {
            let node = FIRST_FURTHER + self.made;
            self.made += 1;
            self.further.entry(file.clone()).or_default().push(node);
            self.put(node, place, MoveTo::Sure)
        })
    }

    fn put(&mut self, node: u64, place: EntryPlace, move_to: MoveTo) -> u64 {
        if let Some(before) = self.of.insert(node, At { place, move_to })
            && before.place != place
            && self.at.get(&before.place) == Some(&node)
        {
            self.at.remove(&before.place);
        }
        self.at.insert(place, node);
        node
    }

    /// Whether the kernel has `node` above `dir`, or `node` is `dir`. The kernel makes no move that
    /// would close a loop.
    fn is_above(&self, node: u64, mut dir: u64) -> bool {
        for _ in 0..DEPTH_MAX {
            if dir == node {
                return true;
            }
            let Some(at) = self.of.get(&dir) else { return false };
            dir = at.place.dir;
        }
        true
    }

    /// Notes that the kernel has moved its own entries.
    pub(crate) fn moved(&mut self, from: EntryPlace, to: EntryPlace, exchange: bool) {
        let (moved, other) = (self.at.remove(&from), self.at.remove(&to));
        moved.into_iter().for_each(|node| _ = self.put(node, to, MoveTo::Sure));
        if exchange {
            other.into_iter().for_each(|node| _ = self.put(node, from, MoveTo::Sure));
        }
    }

    /// Notes that the kernel has forgotten `node`, which was `file`.
    pub(crate) fn forget(&mut self, node: u64, file: &FileId) {
        if let Some(at) = self.of.remove(&node)
            && self.at.get(&at.place) == Some(&node)
        {
            self.at.remove(&at.place);
        }
        if let Some(further) = self.further.get_mut(file) {
            further.retain(|other| *other != node);
            if further.is_empty() {
                self.further.remove(file);
            }
        }
    }
}
