//! The mark: a note beside the log's directory of how far the log was durable. A log that ends
//! before its mark has lost its end, even if every frame of it is whole.
//!
//! The mark is written when a frame is durable, and is not synced with it, so it costs no flush. A
//! mark that was written survives the end of the process. A power cut may take the latest marks,
//! but never the frames that they are about. There are two places, written in turn, so that one is
//! always whole.
//!
//! ```text
//! mark   2 × (number of the next frame u64 │ the log's name 16 bytes │ checksum 16 bytes
//!             │ zeros up to 64 bytes)
//! ```

use super::segment::SegmentKey;
use crate::disk::{Disk, DiskFile};
use std::io;
use std::path::Path;
use std::sync::Arc;

const PLACE: usize = 64;
const SAID: usize = 24;

/// The open file of a mark.
#[derive(Debug)]
pub(super) struct Mark {
    file: Arc<dyn DiskFile>,
    turn: u64,
}

/// The content of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) next_frame: u64,
    /// Name of the log.
    pub(super) name: [u8; 16],
}

impl Mark {
    /// Opens the mark in the file `path`, and returns its content. The content is None if there is
    /// none yet, or it cannot be read.
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> io::Result<(Mark, Option<Extent>)> {
        let file = disk.open(path, true)?;
        let mut bytes = [0; 2 * PLACE];
        if file.length()? < bytes.len() as u64 {
            file.write_at(&bytes, 0)?;
            file.sync()?;
        } else {
            file.read_at(&mut bytes, 0)?;
        }
        let said = bytes.chunks(PLACE).filter_map(Extent::read).max_by_key(|extent| extent.next_frame);
        Ok((Mark { file, turn: 0 }, said))
    }

    /// Notes that everything before the next frame is durable.
    pub(super) fn set(&mut self, extent: Extent) -> io::Result<()> {
        self.turn += 1;
        self.file.write_at(&extent.bytes(), self.turn % 2 * PLACE as u64)
    }

    /// Makes the last note durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Extent {
    /// Returns the extent of the log whose checksums have that key.
    pub(super) fn of(key: &SegmentKey, next_frame: u64) -> Extent {
        Extent { next_frame, name: digest(key) }
    }

    fn bytes(&self) -> [u8; PLACE] {
        let mut bytes = [0; PLACE];
        bytes[..8].copy_from_slice(&self.next_frame.to_le_bytes());
        bytes[8..SAID].copy_from_slice(&self.name);
        let checksum = digest(&bytes[..SAID]);
        bytes[SAID..SAID + 16].copy_from_slice(&checksum);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Extent> {
        let next_frame = u64::from_le_bytes(*bytes.first_chunk()?);
        let name = *bytes.get(8..SAID)?.first_chunk()?;
        let extent = Extent { next_frame, name };
        (extent.bytes() == *bytes).then_some(extent)
    }
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = [0; 16];
    crypto::Hasher::new().update(bytes).finalize_xof().fill(&mut digest);
    digest
}
