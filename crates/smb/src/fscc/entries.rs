//! Entries of listings (MS-FSCC §2.4, the directory information classes).

use super::short_names::shortened;
use super::{posix_sids, reparse_tag};
use crate::time::filetime;
use crate::wire::{NtStatus, Writer, utf16};
use objects::ListedEntry;

/// A class of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryLevel {
    Directory,
    Full,
    Both,
    Names,
    IdBoth,
    IdFull,
    IdExtended,
    IdExtendedBoth,
    Posix,
}

impl EntryLevel {
    /// Returns the class of a number.
    pub(crate) fn of(class: u8, has_posix: bool) -> Result<EntryLevel, NtStatus> {
        Ok(match class {
            1 => EntryLevel::Directory,
            2 => EntryLevel::Full,
            3 => EntryLevel::Both,
            12 => EntryLevel::Names,
            37 => EntryLevel::IdBoth,
            38 => EntryLevel::IdFull,
            60 => EntryLevel::IdExtended,
            63 => EntryLevel::IdExtendedBoth,
            100 if has_posix => EntryLevel::Posix,
            _ => return Err(NtStatus::INVALID_INFO_CLASS),
        })
    }

    fn emit(self, out: &mut Vec<u8>, entry: &ListedEntry) {
        let (name, info) = (utf16(&entry.name), &entry.info);
        let tag = reparse_tag(info);
        out.u32(0);
        out.u32(0);
        if self != EntryLevel::Names {
            for time in [info.created, info.accessed, info.written, info.changed] {
                out.u64(filetime(time));
            }
            out.u64(info.size);
            out.u64(info.allocation);
            out.u32(info.attributes.0);
        }
        if self == EntryLevel::Posix {
            out.u64(info.number);
            out.u64(0);
            out.u32(info.links);
            out.u32(tag);
            out.u32(info.posix.mode & 0o7777);
            out.put(&posix_sids(info));
        }
        out.u32(name.len() as u32);
        // EaSize, which for a link is its tag.
        match self {
            EntryLevel::Full | EntryLevel::Both | EntryLevel::IdBoth | EntryLevel::IdFull => {
                out.u32(if info.is_link { tag } else { entry.ea_size });
            }
            EntryLevel::IdExtended | EntryLevel::IdExtendedBoth => {
                out.u32(entry.ea_size);
                out.u32(tag);
            }
            EntryLevel::Directory | EntryLevel::Names | EntryLevel::Posix => {}
        }
        let short_name = short_name_field(&entry.name);
        match self {
            EntryLevel::Both => out.put(&short_name),
            EntryLevel::IdBoth => {
                out.put(&short_name);
                out.u16(0);
                out.u64(info.number);
            }
            EntryLevel::IdFull => {
                out.u32(0);
                out.u64(info.number);
            }
            EntryLevel::IdExtended => {
                out.u64(info.number);
                out.u64(0);
            }
            EntryLevel::IdExtendedBoth => {
                out.u64(info.number);
                out.u64(0);
                out.put(&short_name);
            }
            EntryLevel::Directory | EntryLevel::Names | EntryLevel::Full | EntryLevel::Posix => {}
        }
        out.put(&name);
    }
}

/// The length of a short name, a reserved byte, and the name in 24 bytes. A short name itself has
/// none.
fn short_name_field(name: &str) -> [u8; 26] {
    let mut field = [0; 26];
    if let Some(short) = shortened(name) {
        let short = utf16(&short);
        field[0] = short.len() as u8;
        field[2..2 + short.len()].copy_from_slice(&short);
    }
    field
}

/// A buffer that entries are put into.
pub(crate) struct Entries {
    level: EntryLevel,
    max: usize,
    bytes: Vec<u8>,
    last: usize,
}

impl Entries {
    pub(crate) fn new(level: EntryLevel, max: usize) -> Entries {
        Entries { level, max, bytes: Vec::new(), last: 0 }
    }

    /// Puts an entry in, if it fits.
    pub(crate) fn push(&mut self, entry: &ListedEntry) -> bool {
        let before = self.bytes.len();
        self.bytes.pad(0, 8);
        let start = self.bytes.len();
        self.level.emit(&mut self.bytes, entry);
        if self.bytes.len() > self.max {
            self.bytes.truncate(before);
            return false;
        }
        if before != 0 {
            let distance = (start - self.last) as u32;
            self.bytes.set_u32(self.last, distance);
        }
        self.last = start;
        true
    }

    /// Returns the entries.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
