//! The kernel's knowledge: node ids, their files, and the directory entries that it was given.

use client::{Entries, Given, When};
use ident::FileId;
use lease::{Label, Recent, Time};
use namespace::{Attributes, FileKind, Stat, fold};
use parking_lot::{Condvar, Mutex, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::num::NonZeroU8;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crate::barred::{Barred, RevocationGuard};
use crate::errno::Errno;
use crate::forgotten::Forgotten;
use crate::hash::hash;
use crate::places::{EntryPlace, FIRST_FURTHER, Places, ThreadCall};

/// The root's node id, by protocol.
pub(crate) const ROOT: u64 = 1;

/// So many that two threads seldom meet in one.
const SHARDS: usize = 16;

/// Nodes of neighbouring ids in one chunk. Files that were made together are listed together, and a
/// miss of the processor's cache costs as much as all other work for an entry.
const CHUNK: u64 = 8;

/// The most entries that the kernel may hold. Beyond this the oldest are invalidated until half are
/// left. Each takes about 64 bytes. Mostly the bound on what a machine knows of files is reached
/// before.
const GIVEN_MAX: usize = 1 << 19;

/// The nodes of one mount.
///
/// A node's id is the file's inode number, except for the root. Inode numbers are unique in the
/// cluster and never reused, so all generations are 0. The table has the file of each node, and how
/// often the kernel was given it. A directory that another machine has moved may have further
/// nodes, with numbers of this mount's: [`Places`].
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The root of the mount.
    root: FileId,
    /// Where the kernel has directories. Locked before `chunks`.
    places: Places,
    chunks: [RwLock<FxHashMap<u64, Chunk>>; SHARDS],
    /// The node of each file, for invalidations. Locked after `chunks` where both are.
    ids: [RwLock<FxHashMap<FileId, u64>>; SHARDS],
    /// Directories of which an entry was invalidated lately.
    contended: RwLock<Recent<u64, ()>>,
    /// Nodes of which the kernel was given a report lately, without a lease.
    ping_pongs: RwLock<Recent<u64, Option<PingPong>>>,
    barred: Barred,
    /// The number of entries given so far, and the time when the count began.
    turn: AtomicU32,
    began: Instant,
    /// Entries that the kernel may hold.
    given: AtomicUsize,
    /// There are too many entries, or the mount has ended.
    crowd: Mutex<Crowd>,
    crowded: Condvar,
    forgotten: Forgotten,
}

/// Whether the oldest entries are to go, or the mount has ended.
#[derive(Debug, Default)]
struct Crowd {
    is_due: bool,
    closed: bool,
}

/// The part of a node that ping-pongs between machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PingPong {
    /// A directory's times.
    Times,
    /// A file's size, with the value that the kernel has.
    Size(u64),
}

type Chunk = [Option<Node>; CHUNK as usize];

#[derive(Debug)]
struct Node {
    file: FileId,
    /// Present for a directory.
    directory: Option<Box<Directory>>,
    /// The number of our answers that named it, less those that the kernel has forgotten. At its
    /// largest value the count stays, and so does the node.
    lookups: u32,
    marks: Marks,
    /// A hash of owner, group and mode, as the kernel was last given them.
    told: StatDigest,
}

/// Facts about a node, one bit each to save room. Never zero, so that an empty place takes no more
/// room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks(NonZeroU8);

impl Default for Marks {
    fn default() -> Marks {
        Marks(NonZeroU8::MIN)
    }
}

impl Marks {
    /// It may have set-id bits, which a write by an unprivileged user clears.
    const SETID: u8 = 2;
    /// It has holes, by the last stat.
    const SPARSE: u8 = 4;
    /// It has no name any more, and lingers until the kernel has forgotten it.
    const LINGERS: u8 = 8;
    /// It may be a program, whose capabilities a write removes.
    const RUNS: u8 = 16;
    /// The kernel may hold its attributes as valid.
    const ATTRIBUTES: u8 = 32;
    /// The kernel may hold pages of it.
    const PAGES: u8 = 64;

    fn has(self, mark: u8) -> bool {
        self.0.get() & mark != 0
    }

    fn set(&mut self, mark: u8, is: bool) {
        let others = self.0.get() & !mark;
        self.0 = NonZeroU8::MIN | others | if is { mark } else { 0 };
    }

    /// These marks, brought up to date by `stat`.
    fn seen(mut self, stat: &Stat) -> Marks {
        self.set(Marks::SETID, may_have_setid(stat));
        self.set(Marks::SPARSE, is_sparse(stat));
        self.set(Marks::RUNS, may_run(stat));
        self
    }
}

/// A hash of 24 bits, to save room.
type StatDigest = [u8; 3];

const _: () = assert!(size_of::<Option<Node>>() == 32, "two to a cache line");

/// The leases that have gone when a request begins. Its answer may have been decided before another
/// one goes, and is given to the kernel for no time then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    /// The number of files barred so far.
    barred: u64,
    /// [`Directory::barred`].
    barred_entries: u32,
}

/// The state of a directory.
#[derive(Debug, Default)]
struct Directory {
    given: Given,
    /// How often the leases on entries went.
    barred: u32,
    /// Its attributes as the kernel was given them. They are shown of a directory that another
    /// machine has removed while a program here is still in it.
    was: Option<Attributes>,
}

impl Nodes {
    /// The table with the mount's root, which the kernel never forgets.
    pub(crate) fn new(root: FileId) -> Nodes {
        let nodes = Nodes {
            root: root.clone(),
            places: Places::default(),
            contended: RwLock::default(),
            ping_pongs: RwLock::default(),
            barred: Barred::default(),
            turn: AtomicU32::default(),
            began: Instant::now(),
            given: AtomicUsize::default(),
            crowd: Mutex::default(),
            crowded: Condvar::new(),
            forgotten: Forgotten::default(),
            chunks: std::array::from_fn(|_| RwLock::default()),
            ids: std::array::from_fn(|_| RwLock::default()),
        };
        let (marks, told) = (Marks::default(), StatDigest::default());
        let node = Node { file: root.clone(), directory: None, lookups: u32::MAX, marks, told };
        nodes.shard(ROOT).write().entry(ROOT / CHUNK).or_default()[slot(ROOT)] = Some(node);
        nodes.back(&root).write().insert(root, ROOT);
        nodes
    }

    /// The file that `node` stands for.
    pub(crate) fn file(&self, node: u64) -> Result<FileId, Errno> {
        self.look(node, |n| n.file.clone()).ok_or(Errno::STALE)
    }

    /// The nodes of `file` that the kernel has.
    pub(crate) fn of(&self, file: &FileId) -> SmallVec<[u64; 1]> {
        let first = self.back(file).read().get(file).copied();
        first.into_iter().chain(self.places.further(file)).collect()
    }

    /// Counts that the kernel is about to be given `file` once more, and returns its node. This
    /// comes before the answer is sent, lest the kernel's forget comes first.
    pub(crate) fn give(&self, file: &FileId, stat: &Stat) -> Result<u64, Errno> {
        // The kernel's number for a root is fixed, whatever number the directory itself has.
        if *file == self.root {
            return Ok(ROOT);
        }
        self.give_as(stat.attributes.ino, file, stat)
    }

    /// Like [`Nodes::give`], for the file called `label` in directory `dir`. `can_splice` says
    /// whether the kernel can move a directory there from the directory with the given number. If
    /// it cannot, the directory gets a further node there if `anew` allows it, and otherwise is not
    /// given. `asks` tells the asking thread and its system call.
    pub(crate) fn give_at(
        &self,
        (dir, label): (u64, &Label),
        file: &FileId,
        stat: &Stat,
        anew: bool,
        can_splice: impl Fn(u64) -> bool,
        asks: impl Fn() -> Option<ThreadCall>,
    ) -> Result<Option<u64>, Errno> {
        if *file == self.root || stat.attributes.kind != FileKind::Directory {
            return self.give(file, stat).map(Some);
        }
        let (place, ino) = (EntryPlace::new(dir, label), stat.attributes.ino);
        let first = || self.back(file).read().get(file).copied();
        let places = self.places.0.read();
        if first() == Some(ino) && places.is_settled(place, ino) {
            return self.give_as(ino, file, stat).map(Some);
        }
        drop(places);
        let mut places = self.places.0.write();
        let Some(node) = places.choose(place, file, (first(), ino), anew, can_splice, asks) else {
            return Ok(None);
        };
        self.give_as(node, file, stat).map(Some)
    }

    /// The kernel has moved its entry from `from` to `to`. With `exchange` it has moved that of
    /// `to` to `from`, too.
    pub(crate) fn moved(&self, from: (u64, &Label), to: (u64, &Label), exchange: bool) {
        self.places.0.write().moved(EntryPlace::new(from.0, from.1), EntryPlace::new(to.0, to.1), exchange);
    }

    fn give_as(&self, node: u64, file: &FileId, stat: &Stat) -> Result<u64, Errno> {
        if node <= ROOT || stat.attributes.ino >= FIRST_FURTHER {
            tracing::error!(%file, node, "an inode number that no file may have");
            return Err(Errno::IO);
        }
        let is_directory = stat.attributes.kind == FileKind::Directory;
        let mut shard = self.shard(node).write();
        match &mut shard.entry(node / CHUNK).or_default()[slot(node)] {
            Some(known) if known.file != *file => {
                tracing::error!(%file, other = %known.file, node, "two files have one inode number");
                return Err(Errno::IO);
            }
            Some(known) => {
                known.lookups = known.lookups.saturating_add(1);
                (known.marks, known.told) = (known.marks.seen(stat), told(stat));
                if is_directory {
                    known.directory.get_or_insert_default().was = Some(stat.attributes);
                }
            }
            empty => {
                let directory = is_directory
                    .then(|| Box::new(Directory { was: Some(stat.attributes), ..Directory::default() }));
                let (marks, told) = (Marks::default().seen(stat), told(stat));
                *empty = Some(Node { file: file.clone(), directory, lookups: 1, marks, told });
                if node < FIRST_FURTHER {
                    self.back(file).write().insert(file.clone(), node);
                }
            }
        }
        Ok(node)
    }

    /// The leases on attributes and content of `file` go. From now on its attributes are not given
    /// with a name if they were decided before.
    pub(crate) fn bar(&self, file: &FileId) {
        self.barred.bar(file);
        self.of(file).into_iter().for_each(|node| self.doubt(node));
    }

    /// All leases go.
    pub(crate) fn bar_everything(&self) {
        self.barred.bar_everything();
        self.all().into_iter().filter(|node| self.is_directory(*node)).for_each(|dir| self.bar_entries(dir));
    }

    /// A request in `dir` begins. This comes before its first call to the client.
    pub(crate) fn since(&self, dir: u64) -> Since {
        let entries = self.look(dir, |n| n.directory.as_ref().map_or(0, |directory| directory.barred));
        Since { barred: self.barred.events(), barred_entries: entries.unwrap_or_default() }
    }

    /// The leases on attributes and content of `file` are about to go.
    pub(crate) fn revoke(&self, file: &FileId) -> RevocationGuard<'_> {
        self.barred.revoke(file)
    }

    /// Whether the kernel may keep the attributes of `file` that it is about to be told of `node`:
    /// the leases are not going, and have not gone since. Trap: the mark is set before the last
    /// look. So a file that is barred later has its node already, and the mark that the kernel
    /// holds something.
    pub(crate) fn may_keep(&self, node: u64, file: &FileId, since: Since) -> bool {
        if self.barred.is_barred(file, since.barred) {
            return false;
        }
        if self.look(node, |n| n.marks.has(Marks::ATTRIBUTES)) == Some(false) {
            self.change(node, |n| n.marks.set(Marks::ATTRIBUTES, true));
        }
        !self.barred.is_barred(file, since.barred)
    }

    /// The kernel may come to hold pages of `node`.
    pub(crate) fn page(&self, node: u64) {
        if self.look(node, |n| n.marks.has(Marks::PAGES)) == Some(false) {
            self.change(node, |n| n.marks.set(Marks::PAGES, true));
        }
    }

    /// The kernel is about to drop the attributes of `node`, and its pages as well if `pages` says
    /// so.
    pub(crate) fn dropped(&self, node: u64, pages: bool) {
        self.change(node, |n| {
            n.marks.set(Marks::ATTRIBUTES, false);
            n.marks.set(Marks::PAGES, n.marks.has(Marks::PAGES) && !pages);
        });
    }

    /// Whether the kernel may hold attributes of `node` as valid.
    pub(crate) fn has_attributes(&self, node: u64) -> bool {
        self.look(node, |n| n.marks.has(Marks::ATTRIBUTES)).unwrap_or(false)
    }

    /// Whether the kernel may hold pages of `node`.
    pub(crate) fn has_pages(&self, node: u64) -> bool {
        self.look(node, |n| n.marks.has(Marks::PAGES)).unwrap_or(false)
    }

    /// The leases on entries of `dir` go. From now on no entry is given to the kernel that was
    /// decided before. Those that were given before are in the table.
    pub(crate) fn bar_entries(&self, dir: u64) {
        self.change(dir, |n| {
            let barred = &mut n.directory.get_or_insert_default().barred;
            *barred = barred.wrapping_add(1);
        });
    }

    /// Marks that `file` has lost its last name, and lingers until the kernel has forgotten it.
    /// Whether the kernel has the file at all.
    pub(crate) fn linger(&self, file: &FileId) -> bool {
        let Some(node) = self.back(file).read().get(file).copied() else { return false };
        let mut is_known = false;
        self.change(node, |n| {
            is_known = n.file == *file;
            n.marks.set(Marks::LINGERS, is_known || n.marks.has(Marks::LINGERS));
        });
        is_known
    }

    /// The kernel has dropped `lookups` of those that it was given. Returns the file if these were
    /// the last and it lingered until now.
    #[must_use = "what lingers is to be let go"]
    pub(crate) fn forget(&self, node: u64, lookups: u64) -> Option<FileId> {
        let mut shard = self.shard(node).write();
        let chunk = shard.get_mut(&(node / CHUNK))?;
        let place = &mut chunk[slot(node)];
        let known = place.as_mut().filter(|known| known.lookups != u32::MAX)?;
        known.lookups = known.lookups.saturating_sub(u32::try_from(lookups).unwrap_or(u32::MAX));
        if known.lookups > 0 {
            return None;
        }
        let gone = place.take()?;
        self.given.fetch_sub(gone.directory.as_ref().map_or(0, |directory| directory.given.len()), Relaxed);
        if node < FIRST_FURTHER {
            self.back(&gone.file).write().remove(&gone.file);
        }
        if chunk.iter().all(Option::is_none) {
            shard.remove(&(node / CHUNK));
        }
        drop(shard);
        if node < FIRST_FURTHER {
            self.forgotten.add(node, gone.file.clone());
        }
        if gone.directory.is_some() {
            let mut places = self.places.0.write();
            // The node may have been given again since.
            if self.look(node, |_| ()).is_none() {
                places.forget(node, &gone.file);
            }
        }
        gone.marks.has(Marks::LINGERS).then_some(gone.file)
    }

    /// Notes a `stat` of `node` that the kernel is not given.
    pub(crate) fn see(&self, node: u64, stat: &Stat) {
        if self.look(node, |n| n.marks == n.marks.seen(stat)) == Some(false) {
            self.change(node, |n| n.marks = n.marks.seen(stat));
        }
    }

    /// Notes the attributes of `node` that the kernel is about to be given.
    pub(crate) fn tell(&self, node: u64, stat: &Stat) {
        let told = told(stat);
        if self.look(node, |n| n.marks == n.marks.seen(stat) && n.told == told) == Some(false) {
            self.change(node, |n| (n.marks, n.told) = (n.marks.seen(stat), told));
        }
    }

    /// Whether owner, group and mode are those that the kernel was last given.
    pub(crate) fn is_as_told(&self, node: u64, stat: &Stat) -> bool {
        self.look(node, |n| n.told) == Some(told(stat))
    }

    /// Notes that the last stat of `node` may be out of date.
    pub(crate) fn doubt(&self, node: u64) {
        self.change(node, |n| {
            n.marks.set(Marks::SETID, true);
            n.marks.set(Marks::RUNS, true);
        });
    }

    /// Whether `node` may have set-id bits.
    pub(crate) fn may_have_setid(&self, node: u64) -> bool {
        self.look(node, |n| n.marks.has(Marks::SETID)).unwrap_or(false)
    }

    /// Whether `node` may be a program.
    pub(crate) fn may_run(&self, node: u64) -> bool {
        self.look(node, |n| n.marks.has(Marks::RUNS)).unwrap_or(false)
    }

    /// Whether `node` has holes, by the last stat.
    pub(crate) fn is_sparse(&self, node: u64) -> bool {
        self.look(node, |n| n.marks.has(Marks::SPARSE)).unwrap_or(false)
    }

    /// The file of a node that the kernel may have forgotten, but of which it still has a file
    /// handle.
    pub(crate) fn file_of_handle(&self, node: u64) -> Result<FileId, Errno> {
        self.file(node).or_else(|errno| self.forgotten.file(node).ok_or(errno))
    }

    /// Notes that the kernel is about to be told which file `label` in directory `dir` is, or that
    /// there is none. The kernel may hold that until it is invalidated or the directory is
    /// forgotten. It does not say when it drops an entry. Returns false if the leases on entries of
    /// the directory went since the request began. Then the kernel may hold this one for no time.
    pub(crate) fn give_entry(&self, dir: u64, label: &Label, since: Since) -> bool {
        let when = When { turn: self.turn.fetch_add(1, Relaxed), at_ms: self.now_ms(), was_told: false };
        let (mut may, mut is_new) = (false, false);
        self.change(dir, |n| {
            let directory = n.directory.get_or_insert_default();
            may = directory.barred == since.barred_entries;
            is_new = may && directory.given.give(label, when);
        });
        if is_new {
            let given = self.given.fetch_add(1, Relaxed);
            if given >= GIVEN_MAX && given.is_multiple_of(GIVEN_MAX / 128) {
                self.crowd.lock().is_due = true;
                self.crowded.notify_all();
            }
        }
        may
    }

    /// Notes that the kernel is about to move an entry to another name, and holds it there for as
    /// long. Trap: a thread that gave way tries again, and its entry has been expired. If that
    /// counted as given anew, the thread would keep its own directory locked.
    pub(crate) fn move_entry(&self, (from_dir, from): (u64, &Label), (to_dir, to): (u64, &Label)) {
        let given =
            |given: &Given| given.folding_to(&fold(from)).into_iter().find(|(label, _)| label == from);
        let given = |n: &Node| n.directory.as_ref().and_then(|directory| given(&directory.given));
        let Some((_, when)) = self.look(from_dir, given).flatten() else { return };
        let mut is_new = false;
        self.change(to_dir, |n| {
            let known = &mut n.directory.get_or_insert_default().given;
            is_new = !(when.was_told && known.has(to)) && known.give(to, when);
        });
        self.given.fetch_add(usize::from(is_new), Relaxed);
    }

    /// Notes that the kernel has dropped its entry `label`.
    pub(crate) fn drop_entry(&self, dir: u64, label: &Label) {
        let mut had = false;
        self.change(dir, |n| had = n.directory.as_mut().is_some_and(|directory| directory.given.drop(label)));
        self.given.fetch_sub(usize::from(had), Relaxed);
    }

    fn now(&self) -> Time {
        Time(self.began.elapsed().as_millis() as u64)
    }

    fn now_ms(&self) -> u32 {
        self.began.elapsed().as_millis() as u32
    }

    /// Notes that an entry of `dir` is invalidated: others work there too.
    pub(crate) fn contend(&self, dir: u64) {
        self.contended.write().note(self.now(), &dir, 1);
    }

    /// Notes that the kernel is given a report of `node`.
    pub(crate) fn pass(&self, node: u64, stat: &Stat) {
        let ping_pong = match stat.attributes.kind {
            FileKind::Directory => PingPong::Times,
            // Trap: a mapping ends where the kernel believes that the file ends. Ping-pong content
            // is a page at most, so with any size but 0 a mapping has all of it.
            _ if stat.size == 0 => return,
            _ => PingPong::Size(stat.size),
        };
        if let Some(known) = self.ping_pongs.write().note(self.now(), &node, 1) {
            *known = Some(ping_pong);
        }
    }

    /// Notes that the kernel may come to have another size of `node`.
    pub(crate) fn resize(&self, node: u64) {
        if let Some(PingPong::Size(_)) = self.ping_pong(node) {
            self.ping_pongs.write().forget(&node);
        }
    }

    /// The part of `node` that ping-pongs between machines. A program that does not look at it need
    /// not be given its value.
    pub(crate) fn ping_pong(&self, node: u64) -> Option<PingPong> {
        self.lately(&self.ping_pongs, node).flatten()
    }

    /// Whether others work in `dir`. Trap: to expire an entry the kernel takes the directory's
    /// lock, which a request that waits for a lease there holds. So entries of such a directory are
    /// given with a time-out of 0. The kernel asks before it uses one, and nothing need be expired.
    pub(crate) fn is_contended(&self, dir: u64) -> bool {
        self.lately(&self.contended, dir).is_some()
    }

    /// The value of `node`, if it is a recent one.
    fn lately<V: Copy>(&self, nodes: &RwLock<Recent<u64, V>>, node: u64) -> Option<V> {
        let nodes = nodes.read();
        // Nearly always there is none, and then the clock is not read.
        let value = *nodes.get(&node)?;
        nodes.is_recent(self.now(), &node).then_some(value)
    }

    /// Whether the kernel may hold an entry of `dir` that was not invalidated since it was given.
    /// With `folded`, only an entry whose name folds to that.
    pub(crate) fn has_entries(&self, dir: u64, folded: Option<&Label>) -> bool {
        let any =
            |given: &Given| folded.map_or_else(|| given.has_untold(), |folded| given.has_folding_to(folded));
        self.look(dir, |n| n.directory.as_ref().is_some_and(|directory| any(&directory.given)))
            .unwrap_or(false)
    }

    /// Whether the kernel may hold exactly this entry of `dir`, invalidated or not.
    pub(crate) fn has_entry(&self, dir: u64, label: &Label) -> bool {
        self.look(dir, |n| n.directory.as_ref().is_some_and(|directory| directory.given.has(label)))
            .unwrap_or(false)
    }

    /// Whether `node` is a directory.
    pub(crate) fn is_directory(&self, node: u64) -> bool {
        node == ROOT || self.look(node, |n| n.directory.is_some()).unwrap_or(false)
    }

    /// Entries of `dir` that the kernel may hold. With `folded`, only those whose names fold to
    /// that.
    pub(crate) fn entries(&self, dir: u64, folded: Option<&Label>) -> Entries {
        let of = |given: &Given| folded.map_or_else(|| given.all(), |folded| given.folding_to(folded));
        self.look(dir, |n| n.directory.as_ref().map(|directory| of(&directory.given)))
            .flatten()
            .unwrap_or_default()
    }

    /// Notes that these entries of `dir` were expired. An entry that was given a moment ago may
    /// arrive in the kernel only afterwards, unless nothing `is_under_way`. Such an entry is
    /// remembered, and is expired once more when no recall waits for that.
    pub(crate) fn taken_back(&self, dir: u64, entries: &Entries, is_under_way: bool) {
        let (now_ms, mut gone) = (self.now_ms(), 0);
        self.change(dir, |n| {
            let Some(directory) = &mut n.directory else { return };
            for (label, when) in entries {
                if is_under_way && !when.is_taken_in(now_ms) {
                    directory.given.tell(label, *when);
                } else {
                    gone += usize::from(directory.given.forget(label, *when));
                }
            }
        });
        self.given.fetch_sub(gone, Relaxed);
    }

    /// Waits until more entries are given than fit. Returns the oldest, by directory; nothing when
    /// the mount has ended.
    pub(crate) fn crowded(&self) -> Option<Vec<(u64, Entries)>> {
        let mut crowd = self.crowd.lock();
        while !crowd.is_due && !crowd.closed {
            self.crowded.wait(&mut crowd);
        }
        crowd.is_due = false;
        if crowd.closed {
            return None;
        }
        drop(crowd);
        let now = self.turn.load(Relaxed);
        let older = |node: u64| {
            let of = |n: &Node| {
                n.directory.as_ref().map(|directory| directory.given.older(GIVEN_MAX as u32 / 2, now))
            };
            self.look(node, of).flatten().filter(|entries| !entries.is_empty()).map(|entries| (node, entries))
        };
        Some(self.all().into_iter().filter_map(older).collect())
    }

    /// Ends [`Nodes::crowded`].
    pub(crate) fn close(&self) {
        self.crowd.lock().closed = true;
        self.crowded.notify_all();
    }

    /// The stat of directory `node` after it was removed: its attributes as the kernel was given
    /// them, with no link. Nothing for other files.
    pub(crate) fn removed_directory(&self, node: u64) -> Option<Stat> {
        let was = self.look(node, |n| n.directory.as_ref().and_then(|directory| directory.was))??;
        Some(Stat { attributes: Attributes { links: 0, ..was }, size: 0, occupied: 0, mtime: was.ctime })
    }

    /// Every node, for an invalidation of all.
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
        // The map inside uses the hash's high and low bits; these are from the middle.
        &self.ids[(hash(file) >> 32) as usize % SHARDS]
    }
}

fn told(stat: &Stat) -> StatDigest {
    let of = &stat.attributes;
    let [.., a, b, c] = hash((of.uid, of.gid, of.mode)).to_be_bytes();
    [a, b, c]
}

fn slot(node: u64) -> usize {
    (node % CHUNK) as usize
}

fn may_have_setid(stat: &Stat) -> bool {
    let mode = u32::from(stat.attributes.mode);
    stat.attributes.kind == FileKind::Regular && mode & (libc::S_ISUID | libc::S_ISGID) != 0
}

/// Whether the file has a hole. Without one, writes to a mapping change neither blocks nor holes.
pub(crate) fn is_sparse(stat: &Stat) -> bool {
    stat.occupied < stat.size
}

fn may_run(stat: &Stat) -> bool {
    stat.attributes.kind == FileKind::Regular && stat.attributes.mode & 0o111 != 0
}

#[cfg(test)]
pub(crate) mod tests;
