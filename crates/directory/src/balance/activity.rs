//! The files that are in use: those that messages have named within five minutes.
//!
//! Memory is bounded by distinct sampling. Only files are counted whose hash ends in so many zero
//! *bits*. There is one bit more whenever there are too many files, and each file in the sample
//! stands for twice as many. The hash is the same everywhere, so the samples of several servers can
//! be compared: with as many bits, they are samples of the same files.
//!
//! The counts are in memory alone. They are no part of the state on which replicas must agree.

use ident::FileId;
use lease::Time;
use rustc_hash::{FxHashMap, FxHashSet};
use twox_hash::XxHash3_64;
use wire::{LogEntry, ToServer};

/// A file is active for so long after its last use, ms.
pub const ACTIVE_MS: u64 = 300_000;
/// Files that are counted by name, at most. A count of more is exact to about one in a hundred.
const FILES_MAX: usize = 16_384;
/// Files that were not used for long are forgotten at this interval, ms.
const SWEEP_MS: u64 = 30_000;

/// The files that were named lately, by the time of their last use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity {
    used: FxHashMap<FileId, Time>,
    /// The hash of each file in `used` ends in so many zeros.
    bits: u32,
    /// When `bits` became less, if files that have been in use since before may be missing.
    lowered: Option<Time>,
    swept: Time,
}

impl Activity {
    /// Notes the files that a message names.
    pub fn hear(&mut self, now: Time, message: &ToServer) {
        match message {
            ToServer::Ask { operation, wants, .. } => {
                operation.files().into_iter().for_each(|file| self.note(now, file));
                wants.iter().for_each(|want| self.note(now, &want.file));
            }
            ToServer::Log { entries, .. } => {
                for entry in entries {
                    let LogEntry::Update { operation, .. } = entry else { continue };
                    operation.files().into_iter().for_each(|file| self.note(now, file));
                    if let namespace::Operation::Create(create) = operation {
                        self.note(now, &create.new.file);
                    }
                }
            }
            _ => {}
        }
    }

    fn note(&mut self, now: Time, file: &FileId) {
        if ends_in_zeros(file) < self.bits {
            return;
        }
        match self.used.get_mut(file) {
            Some(last) => *last = now,
            None => _ = self.used.insert(file.clone(), now),
        }
        if self.used.len() > FILES_MAX || now.ms_since(self.swept) > SWEEP_MS {
            self.sweep(now);
        }
    }

    /// Forgets files that are not active any more, and then has more or fewer bits.
    fn sweep(&mut self, now: Time) {
        self.swept = now;
        self.used.retain(|_, last| now.ms_since(*last) <= ACTIVE_MS);
        while self.used.len() > FILES_MAX {
            (self.bits, self.lowered) = (self.bits + 1, None);
            let bits = self.bits;
            self.used.retain(|file, _| ends_in_zeros(file) >= bits);
        }
        if self.is_settled(now) {
            self.lowered = None;
            // Twice as many are still far below the bound.
            if self.bits > 0 && 4 * self.used.len() < FILES_MAX {
                (self.bits, self.lowered) = (self.bits - 1, Some(now));
            }
        }
    }

    /// Whether all active files with `bits` are known.
    fn is_settled(&self, now: Time) -> bool {
        self.lowered.is_none_or(|lowered| now.ms_since(lowered) > ACTIVE_MS)
    }

    /// The files that were used within `within_ms`, which is [`ACTIVE_MS`] at most.
    pub fn active(&self, now: Time, within_ms: u64) -> ActiveFiles {
        let bits = self.bits + u32::from(!self.is_settled(now));
        let is_active = |(file, last): &(&FileId, &Time)| {
            now.ms_since(**last) <= within_ms && ends_in_zeros(file) >= bits
        };
        let files = self.used.iter().filter(is_active).map(|(file, _)| file.clone()).collect();
        ActiveFiles { bits, files }
    }
}

/// Files that are in use, or a sample of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveFiles {
    bits: u32,
    files: Vec<FileId>,
}

impl ActiveFiles {
    /// All files of several samples, each once, as one sample.
    pub fn joined(all: impl IntoIterator<Item = ActiveFiles>) -> ActiveFiles {
        let all: Vec<ActiveFiles> = all.into_iter().collect();
        let bits = all.iter().map(|it| it.bits).max().unwrap_or_default();
        let files = all.into_iter().flat_map(|it| it.at(bits).files);
        let files: FxHashSet<FileId> = files.collect();
        ActiveFiles { bits, files: files.into_iter().collect() }
    }

    /// The part of these files, for example those of one server.
    pub fn with(&self, mut belongs: impl FnMut(&FileId) -> bool) -> ActiveFiles {
        let files = self.files.iter().filter(|file| belongs(file)).cloned().collect();
        ActiveFiles { bits: self.bits, files }
    }

    /// The number of active files, as far as the sample tells.
    pub fn count(&self) -> u64 {
        self.scaled(self.files.len())
    }

    /// The number of active files for which so many in the sample stand.
    pub(crate) fn scaled(&self, files: usize) -> u64 {
        (files as u64) << self.bits.min(32)
    }

    /// The files of the sample.
    pub fn files(&self) -> &[FileId] {
        &self.files
    }

    /// Two samples with as many bits.
    pub(crate) fn alike(&self, other: &ActiveFiles) -> (ActiveFiles, ActiveFiles) {
        let bits = self.bits.max(other.bits);
        (self.clone().at(bits), other.clone().at(bits))
    }

    /// The sample with so many bits, which are no fewer than it has.
    fn at(mut self, bits: u32) -> ActiveFiles {
        if bits > self.bits {
            self.files.retain(|file| ends_in_zeros(file) >= bits);
            self.bits = bits;
        }
        self
    }
}

impl FromIterator<FileId> for ActiveFiles {
    /// A sample of all these files.
    fn from_iter<I: IntoIterator<Item = FileId>>(files: I) -> ActiveFiles {
        ActiveFiles { bits: 0, files: files.into_iter().collect() }
    }
}

/// The number of zeros at the end of a file's hash.
fn ends_in_zeros(file: &FileId) -> u32 {
    XxHash3_64::oneshot(file.as_bytes()).trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(dir: u64, n: u64) -> FileId {
        FileId::root().child(dir).child(n)
    }

    fn counts(activity: &Activity, now: u64) -> u64 {
        activity.active(Time(now), ACTIVE_MS).count()
    }

    /// Notes files 1 to `count` of a directory, at this time.
    fn notes(activity: &mut Activity, now: u64, dir: u64, count: u64) {
        (1..=count).for_each(|n| activity.note(Time(now), &file(dir, n)));
    }

    fn is_near(found: u64, due: u64) {
        assert!(found.abs_diff(due) * 25 <= due, "{found} is not within 4 % of {due}");
    }

    #[test]
    fn few_files_are_counted_exactly_and_each_once() {
        let mut activity = Activity::default();
        notes(&mut activity, 1_000, 2, 500);
        notes(&mut activity, 2_000, 2, 700);
        assert_eq!(counts(&activity, 2_000), 700);
    }

    #[test]
    fn a_million_files_are_counted_to_a_few_percent_in_bounded_memory() {
        let mut activity = Activity::default();
        for n in 1..=1_000_000 {
            activity.note(Time(n / 10), &file(2 + n % 7, n));
            assert!(activity.used.len() <= FILES_MAX);
        }
        is_near(counts(&activity, 100_000), 1_000_000);
        let part = activity.active(Time(100_000), ACTIVE_MS).with(|it| file(3, 1).parent() == it.parent());
        assert!(part.count().abs_diff(1_000_000 / 7) < 10_000, "{}", part.count());
    }

    #[test]
    fn files_are_forgotten_five_minutes_after_their_last_use() {
        let mut activity = Activity::default();
        notes(&mut activity, 0, 2, 100);
        notes(&mut activity, 200_000, 2, 40);
        assert_eq!(counts(&activity, 300_000), 100);
        assert_eq!(counts(&activity, 300_001), 40);
        assert_eq!(activity.active(Time(200_500), 1_000).count(), 40, "within less");
        activity.note(Time(500_001), &file(3, 1));
        assert_eq!(activity.used.len(), 1, "and their memory is free");
    }

    /// A peak leaves a coarse sample. It becomes finer with time, and no count is wrong meanwhile.
    #[test]
    fn a_sample_becomes_finer_again_after_a_peak() {
        let mut activity = Activity::default();
        notes(&mut activity, 0, 2, 200_000);
        let coarse = activity.bits;
        assert!(coarse >= 4);
        // Each of 8,000 files is used every 250 s.
        for step in 0..400 {
            let now = 301_000 + 10_000 * step;
            (0..320).for_each(|n| activity.note(Time(now), &file(3, 1 + 25 * n + step % 25)));
            let found = counts(&activity, now);
            let is_near = step < 25 || found.abs_diff(8_000) <= 1_500;
            assert!(is_near, "{found} at {now}, {} bits", activity.bits);
        }
        assert_eq!(counts(&activity, 301_000 + 3_990_000), 8_000);
        assert_eq!(activity.bits, 0);
    }

    #[test]
    fn samples_of_several_servers_are_of_the_same_files() {
        let (mut busy, mut idle) = (Activity::default(), Activity::default());
        notes(&mut busy, 0, 2, 100_000);
        notes(&mut idle, 0, 2, 10_000);
        notes(&mut idle, 0, 3, 6_000);
        let all = ActiveFiles::joined([&busy, &idle].map(|it| it.active(Time(0), ACTIVE_MS)));
        is_near(all.count(), 106_000);
        let (a, b) = busy.active(Time(0), ACTIVE_MS).alike(&idle.active(Time(0), ACTIVE_MS));
        assert_eq!(a.bits, b.bits);
        assert!(b.count().abs_diff(16_000) < 1_600, "{}", b.count());
    }

    proptest! {
        /// A sample has the files whose hash has its bits, whatever order and times they come in.
        #[test]
        fn a_sample_depends_on_the_files_alone(
            uses in proptest::collection::vec((2_u64..5, 1_u64..60_000, 0_u64..2_000), 1..400),
        ) {
            let (mut activity, mut last) = (Activity::default(), std::collections::BTreeMap::new());
            let mut now = 0;
            for (dir, n, after) in uses {
                now += after;
                activity.note(Time(now), &file(dir, n));
                last.insert(file(dir, n), now);
            }
            last.retain(|_, at| now - *at <= ACTIVE_MS);
            let active = activity.active(Time(now), ACTIVE_MS);
            let mut found = active.files().to_vec();
            found.sort();
            prop_assert_eq!(found, last.into_keys().collect::<Vec<_>>());
        }
    }
}
