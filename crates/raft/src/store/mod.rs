//! The ordered rows of a group's state on this machine's disk.
//!
//! There are three layers. The active one has the changes since the last checkpoint began. The
//! frozen one has the changes that this checkpoint writes or wrote; afterwards it has no news, but
//! answers faster. Below is a redb file with everything as of the last finished checkpoint. The log
//! makes the upper two durable. All groups of a machine have their rows in one file ([`RowFile`]).
//!
//! A checkpoint is one durable commit of the frozen layer together with the position of its state
//! in the log. So the file has of each group exactly the state after one log entry.

mod blocks;
mod error;
mod file;
mod overlay;
mod reread;
#[cfg(test)]
mod tests;

pub use error::RowStoreError;
pub use file::{FORMAT, RowFile};
pub use reread::Reread;

use crate::alarm::Alarm;
use crate::disk::DiskFile;
use crate::group_id::GroupId;
use crate::stop::stop;
use blocks::Blocks;
pub(crate) use blocks::{LOOK, lacks_room};
use file::{LowerLayers, RowChange, RowTable};
use overlay::{Overlay, RowKey};
use parking_lot::RwLock;
use redb::StorageBackend;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bounds of a [`RowFile`].
#[derive(Clone, Copy, Debug)]
pub struct StoreSettings {
    /// Bytes of memory for pages of the file.
    pub cache_bytes: usize,
    /// Bytes of memory for changed rows of all groups in one layer; there are two layers.
    pub overlay_bytes: usize,
}

/// The rows of a group. Reads and changes never fail, see [`directory::Store`]. Damage raises the
/// alarm, and any other disk error stops the process ([`crate::EXIT_DISK`]).
pub struct RowStore {
    active: Overlay,
    below: Arc<RwLock<LowerLayers>>,
    file: Arc<RowFile>,
    group: GroupId,
    /// Bytes of the active layer, as the file has last been told.
    told: AtomicUsize,
    alarm: Option<Alarm>,
}

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// The size of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Changed rows in memory, deleted ones included.
    pub overlay_rows: usize,
    /// About the memory of the changed rows.
    pub overlay_bytes: usize,
    /// Size of the file.
    pub file_bytes: u64,
    /// Flipped bits that were found in it and repaired since it was opened.
    pub repaired_bits: u64,
}

impl RowStore {
    /// Opens the file at `path`, or creates it, for the first group alone. See [`RowFile`].
    pub fn open(path: &Path, settings: StoreSettings) -> Result<RowStore, RowStoreError> {
        RowFile::open(path, settings)?.group(GroupId::FIRST)
    }

    fn of(file: Arc<RowFile>, group: GroupId, below: Arc<RwLock<LowerLayers>>) -> RowStore {
        RowStore { active: Overlay::default(), below, file, group, told: AtomicUsize::new(0), alarm: None }
    }

    /// Sets the alarm that a read of damaged data raises.
    pub(crate) fn with_alarm(mut self, alarm: Alarm) -> RowStore {
        self.alarm = Some(alarm);
        self
    }

    /// Returns the position of the last finished checkpoint; none before the first.
    pub fn position(&self) -> Option<Vec<u8>> {
        self.below.read().position.clone()
    }

    /// Returns whether the active layers of all groups have reached their bound, and this group has
    /// its share of it. Then a checkpoint is needed, or a wait for the one under way.
    pub fn is_full(&self) -> bool {
        let own = self.active.bytes();
        self.file.is_over(self.told.swap(own, Relaxed), own)
    }

    /// Returns whether nothing changed since the last checkpoint began.
    pub fn is_clean(&self) -> bool {
        self.active.rows() == 0
    }

    /// Begins a checkpoint of the present rows, which are the state at `position`. None while one
    /// is under way.
    pub fn checkpoint(&mut self, position: Vec<u8>) -> Option<Checkpoint> {
        let mut below = self.below.write();
        if below.writing {
            return None;
        }
        let frozen = Arc::new(std::mem::take(&mut self.active));
        (below.frozen, below.writing) = (Some(frozen.clone()), true);
        let (file, group) = (self.file.clone(), self.group);
        Some(Checkpoint { file, group, below: self.below.clone(), frozen, position })
    }

    /// Returns whether a checkpoint is under way.
    pub fn is_checkpointing(&self) -> bool {
        self.below.read().writing
    }

    /// Returns whether a checkpoint waits for room on the disk.
    pub fn lacks_room(&self) -> bool {
        self.file.blocks.is_full()
    }

    /// Makes a checkpoint that waits for room fail, and its writer with it. If other groups wait
    /// for the same commit and go on, it waits with them.
    pub fn give_up_waiting(&self) {
        self.file.gives_up_waiting(self.group);
    }

    /// Returns the rows as of the last finished checkpoint. Later changes do not touch the view.
    pub fn view(&self) -> RowView {
        let below = self.below.read();
        RowView {
            rows: below.rows.clone(),
            position: below.position.clone(),
            path: self.file.path.clone(),
            blocks: self.file.blocks.clone(),
            group: self.group,
        }
    }

    /// Adds rows of a state that is not whole yet. It has no position.
    pub fn fill(&mut self, rows: Vec<Row>) -> Result<(), RowStoreError> {
        for (key, value) in rows {
            self.active.set(&key, Some(value));
        }
        if self.is_full() { self.checkpoint(Vec::new()).map_or(Ok(()), Checkpoint::write) } else { Ok(()) }
    }

    /// Begins to replace all rows and the position by those of `view`. Must not be called while a
    /// checkpoint is under way. [`RowStore::take_over`] ends it.
    pub(crate) fn replacement(&self, view: RowView) -> Replacement {
        self.below.write().replacing = true;
        Replacement { file: self.file.clone(), group: self.group, below: self.below.clone(), view }
    }

    /// Takes over the rows that have replaced its own in the file.
    pub(crate) fn take_over(&mut self, replaced: Replaced) {
        self.active = Overlay::default();
        let mut below = self.below.write();
        (below.frozen, below.replacing) = (None, false);
        (below.rows, below.position) = (replaced.rows, Some(replaced.position));
    }

    /// Returns the size of the store. The file has the rows of all groups.
    pub fn stats(&self) -> StoreStats {
        let below = self.below.read();
        let (rows, bytes) = below.frozen.as_ref().map_or((0, 0), |frozen| (frozen.rows(), frozen.bytes()));
        StoreStats {
            overlay_rows: self.active.rows() + rows,
            overlay_bytes: self.active.bytes() + bytes,
            file_bytes: std::fs::metadata(&self.file.path).map_or(0, |file| file.len()),
            repaired_bits: self.file.blocks.repaired(),
        }
    }

    fn read_failed(&self, cause: redb::StorageError) -> ! {
        let error = RowStoreError::new("reading", &self.file.path, cause);
        match &self.alarm {
            Some(alarm) => alarm.disk_failed(&error, error.is_damage()),
            None => stop(&error),
        }
    }
}

impl directory::Store for RowStore {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        if let Some(value) = self.active.get(key) {
            return value.map(<[u8]>::to_vec);
        }
        let below = self.below.read();
        if let Some(value) = below.frozen.as_ref().and_then(|frozen| frozen.get(key)) {
            return value.map(<[u8]>::to_vec);
        }
        match below.rows.get(key) {
            Ok(value) => value.map(|value| value.value().to_vec()),
            Err(cause) => self.read_failed(cause),
        }
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>) {
        self.active.set(key, Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.active.set(key, None);
    }

    fn walk(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        if start >= end {
            return;
        }
        let below = self.below.read();
        let ordered = (self.active.ordered(), below.frozen.as_ref().map(|frozen| frozen.ordered()));
        let mut active = ordered.0.range(start, end).peekable();
        let mut frozen = ordered.1.iter().flat_map(|frozen| frozen.range(start, end)).peekable();
        let mut disk = match below.rows.range::<&[u8]>(start..end) {
            Ok(range) => range.map(|row| row.unwrap_or_else(|cause| self.read_failed(cause))).peekable(),
            Err(cause) => self.read_failed(cause),
        };
        loop {
            let on_disk = disk.peek().map(|(key, _)| key.value());
            let keys =
                [active.peek().map(|key| key.as_slice()), frozen.peek().map(|key| key.as_slice()), on_disk];
            let Some(key) = keys.into_iter().flatten().min().map(RowKey::from_slice) else { return };
            // Every layer that has the key moves on. The uppermost one decides.
            let on_disk = disk.next_if(|row| row.0.value() == &*key);
            let in_frozen = frozen.next_if(|has| **has == key).and(below.frozen.as_ref());
            let in_active = active.next_if(|has| **has == key).map(|_| &self.active);
            let goes_on = match (in_active.or(in_frozen.map(|frozen| &**frozen)), on_disk) {
                (Some(layer), _) => match layer.get(&key).flatten() {
                    Some(value) => visit(&key, value),
                    None => true,
                },
                (None, Some(row)) => visit(&key, row.1.value()),
                (None, None) => true,
            };
            if !goes_on {
                return;
            }
        }
    }
}

/// redb's handle on a file of another disk.
#[derive(Debug)]
struct OnDisk(Arc<dyn DiskFile>);

impl StorageBackend for OnDisk {
    fn len(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}

impl Drop for RowStore {
    fn drop(&mut self) {
        self.file.is_over(self.told.swap(0, Relaxed), 0);
        self.file.closes(self.group);
    }
}

/// A checkpoint that has begun. It must be written. Until then its rows stay in memory, and no
/// other can begin.
#[must_use]
pub struct Checkpoint {
    file: Arc<RowFile>,
    group: GroupId,
    below: Arc<RwLock<LowerLayers>>,
    frozen: Arc<Overlay>,
    position: Vec<u8>,
}

impl Checkpoint {
    /// Writes it as [`Checkpoint::write`] does, and waits while the disk is full.
    pub fn write_when_there_is_room(self) -> Result<(), RowStoreError> {
        self.write_in_turn(true)
    }

    /// Writes it in one durable commit, with those of other groups that wait. That takes as long as
    /// the disk does. The store can be read and changed meanwhile.
    pub fn write(self) -> Result<(), RowStoreError> {
        self.write_in_turn(false)
    }

    fn write_in_turn(self, waits: bool) -> Result<(), RowStoreError> {
        let Checkpoint { file, group, below, frozen, position } = self;
        file.commit(group, below, RowChange::Layer(frozen), position, waits).map(drop)
    }
}

/// A replacement of all rows of a group that has begun.
pub(crate) struct Replacement {
    file: Arc<RowFile>,
    group: GroupId,
    below: Arc<RwLock<LowerLayers>>,
    view: RowView,
}

/// Rows that have replaced all rows of a group in the file. The group has yet to take them over.
pub(crate) struct Replaced {
    rows: Arc<RowTable>,
    position: Vec<u8>,
}

impl Replacement {
    /// Writes it in one durable commit. The group reads its old rows meanwhile.
    pub(crate) fn write(self) -> Result<Replaced, RowStoreError> {
        let Replacement { file, group, below, view } = self;
        let position = view.position.clone().unwrap_or_default();
        let rows = file.commit(group, below, RowChange::All(view), position.clone(), false)?;
        Ok(Replaced { rows, position })
    }
}

/// Rows as of one checkpoint.
#[derive(Clone)]
pub struct RowView {
    rows: Arc<RowTable>,
    position: Option<Vec<u8>>,
    path: PathBuf,
    blocks: Blocks,
    group: GroupId,
}

impl RowView {
    /// Returns the position of that checkpoint; none before the first.
    pub fn position(&self) -> Option<&[u8]> {
        self.position.as_deref()
    }

    /// Returns the rows as the disk has them. It is an error if any row differs from what was
    /// written.
    pub fn reread(&self) -> Result<Reread, RowStoreError> {
        Reread::new(&self.blocks, self.clone())
    }

    /// Returns the first `limit` rows after `after`, in order. Pages together form a stream.
    pub fn page(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, RowStoreError> {
        let read = || -> Result<Vec<_>, redb::StorageError> {
            let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let rows = self.rows.range::<&[u8]>((from, std::ops::Bound::Unbounded))?;
            rows.take(limit)
                .map(|row| row.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())))
                .collect()
        };
        read().map_err(|e| RowStoreError::new("reading", &self.path, e))
    }
}

impl std::fmt::Debug for RowView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowView").field("path", &self.path).finish_non_exhaustive()
    }
}
