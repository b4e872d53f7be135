//! A FUSE file system of one file, `disk`, that records every write and flush of it. A loop device
//! makes the file a block device. The loop driver turns the block layer's flushes into fsync. Any
//! other file made here holds notes.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};
use parking_lot::Mutex;

use crate::record::{self, DiskEvent};

/// The disk's name.
pub const DISK: &str = "disk";
const DISK_INO: u64 = 2;
/// Nothing is cached: sizes change with every note.
const TTL: Duration = Duration::ZERO;

struct RecorderState {
    record: File,
    /// Name and content of each file of notes; the first has the inode number after the disk's.
    notes: Vec<(String, Vec<u8>)>,
}

struct Recorder {
    disk: File,
    disk_size: u64,
    state: Mutex<RecorderState>,
}

/// Serves the disk at `mount` until the mount is gone, and records to `record`. `backing` holds the
/// disk's present bytes.
pub fn serve(disk_size: u64, backing: File, record: File, mount: &Path) -> io::Result<()> {
    backing.set_len(disk_size)?;
    let state = Mutex::new(RecorderState { record, notes: Vec::new() });
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("powercut".into())];
    fuser::mount(Recorder { disk: backing, disk_size, state }, mount, &config)
}

impl RecorderState {
    fn note_index(ino: INodeNo) -> Option<usize> {
        usize::try_from(u64::from(ino).checked_sub(DISK_INO + 1)?).ok()
    }

    fn note(&mut self, ino: INodeNo) -> Option<&mut (String, Vec<u8>)> {
        self.notes.get_mut(Self::note_index(ino)?)
    }

    fn add(&mut self, event: &DiskEvent) -> Result<(), Errno> {
        record::append(&mut self.record, event).map_err(Errno::from)
    }
}

impl Recorder {
    fn attributes(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, size) = match u64::from(ino) {
            1 => (FileType::Directory, 0o755, 0),
            DISK_INO => (FileType::RegularFile, 0o644, self.disk_size),
            _ => match self.state.lock().note(ino) {
                Some((_, content)) => (FileType::RegularFile, 0o644, content.len() as u64),
                None => return Err(Errno::ENOENT),
            },
        };
        Ok(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        })
    }

    fn ino_of(&self, name: &OsStr) -> Option<INodeNo> {
        if name == DISK {
            return Some(INodeNo(DISK_INO));
        }
        let at = self.state.lock().notes.iter().position(|(file, _)| name == file.as_str())?;
        Some(INodeNo(DISK_INO + 1 + at as u64))
    }

    fn take_write(&self, ino: INodeNo, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if u64::from(ino) == DISK_INO {
            self.disk.write_all_at(data, offset)?;
            return state.add(&DiskEvent::Write { offset, data: data.to_vec() });
        }
        // Notes are only appended, so the offset is ignored: it is where the kernel believes the
        // end to be.
        let (file, content) = state.note(ino).ok_or(Errno::ENOENT)?;
        content.extend_from_slice(data);
        let file = file.clone();
        state.add(&DiskEvent::Note { file, data: data.to_vec() })
    }
}

impl Filesystem for Recorder {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.ino_of(name).ok_or(Errno::ENOENT).and_then(|ino| self.attributes(ino)) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn create(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        let Some(name) = name.to_str() else { return reply.error(Errno::EINVAL) };
        let ino = {
            let notes = &mut self.state.lock().notes;
            notes.push((name.to_owned(), Vec::new()));
            INodeNo(DISK_INO + notes.len() as u64)
        };
        match self.attributes(ino) {
            Ok(attributes) => {
                reply.created(&TTL, &attributes, Generation(0), FileHandle(0), FopenFlags::FOPEN_DIRECT_IO)
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // A write is answered once it is in the record. So there is no page cache in between.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if u64::from(ino) != DISK_INO {
            let mut state = self.state.lock();
            let content =
                state.note(ino).and_then(|(_, content)| content.get(offset as usize..)).unwrap_or(&[]);
            return reply.data(content.get(..size as usize).unwrap_or(content));
        }
        let mut bytes = vec![0; size.min(self.disk_size.saturating_sub(offset) as u32) as usize];
        match self.disk.read_exact_at(&mut bytes, offset) {
            Ok(()) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.take_write(ino, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let done = if u64::from(ino) == DISK_INO { self.state.lock().add(&DiskEvent::Flush) } else { Ok(()) };
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        // Without fallocate the loop device offers no discard. A discard that a cut may undo would
        // need a record of its own.
        reply.error(Errno::EOPNOTSUPP);
    }
}
