//! Records that are decoded, in this turn or an earlier one.
//!
//! Work on one file comes in several turns: it is made, written, looked for by another machine and
//! granted. This is only a cache: a replica that has forgotten it gets the same results.

use crate::regions::Regions;
use crate::rows::record::Record;
use ident::FileId;
use lease::SessionId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Records that are remembered from one turn to the next: some 10 MiB.
const REMEMBERED_MAX: usize = 16_384;

/// Records by file, and the changes of this turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecodedRecords {
    all: FxHashMap<FileId, Decoded>,
    /// Files without a record. They are remembered in one turn only, since the rows of a region may
    /// come from another server.
    absent: FxHashSet<FileId>,
    /// The files whose records this turn has changed. One may stand here twice.
    changed: Vec<FileId>,
    /// The regions of this server, under which the records were read.
    regions: Regions,
}

#[derive(Clone, Debug)]
struct Decoded {
    record: Arc<Record>,
    is_changed: bool,
}

impl DecodedRecords {
    /// The record of `file`, as far as it is remembered. `Some(None)`: there is no such file.
    pub fn get(&self, file: &FileId) -> Option<Option<&Arc<Record>>> {
        match self.all.get(file) {
            Some(decoded) => Some(Some(&decoded.record)),
            None => self.absent.contains(file).then_some(None),
        }
    }

    /// Remembers the record that the store has.
    pub fn decoded(&mut self, file: &FileId, record: Option<Arc<Record>>) {
        match record {
            Some(record) => _ = self.all.insert(file.clone(), Decoded { record, is_changed: false }),
            None => _ = self.absent.insert(file.clone()),
        }
    }

    /// The record of `file`, to be changed, if it is remembered.
    pub fn change(&mut self, file: &FileId) -> Option<&mut Record> {
        let Decoded { record, is_changed } = self.all.get_mut(file)?;
        if !std::mem::replace(is_changed, true) {
            self.changed.push(file.clone());
        }
        Some(Arc::make_mut(record))
    }

    /// Creates or deletes the record of `file`.
    pub fn set(&mut self, file: &FileId, record: Option<Record>) {
        self.changed.push(file.clone());
        match record {
            Some(record) => {
                self.absent.remove(file);
                self.all.insert(file.clone(), Decoded { record: Arc::new(record), is_changed: true });
            }
            None => {
                self.all.remove(file);
                self.absent.insert(file.clone());
            }
        }
    }

    /// Ends the leases of `session` in all records.
    pub fn end_session(&mut self, session: SessionId) {
        for Decoded { record, .. } in self.all.values_mut() {
            if record.holdings.held(session).is_some() {
                Arc::make_mut(&mut Arc::make_mut(record).holdings).end(session);
            }
        }
    }

    /// Ends a turn after which the server has these regions. Returns the records that the turn has
    /// changed, in the order of identifiers.
    pub fn end_turn(&mut self, regions: &Regions) -> Vec<(FileId, Option<Arc<Record>>)> {
        let mut files = std::mem::take(&mut self.changed);
        files.sort_unstable();
        files.dedup();
        let mut changed = Vec::with_capacity(files.len());
        for file in files {
            let record = self.all.get_mut(&file).map(|decoded| {
                decoded.is_changed = false;
                Arc::clone(&decoded.record)
            });
            changed.push((file, record));
        }
        self.absent.clear();
        if self.regions != *regions {
            self.regions = regions.clone();
            self.all.clear();
        } else if self.all.len() > REMEMBERED_MAX {
            self.all.clear();
        }
        changed
    }

    /// All records.
    pub fn iter(&self) -> impl Iterator<Item = (&FileId, &Record)> {
        self.all.iter().map(|(file, decoded)| (file, &*decoded.record))
    }
}
