mod groups;
mod power;

use super::super::batch::{Batch, WaitingInput};
use super::device::WAITING_BYTES_MAX;
use super::segments::SPARES_MAX;
use super::*;
use directory::{Input, ShareWork};
use lease::Time;
use openraft::EntryPayload;
use proptest::prelude::*;

const SEGMENT: u64 = 64 << 10;

impl RaftLog {
    /// Opens the log of the first group, as the only one.
    pub(crate) fn open(dir: &Path, segment_bytes: u64, keep_bytes: u64) -> Result<RaftLog, LogError> {
        let device = LogDevice::open(Arc::new(crate::disk::Local), dir, segment_bytes, keep_bytes, None)?;
        Ok(device.group(GroupId::FIRST))
    }

    fn next_frame(&self) -> u64 {
        self.device.segments.lock().next_frame
    }

    fn spots(&self) -> Vec<index::Spot> {
        self.device.state.lock().group(self.group).spots.iter().copied().collect()
    }
}

fn log_id(index: u64) -> LogId {
    LogId::new(openraft::vote::RaftLeaderId::to_committed(vote().leader_id()), index)
}

fn vote() -> Vote {
    Vote::new_committed(3, 1)
}

/// An entry of about `bytes` bytes that contains its index.
fn entry(index: u64, bytes: usize) -> GroupEntry {
    stamped(index, index, bytes)
}

/// An entry of about `bytes` bytes that contains `stamp`.
fn stamped(index: u64, stamp: u64, bytes: usize) -> GroupEntry {
    let shares =
        (0..bytes / 16).map(|number| ShareWork::Drop(namespace::ShareId([number as u8; 16]))).collect();
    let waiting = WaitingInput::new(Input::SharesSettled(shares));
    GroupEntry {
        log_id: log_id(index),
        payload: EntryPayload::Normal(Batch::new(Time(stamp), 0, wire::Version::NEWEST, vec![waiting])),
    }
}

/// Appends entries and makes them durable.
fn append(log: &RaftLog, entries: impl IntoIterator<Item = GroupEntry>) {
    log.append(entries).unwrap();
    log.sync().unwrap();
}

/// Makes a change durable that was put.
fn done(log: &RaftLog, put: Result<(), LogError>) {
    put.unwrap();
    log.sync().unwrap();
}

fn time_of(entry: Option<GroupEntry>) -> Option<u64> {
    match entry?.payload {
        EntryPayload::Normal(batch) => Some(batch.now.0),
        _ => None,
    }
}

/// Reads back all entries, which must be there.
fn read_all(log: &RaftLog) -> Vec<u64> {
    let (recent, indices) = (log.recent(), log.indices());
    let read = |index| recent.lock().take(index).or_else(|| log.read(index).unwrap());
    indices.map(|index| time_of(read(index)).unwrap()).collect()
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(suffix));
    files.sort();
    files
}

#[test]
fn comes_back_with_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    assert_eq!((log.vote(), log.last(), log.purged()), (None, None, None));
    done(&log, log.save_vote(vote()));
    append(&log, [entry(0, 10), entry(1, 5000)]);
    append(&log, [entry(2, 10)]);
    assert_eq!(read_all(&log), [0, 1, 2]);
    // The second read is from the file.
    assert_eq!(read_all(&log), [0, 1, 2]);
    drop(log);
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    assert_eq!((log.vote(), log.last(), log.purged()), (Some(vote()), Some(log_id(2)), None));
    assert_eq!(read_all(&log), [0, 1, 2]);
    done(&log, log.truncate(Some(log_id(1))));
    append(&log, [entry(2, 20)]);
    done(&log, log.purge(log_id(0)));
    drop(log);
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    assert_eq!((log.last(), log.purged()), (Some(log_id(2)), Some(log_id(0))));
    assert_eq!(read_all(&log), [1, 2]);
    done(&log, log.purge(log_id(9)));
    append(&log, [entry(10, 1)]);
    assert_eq!((read_all(&log), log.last()), (vec![10], Some(log_id(10))));
    assert!(log.read(9).unwrap().is_none() && log.read(11).unwrap().is_none());
}

#[test]
fn what_nothing_rests_on_waits_for_what_something_does() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    append(&log, [entry(0, 10)]);
    let written = log.next_frame();
    (1..4).for_each(|index| log.append([entry(index, 10)]).unwrap());
    assert_eq!((log.last(), log.indices(), log.next_frame()), (Some(log_id(3)), 0..4, written));
    // A crash would leave this.
    assert_eq!(read_all(&RaftLog::open(dir.path(), SEGMENT, 0).unwrap()), [0]);
    assert_eq!(read_all(&log), [0, 1, 2, 3], "not written, and there");
    log.append([entry(4, 10), entry(5, 10)]).unwrap();
    log.sync().unwrap();
    log.sync().unwrap();
    assert_eq!(log.next_frame(), written + 1, "all that waited is one frame");
    assert_eq!(read_all(&log), [0, 1, 2, 3, 4, 5]);
    assert!(!log.is_heavy());
    log.append([entry(6, 2 * WAITING_BYTES_MAX)]).unwrap();
    assert!(log.is_heavy());
}

#[test]
fn changes_of_the_log_come_behind_what_waits() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    log.append([entry(0, 10), entry(1, 10)]).unwrap();
    done(&log, log.truncate(Some(log_id(0))));
    log.append([entry(1, 10), entry(2, 10)]).unwrap();
    done(&log, log.purge(log_id(1)));
    log.append([entry(3, 10)]).unwrap();
    done(&log, log.save_vote(vote()));
    drop(log);
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    assert_eq!((read_all(&log), log.purged(), log.vote()), (vec![2, 3], Some(log_id(1)), Some(vote())));
}

#[test]
fn purged_segments_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    done(&log, log.save_vote(vote()));
    for index in 0..400 {
        append(&log, [entry(index, 8_000)]);
        if index % 40 == 39 {
            done(&log, log.purge(log_id(index - 1)));
            assert!(log.bytes() <= 2 * SEGMENT);
        }
    }
    let (used, spare) = (files(dir.path(), ".log").len(), files(dir.path(), ".spare").len());
    assert!(used <= 2 && spare <= SPARES_MAX && spare > 0, "{used} used, {spare} spare");
    drop(log);
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    assert_eq!(read_all(&log), [399]);
    assert_eq!((log.vote(), log.purged()), (Some(vote()), Some(log_id(398))));
}

#[test]
fn an_oversized_batch_gets_a_segment_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    append(&log, [entry(0, 10)]);
    append(&log, [entry(1, 1_000_000)]);
    append(&log, [entry(2, 10)]);
    drop(log);
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    assert_eq!(read_all(&log), [0, 1, 2]);
    done(&log, log.purge(log_id(2)));
    assert!(files(dir.path(), ".spare").iter().all(|spare| spare.metadata().unwrap().len() == SEGMENT));
}

#[test]
fn space_is_set_aside_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), SEGMENT, 5 * SEGMENT).unwrap();
    let count = |suffix| files(dir.path(), suffix).len();
    assert_eq!((count(".log"), count(".reserve")), (1, 4));
    (0..30).for_each(|index| append(&log, [entry(index, 8_000)]));
    assert_eq!((count(".log"), count(".reserve")), (5, 0));
    drop(log);
    let log = RaftLog::open(dir.path(), SEGMENT, 6 * SEGMENT).unwrap();
    assert_eq!((count(".log"), count(".reserve")), (5, 1));
    assert_eq!(read_all(&log).len(), 30);
}

/// The power goes while a frame is written. Any of its sectors may be written, and any not.
#[test]
fn a_torn_frame_is_dropped_and_everything_before_it_kept() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    let log = RaftLog::open(&live, SEGMENT, 3 * SEGMENT).unwrap();
    let mut torn = 0;
    for index in 0..30u64 {
        let before = dir.path().join("before");
        copy_dir(&live, &before);
        append(&log, [entry(index, 300 * index as usize)]);
        for pattern in [0u64, 1, 2, 0b1010, 0x5555_5555_5555_5555, !1, !0] {
            let cut = dir.path().join(format!("cut-{index}-{pattern}"));
            copy_dir(&before, &cut);
            for file in files(&live, ".log") {
                mix_sectors(&file, &cut.join(file.file_name().unwrap()), pattern);
            }
            let log = RaftLog::open(&cut, SEGMENT, 3 * SEGMENT).unwrap();
            let there = read_all(&log);
            let whole: Vec<u64> = (0..=index).collect();
            let acknowledged = &whole[..index as usize];
            assert!(there == whole || there == acknowledged, "{index} {pattern:x}: {there:?}");
            torn += usize::from(pattern != 0 && there == acknowledged);
            // The log goes on from there.
            append(&log, [entry(there.len() as u64, 700)]);
            drop(log);
            assert_eq!(read_all(&RaftLog::open(&cut, SEGMENT, 3 * SEGMENT).unwrap()).len(), there.len() + 1);
            std::fs::remove_dir_all(cut).unwrap();
        }
    }
    assert!(torn > 30, "only {torn} cuts tore anything");
}

/// Takes the `n`th changed sector from `from` if bit `n` of `pattern` is set.
fn mix_sectors(from: &Path, to: &Path, pattern: u64) {
    let new = std::fs::read(from).unwrap();
    // A segment enters service durably empty.
    let mut old = std::fs::read(to).unwrap_or_else(|_| [&new[..64], &vec![0; new.len() - 64]].concat());
    let mut number = 0;
    for (old, new) in old.chunks_mut(512).zip(new.chunks(512)) {
        if old != new {
            if pattern >> (number % 64) & 1 == 1 {
                old.copy_from_slice(new);
            }
            number += 1;
        }
    }
    std::fs::write(to, old).unwrap();
}

#[test]
fn a_bit_that_flips_anywhere_is_put_right() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), SEGMENT, 0).unwrap();
    done(&log, log.save_vote(vote()));
    // The log has three segments.
    (0..40).for_each(|index| append(&log, [entry(index, 100 + 4000 * (index as usize % 2))]));
    done(&log, log.purge(log_id(2)));
    drop(log);
    let read = || {
        let log = RaftLog::open(dir.path(), SEGMENT, 0).unwrap();
        let about = (log.vote(), log.purged(), log.last());
        let entries: Vec<String> =
            log.indices().map(|index| format!("{:?}", log.read(index).unwrap().unwrap())).collect();
        (about, entries)
    };
    let known = read();
    assert_eq!(known.1.len(), 37);
    let segments = files(dir.path(), ".log");
    assert!(segments.len() > 1);
    for segment in segments {
        let image = std::fs::read(&segment).unwrap();
        let used = image.iter().rposition(|byte| *byte != 0).unwrap() + 64;
        let (everywhere, frames) = (image.len() / 30, used / 300);
        let places = (0..64).chain((0..300).map(|at| at * frames)).chain((0..30).map(|at| at * everywhere));
        for place in places.filter(|place| *place < image.len()) {
            let mut flipped = image.clone();
            flipped[place] ^= 1 << (place % 8);
            std::fs::write(&segment, flipped).unwrap();
            assert!(read() == known, "byte {place} of {}", segment.display());
            // The log has repaired the file.
            std::fs::write(&segment, &image).unwrap();
        }
    }
}

#[test]
fn damage_is_not_taken_for_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
    (0..5).for_each(|index| append(&log, [entry(index, 100)]));
    let place = log.spots()[2].at.place;
    let file = log.device.segments.lock().path(log.spots()[2].at.segment);
    drop(log);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[place.at as usize + 40] ^= 3;
    std::fs::write(&file, bytes).unwrap();
    let Err(error) = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT) else { panic!("opened") };
    assert!(matches!(error, LogError::Damaged { at, .. } if at == place.at), "{error}");
}

#[test]
fn a_missing_segment_is_damage_unless_all_in_it_was_purged() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    let log = RaftLog::open(&live, SEGMENT, 3 * SEGMENT).unwrap();
    (0..60).for_each(|index| append(&log, [entry(index, 40_000)]));
    let segments = files(&live, ".log");
    assert!(segments.len() > 3);
    for (missing, file) in segments[..segments.len() - 1].iter().enumerate() {
        let cut = dir.path().join(format!("cut-{missing}"));
        copy_dir(&live, &cut);
        std::fs::remove_file(cut.join(file.file_name().unwrap())).unwrap();
        assert!(
            matches!(RaftLog::open(&cut, SEGMENT, 3 * SEGMENT), Err(LogError::Damaged { .. })),
            "{missing}"
        );
    }
    // A power cut came while segments were being retired: some are back, others not.
    let before = dir.path().join("before");
    copy_dir(&live, &before);
    done(&log, log.purge(log_id(58)));
    let kept = files(&live, ".log");
    for (missing, gone) in segments[..segments.len() - kept.len()].iter().enumerate() {
        let cut = dir.path().join(format!("retired-{missing}"));
        copy_dir(&before, &cut);
        for file in &kept {
            std::fs::copy(file, cut.join(file.file_name().unwrap())).unwrap();
        }
        std::fs::remove_file(cut.join(gone.file_name().unwrap())).unwrap();
        assert_eq!(read_all(&RaftLog::open(&cut, SEGMENT, 3 * SEGMENT).unwrap()), [59], "{missing}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize, usize),
    Truncate(usize),
    Purge(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1usize..4, 1usize..30_000).prop_map(|(count, bytes)| Step::Append(count, bytes)),
        1 => (0usize..6).prop_map(Step::Truncate),
        2 => (0usize..6).prop_map(Step::Purge),
        2 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn behaves_as_a_list(steps in prop::collection::vec(step(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
        // Indices in `first..next` exist.
        let (mut first, mut next) = (0u64, 0u64);
        for step in steps {
            match step {
                Step::Append(count, bytes) => {
                    append(&log, (next..next + count as u64).map(|index| entry(index, bytes)));
                    next += count as u64;
                }
                Step::Truncate(back) => {
                    next = first.max(next.saturating_sub(back as u64));
                    done(&log, log.truncate(next.checked_sub(1).map(log_id)));
                }
                Step::Purge(keep) => {
                    let upto = next.saturating_sub(keep as u64);
                    if upto > first {
                        done(&log, log.purge(log_id(upto - 1)));
                        first = upto;
                    }
                }
                Step::Reopen => {
                    drop(log);
                    log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
                }
            }
            prop_assert_eq!(log.last().map(|last| last.index), next.checked_sub(1));
            prop_assert_eq!(log.purged().map(|purged| purged.index), first.checked_sub(1));
        }
        drop(log);
        let log = RaftLog::open(dir.path(), SEGMENT, 3 * SEGMENT).unwrap();
        prop_assert_eq!(read_all(&log), (first..next).collect::<Vec<_>>());
    }
}
