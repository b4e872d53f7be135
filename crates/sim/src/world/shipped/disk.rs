//! A server's disk: files in memory. A crash loses unsynced writes, or some of them, or tears them.
//! An ended process can no longer write. The disk may also rot, be full, or acknowledge syncs and
//! keep nothing.

use parking_lot::{Mutex, MutexGuard};
use raft::{DiskFile, Life, RowFile, RowStoreError, StoreSettings};
use rustc_hash::FxHasher;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Bytes that a disk writes as a whole.
const SECTOR: usize = 512;
/// A segment of the log (`raft`): bytes before its first frame, bytes of each frame's header, and
/// the alignment of frames.
const SEGMENT_HEADER: usize = 64;
const FRAME_HEADER: usize = 32;
const ALIGNMENT: usize = 64;
/// Bytes of a frame's header without meaning.
const UNUSED: std::ops::Range<usize> = 12..16;

/// A server's disk, shared by the processes that use it.
#[derive(Clone, Default)]
pub(super) struct Disk(Arc<Mutex<DiskState>>);

#[derive(Clone, Default)]
struct DiskState {
    files: BTreeMap<u64, Content>,
    made: u64,
    names: BTreeMap<PathBuf, u64>,
    /// Names that a crash leaves, and the changes of names since, in order.
    durable: BTreeMap<PathBuf, u64>,
    renamed: Vec<Renamed>,
    /// Counts processes; only the latest may use the files.
    process: u64,
    /// Number of writes and syncs after which that process ends.
    left: Option<(u64, Weak<Life>)>,
    /// The disk has room only for bytes that were written before, or reserved.
    full: bool,
    /// The disk acknowledges syncs and keeps nothing.
    lies: bool,
}

/// A change of names.
#[derive(Clone)]
enum Renamed {
    Made(PathBuf, u64),
    From(PathBuf, PathBuf),
    Removed(PathBuf),
}

/// A file's content, and the changes since its last sync.
#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    unsynced: Vec<DiskChange>,
    /// Bytes of the file for which the disk has room.
    room: usize,
}

/// A write or a new length. `old` is the content before, which is shorter than `new` where the file
/// ended.
#[derive(Clone)]
struct DiskChange {
    at: usize,
    old: Vec<u8>,
    new: New,
}

#[derive(Clone)]
enum New {
    Written(Vec<u8>),
    Length(usize),
}

impl Content {
    fn redo(&mut self, at: usize, new: &[u8]) {
        let end = at + new.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(new);
    }

    fn undo(&mut self, change: &DiskChange) {
        if let New::Written(new) = &change.new
            && change.old.len() == new.len()
        {
            return self.redo(change.at, &change.old);
        }
        // The change made the file longer or shorter.
        self.bytes.truncate(change.at);
        self.bytes.extend_from_slice(&change.old);
    }

    /// Applies a crash: `seed` chooses the unsynced changes that are kept.
    fn crashes(&mut self, seed: u64) {
        let changes = std::mem::take(&mut self.unsynced);
        changes.iter().rev().for_each(|change| self.undo(change));
        let mood = chosen(&seed, 4);
        for change in &changes {
            let at = change.at;
            match &change.new {
                New::Length(bytes) if mood > 0 => self.bytes.resize(*bytes, 0),
                New::Written(new) => {
                    for (sector, new) in new.chunks(SECTOR).enumerate() {
                        let at = at + sector * SECTOR;
                        let kept = match mood {
                            0 => false,
                            1 => true,
                            // Whole writes, or sectors of them.
                            2 => chosen(&(seed, change.at), 2) == 0,
                            _ => chosen(&(seed, at), 2) == 0,
                        };
                        if kept {
                            self.redo(at, new);
                        }
                    }
                }
                New::Length(_) => {}
            }
        }
    }
}

/// A number less than `bound` that depends on `what` alone.
fn chosen(what: &impl Hash, bound: u64) -> u64 {
    let mut hasher = FxHasher::default();
    what.hash(&mut hasher);
    (hasher.finish() >> 20) % bound
}

fn no_file() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl DiskState {
    fn apply(names: &mut BTreeMap<PathBuf, u64>, renamed: &Renamed) {
        match renamed {
            Renamed::Made(path, file) => _ = names.insert(path.clone(), *file),
            Renamed::From(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Renamed::Removed(path) => _ = names.remove(path),
        }
    }

    fn renames(&mut self, renamed: Renamed) {
        DiskState::apply(&mut self.names, &renamed);
        self.renamed.push(renamed);
    }

    fn keeps_names(&mut self) {
        if !self.lies {
            self.durable = self.names.clone();
            self.renamed.clear();
        }
    }

    /// Reserves room for so many bytes of that file.
    fn makes_room(&mut self, file: u64, bytes: usize) -> io::Result<()> {
        let full = self.full;
        let content = self.files.get_mut(&file).ok_or_else(no_file)?;
        if full && bytes > content.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        content.room = content.room.max(bytes);
        Ok(())
    }

    /// Counts one more write or sync of that process.
    fn takes(&mut self, process: u64) -> io::Result<()> {
        if self.process != process {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if let Some((left, life)) = &mut self.left {
            if *left == 0 {
                life.upgrade().inspect(|life| life.end());
                self.left = None;
                self.process += 1;
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            *left -= 1;
        }
        Ok(())
    }
}

impl Disk {
    /// From now on the disk acknowledges syncs and keeps nothing.
    pub fn lies(&self) {
        self.0.lock().lies = true;
    }

    /// Fills the disk, or gives it room again.
    pub fn fills(&self, full: bool) {
        self.0.lock().full = full;
    }

    /// Whether it is full.
    pub fn is_full(&self) -> bool {
        self.0.lock().full
    }

    /// A copy of this disk, unsynced changes included.
    pub fn copied(&self) -> Disk {
        let state = self.0.lock();
        Disk(Arc::new(Mutex::new(DiskState { left: None, ..state.clone() })))
    }

    /// The disk as the process that begins now uses it.
    pub fn held(&self) -> Arc<dyn raft::Disk> {
        let process = self.0.lock().process;
        Arc::new(HeldFile { disk: self.clone(), process })
    }

    /// Ends the present process after so many writes and syncs.
    pub fn ends_after(&self, left: u64, life: &Arc<Life>) {
        self.0.lock().left = Some((left, Arc::downgrade(life)));
    }

    /// The process is gone. Its remaining tasks write nothing, as after a kill -9.
    pub fn loses_process(&self) {
        self.0.lock().process += 1;
    }

    /// The process ends. `seed` chooses the unsynced changes that are kept.
    pub fn crashes(&self, seed: u64) {
        let mut state = self.0.lock();
        state.process += 1;
        state.left = None;
        let kept = chosen(&(seed, 1), state.renamed.len() as u64 + 1) as usize;
        let renamed = std::mem::take(&mut state.renamed);
        let mut names = state.durable.clone();
        renamed.iter().take(kept).for_each(|renamed| DiskState::apply(&mut names, renamed));
        (state.names, state.durable) = (names.clone(), names);
        let DiskState { files, names, .. } = &mut *state;
        files.retain(|file, _| names.values().any(|kept| kept == file));
        for (number, content) in files {
            content.crashes(seed ^ number);
        }
    }

    /// Makes one of the log's frames rot: two of its bits flip (a single one would be repaired), or
    /// a sector is empty. The last acknowledged frame does not rot: it would look like one that was
    /// being written. Returns whether there was a frame.
    pub fn rots(&self, seed: u64) -> bool {
        let mut state = self.0.lock();
        let logs = state.names.iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "log"));
        let mut frames: Vec<(u64, usize, usize)> = Vec::new();
        for (path, file) in logs {
            let Some(content) = state.files.get(file) else { continue };
            let first = path.file_stem().and_then(|name| name.to_str()?.parse().ok());
            let mut found = frames_of(&content.bytes, first.unwrap_or_default());
            // The last frame was acknowledged, or a crash has torn it and the one before was.
            found.truncate(found.len().saturating_sub(2));
            frames.extend(found.into_iter().map(|(at, bytes)| (*file, at, bytes)));
        }
        let Some((file, frame, bytes)) = frames.get(chosen(&seed, frames.len().max(1) as u64) as usize)
        else {
            return false;
        };
        let Some(content) = state.files.get_mut(file) else { return false };
        let (frame, bytes) = (*frame, *bytes);
        let mut at = frame + chosen(&(seed, 2), bytes as u64) as usize;
        if UNUSED.contains(&(at - frame)) {
            at = frame;
        }
        if chosen(&(seed, 3), 2) == 0 || content.bytes[at] == 0 {
            content.bytes[at] ^= 0b11 << chosen(&(seed, 4), 7);
        } else {
            // Only this frame's part of the sector: later frames show that this one was there.
            let (sector, end) = (at / SECTOR * SECTOR, (at / SECTOR + 1) * SECTOR);
            content.bytes[sector.max(frame)..end.min(frame + bytes)].fill(0);
        }
        true
    }
}

/// The frames of a segment of the log, each with its place and its length without padding. The
/// segment's name gives its first frame's number. Frames of the segment's former use do not count.
fn frames_of(segment: &[u8], first: u64) -> Vec<(usize, usize)> {
    let mut frames = Vec::new();
    let (mut at, mut next) = (SEGMENT_HEADER, first);
    while let Some(header) = segment.get(at..at + FRAME_HEADER) {
        let number = u64::from_le_bytes(header[..8].try_into().unwrap_or_default());
        let body = u32::from_le_bytes(header[8..12].try_into().unwrap_or_default()) as usize;
        if number == 0 || number != next {
            break;
        }
        next = number + 1;
        frames.push((at, FRAME_HEADER + body));
        at += (FRAME_HEADER + body).next_multiple_of(ALIGNMENT);
    }
    frames
}

/// A file as a process has it open.
struct File {
    disk: Disk,
    file: u64,
    process: u64,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("file", &self.file).finish_non_exhaustive()
    }
}

impl File {
    fn with<T>(&self, what: impl FnOnce(&mut Content) -> io::Result<T>) -> io::Result<T> {
        // A process that has ended may still read: only the simulation sees the bytes.
        let mut state = self.disk.0.lock();
        what(state.files.get_mut(&self.file).ok_or_else(no_file)?)
    }

    fn changes(&self, what: impl FnOnce(&mut Content)) -> io::Result<()> {
        self.disk.0.lock().takes(self.process)?;
        self.with(|content| {
            what(content);
            Ok(())
        })
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        self.with(|content| Ok(content.bytes.len() as u64))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let bytes = bytes as usize;
        self.changes(|content| {
            let at = bytes.min(content.bytes.len());
            let old = content.bytes[at..].to_vec();
            if bytes < content.bytes.len() {
                content.room = content.room.min(bytes);
            }
            content.unsynced.push(DiskChange { at, old, new: New::Length(bytes) });
            content.bytes.resize(bytes, 0);
        })
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.changes(|_| {})?;
        self.disk.0.lock().makes_room(self.file, bytes as usize)
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        let at = at as usize;
        self.with(|content| {
            let found = content.bytes.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            out.copy_from_slice(found);
            Ok(())
        })
    }

    fn write_at(&self, data: &[u8], at: u64) -> io::Result<()> {
        let at = at as usize;
        self.disk.0.lock().makes_room(self.file, at + data.len())?;
        self.changes(|content| {
            let end = (at + data.len()).min(content.bytes.len());
            let old = content.bytes.get(at..end).unwrap_or_default().to_vec();
            content.unsynced.push(DiskChange { at, old, new: New::Written(data.to_vec()) });
            content.redo(at, data);
        })
    }

    fn forget(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.takes(self.process)?;
        // As on ext4: the sync of a new file makes its name durable, and all earlier changes of
        // names.
        if !state.durable.values().any(|file| *file == self.file) {
            state.keeps_names();
        }
        let lies = state.lies;
        drop(state);
        self.with(|content| {
            if !lies {
                content.unsynced.clear();
            }
            Ok(())
        })
    }
}

/// A disk as a process uses it.
struct HeldFile {
    disk: Disk,
    process: u64,
}

impl HeldFile {
    fn state(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let state = self.disk.0.lock();
        if state.process == self.process { Ok(state) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn renames(&self, path: &Path, renamed: Renamed) -> io::Result<()> {
        let mut state = self.state()?;
        if !state.names.contains_key(path) {
            return Err(no_file());
        }
        state.renames(renamed);
        Ok(())
    }
}

impl raft::Disk for HeldFile {
    fn open(&self, path: &Path, make: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state()?;
        let file = match state.names.get(path) {
            Some(file) => *file,
            None if make => {
                state.made += 1;
                let file = state.made;
                state.files.insert(file, Content::default());
                state.renames(Renamed::Made(path.to_owned(), file));
                file
            }
            None => return Err(no_file()),
        };
        Ok(Arc::new(File { disk: self.disk.clone(), file, process: self.process }))
    }

    fn make_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state()?;
        let within = state.names.keys().filter_map(|path| path.strip_prefix(dir).ok());
        Ok(within.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.renames(from, Renamed::From(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.renames(path, Renamed::Removed(path.to_owned()))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.state()?.keeps_names();
        Ok(())
    }

    fn open_rows(&self, path: &Path, settings: StoreSettings) -> Result<Arc<RowFile>, RowStoreError> {
        RowFile::open_on(self, path, settings)
    }
}
