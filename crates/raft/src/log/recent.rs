//! Recent entries in memory. Code that applies or sends the latest ones need not read them from the
//! disk.

use crate::types::GroupEntry;
use openraft::EntryPayload;
use std::collections::BTreeMap;

/// The recent entries of a log.
#[derive(Default)]
pub(crate) struct Recent {
    entries: BTreeMap<u64, GroupEntry>,
    bytes: usize,
}

impl Recent {
    /// Adds an entry, and forgets the oldest ones beyond `bytes_max` bytes.
    pub(super) fn add(&mut self, entry: GroupEntry, bytes_max: usize) {
        self.bytes += bytes_of(&entry);
        self.entries.insert(entry.log_id.index, entry);
        while self.bytes > bytes_max
            && let Some((_, oldest)) = self.entries.pop_first()
        {
            self.bytes -= bytes_of(&oldest);
        }
    }

    /// Takes the entry at `index` out, for its only reader.
    pub(crate) fn take(&mut self, index: u64) -> Option<GroupEntry> {
        let entry = self.entries.remove(&index)?;
        self.bytes -= bytes_of(&entry);
        Some(entry)
    }

    pub(crate) fn get(&self, index: u64) -> Option<GroupEntry> {
        self.entries.get(&index).cloned()
    }

    /// Forgets the entries from `index` on.
    pub(super) fn forget_from(&mut self, index: u64) {
        let gone = self.entries.split_off(&index);
        self.bytes -= gone.values().map(bytes_of).sum::<usize>();
    }

    /// Forgets the entries before `index`.
    pub(super) fn forget_before(&mut self, index: u64) {
        let kept = self.entries.split_off(&index);
        let gone = std::mem::replace(&mut self.entries, kept);
        self.bytes -= gone.values().map(bytes_of).sum::<usize>();
    }
}

/// Returns about the memory that an entry takes, in bytes.
pub(crate) fn bytes_of(entry: &GroupEntry) -> usize {
    let payload = if let EntryPayload::Normal(batch) = &entry.payload { batch.len() } else { 0 };
    payload + size_of::<GroupEntry>()
}
