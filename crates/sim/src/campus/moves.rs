//! The regions that moved lately, and the pace of the balance.

use directory::BalanceRule;
use ident::FileId;
use std::collections::BTreeMap;

/// How servers balance their loads: the directory's rule, and its pace here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Balance {
    pub rule: BalanceRule,
    /// The interval at which a server compares its load with that of another one, s.
    pub every_s: u64,
    /// The time for which a region stays after it was handed over, or could not be, s.
    pub rests_s: u64,
    /// Whether a file is handed over once at most (the control of Farsite §8.3.5).
    pub once: bool,
}

impl Default for Balance {
    fn default() -> Balance {
        let rule = BalanceRule { least: 8, ..BalanceRule::default() };
        Balance { rule, every_s: 10, rests_s: 120, once: false }
    }
}

/// Files by the time at which they were made. Regions by the time at which they were last handed
/// over, or could not be. Times are in µs.
#[derive(Default)]
pub(super) struct Moves {
    made: BTreeMap<FileId, u64>,
    moved: BTreeMap<FileId, u64>,
    stayed: BTreeMap<FileId, u64>,
}

impl Moves {
    /// A server was told that the file was made.
    pub fn made(&mut self, file: &FileId, now: u64) {
        self.made.insert(file.clone(), now);
    }

    /// The region was handed over.
    pub fn moved(&mut self, region: FileId, now: u64) {
        self.moved.insert(region, now);
    }

    /// The region could not be handed over.
    pub fn stayed(&mut self, region: FileId, now: u64) {
        self.stayed.insert(region, now);
    }

    /// Whether the region may be handed over now.
    pub fn may_go(&self, region: &FileId, now: u64, balance: &Balance) -> bool {
        let lately = |times: &BTreeMap<FileId, u64>| {
            times.get(region).is_some_and(|last| now - *last < balance.rests_s * 1_000_000)
        };
        // A file that was made in a region after that had moved has not been handed over.
        let made = self.made.get(region).copied().unwrap_or_default();
        let had_it = |(moved, at): (&FileId, &u64)| moved.is_prefix_of(region) && *at >= made;
        let is_fixed = balance.once && self.moved.iter().any(had_it);
        !is_fixed && !lately(&self.moved) && !lately(&self.stayed)
    }
}
