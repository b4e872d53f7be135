//! The files that are in use, and the regions that moved lately.

use super::balance::{ACTIVE_S, Balance};
use ident::FileId;
use std::collections::BTreeMap;

/// Files by the time at which a server was last asked or told about them, and by the time at which
/// they were made. Regions by the time at which they were last handed over, or could not be. Times
/// are in µs.
#[derive(Default)]
pub(super) struct Activity {
    files: BTreeMap<FileId, u64>,
    made: BTreeMap<FileId, u64>,
    moved: BTreeMap<FileId, u64>,
    stayed: BTreeMap<FileId, u64>,
}

impl Activity {
    pub fn notes(&mut self, file: &FileId, now: u64) {
        match self.files.get_mut(file) {
            Some(last) => *last = now,
            None => _ = self.files.insert(file.clone(), now),
        }
    }

    /// A server was told that the file was made.
    pub fn notes_new(&mut self, file: &FileId, now: u64) {
        self.notes(file, now);
        self.made.insert(file.clone(), now);
    }

    /// Forgets the files that are not active any more.
    pub fn forget(&mut self, now: u64) {
        self.files.retain(|_, last| now - *last <= ACTIVE_S * 1_000_000);
    }

    /// The active files.
    pub fn files(&self) -> impl Iterator<Item = &FileId> {
        self.files.keys()
    }

    /// The region was handed over.
    pub fn moved(&mut self, region: FileId, now: u64) {
        self.moved.insert(region, now);
    }

    /// The region could not be handed over.
    pub fn stayed(&mut self, region: FileId, now: u64) {
        self.stayed.insert(region, now);
    }

    /// Whether the rule lets the region go now.
    pub fn may_go(&self, region: &FileId, now: u64, rule: &Balance) -> bool {
        let lately = |times: &BTreeMap<FileId, u64>| {
            times.get(region).is_some_and(|last| now - *last < rule.rests_s * 1_000_000)
        };
        // A file that was made in a region after that had moved has not been handed over.
        let made = self.made.get(region).copied().unwrap_or_default();
        let had_it = |(moved, at): (&FileId, &u64)| moved.is_prefix_of(region) && *at >= made;
        let is_fixed = rule.once && self.moved.iter().any(had_it);
        !is_fixed && !lately(&self.moved) && !lately(&self.stayed)
    }
}
