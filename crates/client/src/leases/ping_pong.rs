//! The files that ping-pong between machines.

use ident::FileId;
use lease::{Recent, Time};
use namespace::{ContentHead, INLINE_BYTES_MAX};

/// The number of recalls of a file's content in a row from which the file ping-pongs.
const PASSES: u8 = 2;
/// Files with content that was recalled or reported lately, and the version of each that was read
/// past the kernel's pages.
#[derive(Debug, Default)]
pub(crate) struct PingPongFiles(Recent<FileId, Option<u64>>);

impl PingPongFiles {
    /// Notes a report of the content of `file`, or so many recalls.
    pub(crate) fn note(&mut self, now: Time, file: &FileId, recalls: u8) {
        self.0.note(now, file, recalls);
    }

    /// Notes that this content of `file` was read past the kernel's pages.
    pub fn note_read(&mut self, now: Time, file: &FileId, head: &ContentHead) {
        // The kernel keeps pages of larger content in any case.
        if is_small(head)
            && let Some(read) = self.0.remember(now, file)
        {
            *read = Some(head.version);
        }
    }

    /// Whether this version of the content of `file` was read past the kernel's pages.
    pub fn has_read(&self, file: &FileId, version: u64) -> bool {
        self.0.get(file).is_some_and(|read| *read == Some(version))
    }

    /// Whether the content of `file` ping-pongs. Then each read is better sent to the server than
    /// served from the kernel's pages.
    pub fn has(&self, now: Time, file: &FileId) -> bool {
        self.0.count(now, file) >= PASSES
    }
}

/// Whether content comes with its head.
pub(super) fn is_small(head: &ContentHead) -> bool {
    head.size <= INLINE_BYTES_MAX as u64
}
