//! A file's record row: all its small, single values, and its holdings.

use crate::Corrupt;
use ident::FileId;
use lease::{Holdings, Label, SessionId};
use namespace::{
    Attributes, ContentHead, Disposition, Entry, FileKind, Link, Links, LockTable, Times, Timestamp,
};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::sync::Arc;

/// The contents of a record row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub attributes: Attributes,
    pub content: ContentHead,
    /// The times of a directory.
    pub times: Times,
    pub links: Links,
    /// The file's deletion, if that is pending.
    pub disposition: Option<Box<Disposition>>,
    /// The file's locks, by session and that session's own names for owners.
    pub locks: LockTable<(SessionId, u64)>,
    /// The next integer that this directory gives out; all lower ones have been given out.
    pub next_integer: u64,
    /// The position from which on no entry of this directory has ever stood.
    pub unused_from: u64,
    /// Child rows.
    pub children: u64,
    /// The bytes of the row of inline content; 0 if there is no such row.
    pub inline_bytes: u32,
    /// Extended attributes. Most files have none, and then no row is looked up.
    pub xattrs: u32,
    /// Extents.
    pub extents: u64,
    /// Leases on the file. They share the row, since hardly any operation on a file does without
    /// them.
    pub holdings: Arc<Holdings>,
}

impl Record {
    /// The record of a new, empty file.
    pub fn born(attributes: Attributes, content: ContentHead, times: Times) -> Record {
        Record {
            attributes,
            content,
            times,
            links: Links::new(),
            disposition: None,
            locks: LockTable::default(),
            // The creator of a directory may use the integers below from the start, without asking.
            next_integer: wire::BIRTH_RESERVATION + 1,
            unused_from: 0,
            children: 0,
            inline_bytes: 0,
            xattrs: 0,
            extents: 0,
            holdings: Arc::default(),
        }
    }

    pub fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }

    /// Whether the file is to go with its last handle: it has no name, or its disposition is set.
    pub fn is_doomed(&self) -> bool {
        self.attributes.links == 0 || self.disposition.is_some()
    }

    /// Sessions whose end leaves something of this file to be cleared, ascending: those stuck at
    /// having it open, and those with locks.
    pub fn shields(&self) -> SmallVec<[SessionId; 4]> {
        let stuck = self.holdings.stuck().iter().map(|(session, _)| *session);
        let mut shields: SmallVec<[SessionId; 4]> = stuck.collect();
        for lock in self.locks.iter() {
            if !shields.contains(&lock.holder.0) {
                shields.push(lock.holder.0);
            }
        }
        shields.sort_unstable();
        shields
    }

    /// The value of the row.
    pub fn to_bytes(&self, file: &FileId) -> Vec<u8> {
        wire::encode(&StoredRecord::of(self, file))
    }

    /// Reads the value of the row of `file` at `key`, without the leases of sessions that are over.
    pub fn of_the_living(
        file: &FileId,
        key: &[u8],
        bytes: &[u8],
        live: &FxHashSet<SessionId>,
    ) -> Result<Record, Corrupt> {
        let mut record = Record::from_bytes(file, key, bytes)?;
        if record.holdings.iter().any(|(session, _)| !live.contains(&session)) {
            Arc::make_mut(&mut record.holdings).retain(|session| live.contains(&session));
        }
        Ok(record)
    }

    /// Reads the value of the row of `file` at `key`.
    pub fn from_bytes(file: &FileId, key: &[u8], bytes: &[u8]) -> Result<Record, Corrupt> {
        let stored: StoredRecord = exact(bytes).ok_or_else(|| Corrupt::at(key, "record"))?;
        Ok(stored.into_record(file))
    }
}

/// Decodes a value that ends where `bytes` do.
pub(crate) fn exact<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// Nanoseconds since the birth of the file: times are near it, or equal, and take few bytes.
type Since = i128;

fn since(base: Timestamp, time: Timestamp) -> Since {
    (i128::from(time.secs) - i128::from(base.secs)) * 1_000_000_000 + i128::from(time.nanos)
        - i128::from(base.nanos)
}

fn at(base: Timestamp, since: Since) -> Timestamp {
    let nanos = (i128::from(base.secs) * 1_000_000_000 + i128::from(base.nanos)).saturating_add(since);
    let secs = nanos.div_euclid(1_000_000_000).clamp(i64::MIN.into(), i64::MAX.into());
    Timestamp { secs: secs as i64, nanos: nanos.rem_euclid(1_000_000_000) as u32 }
}

/// [`Record`] as it is written: values that usually follow from others are left out.
#[derive(Serialize, Deserialize)]
struct StoredRecord {
    kind: FileKind,
    mode: u16,
    uid: u32,
    gid: u32,
    nlink: u32,
    ino: u64,
    rdev: u32,
    btime: (i64, u32),
    ctime: Since,
    atime: Since,
    xattrs: u32,
    /// The directory is absent where its identifier is the file's without the last integer.
    links: SmallVec<[(Option<FileId>, Label); 1]>,
    rare: Rare,
    content: Option<StoredContent>,
    directory: Option<StoredDirectory>,
    holdings: Holdings,
}

/// Values that hardly any file has: one byte for the others. The first two forms are those of
/// `Option`, as rows had them before there were locks.
#[derive(Serialize, Deserialize)]
enum Rare {
    Nothing,
    Disposition(Box<Disposition>),
    Locks(LockTable<(SessionId, u64)>),
    Both(Box<Disposition>, LockTable<(SessionId, u64)>),
}

impl Rare {
    fn of(disposition: Option<Box<Disposition>>, locks: LockTable<(SessionId, u64)>) -> Rare {
        match (disposition, locks.is_empty()) {
            (None, true) => Rare::Nothing,
            (Some(disposition), true) => Rare::Disposition(disposition),
            (None, false) => Rare::Locks(locks),
            (Some(disposition), false) => Rare::Both(disposition, locks),
        }
    }

    fn into_parts(self) -> (Option<Box<Disposition>>, LockTable<(SessionId, u64)>) {
        match self {
            Rare::Nothing => (None, LockTable::default()),
            Rare::Disposition(disposition) => (Some(disposition), LockTable::default()),
            Rare::Locks(locks) => (None, locks),
            Rare::Both(disposition, locks) => (Some(disposition), locks),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredContent {
    size: u64,
    mtime: Since,
    ctime: Since,
    version: u64,
    occupied: u64,
    key: Option<[u8; 32]>,
    inline_bytes: u32,
    extents: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredDirectory {
    mtime: Since,
    ctime: Since,
    generation: u64,
    next_integer: u64,
    unused_from: u64,
    children: u64,
}

impl StoredRecord {
    fn of(record: &Record, file: &FileId) -> StoredRecord {
        let Record { attributes, content, times, .. } = record;
        let base = attributes.btime;
        let parent = file.parent();
        let stored_content = StoredContent {
            size: content.size,
            mtime: since(base, content.mtime),
            ctime: since(base, content.ctime),
            version: content.version,
            occupied: content.occupied,
            key: content.key,
            inline_bytes: record.inline_bytes,
            extents: record.extents,
        };
        let stored_directory = StoredDirectory {
            mtime: since(base, times.mtime),
            ctime: since(base, times.ctime),
            generation: times.generation,
            next_integer: record.next_integer,
            unused_from: record.unused_from,
            children: record.children,
        };
        let link = |link: &Link| {
            let usual = parent.as_ref() == Some(&link.dir);
            ((!usual).then(|| link.dir.clone()), link.label.clone())
        };
        StoredRecord {
            kind: attributes.kind,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            nlink: attributes.links,
            ino: attributes.ino,
            rdev: attributes.rdev,
            btime: (base.secs, base.nanos),
            ctime: since(base, attributes.ctime),
            atime: since(base, attributes.atime),
            xattrs: record.xattrs,
            links: record.links.iter().map(link).collect(),
            rare: Rare::of(record.disposition.clone(), record.locks.clone()),
            content: (!record.is_directory()).then_some(stored_content),
            directory: record.is_directory().then_some(stored_directory),
            holdings: Holdings::clone(&record.holdings),
        }
    }

    fn into_record(self, file: &FileId) -> Record {
        let base = Timestamp { secs: self.btime.0, nanos: self.btime.1 };
        let attributes = Attributes {
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            links: self.nlink,
            ino: self.ino,
            rdev: self.rdev,
            ctime: at(base, self.ctime),
            btime: base,
            atime: at(base, self.atime),
        };
        let mut record = Record::born(attributes, ContentHead::default(), Times::default());
        record.xattrs = self.xattrs;
        (record.disposition, record.locks) = self.rare.into_parts();
        record.holdings = Arc::new(self.holdings);
        let parent = file.parent().unwrap_or_else(FileId::root);
        let link = |(dir, label): (Option<FileId>, Label)| Link {
            dir: dir.unwrap_or_else(|| parent.clone()),
            label,
        };
        record.links = self.links.into_iter().map(link).collect();
        if let Some(content) = self.content {
            let StoredContent { size, mtime, ctime, version, occupied, key, inline_bytes, extents } = content;
            let (mtime, ctime) = (at(base, mtime), at(base, ctime));
            record.content = ContentHead { size, mtime, ctime, version, occupied, key };
            (record.inline_bytes, record.extents) = (inline_bytes, extents);
        }
        if let Some(directory) = self.directory {
            let StoredDirectory { mtime, ctime, generation, next_integer, unused_from, children } = directory;
            record.times = Times { mtime: at(base, mtime), ctime: at(base, ctime), generation };
            (record.next_integer, record.unused_from, record.children) =
                (next_integer, unused_from, children);
        }
        record
    }
}

/// A child row's value: the identifier is left out in the most common case, where it is the usual
/// one.
#[derive(Serialize, Deserialize)]
struct StoredEntry {
    kind: FileKind,
    ino: u64,
    position: u64,
    file: Option<FileId>,
}

/// The value of the row of a label of `dir` that is bound to `entry`.
pub(crate) fn entry_to_bytes(dir: &FileId, entry: &Entry) -> Vec<u8> {
    let usual = FileId::for_child(dir, entry.position, entry.ino) == entry.file;
    let file = (!usual).then(|| entry.file.clone());
    let stored = StoredEntry { kind: entry.kind, ino: entry.ino, position: entry.position, file };
    wire::encode(&stored)
}

/// Reads the value of a label's row at `key`.
pub(crate) fn entry_from_bytes(dir: &FileId, key: &[u8], bytes: &[u8]) -> Result<Entry, Corrupt> {
    let stored: StoredEntry = exact(bytes).ok_or_else(|| Corrupt::at(key, "entry"))?;
    let StoredEntry { kind, ino, position, file } = stored;
    let file = file.unwrap_or_else(|| FileId::for_child(dir, position, ino));
    Ok(Entry { file, kind, ino, position })
}

#[cfg(test)]
mod tests {
    use super::*;
    use namespace::{LockKind, LockRange, LockSpace};

    const TIMES: [Timestamp; 4] = [
        Timestamp { secs: i64::MIN, nanos: 999_999_999 },
        Timestamp { secs: -1, nanos: 1 },
        Timestamp { secs: 1_700_000_000, nanos: 0 },
        Timestamp { secs: i64::MAX, nanos: 999_999_999 },
    ];

    fn record(kind: FileKind, base: Timestamp, other: Timestamp) -> Record {
        let attributes = Attributes {
            kind,
            mode: 0o7777,
            uid: 1000,
            gid: u32::MAX,
            links: 2,
            ino: 77,
            rdev: 3,
            ctime: other,
            btime: base,
            atime: base,
        };
        let key = Some([9; 32]);
        let content = ContentHead { size: 1, mtime: other, ctime: base, version: 5, occupied: 1, key };
        let directory = kind == FileKind::Directory;
        let times = Times { mtime: other, ctime: base, generation: 3 };
        let mut record = Record::born(attributes, content, times);
        let label = |name: &[u8]| Label::new(name).unwrap();
        record.links.push(Link { dir: FileId::root().child(5), label: label(b"usual") });
        record.links.push(Link { dir: FileId::root().child(6), label: label(b"elsewhere") });
        record.xattrs = 2;
        let link = record.links[1].clone();
        record.disposition = (other != base).then(|| Box::new(Disposition { link, since: other }));
        if directory || other == base {
            let (space, kind) = (LockSpace::Posix, Some(LockKind::Write));
            record.locks.set(space, &(SessionId(7), u64::MAX), LockRange::WHOLE, kind, 77);
        }
        if directory {
            record.content = ContentHead::default();
            (record.next_integer, record.unused_from, record.children) = (300, 200, 12);
            Arc::make_mut(&mut record.holdings).grant_whole(SessionId(7));
        } else {
            record.times = Times::default();
            (record.inline_bytes, record.extents) = (1, 0);
        }
        record
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let file = FileId::root().child(5).child(9);
        for kind in [FileKind::Directory, FileKind::Regular, FileKind::Symlink] {
            for (base, other) in TIMES.into_iter().flat_map(|base| TIMES.map(|other| (base, other))) {
                let record = record(kind, base, other);
                assert_eq!(Record::from_bytes(&file, &[], &record.to_bytes(&file)), Ok(record));
            }
        }
    }

    #[test]
    fn a_file_where_it_was_made_takes_few_bytes() {
        let file = FileId::root().child(5).child(9);
        let mut record = record(FileKind::Regular, TIMES[2], TIMES[2]);
        record.links.truncate(1);
        (record.content.key, record.attributes.gid, record.disposition) = (None, 100, None);
        record.locks = LockTable::default();
        let row = record.to_bytes(&file);
        assert!(row.len() < 48, "{} bytes", row.len());
        let usual = Entry { file, kind: FileKind::Regular, ino: 1_000_000, position: 9 };
        assert_eq!(entry_to_bytes(&FileId::root().child(5), &usual).len(), 6);
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let dir = FileId::root().child(5);
        for file in [dir.child(9), FileId::root().child(9), FileId::root()] {
            let entry = Entry { file, kind: FileKind::Fifo, ino: 7, position: 9 };
            assert_eq!(entry_from_bytes(&dir, &[], &entry_to_bytes(&dir, &entry)), Ok(entry));
        }
    }
}
