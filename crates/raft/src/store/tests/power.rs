//! Power cuts at every write of a run of checkpoints, with any part of the unsynced writes lost.
//! The file always opens as one whole checkpoint.

use super::*;
use parking_lot::Mutex;
use redb::StorageBackend;

/// An operation on a file.
#[derive(Clone, Debug)]
enum Step {
    Length(u64),
    Wrote(u64, Vec<u8>),
    Synced,
}

type Recorded = (Vec<u8>, Vec<Step>);

/// A file in memory that records the operations on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    file: Arc<Mutex<Recorded>>,
}

fn redo(image: &mut Vec<u8>, done: &Step) {
    match done {
        Step::Length(length) => image.resize(*length as usize, 0),
        Step::Wrote(at, data) => {
            let at = *at as usize;
            image.resize(image.len().max(at + data.len()), 0);
            image[at..at + data.len()].copy_from_slice(data);
        }
        Step::Synced => {}
    }
}

impl Recorder {
    pub(super) fn with(image: Vec<u8>) -> Recorder {
        Recorder { file: Arc::new(Mutex::new((image, Vec::new()))) }
    }

    pub(super) fn image(&self) -> Vec<u8> {
        self.file.lock().0.clone()
    }

    fn did(&self, done: Step) {
        let mut file = self.file.lock();
        redo(&mut file.0, &done);
        file.1.push(done);
    }
}

impl StorageBackend for Recorder {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.lock().0.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let file = self.file.lock();
        let from =
            file.0.get(offset as usize..offset as usize + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(from);
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.did(Step::Length(len));
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        self.did(Step::Synced);
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.did(Step::Wrote(offset, data.to_vec()));
        Ok(())
    }
}

pub(super) fn open(recorder: &Recorder) -> RowStore {
    let blocks = Blocks::open(recorder.clone(), None).unwrap();
    RowFile::over(blocks, Path::new("memory"), SMALL).unwrap().group(GroupId::FIRST).unwrap()
}

/// Returns a row's value, which contains the checkpoint that wrote it.
fn value(round: u64) -> Vec<u8> {
    round.to_le_bytes().repeat(12)
}

#[test]
fn a_power_cut_at_any_write_leaves_one_whole_checkpoint() {
    let recorder = Recorder::default();
    let mut store = open(&recorder);
    let mut acknowledged = vec![(recorder.file.lock().1.len(), 0)];
    for round in 1..=8u64 {
        for row in 0..120u64 {
            store.put(&(row * 7919 % 120).to_be_bytes(), value(round));
        }
        store.checkpoint(round.to_le_bytes().to_vec()).unwrap().write().unwrap();
        acknowledged.push((recorder.file.lock().1.len(), round));
    }
    // The writes of the drop are an orderly end, and not part of the test.
    let done = recorder.file.lock().1.clone();
    drop(store);
    let first = acknowledged[0].0;
    for cut in first..=done.len() {
        for choice in 0..4u64 {
            check_cut(&done, cut, choice, &acknowledged);
        }
    }
}

/// Loses some of the operations after the last sync before `cut`: all, none, every other write, or
/// parts of writes.
fn check_cut(done: &[Step], cut: usize, choice: u64, acknowledged: &[(usize, u64)]) {
    let synced = done[..cut].iter().rposition(|done| matches!(done, Step::Synced)).map_or(0, |at| at + 1);
    let mut image = Vec::new();
    done[..synced].iter().for_each(|done| redo(&mut image, done));
    for (number, done) in done[synced..cut].iter().enumerate() {
        if let (Step::Wrote(at, data), 3) = (done, choice) {
            // A disk writes sectors.
            for (sector, data) in data.chunks(512).enumerate() {
                if (number + sector + cut).is_multiple_of(2) {
                    redo(&mut image, &Step::Wrote(at + 512 * sector as u64, data.to_vec()));
                }
            }
            continue;
        }
        let kept = match choice {
            0 => false,
            1 => true,
            _ => (number * 7 + cut).is_multiple_of(2) || matches!(done, Step::Length(_)),
        };
        if kept {
            redo(&mut image, done);
        }
    }
    let store = open(&Recorder::with(image));
    let must = acknowledged.iter().rev().find(|(at, _)| *at <= cut).map_or(0, |(_, round)| *round);
    let position = store.position().map_or(0, |position| u64::from_le_bytes(position.try_into().unwrap()));
    assert!(position >= must, "cut {cut}/{choice}: checkpoint {must} was acknowledged, {position} is there");
    let rows = all(&store);
    assert_eq!(rows.len(), if position == 0 { 0 } else { 120 }, "cut {cut}/{choice}");
    assert!(rows.values().all(|row| *row == value(position)), "cut {cut}/{choice}: a mixture");
}
