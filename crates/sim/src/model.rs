//! The oracle: a file system, written down as simply as possible and independently of the shipped
//! code.
//!
//! The model knows no leases, logs or servers. Every user of it is root: permissions have tests of
//! their own in `namespace`.

use crate::host::Violation;
use client::{AllocateMode, Call, Reply, call};
use content::ReadPart;
use ident::FileId;
use lease::Label;
use namespace::{Error, FileKind, FileSpec, POLICY_LABEL, RenameMode, XATTRS_BYTES_MAX, XattrMode};
use std::collections::BTreeMap;

/// A file as users see it.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// The kind.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// Number of labels bound to the file; directories report one.
    pub links: u32,
    /// Content, or a link's target.
    pub content: Vec<u8>,
    /// A directory's children.
    pub children: BTreeMap<Label, FileId>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Label, Vec<u8>>,
    /// Number of open handles.
    pub open: u32,
    /// A directory's own directory.
    pub parent: Option<FileId>,
}

/// All files, by the identifiers that the system under test gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Every file that exists.
    pub files: BTreeMap<FileId, File>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let File { kind, mode, links, content, children, xattrs, open, parent } = self;
        let mut digest = 0;
        feed(&mut digest, content);
        let size = content.len();
        write!(
            f,
            "{kind:?} {mode:o} links {links} open {open} parent {parent:?} {children:?} {xattrs:?} {size} bytes {digest:x}"
        )
    }
}

impl File {
    /// An empty file.
    pub fn new(kind: FileKind, mode: u16) -> File {
        File {
            kind,
            mode,
            links: 1,
            content: Vec::new(),
            children: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            open: 0,
            parent: None,
        }
    }
}

impl Default for Model {
    fn default() -> Model {
        Model { files: BTreeMap::from([(FileId::root(), File::new(FileKind::Directory, 0o755))]) }
    }
}

impl Model {
    fn get(&self, file: &FileId) -> Result<&File, Error> {
        self.files.get(file).ok_or(Error::Stale)
    }

    fn child(&self, dir: &FileId, label: &Label) -> Result<Option<FileId>, Error> {
        Ok(self.get(dir)?.children.get(label).cloned())
    }

    /// Whether `call` is refused, and with which error.
    pub fn refuses(&self, call: &Call) -> Result<(), Error> {
        match call {
            Call::Lookup(call::Lookup { dir, label }) => {
                self.child(dir, label)?.map(|_| ()).ok_or(Error::NotFound)
            }
            Call::Create(call::Create { dir, label, .. }) => match self.child(dir, label)? {
                Some(_) => Err(Error::Exists),
                None => Ok(()),
            },
            Call::Link(call::Link { file, dir, label, .. }) => {
                let is_dir = self.get(file)?.kind == FileKind::Directory;
                match self.child(dir, label)? {
                    Some(_) => Err(Error::Exists),
                    None if is_dir => Err(Error::NotPermitted),
                    None => Ok(()),
                }
            }
            Call::Unlink(call::Unlink { dir, label, directory, .. }) => {
                let file = self.child(dir, label)?.ok_or(Error::NotFound)?;
                let file = self.get(&file)?;
                match (file.kind == FileKind::Directory, directory) {
                    (true, false) => Err(Error::IsDirectory),
                    (false, true) => Err(Error::NotDirectory),
                    (true, true) if !file.children.is_empty() => Err(Error::NotEmpty),
                    _ => Ok(()),
                }
            }
            Call::Rename(call::Rename { from_dir, from, to_dir, to, mode, .. }) => {
                self.refuses_rename((from_dir, from), (to_dir, to), *mode)
            }
            Call::SetXattr(call::SetXattr { file, name, value, mode }) => {
                let xattrs = &self.get(file)?.xattrs;
                let there = xattrs.get(name).map(Vec::len);
                let size = |(name, length): (&Label, usize)| name.as_bytes().len() + 1 + length;
                let others = xattrs.iter().filter(|(other, _)| *other != name);
                let others = others.map(|(name, value)| size((name, value.len()))).sum::<usize>();
                let grows = there.is_none_or(|there| there < value.len());
                match mode {
                    XattrMode::Create if there.is_some() => Err(Error::Exists),
                    XattrMode::Replace if there.is_none() => Err(Error::NoAttribute),
                    _ if grows && others + size((name, value.len())) > XATTRS_BYTES_MAX => {
                        Err(Error::NoSpace)
                    }
                    _ => Ok(()),
                }
            }
            Call::GetXattr(call::GetXattr { file, name })
            | Call::RemoveXattr(call::RemoveXattr { file, name }) => {
                self.get(file)?.xattrs.get(name).map(|_| ()).ok_or(Error::NoAttribute)
            }
            _ => Ok(()),
        }
    }

    fn refuses_rename(
        &self,
        (from_dir, from): (&FileId, &Label),
        (to_dir, to): (&FileId, &Label),
        mode: RenameMode,
    ) -> Result<(), Error> {
        let moved = self.child(from_dir, from)?.ok_or(Error::NotFound)?;
        let target = self.child(to_dir, to)?;
        let is_dir = |file: &FileId| Ok::<bool, Error>(self.get(file)?.kind == FileKind::Directory);
        // Linux looks at the labels before it looks at the loop.
        match (mode, &target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        if is_dir(&moved)? && self.is_above(&moved, to_dir) {
            return Err(Error::Invalid);
        }
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) if is_dir(&target)? && self.is_above(&target, from_dir) => {
                Err(Error::Invalid)
            }
            (RenameMode::Replace, Some(target)) if target != moved => {
                match (is_dir(&moved)?, is_dir(&target)?) {
                    (true, false) => Err(Error::NotDirectory),
                    (false, true) => Err(Error::IsDirectory),
                    (true, true) if !self.get(&target)?.children.is_empty() => Err(Error::NotEmpty),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether `dir` is `ancestor` or one of its descendants.
    pub fn is_above(&self, ancestor: &FileId, dir: &FileId) -> bool {
        let mut at = Some(dir.clone());
        while let Some(file) = at {
            if file == *ancestor {
                return true;
            }
            at = self.files.get(&file).and_then(|file| file.parent.clone());
        }
        false
    }

    /// Compares a reply with what the files are before the call.
    pub fn compare(
        &self,
        call: &Call,
        reply: &Reply,
        gather: impl Fn(&[ReadPart]) -> Result<Vec<u8>, Violation>,
    ) -> Result<(), Violation> {
        match (call, reply) {
            (Call::Read(call::Read { file, offset, length, .. }), Reply::Data(parts)) => {
                let found = gather(parts)?;
                let content = &self.files[file].content;
                let from = (*offset as usize).min(content.len());
                let to = (from + *length as usize).min(content.len());
                if found != content[from..to] {
                    return Err(format!("{call:?} gave other bytes than were written"));
                }
            }
            (Call::GetXattr(call::GetXattr { file, name }), Reply::Bytes(found)) => {
                let expected = self.files[file].xattrs.get(name);
                if expected != Some(found) {
                    return Err(format!("{call:?} gave {found:?}, expected {expected:?}"));
                }
            }
            (Call::Lookup(call::Lookup { dir, label }), Reply::Node(entry, stat)) => {
                let expected = &self.files[dir].children[label];
                let file = &self.files[expected];
                let size = if file.kind == FileKind::Directory { 0 } else { file.content.len() as u64 };
                let found = (
                    &entry.file,
                    stat.attributes.kind,
                    stat.attributes.mode,
                    stat.attributes.links,
                    stat.size,
                );
                if found != (expected, file.kind, file.mode, file.links, size) {
                    return Err(format!(
                        "{call:?} gave {found:?}, expected {expected} {:?} {size}",
                        file.kind
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies the effects of `call`. `made` is the identifier that a create was given.
    pub fn apply(&mut self, call: &Call, made: Option<FileId>) {
        match call {
            Call::Create(call::Create { dir, label, spec, open }) => {
                let Some(id) = made else { return };
                let FileSpec { kind, mode, umask, target, .. } = spec;
                let mode = if *kind == FileKind::Symlink { 0o777 } else { mode & !umask };
                let mut file = File::new(*kind, mode);
                file.content.clone_from(target);
                file.open = u32::from(open.is_some());
                file.parent = (*kind == FileKind::Directory).then(|| dir.clone());
                // A policy for the spread of content is inherited from the directory, by regular
                // files and directories.
                let policy = self.files.get(dir).and_then(|dir| dir.xattrs.get(&*POLICY_LABEL));
                if let Some(policy) =
                    policy.filter(|_| matches!(kind, FileKind::Regular | FileKind::Directory))
                {
                    file.xattrs.insert(POLICY_LABEL.clone(), policy.clone());
                }
                self.files.insert(id.clone(), file);
                self.edit(dir, |dir| _ = dir.children.insert(label.clone(), id));
            }
            Call::Link(call::Link { file, dir, label, .. }) => {
                self.edit(file, |file| file.links += 1);
                self.edit(dir, |dir| _ = dir.children.insert(label.clone(), file.clone()));
            }
            Call::Unlink(call::Unlink { dir, label, .. }) => self.unlink(dir, label),
            Call::Rename(call::Rename { from_dir, from, to_dir, to, mode, .. }) => {
                self.rename((from_dir, from), (to_dir, to), *mode)
            }
            Call::SetAttributes(call::SetAttributes { file, change, size, .. }) => self.edit(file, |file| {
                file.mode = change.mode.unwrap_or(file.mode);
                if let Some(size) = size {
                    file.content.resize(usize::try_from(*size).unwrap_or(usize::MAX), 0);
                }
            }),
            Call::OpenFile(call::OpenFile { file, .. }) => self.edit(file, |file| file.open += 1),
            Call::Close(call::Close { file, .. }) => {
                self.edit(file, |file| file.open -= 1);
                self.bury(file);
            }
            Call::Write(call::Write { file, offset, data, append }) => self.edit(file, |file| {
                let at = if *append { file.content.len() } else { usize::try_from(*offset).unwrap_or(0) };
                if file.content.len() < at + data.len() && !data.is_empty() {
                    file.content.resize(at + data.len(), 0);
                }
                if !data.is_empty() {
                    file.content[at..at + data.len()].copy_from_slice(data);
                }
            }),
            Call::Allocate(call::Allocate { file, offset, length, what }) => {
                self.allocate(file, *offset, *length, *what)
            }
            Call::SetXattr(call::SetXattr { file, name, value, .. }) => {
                self.edit(file, |file| _ = file.xattrs.insert(name.clone(), value.clone()));
            }
            Call::RemoveXattr(call::RemoveXattr { file, name }) => {
                self.edit(file, |file| _ = file.xattrs.remove(name))
            }
            _ => {}
        }
    }

    fn edit(&mut self, file: &FileId, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.files.get_mut(file) {
            change(file);
        }
    }

    fn unlink(&mut self, dir: &FileId, label: &Label) {
        let mut gone = None;
        self.edit(dir, |dir| gone = dir.children.remove(label));
        if let Some(file) = gone {
            self.edit(&file, |file| {
                file.links -= 1;
                file.parent = None;
            });
            self.bury(&file);
        }
    }

    fn bury(&mut self, file: &FileId) {
        if self.files.get(file).is_some_and(|file| file.links == 0 && file.open == 0) {
            self.files.remove(file);
        }
    }

    fn rename(
        &mut self,
        (from_dir, from): (&FileId, &Label),
        (to_dir, to): (&FileId, &Label),
        mode: RenameMode,
    ) {
        let (Ok(Some(moved)), Ok(target)) = (self.child(from_dir, from), self.child(to_dir, to)) else {
            return;
        };
        if target.as_ref() == Some(&moved) {
            return;
        }
        if mode == RenameMode::Exchange {
            let Some(target) = target else { return };
            self.bind(from_dir, from, &target);
            self.bind(to_dir, to, &moved);
            return;
        }
        if target.is_some() {
            self.unlink(to_dir, to);
        }
        self.edit(from_dir, |dir| _ = dir.children.remove(from));
        self.bind(to_dir, to, &moved);
    }

    fn bind(&mut self, dir: &FileId, label: &Label, file: &FileId) {
        self.edit(dir, |dir| _ = dir.children.insert(label.clone(), file.clone()));
        self.edit(file, |file| {
            if file.kind == FileKind::Directory {
                file.parent = Some(dir.clone());
            }
        });
    }

    fn allocate(&mut self, file: &FileId, offset: u64, length: u64, what: AllocateMode) {
        let (from, to) = (
            usize::try_from(offset).unwrap_or(0),
            usize::try_from(offset.saturating_add(length)).unwrap_or(0),
        );
        self.edit(file, |file| {
            let grow = matches!(
                what,
                AllocateMode::Reserve { keep_size: false } | AllocateMode::Zero { keep_size: false }
            );
            if grow && file.content.len() < to {
                file.content.resize(to, 0);
            }
            if !matches!(what, AllocateMode::Reserve { .. }) {
                let size = file.content.len();
                file.content[from.min(size)..to.min(size)].fill(0);
            }
        });
    }

    /// A digest of names, kinds, modes, links, targets and attributes of all reachable files:
    /// everything but content.
    pub fn names_digest(&self) -> u64 {
        let mut digest = 0xcbf2_9ce4_8422_2325;
        self.digest_of(&FileId::root(), &mut digest);
        digest
    }

    fn digest_of(&self, id: &FileId, digest: &mut u64) {
        let Some(file) = self.files.get(id) else { return };
        feed(digest, id.as_bytes());
        feed(digest, format!("{:?} {:o} {} {:?}", file.kind, file.mode, file.links, file.xattrs).as_bytes());
        if file.kind == FileKind::Symlink {
            feed(digest, &file.content);
        }
        for (label, child) in &file.children {
            feed(digest, label.as_bytes());
            self.digest_of(child, digest);
        }
        feed(digest, b"/");
    }
}

/// FNV-1a, 64 bits: digests here are compared within one run only.
pub fn feed(digest: &mut u64, bytes: &[u8]) {
    for byte in bytes {
        *digest = (*digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
}
