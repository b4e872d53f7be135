//! A group that begins with the state of another one, from a backup.

use super::GroupError;
use super::machine::Position;
use crate::store::{Row, RowStore, RowStoreError, StoreSettings};
use directory::{Directory, Input};
use lease::Time;
use std::path::Path;
use wire::Versions;

/// Bounds of the store while it is filled.
const FILLING: StoreSettings = StoreSettings { cache_bytes: 64 << 20, overlay_bytes: 32 << 20 };

/// A group while it is restored. An unfinished one is no group, and does not start.
pub struct Restored {
    store: RowStore,
}

impl Restored {
    /// Begins in the directory `dir`, which has no group.
    pub fn begin(dir: &Path) -> Result<Restored, RowStoreError> {
        Ok(Restored { store: RowStore::open(&dir.join("rows"), FILLING)? })
    }

    /// Takes some of its rows.
    pub fn take(&mut self, rows: Vec<Row>) -> Result<(), RowStoreError> {
        self.store.fill(rows)
    }

    /// Finishes after the last row. The state is that at `time`, and it is restored at `at`, UTC
    /// seconds. The next member that opens the group founds it, with an empty log.
    pub fn finish(mut self, time: Time, at: u64) -> Result<(), GroupError> {
        let mut directory = Directory::open(&self.store, Versions::KNOWN).map_err(GroupError::state)?;
        // Its clients are not connected. When a leader begins, it repeats the work on shares.
        let mut out = Vec::new();
        let handled = directory.handle(time, Input::Restored { at }, &mut self.store, &mut out);
        handled.map_err(GroupError::state)?;
        directory.checkpoint(&mut self.store);
        let position = Position { time, ..Position::default() }.encode().map_err(GroupError::state)?;
        if let Some(checkpoint) = self.store.checkpoint(position) {
            checkpoint.write()?;
        }
        Ok(())
    }
}
