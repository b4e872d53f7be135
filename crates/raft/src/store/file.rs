//! The file with the rows of a machine's groups.
//!
//! Each group has a table of redb for itself, so no key of one group is in another's range. redb
//! has one write transaction at a time. So the changes of all groups that wait for it are one
//! commit, with one wait for the disk.
//!
//! A reader holds the pages of its commit. So each commit gives every open group a reader of its
//! own, those that have not changed too. Otherwise a group that sleeps would keep all pages that
//! others have replaced since.

use super::blocks::Blocks;
use super::overlay::Overlay;
use super::{OnDisk, RowStore, RowStoreError, RowView, StoreSettings};
use crate::disk;
use crate::group_id::GroupId;
use parking_lot::{Mutex, RwLock};
use redb::backends::FileBackend;
use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition, TableError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Version of what redb holds: the tables below, rows as the directory encodes them.
pub const FORMAT: u32 = 2;
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
/// Key of [`META`].
const META_FORMAT: &str = "format";
/// The position of each group in its log.
const POSITIONS: TableDefinition<u64, &[u8]> = TableDefinition::new("positions");

/// The rows of one group, as of a commit.
pub(super) type RowTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Returns the name of a group's table.
fn table_of(group: GroupId) -> String {
    format!("rows {}", group.0)
}

/// The file of a machine's rows. [`RowFile::group`] gives those of one group.
pub struct RowFile {
    pub(super) path: PathBuf,
    pub(super) blocks: Blocks,
    database: Database,
    /// Bytes of changed rows in one layer, for all groups together.
    overlay_bytes: usize,
    /// Bytes of all groups' active layers, as they have last said.
    active_bytes: AtomicUsize,
    /// Held while a commit is written. It is locked before `state`.
    committing: Mutex<()>,
    state: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    open: BTreeMap<GroupId, Arc<RwLock<LowerLayers>>>,
    /// Groups that wait no more for room on the disk: they end.
    given_up: BTreeSet<GroupId>,
    waiting: Vec<WaitingChange>,
}

impl FileState {
    fn nobody_waits(&self) -> bool {
        self.open.keys().all(|group| self.given_up.contains(group))
    }
}

/// The layers of one group below the active one. The end of a checkpoint replaces them together.
pub(super) struct LowerLayers {
    pub(super) frozen: Option<Arc<Overlay>>,
    /// Whether the frozen layer is being written.
    pub(super) writing: bool,
    /// Whether all rows are being replaced. Until the group takes over the new ones, it reads the
    /// old ones.
    pub(super) replacing: bool,
    pub(super) rows: Arc<RowTable>,
    pub(super) position: Option<Vec<u8>>,
}

/// A change of one group's rows.
pub(super) enum RowChange {
    /// These rows are other ones.
    Layer(Arc<Overlay>),
    /// All rows are those of the view.
    All(RowView),
}

/// A change that waits for the next commit.
struct WaitingChange {
    group: GroupId,
    /// The layers of the member that makes it.
    below: Arc<RwLock<LowerLayers>>,
    change: RowChange,
    position: Vec<u8>,
    /// Whether it waits for room on the disk.
    waits: bool,
    done: Arc<OnceLock<Result<Arc<RowTable>, RowStoreError>>>,
}

impl RowChange {
    fn apply(
        &self,
        table: &mut redb::Table<'_, &'static [u8], &'static [u8]>,
    ) -> Result<(), redb::StorageError> {
        match self {
            RowChange::Layer(layer) => {
                // Key order costs redb least.
                for (key, value) in layer.sorted() {
                    match value {
                        Some(value) => drop(table.insert(key, value)?),
                        None => drop(table.remove(key)?),
                    }
                }
            }
            RowChange::All(view) => {
                table.retain(|_, _| false)?;
                for row in view.rows.range::<&[u8]>(..)? {
                    let (key, value) = row?;
                    table.insert(key.value(), value.value())?;
                }
            }
        }
        Ok(())
    }
}

impl RowFile {
    /// Opens the file at `path`, or creates it. The state of each group is that of its last
    /// checkpoint. Opening is immediate, also after a crash, whatever the size.
    pub fn open(path: &Path, settings: StoreSettings) -> Result<Arc<RowFile>, RowStoreError> {
        if !path.try_exists().map_err(|cause| RowStoreError::new("opening", path, cause))? {
            RowFile::create(path, settings)?;
        }
        RowFile::open_file(path, settings)
    }

    /// Opens a file of another disk likewise.
    pub fn open_on(
        disk: &dyn disk::Disk,
        path: &Path,
        settings: StoreSettings,
    ) -> Result<Arc<RowFile>, RowStoreError> {
        let failed = |cause: io::Error| RowStoreError::new("opening", path, cause);
        let file = disk.open(path, true).map_err(failed)?;
        RowFile::over(Blocks::open(OnDisk(file), None).map_err(failed)?, path, settings)
    }

    /// Makes a file without rows. It is at `path` once it is whole.
    fn create(path: &Path, settings: StoreSettings) -> Result<(), RowStoreError> {
        let new = path.with_extension("new");
        let failed = |cause: io::Error| RowStoreError::new("creating", path, cause);
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        RowFile::open_file(&new, settings)?;
        std::fs::rename(&new, path).map_err(failed)?;
        File::open(path.parent().unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all()).map_err(failed)
    }

    fn open_file(path: &Path, settings: StoreSettings) -> Result<Arc<RowFile>, RowStoreError> {
        let open = || -> Result<_, redb::Error> {
            let file =
                os::private::options().read(true).write(true).create(true).truncate(false).open(path)?;
            let disk = file.try_clone()?;
            Ok(Blocks::open(FileBackend::new(file)?, Some(disk))?)
        };
        let blocks = open().map_err(|e| RowStoreError::new("opening", path, e))?;
        RowFile::over(blocks, path, settings)
    }

    pub(super) fn over(
        blocks: Blocks,
        path: &Path,
        settings: StoreSettings,
    ) -> Result<Arc<RowFile>, RowStoreError> {
        let database = Database::builder()
            .set_cache_size(settings.cache_bytes)
            .create_with_backend(blocks.clone())
            .map_err(|e| RowStoreError::new("opening", path, e))?;
        match read_format(&database).map_err(|e| RowStoreError::new("reading", path, e))? {
            Some(FORMAT) => {}
            Some(found) => return Err(RowStoreError::Format { file: path.to_owned(), found }),
            None => begin(&database).map_err(|e| RowStoreError::new("creating", path, e))?,
        }
        Ok(Arc::new(RowFile {
            path: path.to_owned(),
            blocks,
            database,
            overlay_bytes: settings.overlay_bytes,
            active_bytes: AtomicUsize::new(0),
            committing: Mutex::new(()),
            state: Mutex::default(),
        }))
    }

    /// Opens the rows of a group, once in a process. A group that has none gets an empty table,
    /// durably.
    pub fn group(self: &Arc<Self>, group: GroupId) -> Result<RowStore, RowStoreError> {
        let _committing = self.committing.lock();
        let read = || -> Result<_, redb::Error> {
            let reading = self.database.begin_read()?;
            let position = read_position(&reading, group)?;
            let rows = match read_rows(&reading, group) {
                Err(redb::Error::TableDoesNotExist(_)) => {
                    let mut transaction = self.database.begin_write()?;
                    transaction.set_quick_repair(true);
                    let name = table_of(group);
                    transaction.open_table(TableDefinition::<&[u8], &[u8]>::new(&name))?;
                    transaction.commit()?;
                    read_rows(&self.database.begin_read()?, group)?
                }
                rows => rows?,
            };
            Ok(LowerLayers { frozen: None, writing: false, replacing: false, rows, position })
        };
        let below = read().map_err(|e| RowStoreError::new("reading", &self.path, e))?;
        let below = Arc::new(RwLock::new(below));
        let mut state = self.state.lock();
        let before = state.open.insert(group, below.clone());
        assert!(before.is_none(), "{group:?} is open already");
        drop(state);
        Ok(RowStore::of(self.clone(), group, below))
    }

    pub(super) fn closes(&self, group: GroupId) {
        let mut state = self.state.lock();
        state.open.remove(&group);
        state.given_up.remove(&group);
        if !state.given_up.is_empty() && state.nobody_waits() {
            self.blocks.wait_for_room(false);
        }
    }

    /// Returns whether the group's rows are open.
    pub(crate) fn is_open(&self, group: GroupId) -> bool {
        self.state.lock().open.contains_key(&group)
    }

    /// Notes that a group waits no more for room on the disk. When none waits, the commit that
    /// waits fails.
    pub(super) fn gives_up_waiting(&self, group: GroupId) {
        let mut state = self.state.lock();
        state.given_up.insert(group);
        if state.nobody_waits() {
            self.blocks.wait_for_room(false);
        }
    }

    /// Returns whether the group of an active layer with `own` bytes should checkpoint, which had
    /// said to have `before` bytes. All groups together have one bound. Of those that exceed it, a
    /// group with less than its share need not.
    pub(super) fn is_over(&self, before: usize, own: usize) -> bool {
        let more = own.wrapping_sub(before);
        let all = self.active_bytes.fetch_add(more, Relaxed).wrapping_add(more);
        all >= self.overlay_bytes && own.saturating_mul(self.state.lock().open.len().max(1)) >= all
    }

    /// Returns the number of changes that wait for the next commit.
    #[cfg(test)]
    pub(super) fn waits(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Makes a group's change durable, together with those of other groups. It takes as long as
    /// the disk does, and with `waits` until there is room. Returns the group's rows after it.
    ///
    /// If the group is closed meanwhile, nothing is written. A later member of the group would find
    /// its rows changed.
    pub(super) fn commit(
        &self,
        group: GroupId,
        below: Arc<RwLock<LowerLayers>>,
        change: RowChange,
        position: Vec<u8>,
        waits: bool,
    ) -> Result<Arc<RowTable>, RowStoreError> {
        let done = Arc::new(OnceLock::new());
        let waiting = WaitingChange { group, below, change, position, waits, done: done.clone() };
        self.state.lock().waiting.push(waiting);
        let committing = self.committing.lock();
        // Another group's commit may have taken it along.
        if done.get().is_none() {
            let changes = {
                let mut state = self.state.lock();
                let mut changes = mem::take(&mut state.waiting);
                changes.retain(|it| state.open.get(&it.group).is_some_and(|is| Arc::ptr_eq(is, &it.below)));
                let waits = changes.iter().any(|change| change.waits) && !state.nobody_waits();
                self.blocks.wait_for_room(waits);
                changes
            };
            self.commit_all(changes);
            self.blocks.wait_for_room(false);
        }
        drop(committing);
        let ended = || RowStoreError::new("writing", &self.path, io::Error::from(io::ErrorKind::BrokenPipe));
        done.get().cloned().unwrap_or_else(|| Err(ended()))
    }

    /// Commits these changes at once.
    fn commit_all(&self, changes: Vec<WaitingChange>) {
        let write = || -> Result<ReadTransaction, redb::Error> {
            let mut transaction = self.database.begin_write()?;
            // This saves the allocator's state with the commit. Opening after a crash then takes
            // milliseconds instead of a walk through the file.
            transaction.set_quick_repair(true);
            for WaitingChange { group, change, position, .. } in &changes {
                let name = table_of(*group);
                change.apply(&mut transaction.open_table(TableDefinition::new(&name))?)?;
                transaction.open_table(POSITIONS)?.insert(group.0, position.as_slice())?;
            }
            transaction.commit()?;
            Ok(self.database.begin_read()?)
        };
        let reading = write().map_err(|e| RowStoreError::new("writing", &self.path, e));
        if let Ok(reading) = &reading {
            self.renew_readers(reading, &changes);
        }
        for WaitingChange { group, below, change, position, done, .. } in changes {
            let rows = reading.as_ref().map_err(RowStoreError::clone).and_then(|reading| {
                let rows = read_rows(reading, group);
                let rows = rows.map_err(|e| RowStoreError::new("reading", &self.path, e))?;
                self.ends(&below, &change, position, &rows);
                Ok(rows)
            });
            // Only this commit sets it.
            let _ = done.set(rows);
        }
    }

    /// Makes the end of a group's checkpoint known to it.
    fn ends(&self, below: &RwLock<LowerLayers>, change: &RowChange, position: Vec<u8>, rows: &Arc<RowTable>) {
        let RowChange::Layer(layer) = change else { return };
        // It has no news any more, but answers faster.
        let is_small = layer.bytes() <= self.overlay_bytes / self.state.lock().open.len().max(1);
        let mut below = below.write();
        (below.rows, below.position, below.writing) = (rows.clone(), Some(position), false);
        below.frozen.take_if(|_| !is_small);
    }

    /// Gives each open group that has not changed a reader of this commit. Its rows are the same.
    fn renew_readers(&self, reading: &ReadTransaction, changes: &[WaitingChange]) {
        let open: Vec<_> =
            self.state.lock().open.iter().map(|(group, below)| (*group, below.clone())).collect();
        for (group, below) in open {
            if changes.iter().any(|change| change.group == group) {
                continue;
            }
            // A reader that cannot be had now is had after the next commit.
            let Ok(rows) = read_rows(reading, group) else { continue };
            let mut below = below.write();
            if !below.replacing {
                below.rows = rows;
            }
        }
    }
}

/// Reads the format; none in a new file.
fn read_format(database: &Database) -> Result<Option<u32>, redb::Error> {
    let meta = match database.begin_read()?.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let format = meta.get(META_FORMAT)?.and_then(|format| format.value().try_into().ok());
    Ok(Some(format.map_or(0, u32::from_le_bytes)))
}

/// Reads a group's position; none before its first checkpoint.
fn read_position(reading: &ReadTransaction, group: GroupId) -> Result<Option<Vec<u8>>, redb::Error> {
    let position = reading.open_table(POSITIONS)?.get(group.0)?;
    Ok(position.map(|position| position.value().to_vec()))
}

fn begin(database: &Database) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    transaction.open_table(POSITIONS)?;
    transaction.open_table(META)?.insert(META_FORMAT, FORMAT.to_le_bytes().as_slice())?;
    Ok(transaction.commit()?)
}

fn read_rows(reading: &ReadTransaction, group: GroupId) -> Result<Arc<RowTable>, redb::Error> {
    Ok(Arc::new(reading.open_table(TableDefinition::new(&table_of(group)))?))
}

/// Reads a group's rows and position from a file that is read anew.
pub(super) fn read_anew(
    database: &Database,
    group: GroupId,
) -> Result<(Arc<RowTable>, Option<Vec<u8>>), redb::Error> {
    let reading = database.begin_read()?;
    Ok((read_rows(&reading, group)?, read_position(&reading, group)?))
}
