//! A whole file system in memory: authoritative state, a view of it through leases, and the
//! conditions that every verdict must satisfy.

use ident::FileId;
use lease::{Field, Kind, Label, Lease, OpenModes};
use namespace::{
    Attributes, ContentChange, ContentHead, Disposition, Effect, Entry, FileKind, Knowledge, Known, Links,
    LockTable, Locks, Operation, Times, Timestamp, Traced, Verdict, decide, fold,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub struct File {
    pub attributes: Attributes,
    pub content: ContentHead,
    pub inline: Vec<u8>,
    pub times: Times,
    pub links: Links,
    pub disposition: Option<Disposition>,
    pub children: BTreeMap<Label, Entry>,
    pub xattrs: BTreeMap<Label, Vec<u8>>,
    /// Locks by session. The deciding session is [`HERE`].
    pub locks: LockTable<(u64, u64)>,
}

/// The session that decides.
pub const HERE: u64 = 1;

#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    pub files: BTreeMap<FileId, File>,
    /// How other clients have files open.
    pub elsewhere: BTreeMap<FileId, OpenModes>,
}

impl Tree {
    pub fn new(root: Attributes) -> Tree {
        let root = File {
            attributes: root,
            content: ContentHead::default(),
            inline: Vec::new(),
            times: Times::default(),
            links: Links::new(),
            disposition: None,
            children: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            locks: LockTable::default(),
        };
        Tree { files: BTreeMap::from([(FileId::root(), root)]), elsewhere: BTreeMap::new() }
    }

    fn file(&mut self, file: &FileId) -> &mut File {
        self.files.get_mut(file).unwrap()
    }

    pub fn apply(&mut self, effect: &Effect) {
        match effect.clone() {
            Effect::Birth { file, attributes, content, target, times } => {
                let (links, disposition, children, xattrs, locks) = Default::default();
                let inline = target;
                let born =
                    File { attributes, content, inline, times, links, disposition, children, xattrs, locks };
                assert_eq!(self.files.insert(file, born), None);
            }
            Effect::Bind { dir, label, entry } => {
                self.file(&dir).children.insert(label, entry);
            }
            Effect::Unbind { dir, label } => assert!(self.file(&dir).children.remove(&label).is_some()),
            Effect::AddLink { file, link } => self.file(&file).links.push(link),
            Effect::DropLink { file, link } => self.file(&file).links.retain(|other| *other != link),
            Effect::Attributes { file, attributes } => self.file(&file).attributes = attributes,
            Effect::Touch { dir, time } => {
                let dir = self.file(&dir);
                dir.times = dir.times.touched(time);
            }
            Effect::Times { dir, times } => self.file(&dir).times = times,
            Effect::Xattr { file, name, value } => {
                let xattrs = &mut self.file(&file).xattrs;
                match value {
                    Some(value) => xattrs.insert(name, value),
                    None => xattrs.remove(&name),
                };
            }
            Effect::Content { file, head, change } => {
                let file = self.file(&file);
                file.content = head;
                match change {
                    ContentChange::Inline { sealed, .. } => file.inline = sealed,
                    ContentChange::Extents { .. } => file.inline.clear(),
                    ContentChange::None => {}
                }
            }
            Effect::Disposition { file, disposition } => {
                let file = self.file(&file);
                assert_ne!(file.disposition, disposition, "nothing changes");
                file.disposition = disposition;
            }
            Effect::Lock { file, change } => self.file(&file).locks.change(&HERE, &change),
            Effect::Orphan { file } => assert!(self.file(&file).links.is_empty()),
            Effect::Death { file } => {
                assert!(self.files.remove(&file).is_some());
                assert_eq!(self.elsewhere.get(&file), None, "somebody has it open");
            }
        }
    }

    /// Checks the conditions that hold in every state.
    pub fn check(&self) {
        let mut linked: BTreeMap<&FileId, BTreeSet<(&FileId, &Label)>> = BTreeMap::new();
        let mut inodes = BTreeSet::new();
        for (id, file) in &self.files {
            let Attributes { kind, ino, mode, links, .. } = file.attributes;
            assert!(inodes.insert(ino), "inode number {ino} twice");
            assert!(mode <= 0o7777);
            assert!(kind == FileKind::Directory || file.children.is_empty());
            assert!(links > 0 || file.children.is_empty(), "a removed directory has children");
            let mut positions = BTreeSet::new();
            for (label, entry) in &file.children {
                linked.entry(&entry.file).or_default().insert((id, label));
                assert!(positions.insert(entry.position), "two entries at one position");
                let named = &self.files[&entry.file].attributes;
                assert_eq!((entry.kind, entry.ino), (named.kind, named.ino));
            }
        }
        for (id, file) in &self.files {
            let links = linked.remove(id).unwrap_or_default();
            assert_eq!(
                file.links.iter().map(|link| (&link.dir, &link.label)).collect::<BTreeSet<_>>(),
                links
            );
            let count = if *id == FileId::root() { 1 } else { links.len() };
            assert_eq!(file.attributes.links as usize, count, "{id} has links {links:?}");
            assert!(self.path(id).is_some(), "{id} is in a cycle");
            if let Some(acl) = file.xattrs.get(b"system.posix_acl_access".as_slice()) {
                assert_eq!(acl_mode_bits(acl), file.attributes.mode & 0o777);
            }
        }
    }

    /// `file` and its ancestors, or nothing if these form a circle.
    fn path<'a>(&'a self, file: &'a FileId) -> Option<Vec<&'a FileId>> {
        let mut path = vec![file];
        while let Some(link) = self.files.get(path[path.len() - 1]).and_then(|file| file.links.first()) {
            path.push(&link.dir);
            if path.len() > self.files.len() {
                return None;
            }
        }
        Some(path)
    }
}

/// The permission bits that go with this access list, computed a second time and in another way.
fn acl_mode_bits(bytes: &[u8]) -> u16 {
    let mut class = [0; 3];
    let mut mask = None;
    for entry in bytes[4..].chunks(8) {
        let perm = u16::from(entry[2]);
        match entry[0] {
            1 => class[0] = perm,
            4 => class[1] = perm,
            16 => mask = Some(perm),
            32 => class[2] = perm,
            _ => {}
        }
    }
    class[0] << 6 | mask.unwrap_or(class[1]) << 3 | class[2]
}

impl Knowledge for Tree {
    fn attributes(&self, file: &FileId, _: Kind) -> Known<Attributes> {
        Known::of(self.files.get(file).map(|file| file.attributes))
    }
    fn content(&self, file: &FileId, _: Kind) -> Known<ContentHead> {
        Known::of(self.files.get(file).map(|file| file.content))
    }
    fn inline(&self, file: &FileId) -> Known<Vec<u8>> {
        Known::of(self.files.get(file).map(|file| file.inline.clone()))
    }
    fn times(&self, dir: &FileId, _: Kind) -> Known<Times> {
        Known::of(self.files.get(dir).map(|file| file.times))
    }
    fn links(&self, file: &FileId, _: Kind) -> Known<Links> {
        Known::of(self.files.get(file).map(|file| file.links.clone()))
    }
    fn child(&self, dir: &FileId, label: &Label, _: Kind) -> Known<Entry> {
        Known::of(self.files.get(dir).and_then(|dir| dir.children.get(label).cloned()))
    }
    fn childless(&self, dir: &FileId, _: Kind) -> Known<bool> {
        Known::of(self.files.get(dir).map(|dir| dir.children.is_empty()))
    }
    fn xattr(&self, file: &FileId, name: &Label, _: Kind) -> Known<Vec<u8>> {
        Known::of(self.files.get(file).and_then(|file| file.xattrs.get(name).cloned()))
    }
    fn xattrs(&self, file: &FileId) -> Known<Vec<(Label, usize)>> {
        let sizes =
            |file: &File| file.xattrs.iter().map(|(name, value)| (name.clone(), value.len())).collect();
        Known::of(self.files.get(file).map(sizes))
    }
    fn disposition(&self, file: &FileId, _: Kind) -> Known<Option<Disposition>> {
        Known::of(self.files.get(file).map(|file| file.disposition.clone()))
    }
    fn locks(&self, file: &FileId, _: Kind) -> Known<Arc<Locks>> {
        Known::of(self.files.get(file).map(|file| Arc::new(file.locks.seen_by(&HERE))))
    }
    fn others(&self, file: &FileId, field: &Field) -> Known<bool> {
        let open = self.elsewhere.get(file).copied().unwrap_or_default();
        Known::of(self.files.get(file).map(|_| open.has(field)))
    }
    fn is_above(&self, ancestor: &FileId, dir: &FileId) -> Known<bool> {
        Known::Used(self.path(dir).unwrap().contains(&ancestor))
    }
    fn holds(&self, _: &FileId, _: &Field, _: Kind) -> bool {
        true
    }
}

/// The part of a tree that a set of leases makes known.
pub struct Seen<'a> {
    pub tree: &'a Tree,
    pub leases: &'a [Lease],
}

impl Seen<'_> {
    fn guard<T>(&self, file: &FileId, field: Field, kind: Kind, value: Known<T>) -> Known<T> {
        if self.holds(file, &field, kind) { value } else { Known::Unknown }
    }
}

impl Knowledge for Seen<'_> {
    fn attributes(&self, file: &FileId, kind: Kind) -> Known<Attributes> {
        self.guard(file, Field::Attributes, kind, self.tree.attributes(file, kind))
    }
    fn content(&self, file: &FileId, kind: Kind) -> Known<ContentHead> {
        self.guard(file, Field::Content, kind, self.tree.content(file, kind))
    }
    fn inline(&self, file: &FileId) -> Known<Vec<u8>> {
        self.guard(file, Field::Content, Kind::Read, self.tree.inline(file))
    }
    fn times(&self, dir: &FileId, kind: Kind) -> Known<Times> {
        self.guard(dir, Field::Times, kind, self.tree.times(dir, kind))
    }
    fn links(&self, file: &FileId, kind: Kind) -> Known<Links> {
        self.guard(file, Field::Parent, kind, self.tree.links(file, kind))
    }
    fn child(&self, dir: &FileId, label: &Label, kind: Kind) -> Known<Entry> {
        self.guard(dir, Field::Child(fold(label)), kind, self.tree.child(dir, label, kind))
    }
    fn childless(&self, dir: &FileId, kind: Kind) -> Known<bool> {
        self.guard(dir, Field::Children, kind, self.tree.childless(dir, kind))
    }
    fn xattr(&self, file: &FileId, name: &Label, kind: Kind) -> Known<Vec<u8>> {
        self.guard(file, Field::Xattr(name.clone()), kind, self.tree.xattr(file, name, kind))
    }
    fn xattrs(&self, file: &FileId) -> Known<Vec<(Label, usize)>> {
        self.guard(file, Field::Xattrs, Kind::Read, self.tree.xattrs(file))
    }
    fn disposition(&self, file: &FileId, kind: Kind) -> Known<Option<Disposition>> {
        self.guard(file, Field::Disposition, kind, self.tree.disposition(file, kind))
    }
    fn locks(&self, file: &FileId, kind: Kind) -> Known<Arc<Locks>> {
        self.guard(file, Field::Locks, kind, self.tree.locks(file, kind))
    }
    fn others(&self, file: &FileId, field: &Field) -> Known<bool> {
        self.guard(file, field.clone(), Kind::Read, self.tree.others(file, field))
    }
    fn is_above(&self, ancestor: &FileId, dir: &FileId) -> Known<bool> {
        self.guard(dir, Field::Path, Kind::Read, self.tree.is_above(ancestor, dir))
    }
    fn holds(&self, file: &FileId, field: &Field, kind: Kind) -> bool {
        self.leases
            .iter()
            .any(|held| held.file == *file && held.kind.covers(kind) && includes(&held.field, field))
    }
}

/// Whether a lease on `held` covers `field`. The infinite leases include single names.
fn includes(held: &Field, field: &Field) -> bool {
    match (held, field) {
        (Field::Children, Field::Child(_)) | (Field::Xattrs, Field::Xattr(_)) => true,
        _ => held == field,
    }
}

/// A verdict on the whole state, and what asking for it consulted.
pub fn decide_traced(tree: &Tree, operation: &Operation) -> (Verdict, Vec<Lease>) {
    let traced = Traced::new(tree);
    let verdict = decide(operation, &traced);
    (verdict, traced.into_leases())
}

/// Decides on the whole state, and checks that the proof of the verdict suffices and has nothing
/// superfluous.
pub fn decide_proved(tree: &Tree, operation: &Operation) -> Verdict {
    let (verdict, trace) = decide_traced(tree, operation);
    let proof = match &verdict {
        Verdict::Done { .. } => &trace,
        Verdict::Refused { evidence, .. } => {
            assert!(evidence.iter().all(|lease| lease.kind == Kind::Read));
            evidence
        }
        Verdict::Unknown { wants } => panic!("the whole state does not know {wants:?}"),
    };
    if let Verdict::Done { effects, .. } = &verdict {
        check_authority(effects, &Seen { tree, leases: proof });
    }
    assert_eq!(decide(operation, &Seen { tree, leases: proof }), verdict, "{operation:?} by {proof:?}");
    for missing in proof {
        let rest: Vec<Lease> = proof.iter().filter(|lease| *lease != missing).cloned().collect();
        let seen = Seen { tree, leases: &rest };
        if !seen.holds(&missing.file, &missing.field, missing.kind) {
            let without = decide(operation, &seen);
            assert!(matches!(without, Verdict::Unknown { .. }), "{operation:?} needs no {missing:?}");
        }
    }
    verdict
}

/// Checks that the proof has a lease for each change. A new file belongs to its maker.
fn check_authority(effects: &[Effect], proof: &Seen<'_>) {
    let mut born = None;
    for effect in effects {
        let (file, needs) = match effect {
            Effect::Birth { file, .. } => {
                born = Some(file);
                continue;
            }
            Effect::Bind { dir, label, .. } | Effect::Unbind { dir, label } => {
                (dir, vec![(Field::Child(fold(label)), Kind::Write)])
            }
            Effect::AddLink { file, .. } | Effect::DropLink { file, .. } => {
                (file, vec![(Field::Parent, Kind::Write)])
            }
            // Many clients may move an access time.
            Effect::Attributes { file, attributes } => {
                let was = proof.tree.files.get(file).map(|file| file.attributes);
                let only_read =
                    was.is_some_and(|was| Attributes { atime: attributes.atime, ..was } == *attributes);
                (file, vec![(Field::Attributes, if only_read { Kind::Read } else { Kind::Write })])
            }
            Effect::Orphan { file } => (file, vec![(Field::Attributes, Kind::Write)]),
            Effect::Disposition { file, .. } => (file, vec![(Field::Disposition, Kind::Write)]),
            Effect::Lock { file, .. } => (file, vec![(Field::Locks, Kind::Write)]),
            Effect::Touch { dir, .. } => (dir, vec![(Field::Times, Kind::Touch)]),
            Effect::Times { dir, .. } => (dir, vec![(Field::Times, Kind::Write)]),
            Effect::Xattr { file, name, .. } => (file, vec![(Field::Xattr(name.clone()), Kind::Write)]),
            Effect::Content { file, .. } => (file, vec![(Field::Content, Kind::Write)]),
            Effect::Death { file } => {
                (file, vec![(Field::Attributes, Kind::Write), (Field::Handles, Kind::Read)])
            }
        };
        for (field, kind) in needs {
            assert!(born == Some(file) || proof.holds(file, &field, kind), "{effect:?} without {field:?}");
        }
    }
}

/// A root that all users may use as `mode` says.
pub fn root(mode: u16) -> Attributes {
    Attributes {
        kind: FileKind::Directory,
        mode,
        uid: 0,
        gid: 0,
        links: 1,
        ino: 1,
        rdev: 0,
        ctime: at(1),
        btime: at(1),
        atime: at(1),
    }
}

/// A whole second, different for each operation.
pub fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}
