//! Files and names in maps.

use client::{Listed, Reply, Upto};
use ident::FileId;
use lease::Label;
use namespace::{
    AttributeChange, Attributes, Cred, Entry, Error, FileKind, Link, Links, RenameMode, SetTime, Stat,
    Timestamp, XattrMode,
};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The files, and the next inode number.
pub struct Tree {
    files: FxHashMap<FileId, File>,
    ino_next: u64,
}

pub struct File {
    attributes: Attributes,
    mtime: Timestamp,
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Label, Vec<u8>>,
    entries: FxHashMap<Label, Entry>,
    order: BTreeMap<u64, Label>,
    position_next: u64,
    parent: FileId,
    open: u32,
}

type Place<'a> = (&'a FileId, &'a Label);

impl Tree {
    pub fn new() -> Tree {
        let mut tree = Tree { files: FxHashMap::default(), ino_next: 2 };
        tree.files.insert(
            FileId::root(),
            File::new(FileKind::Directory, 0o1777, 0, &Cred::default(), 1, FileId::root()),
        );
        tree
    }

    pub fn len(&self) -> u64 {
        self.files.len() as u64
    }

    pub fn file(&self, id: &FileId) -> Result<&File, Error> {
        self.files.get(id).ok_or(Error::Stale)
    }

    pub fn file_mut(&mut self, id: &FileId) -> Result<&mut File, Error> {
        self.files.get_mut(id).ok_or(Error::Stale)
    }

    pub fn stat(&self, id: &FileId) -> Result<Stat, Error> {
        let file = self.file(id)?;
        let size = file.content.len() as u64;
        // Zeros are holes.
        let occupied = file.content.iter().filter(|byte| **byte != 0).count() as u64;
        Ok(Stat { attributes: file.attributes, size, occupied, mtime: file.mtime })
    }

    pub fn check(&self, cred: &Cred, id: &FileId, mask: u8) -> Result<(), Error> {
        let of = &self.file(id)?.attributes;
        let shift = if cred.uid == of.uid {
            6
        } else if cred.in_group(of.gid) {
            3
        } else {
            0
        };
        let granted = (of.mode >> shift) as u8 & mask == mask;
        if cred.uid == 0 || granted { Ok(()) } else { Err(Error::AccessDenied) }
    }

    pub fn find(&self, dir: &FileId, label: &Label) -> Result<Entry, Error> {
        let of = self.file(dir)?;
        if of.attributes.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        of.entries.get(label).cloned().ok_or(Error::NotFound)
    }

    fn node(&self, entry: Entry) -> Result<Reply, Error> {
        let stat = self.stat(&entry.file)?;
        Ok(Reply::Node(entry, stat))
    }

    pub fn lookup(&self, cred: &Cred, dir: &FileId, label: &Label) -> Result<Reply, Error> {
        self.check(cred, dir, 1)?;
        self.node(self.find(dir, label)?)
    }

    pub fn parent(&self, dir: &FileId) -> Result<Reply, Error> {
        let parent = self.file(dir)?.parent.clone();
        let ino = self.file(&parent)?.attributes.ino;
        self.node(Entry { file: parent, kind: FileKind::Directory, ino, position: 1 })
    }

    pub fn links(&self, file: &FileId) -> Result<Links, Error> {
        self.file(file)?;
        let links = self.files.iter().flat_map(|(dir, known)| {
            let there = known.entries.iter().filter(|(_, entry)| entry.file == *file);
            there.map(move |(label, _)| Link { dir: dir.clone(), label: label.clone() })
        });
        Ok(links.collect())
    }

    pub fn create(
        &mut self,
        cred: &Cred,
        dir: &FileId,
        label: &Label,
        (kind, mode, rdev): (FileKind, u16, u32),
        target: Vec<u8>,
        open: bool,
    ) -> Result<Reply, Error> {
        if self.find(dir, label).map(|_| ()) != Err(Error::NotFound) {
            return Err(Error::Exists);
        }
        let ino = self.ino_next;
        self.ino_next += 1;
        let mut file = File::new(kind, mode, rdev, cred, ino, dir.clone());
        file.content = target;
        file.open = u32::from(open);
        let id = dir.child(ino);
        self.files.insert(id.clone(), file);
        self.bind(dir, label, id, kind, ino)
    }

    fn bind(
        &mut self,
        dir: &FileId,
        label: &Label,
        file: FileId,
        kind: FileKind,
        ino: u64,
    ) -> Result<Reply, Error> {
        let of = self.file_mut(dir)?;
        let entry = Entry { file, kind, ino, position: of.position_next };
        of.position_next += 1;
        of.order.insert(entry.position, label.clone());
        of.entries.insert(label.clone(), entry.clone());
        of.touch();
        self.node(entry)
    }

    fn unbind(&mut self, dir: &FileId, label: &Label) -> Result<Entry, Error> {
        let of = self.file_mut(dir)?;
        let entry = of.entries.remove(label).ok_or(Error::NotFound)?;
        of.order.remove(&entry.position);
        of.touch();
        Ok(entry)
    }

    pub fn link(&mut self, file: &FileId, dir: &FileId, label: &Label) -> Result<Reply, Error> {
        if self.find(dir, label).map(|_| ()) != Err(Error::NotFound) {
            return Err(Error::Exists);
        }
        let of = self.file_mut(file)?;
        of.attributes.links += 1;
        of.attributes.ctime = now();
        let (kind, ino) = (of.attributes.kind, of.attributes.ino);
        self.bind(dir, label, file.clone(), kind, ino)
    }

    pub fn unlink(&mut self, dir: &FileId, label: &Label, directory: bool) -> Result<Reply, Error> {
        let entry = self.find(dir, label)?;
        match (entry.kind, directory) {
            (FileKind::Directory, false) => return Err(Error::IsDirectory),
            (FileKind::Directory, true) if !self.file(&entry.file)?.entries.is_empty() => {
                return Err(Error::NotEmpty);
            }
            (FileKind::Directory, true) | (_, false) => {}
            (_, true) => return Err(Error::NotDirectory),
        }
        self.unbind(dir, label)?;
        self.drop_link(&entry.file)?;
        Ok(Reply::Nothing)
    }

    /// Runs `takes`, which takes the name `place` from a file. If that was its last name, the file
    /// stays until the kernel has forgotten it.
    pub fn lingering(
        &mut self,
        place: Place<'_>,
        takes: impl FnOnce(&mut Tree) -> Result<Reply, Error>,
    ) -> Result<Reply, Error> {
        let of = self.find(place.0, place.1).ok().filter(|entry| entry.kind != FileKind::Directory);
        let Some(Entry { file, .. }) = of else { return takes(self) };
        self.file_mut(&file)?.open += 1;
        let reply = takes(self);
        if reply.is_ok() && self.file(&file)?.attributes.links == 0 {
            return Ok(Reply::Lingers(file));
        }
        self.close(&file)?;
        reply
    }

    fn drop_link(&mut self, id: &FileId) -> Result<(), Error> {
        let file = self.file_mut(id)?;
        file.attributes.links -= 1;
        file.attributes.ctime = now();
        self.forget_unused(id)
    }

    fn forget_unused(&mut self, id: &FileId) -> Result<(), Error> {
        let file = self.file(id)?;
        if file.attributes.links == 0 && file.open == 0 {
            self.files.remove(id);
        }
        Ok(())
    }

    pub fn rename(&mut self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<Reply, Error> {
        let moved = self.find(from.0, from.1)?;
        let target = self.find(to.0, to.1);
        match (&target, mode) {
            (Ok(_), RenameMode::NoReplace) => return Err(Error::Exists),
            (Err(_), RenameMode::Exchange) => return Err(Error::NotFound),
            (Ok(target), _) if target.file == moved.file => return Ok(Reply::Nothing),
            (Ok(target), RenameMode::Replace) => {
                self.unlink(to.0, to.1, target.kind == FileKind::Directory)?;
            }
            _ => {}
        }
        self.unbind(from.0, from.1)?;
        if let (Ok(back), RenameMode::Exchange) = (target, mode) {
            self.unbind(to.0, to.1)?;
            self.settle(from, back)?;
        }
        self.settle(to, moved)?;
        Ok(Reply::Nothing)
    }

    fn settle(&mut self, to: Place<'_>, entry: Entry) -> Result<(), Error> {
        if entry.kind == FileKind::Directory {
            self.file_mut(&entry.file)?.parent = to.0.clone();
        }
        self.bind(to.0, to.1, entry.file, entry.kind, entry.ino).map(drop)
    }

    pub fn set_attributes(
        &mut self,
        cred: &Cred,
        id: &FileId,
        change: AttributeChange,
        size: Option<u64>,
    ) -> Result<Reply, Error> {
        let file = self.file_mut(id)?;
        let of = &mut file.attributes;
        if (change.mode.is_some() || change.uid.is_some()) && cred.uid != 0 && cred.uid != of.uid {
            return Err(Error::NotPermitted);
        }
        of.mode = change.mode.unwrap_or(of.mode);
        of.uid = change.uid.unwrap_or(of.uid);
        of.gid = change.gid.unwrap_or(of.gid);
        of.ctime = now();
        let time = |set| match set {
            SetTime::Now => now(),
            SetTime::At(at) => at,
        };
        of.atime = change.atime.map_or(of.atime, time);
        file.mtime = change.mtime.map_or(file.mtime, time);
        if let Some(size) = size {
            file.content.resize(size as usize, 0);
            file.mtime = now();
        }
        self.stat(id).map(Reply::Stat)
    }

    pub fn open(&mut self, cred: &Cred, id: &FileId, mask: u8) -> Result<Reply, Error> {
        self.check(cred, id, mask)?;
        self.file_mut(id)?.open += 1;
        Ok(Reply::Opened { keep_pages: true, uncached: false })
    }

    pub fn close(&mut self, id: &FileId) -> Result<Reply, Error> {
        let file = self.file_mut(id)?;
        file.open = file.open.checked_sub(1).ok_or(Error::Invalid)?;
        self.forget_unused(id).map(|()| Reply::Nothing)
    }

    pub fn write(&mut self, id: &FileId, offset: u64, data: &[u8], append: bool) -> Result<Reply, Error> {
        let file = self.file_mut(id)?;
        let at = if append { file.content.len() } else { offset as usize };
        let end = at + data.len();
        file.content.resize(file.content.len().max(end), 0);
        file.content[at..end].copy_from_slice(data);
        file.mtime = now();
        Ok(Reply::Written(data.len() as u32))
    }

    pub fn list(
        &self,
        dir: &FileId,
        (after, upto): (u64, Option<Upto>),
        limit: usize,
        stat: bool,
    ) -> Result<Reply, Error> {
        let of = self.file(dir)?;
        let listed = |label: &Label| {
            let entry = of.entries[label].clone();
            // Every seventh entry comes without, as entries do whose stat is not known here.
            let stat =
                if stat && !entry.position.is_multiple_of(7) { Some(self.stat(&entry.file)?) } else { None };
            Ok(Listed { label: label.clone(), entry, stat, uncached: false })
        };
        let upto = upto.unwrap_or(Upto { last: of.position_next - 1, ..Upto::default() });
        let last = upto.last.max(after);
        let mut rest = of.order.range(after + 1..last + 1);
        let entries: Result<_, Error> = rest.by_ref().take(limit).map(|(_, label)| listed(label)).collect();
        Ok(Reply::Listing { entries: entries?, upto, end: rest.next().is_none() })
    }

    pub fn set_xattr(
        &mut self,
        id: &FileId,
        name: Label,
        value: Vec<u8>,
        mode: XattrMode,
    ) -> Result<Reply, Error> {
        let xattrs = &mut self.file_mut(id)?.xattrs;
        match (mode, xattrs.contains_key(&name)) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoAttribute),
            _ => xattrs.insert(name, value),
        };
        Ok(Reply::Nothing)
    }
}

impl File {
    fn new(kind: FileKind, mode: u16, rdev: u32, cred: &Cred, ino: u64, parent: FileId) -> File {
        let at = now();
        let (uid, gid) = (cred.uid, cred.gid);
        let attributes =
            Attributes { kind, mode, uid, gid, links: 1, ino, rdev, ctime: at, btime: at, atime: at };
        let (content, xattrs, entries, order) = Default::default();
        File { attributes, mtime: at, content, xattrs, entries, order, position_next: 1, parent, open: 0 }
    }

    fn touch(&mut self) {
        self.mtime = now();
        self.attributes.ctime = self.mtime;
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}
