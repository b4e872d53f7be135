//! Writes answers in the kernel's own form (linux/fuse.h).

use bytes::Bytes;
use device::{After, Returns, Slot};
use file_service::Underway;
use namespace::Timestamp;
use rustix::io::{Errno as Sys, writev};
use smallvec::SmallVec;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::call::REQUEST_BYTES_MAX;
use crate::errno::Errno;

/// Answers one request. A reply that is dropped without an answer says EIO, since the asker must
/// not wait for ever.
pub struct KernelReply {
    unique: u64,
    to: Option<To>,
    after: Option<After>,
    underway: Option<Underway>,
}

/// The destination of an answer: where the request came from.
pub(super) enum To {
    /// The answer is written to the device.
    Device(Arc<OwnedFd>),
    /// The answer is put into the request's slot.
    Ring(Slot, Arc<Returns>),
    /// The kernel waits for no answer.
    Nowhere,
}

/// A file's attributes, as the kernel has them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Attr {
    pub ino: u64,
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Answered only to statx.
    pub btime: Timestamp,
    /// Includes the kind of file.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
}

/// A name's file, which thereby counts as given to the kernel once more. Node 0 means that there is
/// none.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct EntryReply {
    pub node: u64,
    pub attr: Attr,
    /// How long the name is this file's.
    pub entry_ttl: Duration,
    /// How long the attributes are valid.
    pub attr_ttl: Duration,
}

/// How the kernel treats an open file's pages: `FOPEN_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// It reads and writes past its pages.
    Past,
    /// Its pages are still right, and stay.
    Keep,
    /// Its pages may be wrong, and are dropped.
    Drop,
}

/// The values that statfs shows.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Totals {
    pub block_bytes: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_bytes_max: u32,
}

/// The block size that programs are advised to read and write with. Each write(2) is one request,
/// so stdio should not write by pages.
const BLOCK_BYTES: u32 = 1 << 16;

// linux/stat.h
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// Room for the longest answer of a fixed size: an entry and how it was opened.
type FixedReply = SmallVec<[u8; 160]>;

impl KernelReply {
    pub(super) fn new(unique: u64, to: To) -> KernelReply {
        KernelReply { unique, to: Some(to), after: None, underway: None }
    }

    /// Has `after` called once the kernel has the answer. A ring brings it there later than the
    /// answer is given here.
    pub(super) fn before(mut self, after: impl FnOnce() + Send + 'static) -> KernelReply {
        self.after = Some(Box::new(after));
        self
    }

    /// Counts the operation once it is answered.
    pub(super) fn ends(mut self, underway: Option<Underway>) -> KernelReply {
        self.underway = underway;
        self
    }

    /// Answers an error.
    pub fn error(self, errno: Errno) {
        self.send(errno.0.saturating_neg(), &[]);
    }

    /// Answers success without a value.
    pub fn done(self) {
        self.send(0, &[]);
    }

    /// Answers a name's file.
    pub fn entry(self, entry: &EntryReply) {
        self.fields(entry_fields(entry));
    }

    /// Answers a new file that is open as well.
    pub fn created(self, entry: &EntryReply, handle: u64, pages: Pages) {
        let mut fields = entry_fields(entry);
        fields.extend(open_fields(handle, pages));
        self.fields(fields);
    }

    /// Answers a file's attributes.
    pub fn attr(self, attr: &Attr, ttl: Duration) {
        let mut fields = FixedReply::new();
        put64(&mut fields, ttl.as_secs());
        put32(&mut fields, &[ttl.subsec_nanos(), 0]);
        attr_fields(attr, &mut fields);
        self.fields(fields);
    }

    /// Answers a file's attributes with the time of creation: `struct fuse_statx_out`.
    pub fn statx(self, attr: &Attr, ttl: Duration) {
        let mut fields = FixedReply::new();
        put64(&mut fields, ttl.as_secs());
        put32(&mut fields, &[ttl.subsec_nanos(), 0]);
        [0, 0].into_iter().for_each(|spare| put64(&mut fields, spare));
        put32(&mut fields, &[STATX_BASIC_STATS | STATX_BTIME, BLOCK_BYTES]);
        put64(&mut fields, 0);
        // The mode has 16 bits, with as many of padding behind it.
        put32(&mut fields, &[attr.links, attr.uid, attr.gid]);
        fields.extend_from_slice(&(attr.mode as u16).to_ne_bytes());
        fields.extend_from_slice(&[0; 2]);
        for number in [attr.ino, attr.size, attr.blocks, 0] {
            put64(&mut fields, number);
        }
        for time in [attr.atime, attr.btime, attr.ctime, attr.mtime] {
            put64(&mut fields, time.secs.cast_unsigned());
            put32(&mut fields, &[time.nanos, 0]);
        }
        // Device numbers in the kernel's internal form.
        let (major, minor) = (attr.rdev >> 8 & 0xfff, attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00);
        put32(&mut fields, &[major, minor, 0, 0]);
        [0; 14].into_iter().for_each(|spare| put64(&mut fields, spare));
        self.fields(fields);
    }

    /// Answers an open file's handle.
    pub fn opened(self, handle: u64, pages: Pages) {
        self.fields(open_fields(handle, pages));
    }

    /// Answers how many bytes were written.
    pub fn written(self, bytes: u32) {
        self.words(&[bytes, 0]);
    }

    /// Answers the size of an attribute in bytes.
    pub fn size(self, bytes: u32) {
        self.words(&[bytes, 0]);
    }

    /// Answers bytes.
    pub fn data(self, data: &[u8]) {
        self.send(0, &[data]);
    }

    /// Answers bytes, in parts.
    pub fn parts(self, parts: &[Bytes]) {
        let parts: SmallVec<[&[u8]; 16]> = parts.iter().map(|part| &part[..]).collect();
        self.send(0, &parts);
    }

    /// Answers the offset of data or of a hole.
    pub fn offset(self, offset: u64) {
        let mut fields = FixedReply::new();
        put64(&mut fields, offset);
        self.fields(fields);
    }

    /// Answers a lock that is in the way: `first`, `last`, `F_*`, the process.
    pub fn lock(self, first: u64, last: u64, kind: i32, pid: u32) {
        let mut fields = FixedReply::new();
        put64(&mut fields, first);
        put64(&mut fields, last);
        put32(&mut fields, &[kind.cast_unsigned(), pid]);
        self.fields(fields);
    }

    /// Answers total and free space.
    pub fn totals(self, of: &Totals) {
        let mut fields = FixedReply::new();
        for number in [of.blocks, of.blocks_free, of.blocks_free, of.files, of.files_free] {
            put64(&mut fields, number);
        }
        put32(&mut fields, &[of.block_bytes, of.name_bytes_max, of.block_bytes, 0]);
        put32(&mut fields, &[0; 6]);
        self.fields(fields);
    }

    /// Answers a page of a listing.
    pub fn lines(self, lines: &Lines) {
        self.data(&lines.bytes);
    }

    fn words(self, words: &[u32]) {
        let mut fields = FixedReply::new();
        put32(&mut fields, words);
        self.fields(fields);
    }

    fn fields(self, fields: FixedReply) {
        self.send(0, &[&fields]);
    }

    /// Sends the answer. `error` is negative, or 0.
    fn send(mut self, error: i32, parts: &[&[u8]]) {
        if let Some(to) = self.to.take() {
            // Counted before any program can see the answer.
            drop(self.underway.take());
            to.send(self.unique, error, parts, self.after.take());
        }
    }
}

impl Drop for KernelReply {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            if !matches!(to, To::Nowhere) {
                tracing::error!(unique = self.unique, "a request without an answer");
            }
            to.send(self.unique, -libc::EIO, &[], self.after.take());
        }
    }
}

impl To {
    fn send(self, unique: u64, error: i32, parts: &[&[u8]], after: Option<After>) {
        match self {
            To::Device(device) => {
                let length = 16 + parts.iter().map(|part| part.len()).sum::<usize>();
                let mut header = [0; 16];
                header[..4].copy_from_slice(&(length as u32).to_ne_bytes());
                header[4..8].copy_from_slice(&error.to_ne_bytes());
                header[8..].copy_from_slice(&unique.to_ne_bytes());
                let header = IoSlice::new(&header);
                let parts: SmallVec<[IoSlice<'_>; 17]> =
                    std::iter::once(header).chain(parts.iter().map(|part| IoSlice::new(part))).collect();
                match writev(device, &parts) {
                    // The asker was killed before it was answered, or the mount is gone.
                    Ok(_) | Err(Sys::NOENT | Sys::NODEV) => {}
                    Err(errno) => tracing::error!(unique, %errno, "an answer that the kernel does not take"),
                }
                if let Some(after) = after {
                    after();
                }
            }
            To::Ring(mut slot, returns) => {
                slot.answer(unique, error, parts, after);
                returns.put(slot);
            }
            To::Nowhere => {}
        }
    }
}

/// A page of a listing, of limited size.
pub struct Lines {
    bytes: Vec<u8>,
    room: usize,
}

impl Lines {
    /// An empty page for a request with room for `room` bytes.
    pub fn new(room: u32) -> Lines {
        Lines { bytes: Vec::new(), room: room.min(REQUEST_BYTES_MAX) as usize }
    }

    /// Adds a line, with `entry` if the request wants entries. `mode` has the kind of file;
    /// `cookie` is where the listing goes on after the line. Whether there was room.
    pub fn push(
        &mut self,
        entry: Option<&EntryReply>,
        ino: u64,
        cookie: u64,
        mode: u32,
        name: &[u8],
    ) -> bool {
        // `struct fuse_dirent`, padded to a multiple of 8 bytes.
        let line = (24 + name.len()).next_multiple_of(8);
        if self.bytes.len() + entry.map_or(0, |_| ENTRY_BYTES) + line > self.room {
            return false;
        }
        if let Some(entry) = entry {
            self.bytes.extend(entry_fields(entry));
        }
        let end = self.bytes.len() + line;
        self.bytes.extend(ino.to_ne_bytes());
        self.bytes.extend(cookie.to_ne_bytes());
        self.bytes.extend((name.len() as u32).to_ne_bytes());
        self.bytes.extend((mode >> 12 & 0xf).to_ne_bytes());
        self.bytes.extend(name);
        self.bytes.resize(end, 0);
        true
    }
}

/// `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 128;

fn entry_fields(entry: &EntryReply) -> FixedReply {
    let mut fields = FixedReply::new();
    // Inode numbers are never used again, and so neither are nodes: each has one generation.
    for number in [entry.node, 0, entry.entry_ttl.as_secs(), entry.attr_ttl.as_secs()] {
        put64(&mut fields, number);
    }
    put32(&mut fields, &[entry.entry_ttl.subsec_nanos(), entry.attr_ttl.subsec_nanos()]);
    attr_fields(&entry.attr, &mut fields);
    fields
}

/// `struct fuse_attr`.
fn attr_fields(attr: &Attr, fields: &mut FixedReply) {
    let times = [attr.atime, attr.mtime, attr.ctime];
    for number in [attr.ino, attr.size, attr.blocks] {
        put64(fields, number);
    }
    for time in times {
        put64(fields, time.secs.cast_unsigned());
    }
    put32(fields, &times.map(|time| time.nanos.min(999_999_999)));
    put32(fields, &[attr.mode, attr.links, attr.uid, attr.gid, attr.rdev, BLOCK_BYTES, 0]);
}

/// `struct fuse_open_out`.
fn open_fields(handle: u64, pages: Pages) -> FixedReply {
    let flags = match pages {
        Pages::Past => 1,
        Pages::Keep => 1 << 1,
        Pages::Drop => 0,
    };
    let mut fields = FixedReply::new();
    put64(&mut fields, handle);
    put32(&mut fields, &[flags, 0]);
    fields
}

fn put64(fields: &mut FixedReply, number: u64) {
    fields.extend_from_slice(&number.to_ne_bytes());
}

fn put32(fields: &mut FixedReply, numbers: &[u32]) {
    for number in numbers {
        fields.extend_from_slice(&number.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_as_long_as_the_kernels_structures() {
        let entry = EntryReply {
            node: 3,
            attr: Attr { ino: 3, mode: libc::S_IFREG | 0o644, ..Attr::default() },
            entry_ttl: Duration::from_millis(1500),
            attr_ttl: Duration::ZERO,
        };
        let fields = entry_fields(&entry);
        assert_eq!((fields.len(), open_fields(1, Pages::Past).len()), (ENTRY_BYTES, 16));
        assert_eq!(
            (&fields[16..24], &fields[32..36]),
            (&1u64.to_ne_bytes()[..], &500_000_000u32.to_ne_bytes()[..])
        );
        // The mode comes after 40 bytes of the entry, six numbers of 8 bytes and three of 4.
        assert_eq!(fields[100..104], (libc::S_IFREG | 0o644).to_ne_bytes());
    }

    #[test]
    fn a_page_holds_whole_lines() {
        let mut lines = Lines::new(100);
        assert!(lines.push(None, 5, 1, libc::S_IFDIR, b"nine char"));
        assert_eq!(lines.bytes.len(), 40);
        assert_eq!(
            (&lines.bytes[20..24], &lines.bytes[24..33]),
            (&4u32.to_ne_bytes()[..], &b"nine char"[..])
        );
        assert!(lines.push(None, 6, 2, libc::S_IFREG, b"12345678"));
        assert!(!lines.push(None, 7, 3, libc::S_IFREG, b"12345"));
        assert_eq!(lines.bytes.len(), 72);
    }
}
