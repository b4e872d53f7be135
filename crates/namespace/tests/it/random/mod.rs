//! Random operations on a small tree. Labels and users are few, so that operations collide.

use crate::tree::{Tree, root};
use ident::FileId;
use lease::{Label, Mode, OpenModes};
use namespace::{
    AttributeChange, Capabilities, Capability, ContentChange, Cred, FileKind, FileSpec, INLINE_SEAL_BYTES,
    LockChange, LockKind, LockRange, LockSpace, NewFile, Operation, RenameMode, Replaced, SetTime, Timestamp,
    Whiteout, XattrMode, operation,
};

/// Bytes that serve as decisions, followed by zeros. So shorter input means simpler operations.
pub struct Choices<'a>(std::slice::Iter<'a, u8>);

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices(bytes.iter())
    }

    pub fn pick(&mut self, below: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % below
    }

    fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.pick(values.len())].clone()
    }

    fn rarely(&mut self) -> bool {
        self.pick(8) == 7
    }

    fn perhaps<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.pick(3) == 1).then(|| value(self))
    }
}

pub struct World {
    pub tree: Tree,
    next: u64,
}

/// Names of a few kinds: names that fold together, that only look alike, that are no text, and that
/// have the maximum length.
const LABELS: [&[u8]; 14] = [
    b"a",
    b"b",
    b"A",
    b"B",
    "\u{e9}".as_bytes(),
    "\u{c9}".as_bytes(),
    "e\u{301}".as_bytes(),
    b"k",
    "\u{212a}".as_bytes(),
    b"\xff\xfe",
    b"\xff\xFE\n ",
    b".a",
    &[b'x'; 255],
    &[b'X'; 255],
];

/// Seconds before the epoch, at the epoch, and beyond 32 and 34 bits.
const TIMES: [(i64, u32); 7] = [
    (5, 0),
    (0, 0),
    (-1, 999_999_999),
    (i64::MIN, 0),
    ((1 << 31) - 1, 1),
    (1 << 34, 999_999_999),
    (i64::MAX, 999_999_999),
];

/// Users and groups with the largest numbers (-1 says none), and one number that no user has.
const IDS: [u32; 3] = [1 << 31, u32::MAX - 1, 3];

const MODES: [u16; 12] = [0o777, 0o755, 0o700, 0o640, 0o1777, 0o2775, 0o750, 0o070, 0o4711, 0o2755, 0, 0o666];

impl World {
    pub fn new() -> World {
        World { tree: Tree::new(root(0o777)), next: 2 }
    }

    pub fn operation(&mut self, c: &mut Choices<'_>, time: Timestamp) -> Operation {
        let cred = cred(c);
        let (file, dir, label) = (self.file(c), self.dir(c), label(c));
        // Another client opens a file, or closes it.
        if self.tree.files.contains_key(&file)
            && c.pick(3) == 1
            && self.tree.elsewhere.remove(&file).is_none()
        {
            self.tree.elsewhere.insert(file.clone(), open(c));
        }
        self.lock_elsewhere(c, &file);
        match c.pick(34) {
            0..5 => self.create(c, dir, label, cred, time),
            5 => Operation::Lookup(operation::Lookup { dir, label, cred }),
            33 => Operation::Find(operation::Find { dir, label, cred }),
            6 => Operation::Stat(operation::Stat { file }),
            7 => Operation::Access(operation::Access { file, mask: c.pick(8) as u8, cred }),
            8 => Operation::ReadLink(operation::ReadLink { file }),
            9 => Operation::List(operation::List { dir }),
            10 => Operation::GetXattr(operation::GetXattr { file, name: name(c), cred }),
            11 => Operation::ListXattrs(operation::ListXattrs { file }),
            12 => Operation::Link(operation::Link {
                replaced: self.replaced(c, &dir, &label),
                file,
                dir,
                label,
                position: self.next(),
                open: c.pick(3) == 1,
                cred,
                time,
            }),
            13..15 => Operation::Unlink(operation::Unlink {
                pending: self.meant(c, &dir, &label),
                dir,
                label,
                directory: c.pick(2) == 1,
                open: c.pick(3) == 1,
                cred,
                time,
            }),
            15..18 => self.rename(c, dir, label, cred, time),
            18..20 => {
                Operation::SetAttributes(operation::SetAttributes { file, change: change(c), cred, time })
            }
            20 => {
                let (name, mode) = (name(c), c.of(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]));
                Operation::SetXattr(operation::SetXattr {
                    file,
                    value: value(c, &name),
                    name,
                    mode,
                    cred,
                    time,
                })
            }
            21 => Operation::RemoveXattr(operation::RemoveXattr { file, name: name(c), cred, time }),
            22 => self.publish(c, file, time),
            23 => Operation::Accessed(operation::Accessed { file, time }),
            30 | 31 => Operation::Lock(operation::Lock { file, change: lock(c) }),
            32 => {
                let LockChange { owner, space, range, kind, .. } = lock(c);
                Operation::GetLock(operation::GetLock {
                    file,
                    owner,
                    space,
                    range,
                    kind: kind.unwrap_or(LockKind::Read),
                })
            }
            24 | 25 => Operation::Open(operation::Open {
                file,
                mask: c.pick(8) as u8,
                open: open(c),
                own: open(c),
                cred,
            }),
            26 | 27 => {
                let links = self.tree.files.get(&file).map(|file| file.links.clone()).unwrap_or_default();
                let link = if c.rarely() || links.is_empty() { None } else { Some(c.of(&links)) };
                Operation::SetDisposition(operation::SetDisposition { file, link, own: open(c), cred, time })
            }
            _ => Operation::Dispose(operation::Dispose { file, time }),
        }
    }

    fn rename(
        &mut self,
        c: &mut Choices<'_>,
        from_dir: FileId,
        from: Label,
        cred: Cred,
        time: Timestamp,
    ) -> Operation {
        let (to_dir, to) = (self.dir(c), label(c));
        let mode = c.of(&[RenameMode::Replace, RenameMode::Exchange, RenameMode::NoReplace]);
        let replaced = self.replaced(c, &to_dir, &to).filter(|_| mode == RenameMode::Replace || c.rarely());
        Operation::Rename(operation::Rename {
            source: self.meant(c, &from_dir, &from),
            from_dir,
            from,
            to_dir,
            to,
            mode,
            replaced,
            position: self.next(),
            whiteout: (c.pick(4) == 1).then(|| Whiteout { integer: self.next(), ino: self.next() }),
            open: c.pick(3) == 1,
            cred,
            time,
        })
    }

    /// The file that an operation means by a name: mostly the one that has it, if it means one.
    fn meant(&self, c: &mut Choices<'_>, dir: &FileId, label: &Label) -> Option<FileId> {
        c.perhaps(|c| {
            let named = self.tree.files.get(dir).and_then(|dir| dir.children.get(label));
            match named {
                Some(entry) if !c.rarely() => entry.file.clone(),
                _ => self.file(c),
            }
        })
    }

    /// The name that a new name takes the place of: mostly one that folds like it.
    fn replaced(&self, c: &mut Choices<'_>, dir: &FileId, to: &Label) -> Option<Box<Replaced>> {
        let label = match c.pick(4) {
            0 | 1 => to.clone(),
            2 => Label::new(&to.as_bytes().to_ascii_uppercase()).unwrap(),
            _ => label(c),
        };
        self.meant(c, dir, &label).map(|file| Box::new(Replaced { label, file }))
    }

    /// Another machine locks a range, if it can, or unlocks one.
    fn lock_elsewhere(&mut self, c: &mut Choices<'_>, file: &FileId) {
        let change = lock(c);
        let holder = (2 + c.pick(2) as u64, change.owner);
        if let Some(file) = self.tree.files.get_mut(file)
            && c.pick(3) == 1
            && change
                .kind
                .is_none_or(|kind| file.locks.conflict(change.space, &holder, change.range, kind).is_none())
        {
            file.locks.change(&holder.0, &change);
        }
    }

    fn create(
        &mut self,
        c: &mut Choices<'_>,
        dir: FileId,
        label: Label,
        cred: Cred,
        time: Timestamp,
    ) -> Operation {
        let kinds = [
            FileKind::Directory,
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Regular,
            FileKind::Symlink,
            FileKind::Fifo,
            FileKind::CharDevice,
            FileKind::BlockDevice,
        ];
        let (kind, position, ino) = (c.of(&kinds), self.next(), self.next());
        let n = if c.rarely() { self.next() } else { position };
        let new = NewFile {
            file: FileId::for_child(&dir, n, ino),
            ino,
            spec: FileSpec {
                kind,
                mode: c.of(&MODES),
                umask: c.of(&[0o022, 0, 0o077, 0o777]),
                rdev: if kind == FileKind::CharDevice { c.of(&[0, 1, u32::MAX]) } else { 0 },
                target: if kind == FileKind::Symlink { b"target".to_vec() } else { Vec::new() },
            },
        };
        Operation::Create(operation::Create { dir, label, position, new, cred, time })
    }

    fn publish(&mut self, c: &mut Choices<'_>, file: FileId, time: Timestamp) -> Operation {
        let old = self.tree.files.get(&file).map(|file| file.content).unwrap_or_default();
        let (size, change) = match c.pick(3) {
            0 => {
                let key = c.of(&[Some([1; 32]), None, Some([2; 32])]);
                (3, ContentChange::Inline { sealed: vec![0; 3 + INLINE_SEAL_BYTES], key })
            }
            1 => (10, ContentChange::None),
            _ => (
                0,
                ContentChange::Extents { truncate_to: Some(0), punch: vec![(0, 9)], put: vec![], key: None },
            ),
        };
        let version = old.version + if c.rarely() { 2 } else { 1 };
        Operation::Publish(operation::Publish { file, version, size, mtime: time, ctime: time, change })
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Any file, or sometimes one that never existed.
    fn file(&self, c: &mut Choices<'_>) -> FileId {
        if c.rarely() {
            return FileId::root().child(1 << 40);
        }
        c.of(&self.tree.files.keys().cloned().collect::<Vec<_>>())
    }

    /// Mostly a directory.
    fn dir(&self, c: &mut Choices<'_>) -> FileId {
        if c.rarely() {
            return self.file(c);
        }
        let is_dir = |(id, file): (&FileId, &crate::tree::File)| {
            (file.attributes.kind == FileKind::Directory).then(|| id.clone())
        };
        c.of(&self.tree.files.iter().filter_map(is_dir).collect::<Vec<_>>())
    }
}

fn lock(c: &mut Choices<'_>) -> LockChange {
    let space = c.of(&[LockSpace::Posix, LockSpace::Posix, LockSpace::Flock]);
    let (first, length) = (c.pick(4) as u64, c.pick(3) as u64);
    let range = if space == LockSpace::Flock && !c.rarely() {
        LockRange::WHOLE
    } else {
        LockRange { first, last: first + length }
    };
    let kind = c.of(&[Some(LockKind::Write), Some(LockKind::Read), None]);
    LockChange { owner: c.pick(2) as u64, pid: 1, space, range, kind }
}

fn open(c: &mut Choices<'_>) -> OpenModes {
    let modes = [
        vec![Mode::AccessDelete],
        vec![Mode::AccessRead],
        vec![],
        vec![Mode::AccessRead, Mode::AccessWrite, Mode::AccessDelete],
        vec![Mode::ExcludeRead],
        vec![Mode::AccessRead, Mode::ExcludeWrite],
        vec![Mode::AccessDelete, Mode::ExcludeDelete],
    ];
    OpenModes::with(c.of(&modes))
}

const CAPABILITIES: [Capabilities; 9] = [
    Capabilities::NONE.with(Capability::Chown),
    Capabilities::NONE.with(Capability::DacOverride),
    Capabilities::NONE.with(Capability::DacReadSearch),
    Capabilities::NONE.with(Capability::Fowner),
    Capabilities::NONE.with(Capability::Fsetid),
    Capabilities::NONE.with(Capability::SysAdmin),
    Capabilities::NONE.with(Capability::Mknod),
    Capabilities::NONE.with(Capability::Setfcap),
    Capabilities::EVERY,
];

fn cred(c: &mut Choices<'_>) -> Cred {
    let groups = if c.pick(4) == 3 { vec![20].into() } else { Default::default() };
    let capabilities = if c.pick(4) == 3 { c.of(&CAPABILITIES) } else { Capabilities::NONE };
    c.of(&[
        Cred::default(),
        Cred { uid: 1, gid: 10, groups, capabilities },
        Cred { uid: 2, gid: 20, groups: Default::default(), capabilities },
    ])
}

fn label(c: &mut Choices<'_>) -> Label {
    // Mostly labels that fold together.
    let labels = if c.rarely() { &LABELS[..] } else { &LABELS[..4] };
    Label::new(c.of(labels)).unwrap()
}

fn name(c: &mut Choices<'_>) -> Label {
    let names = [
        "user.x",
        "system.posix_acl_access",
        "system.posix_acl_default",
        "user.y",
        "trusted.x",
        "security.x",
        "security.capability",
        "system.other",
    ];
    Label::attribute(c.of(&names).as_bytes()).unwrap()
}

fn value(c: &mut Choices<'_>, name: &Label) -> Vec<u8> {
    if !name.as_bytes().starts_with(b"system.posix") || c.rarely() {
        return b"value".to_vec();
    }
    let mut value = vec![2, 0, 0, 0];
    let extended = c.pick(4);
    for (tag, id, wanted) in [(1u8, 255u8, 0), (2, 2, 1), (4, 255, 0), (8, 10, 2), (16, 255, 1), (32, 255, 0)]
    {
        if wanted == 0 || extended >= wanted {
            let owner = if id == 255 { [255; 4] } else { [id, 0, 0, 0] };
            value.extend([tag, 0, c.pick(8) as u8, 0]);
            value.extend(owner);
        }
    }
    value
}

fn change(c: &mut Choices<'_>) -> AttributeChange {
    let set_time = |c: &mut Choices<'_>| {
        let (secs, nanos) = c.of(&TIMES);
        c.of(&[SetTime::Now, SetTime::At(Timestamp { secs, nanos })])
    };
    AttributeChange {
        mode: c.perhaps(|c| c.of(&MODES)),
        uid: c.perhaps(|c| if c.rarely() { c.of(&IDS) } else { c.of(&[1, 2, 0]) }),
        gid: c.perhaps(|c| if c.rarely() { c.of(&IDS) } else { c.of(&[10, 20, 0]) }),
        atime: c.perhaps(set_time),
        mtime: c.perhaps(set_time),
        keeps_owner: c.rarely(),
    }
}
