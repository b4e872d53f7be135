//! Records that are decoded, in this turn or an earlier one.
//!
//! Work on one file comes in several turns: it is made, written, looked for by another machine and
//! granted. This is only a cache: a replica that has forgotten it gets the same results.

use crate::rows::record::Record;
use ident::FileId;
use lease::SessionId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Records that are remembered from one turn to the next: some 10 MiB.
const REMEMBERED_MAX: usize = 16_384;

/// Records by file; `None` where there is no such file.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecodedRecords {
    all: FxHashMap<FileId, Decoded>,
    /// The files whose records this turn has changed, each once.
    changed: Vec<FileId>,
}

#[derive(Clone, Debug)]
struct Decoded {
    record: Option<Arc<Record>>,
    is_changed: bool,
}

impl DecodedRecords {
    /// The record of `file`, as far as it is remembered.
    pub fn get(&self, file: &FileId) -> Option<&Option<Arc<Record>>> {
        self.all.get(file).map(|decoded| &decoded.record)
    }

    /// Remembers the record that the store has.
    pub fn decoded(&mut self, file: &FileId, record: Option<Arc<Record>>) {
        self.all.insert(file.clone(), Decoded { record, is_changed: false });
    }

    /// The record of `file`, to be changed, if it is remembered and there is such a file.
    pub fn change(&mut self, file: &FileId) -> Option<&mut Record> {
        let Decoded { record, is_changed } = self.all.get_mut(file)?;
        if !std::mem::replace(is_changed, true) {
            self.changed.push(file.clone());
        }
        record.as_mut().map(Arc::make_mut)
    }

    /// Creates or deletes the record of `file`.
    pub fn set(&mut self, file: &FileId, record: Option<Record>) {
        let set = Decoded { record: record.map(Arc::new), is_changed: true };
        if self.all.insert(file.clone(), set).is_none_or(|before| !before.is_changed) {
            self.changed.push(file.clone());
        }
    }

    /// Ends the leases of `session` in all records.
    pub fn end_session(&mut self, session: SessionId) {
        for record in self.all.values_mut().filter_map(|decoded| decoded.record.as_mut()) {
            if record.holdings.held(session).is_some() {
                Arc::make_mut(&mut Arc::make_mut(record).holdings).end(session);
            }
        }
    }

    /// Ends the turn. Returns the records that it changed, in the order of identifiers.
    pub fn take_changed(&mut self) -> Vec<(FileId, Option<Arc<Record>>)> {
        let mut files = std::mem::take(&mut self.changed);
        files.sort_unstable();
        let mut changed = Vec::with_capacity(files.len());
        for file in files {
            let Some(decoded) = self.all.get_mut(&file) else { continue };
            decoded.is_changed = false;
            changed.push((file, decoded.record.clone()));
        }
        if self.all.len() > REMEMBERED_MAX {
            self.all.clear();
        }
        changed
    }

    /// All records.
    pub fn iter(&self) -> impl Iterator<Item = (&FileId, Option<&Record>)> {
        self.all.iter().map(|(file, decoded)| (file, decoded.record.as_deref()))
    }
}
