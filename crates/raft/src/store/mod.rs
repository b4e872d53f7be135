//! The ordered rows of the server's state on this machine's disk.
//!
//! There are three layers. The active one has the changes since the last checkpoint began. The
//! frozen one has the changes that this checkpoint writes or wrote; afterwards it has no news, but
//! answers faster. Below is a redb file with everything as of the last finished checkpoint. The log
//! makes the upper two durable.
//!
//! A checkpoint is one durable commit of the frozen layer together with `meta`, which has its
//! position in the log. So the file is always exactly the state after one log entry.

mod blocks;
mod error;
mod overlay;
mod reread;
#[cfg(test)]
mod tests;

pub use error::RowStoreError;
pub use reread::Reread;

use crate::alarm::Alarm;
use crate::disk::{self, DiskFile};
use crate::stop::stop;
use blocks::Blocks;
pub(crate) use blocks::{LOOK, lacks_room};
use overlay::{Overlay, RowKey};
use parking_lot::RwLock;
use redb::backends::FileBackend;
use redb::{Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition, TableError};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Version of what redb holds: the two tables below, rows as the directory encodes them.
pub const FORMAT: u32 = 1;
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
/// Keys of [`META`].
const META_FORMAT: &str = "format";
const META_POSITION: &str = "position";

/// Bounds of a [`RowStore`].
#[derive(Clone, Copy, Debug)]
pub struct StoreSettings {
    /// Bytes of memory for pages of the file.
    pub cache_bytes: usize,
    /// Bytes of memory for changed rows in one layer; there are two layers.
    pub overlay_bytes: usize,
}

/// The rows. Reads and changes never fail, see [`directory::Store`]. Damage raises the alarm, and
/// any other disk error stops the process ([`crate::EXIT_DISK`]).
pub struct RowStore {
    active: Overlay,
    disk: Arc<RowFile>,
    overlay_bytes: usize,
    alarm: Option<Alarm>,
}

/// The part of the store that a checkpoint under way shares.
struct RowFile {
    path: PathBuf,
    blocks: Blocks,
    database: Database,
    below: RwLock<LowerLayers>,
}

/// The layers below the active one. The end of a checkpoint replaces them together.
struct LowerLayers {
    frozen: Option<Arc<Overlay>>,
    /// Whether the frozen layer is being written.
    writing: bool,
    rows: Arc<RowTable>,
    position: Option<Vec<u8>>,
}

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);
/// The file's format, and its position after the first checkpoint.
type Meta = (u32, Option<Vec<u8>>);
type RowTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

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
    /// Opens the file at `path`, or creates it. The state is that of the last checkpoint. Opening
    /// is immediate, also after a crash, whatever the size.
    pub fn open(path: &Path, settings: StoreSettings) -> Result<RowStore, RowStoreError> {
        if !path.try_exists().map_err(|cause| RowStoreError::new("opening", path, cause))? {
            RowStore::create(path, settings)?;
        }
        RowStore::open_file(path, settings)
    }

    /// Opens a file of another disk likewise.
    pub fn open_on(
        disk: &dyn disk::Disk,
        path: &Path,
        settings: StoreSettings,
    ) -> Result<RowStore, RowStoreError> {
        let failed = |cause: io::Error| RowStoreError::new("opening", path, cause);
        let file = disk.open(path, true).map_err(failed)?;
        RowStore::over(Blocks::open(OnDisk(file), None).map_err(failed)?, path, settings)
    }

    /// Makes a file without rows. It is at `path` once it is whole.
    fn create(path: &Path, settings: StoreSettings) -> Result<(), RowStoreError> {
        let new = path.with_extension("new");
        let failed = |cause: io::Error| RowStoreError::new("creating", path, cause);
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        RowStore::open_file(&new, settings)?;
        std::fs::rename(&new, path).map_err(failed)?;
        File::open(path.parent().unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all()).map_err(failed)
    }

    fn open_file(path: &Path, settings: StoreSettings) -> Result<RowStore, RowStoreError> {
        let open = || -> Result<_, redb::Error> {
            let file =
                os::private::options().read(true).write(true).create(true).truncate(false).open(path)?;
            let disk = file.try_clone()?;
            Ok(Blocks::open(FileBackend::new(file)?, Some(disk))?)
        };
        let blocks = open().map_err(|e| RowStoreError::new("opening", path, e))?;
        RowStore::over(blocks, path, settings)
    }

    fn over(blocks: Blocks, path: &Path, settings: StoreSettings) -> Result<RowStore, RowStoreError> {
        let database = Database::builder()
            .set_cache_size(settings.cache_bytes)
            .create_with_backend(blocks.clone())
            .map_err(|e| RowStoreError::new("opening", path, e))?;
        let position = read_meta(&database).map_err(|e| RowStoreError::new("reading", path, e))?;
        let position = match position {
            Some((FORMAT, position)) => position,
            Some((found, _)) => return Err(RowStoreError::Format { file: path.to_owned(), found }),
            None => {
                begin(&database).map_err(|e| RowStoreError::new("creating", path, e))?;
                None
            }
        };
        let rows = read_rows(&database).map_err(|e| RowStoreError::new("reading", path, e))?;
        let below = RwLock::new(LowerLayers { frozen: None, writing: false, rows, position });
        let disk = Arc::new(RowFile { path: path.to_owned(), blocks, database, below });
        Ok(RowStore { active: Overlay::default(), disk, overlay_bytes: settings.overlay_bytes, alarm: None })
    }

    /// Sets the alarm that a read of damaged data raises.
    pub(crate) fn with_alarm(self, alarm: Alarm) -> RowStore {
        RowStore { alarm: Some(alarm), ..self }
    }

    /// Returns the position of the last finished checkpoint; none before the first.
    pub fn position(&self) -> Option<Vec<u8>> {
        self.disk.below.read().position.clone()
    }

    /// Returns whether the active layer has reached its bound. Then a checkpoint is needed, or a
    /// wait for the one under way.
    pub fn is_full(&self) -> bool {
        self.active.bytes() >= self.overlay_bytes
    }

    /// Returns whether nothing changed since the last checkpoint began.
    pub fn is_clean(&self) -> bool {
        self.active.rows() == 0
    }

    /// Begins a checkpoint of the present rows, which are the state at `position`. None while one
    /// is under way.
    pub fn checkpoint(&mut self, position: Vec<u8>) -> Option<Checkpoint> {
        let mut below = self.disk.below.write();
        if below.writing {
            return None;
        }
        let frozen = Arc::new(std::mem::take(&mut self.active));
        (below.frozen, below.writing) = (Some(frozen.clone()), true);
        Some(Checkpoint { disk: self.disk.clone(), frozen, position })
    }

    /// Returns whether a checkpoint is under way.
    pub fn is_checkpointing(&self) -> bool {
        self.disk.below.read().writing
    }

    /// Returns whether a checkpoint waits for room on the disk.
    pub fn lacks_room(&self) -> bool {
        self.disk.blocks.is_full()
    }

    /// Makes a checkpoint that waits for room fail, and its writer with it.
    pub fn give_up_waiting(&self) {
        self.disk.blocks.wait_for_room(false);
    }

    /// Returns the rows as of the last finished checkpoint. Later changes do not touch the view.
    pub fn view(&self) -> RowView {
        let below = self.disk.below.read();
        RowView {
            rows: below.rows.clone(),
            position: below.position.clone(),
            path: self.disk.path.clone(),
            blocks: self.disk.blocks.clone(),
        }
    }

    /// Adds rows of a state that is not whole yet. It has no position.
    pub fn fill(&mut self, rows: Vec<Row>) -> Result<(), RowStoreError> {
        for (key, value) in rows {
            self.active.set(&key, Some(value));
        }
        if self.is_full() { self.checkpoint(Vec::new()).map_or(Ok(()), Checkpoint::write) } else { Ok(()) }
    }

    /// Replaces all rows and the position by those of `view`, durably. Must not be called while a
    /// checkpoint is under way.
    pub fn replace(&mut self, view: &RowView) -> Result<(), RowStoreError> {
        self.active = Overlay::default();
        self.disk.below.write().frozen = None;
        self.disk.write("replacing", view.position.clone().unwrap_or_default(), |table| {
            table.retain(|_, _| false)?;
            for row in view.rows.range::<&[u8]>(..)? {
                let (key, value) = row?;
                table.insert(key.value(), value.value())?;
            }
            Ok(())
        })
    }

    /// Returns the size of the store.
    pub fn stats(&self) -> StoreStats {
        let below = self.disk.below.read();
        let (rows, bytes) = below.frozen.as_ref().map_or((0, 0), |frozen| (frozen.rows(), frozen.bytes()));
        StoreStats {
            overlay_rows: self.active.rows() + rows,
            overlay_bytes: self.active.bytes() + bytes,
            file_bytes: std::fs::metadata(&self.disk.path).map_or(0, |file| file.len()),
            repaired_bits: self.disk.blocks.repaired(),
        }
    }

    fn read_failed(&self, cause: redb::StorageError) -> ! {
        let error = RowStoreError::new("reading", &self.disk.path, cause);
        match &self.alarm {
            Some(alarm) if error.is_damage() => alarm.raise(&error),
            Some(alarm) => alarm.stop(&error),
            None => stop(&error),
        }
    }
}

impl directory::Store for RowStore {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        if let Some(value) = self.active.get(key) {
            return value.map(<[u8]>::to_vec);
        }
        let below = self.disk.below.read();
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
        let below = self.disk.below.read();
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

/// A checkpoint that has begun. It must be written. Until then its rows stay in memory, and no
/// other can begin.
#[must_use]
pub struct Checkpoint {
    disk: Arc<RowFile>,
    frozen: Arc<Overlay>,
    position: Vec<u8>,
}

impl Checkpoint {
    /// Writes it as [`Checkpoint::write`] does, and waits while the disk is full.
    pub fn write_when_there_is_room(self) -> Result<(), RowStoreError> {
        let blocks = self.disk.blocks.clone();
        blocks.wait_for_room(true);
        let written = self.write();
        blocks.wait_for_room(false);
        written
    }

    /// Writes it in one durable commit. That takes as long as the disk does. The store can be read
    /// and changed meanwhile.
    pub fn write(self) -> Result<(), RowStoreError> {
        self.disk.write("checkpointing", self.position, |table| {
            // Key order costs redb least.
            for (key, value) in self.frozen.sorted() {
                match value {
                    Some(value) => drop(table.insert(key, value)?),
                    None => drop(table.remove(key)?),
                }
            }
            Ok(())
        })
    }
}

impl RowFile {
    /// Commits the changes of `change` to the rows, and `position`, durably and at once.
    fn write(
        &self,
        doing: &'static str,
        position: Vec<u8>,
        change: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<(), redb::StorageError>,
    ) -> Result<(), RowStoreError> {
        let commit = || -> Result<Arc<RowTable>, redb::Error> {
            let mut transaction = self.database.begin_write()?;
            // This saves the allocator's state with the commit. Opening after a crash then takes
            // milliseconds instead of a walk through the file.
            transaction.set_quick_repair(true);
            change(&mut transaction.open_table(ROWS)?)?;
            transaction.open_table(META)?.insert(META_POSITION, position.as_slice())?;
            transaction.commit()?;
            read_rows(&self.database)
        };
        let rows = commit().map_err(|e| RowStoreError::new(doing, &self.path, e))?;
        let mut below = self.below.write();
        (below.rows, below.position, below.writing) = (rows, Some(position), false);
        Ok(())
    }
}

/// Rows as of one checkpoint.
#[derive(Clone)]
pub struct RowView {
    rows: Arc<RowTable>,
    position: Option<Vec<u8>>,
    path: PathBuf,
    blocks: Blocks,
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

/// Reads format and position; none in a new file.
fn read_meta(database: &Database) -> Result<Option<Meta>, redb::Error> {
    let meta = match database.begin_read()?.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let format = meta
        .get(META_FORMAT)?
        .and_then(|format| format.value().try_into().ok())
        .map_or(0, u32::from_le_bytes);
    let position = meta.get(META_POSITION)?.map(|position| position.value().to_vec());
    Ok(Some((format, position)))
}

fn begin(database: &Database) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    transaction.open_table(ROWS)?;
    transaction.open_table(META)?.insert(META_FORMAT, FORMAT.to_le_bytes().as_slice())?;
    Ok(transaction.commit()?)
}

fn read_rows(database: &Database) -> Result<Arc<RowTable>, redb::Error> {
    Ok(Arc::new(database.begin_read()?.open_table(ROWS)?))
}
