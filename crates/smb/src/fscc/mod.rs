//! Information levels (MS-FSCC §2.4, §2.5) and what they are made of.

mod entries;
mod files;
mod short_names;
mod volumes;

pub(crate) use entries::{Entries, EntryLevel};
pub(crate) use files::{emit_eas, full_eas, query_file};
pub(crate) use volumes::query_volume;

use crate::wire::{NtStatus, Writer};
use objects::Info;

/// IO_REPARSE_TAG_SYMLINK.
const TAG_SYMLINK: u32 = 0xa000_000c;

/// Information for an answer: at least `least` bytes of it must fit into the client's buffer, and
/// the rest may be cut off.
pub(crate) struct Information {
    pub(crate) bytes: Vec<u8>,
    pub(crate) least: usize,
}

impl Information {
    pub(crate) fn fixed(bytes: Vec<u8>) -> Information {
        Information { least: bytes.len(), bytes }
    }

    /// Cuts to a buffer. Returns the status of the answer.
    pub(crate) fn cut(&mut self, max: usize) -> Result<NtStatus, NtStatus> {
        if max < self.least {
            return Err(NtStatus::INFO_LENGTH_MISMATCH);
        }
        if self.bytes.len() > max {
            self.bytes.truncate(max);
            return Ok(NtStatus::BUFFER_OVERFLOW);
        }
        Ok(NtStatus::SUCCESS)
    }
}

/// Returns the reparse tag of an object, or 0.
pub(crate) fn reparse_tag(info: &Info) -> u32 {
    if info.is_link { TAG_SYMLINK } else { 0 }
}

/// Returns the SID of a POSIX user (S-1-22-1) or group (S-1-22-2).
pub(crate) fn posix_sid(kind: u32, id: u32) -> Vec<u8> {
    let mut sid = vec![1, 2, 0, 0, 0, 0, 0, 22];
    sid.u32(kind);
    sid.u32(id);
    sid
}

/// Returns the SIDs of owner and group.
pub(crate) fn posix_sids(info: &Info) -> Vec<u8> {
    [posix_sid(1, info.posix.uid), posix_sid(2, info.posix.gid)].concat()
}
