//! The order in which files are forgotten.

use ident::FileId;
use std::collections::{BTreeMap, VecDeque};

/// A clock hand that passes over the known files.
#[derive(Debug, Default)]
pub(crate) struct EvictionClock {
    /// The order in which it passes.
    pub ahead: VecDeque<FileId>,
    /// Files that the hand has picked and that front doors are revoking. The key is the number of
    /// the revocation.
    pub picked: BTreeMap<u64, Vec<FileId>>,
}

impl EvictionClock {
    /// Adds `file`, which was not known before.
    pub fn add(&mut self, file: FileId) {
        self.ahead.push_back(file);
    }

    /// The number of files that front doors are revoking.
    pub fn picked(&self) -> usize {
        self.picked.values().map(Vec::len).sum()
    }
}
