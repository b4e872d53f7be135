//! The bytes that a disk may hold after a power failure: everything flushed, and a random part of
//! the rest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::record::{self, DiskEvent, RecordError};

/// A disk writes so many bytes whole or not at all.
const SECTOR: usize = 512;

/// One cut: its seed, and its number among the cuts of that seed. The same pair gives the same cut
/// of the same record.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Chooses all cuts of a run.
    pub seed: u64,
    /// The cut's number among them.
    pub number: u64,
}

/// The effect of a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// The power failed after so many events.
    pub at: u64,
    /// Writes that no flush had covered.
    pub pending: usize,
    /// Pending writes that reached the disk whole.
    pub kept: usize,
    /// Pending writes of which some sectors reached the disk.
    pub torn: usize,
    /// The content of each file of notes.
    pub notes: BTreeMap<String, Vec<u8>>,
}

/// The moments at which a cut may fall: from the first note to the end. The first note says that
/// the disk has been made ready.
pub fn moments(from: &mut impl Read) -> Result<Range<u64>, RecordError> {
    let (mut events, mut ready) = (0, None);
    while let Some(event) = record::next(from)? {
        events += 1;
        if matches!(event, DiskEvent::Note { .. }) {
            ready.get_or_insert(events);
        }
    }
    Ok(ready.unwrap_or(0)..events + 1)
}

/// Writes to `image` the bytes that the disk holds after the cut. `image` is a file of zeros as
/// large as the disk.
pub fn make(from: &mut impl Read, moments: Range<u64>, image: &File, cut: Cut) -> Result<Fate, RecordError> {
    let mut rng = ChaCha8Rng::seed_from_u64(cut.seed);
    rng.set_stream(cut.number);
    let at = moments.start + rng.next_u64() % (moments.end - moments.start).max(1);
    let mut pending = Vec::new();
    let mut notes: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for _ in 0..at {
        match record::next(from)? {
            None => return Err(RecordError::Malformed("fewer events than moments")),
            Some(DiskEvent::Note { file, data }) => notes.entry(file).or_default().extend(data),
            Some(DiskEvent::Write { offset, data }) => pending.push((offset, data)),
            Some(DiskEvent::Flush) => {
                for (offset, data) in pending.drain(..) {
                    image.write_all_at(&data, offset)?;
                }
            }
        }
    }
    let (kept, torn) = leave_to_chance(&mut rng, &pending, image)?;
    Ok(Fate { at, pending: pending.len(), kept, torn, notes })
}

/// Applies writes in any order, each whole, in part, or not at all. Returns how many were whole and
/// how many in part.
fn leave_to_chance(
    rng: &mut ChaCha8Rng,
    pending: &[(u64, Vec<u8>)],
    image: &File,
) -> io::Result<(usize, usize)> {
    // Some cuts lose all, some nearly nothing. If each lost half, few would lose just the one write
    // that matters.
    let keep_of_ten = [0, 1, 5, 9][(rng.next_u32() % 4) as usize];
    let tear_of_ten = [0, 3][(rng.next_u32() % 2) as usize];
    let mut order: Vec<usize> = (0..pending.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
    let (mut kept, mut torn) = (0, 0);
    for (offset, data) in order.into_iter().filter_map(|index| pending.get(index)) {
        if rng.next_u32() % 10 >= keep_of_ten {
            continue;
        }
        if rng.next_u32() % 10 >= tear_of_ten {
            image.write_all_at(data, *offset)?;
            kept += 1;
            continue;
        }
        torn += 1;
        for (sector, bytes) in data.chunks(SECTOR).enumerate() {
            if rng.next_u32().is_multiple_of(2) {
                image.write_all_at(bytes, offset + (sector * SECTOR) as u64)?;
            }
        }
    }
    Ok((kept, torn))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: u64 = 64 * 1024;

    /// Each write is one byte value over a place of its own, every tenth event a flush, every fifth
    /// a note.
    fn recorded() -> (Vec<u8>, Vec<DiskEvent>) {
        let events: Vec<DiskEvent> = (0..200u64)
            .map(|n| match n % 10 {
                9 => DiskEvent::Flush,
                4 => DiskEvent::Note { file: "facts".into(), data: vec![n as u8] },
                _ => DiskEvent::Write { offset: (n % 16) * 4096, data: vec![n as u8 + 1; 4096] },
            })
            .collect();
        let mut bytes = Vec::new();
        events.iter().for_each(|event| record::append(&mut bytes, event).unwrap());
        (bytes, events)
    }

    fn after(bytes: &[u8], cut: Cut) -> (Fate, Vec<u8>) {
        let image = tempfile::tempfile().unwrap();
        image.set_len(DISK).unwrap();
        let fate = make(&mut &bytes[..], moments(&mut &bytes[..]).unwrap(), &image, cut).unwrap();
        let mut disk = vec![0; DISK as usize];
        image.read_exact_at(&mut disk, 0).unwrap();
        (fate, disk)
    }

    #[test]
    fn each_sector_holds_its_last_flushed_write_or_a_later_one() {
        let (bytes, events) = recorded();
        let (mut lost, mut torn) = (0, 0);
        for number in 0..300 {
            let (fate, disk) = after(&bytes, Cut { seed: 1, number });
            let past = &events[..fate.at as usize];
            let flushed = past.iter().rposition(|event| *event == DiskEvent::Flush).map_or(0, |at| at + 1);
            for (sector, found) in disk.chunks(SECTOR).enumerate() {
                let place = (sector * SECTOR) as u64 / 4096 * 4096;
                let writes = |range: &[DiskEvent]| -> Vec<u8> {
                    range
                        .iter()
                        .filter_map(|event| match event {
                            DiskEvent::Write { offset, data } if *offset == place => data.first().copied(),
                            _ => None,
                        })
                        .collect()
                };
                let durable = writes(&past[..flushed]).last().copied().unwrap_or(0);
                let volatile = writes(&past[flushed..]);
                assert!(found.iter().all(|byte| *byte == found[0]), "a sector was torn");
                assert!(found[0] == durable || volatile.contains(&found[0]), "cut {number}, sector {sector}");
            }
            lost += fate.pending - fate.kept - fate.torn;
            torn += fate.torn;
            let noted: Vec<u8> = past
                .iter()
                .filter_map(|event| match event {
                    DiskEvent::Note { data, .. } => data.first().copied(),
                    _ => None,
                })
                .collect();
            assert_eq!(fate.notes.get("facts").cloned().unwrap_or_default(), noted);
        }
        assert!(lost > 0 && torn > 0, "300 cuts lost {lost} and tore {torn}");
    }

    #[test]
    fn the_earlier_of_two_writes_may_win() {
        let mut bytes = Vec::new();
        record::append(&mut bytes, &DiskEvent::Note { file: "ready".into(), data: vec![] }).unwrap();
        for value in [1, 2] {
            record::append(&mut bytes, &DiskEvent::Write { offset: 0, data: vec![value; SECTOR] }).unwrap();
        }
        let found: std::collections::BTreeSet<u8> =
            (0..400).map(|number| after(&bytes, Cut { seed: 3, number }).1[0]).collect();
        assert_eq!(found, [0, 1, 2].into());
        let fates: Vec<Fate> = (0..400).map(|number| after(&bytes, Cut { seed: 3, number }).0).collect();
        assert!(fates.iter().any(|fate| fate.at == 3 && fate.kept == 2));
    }

    #[test]
    fn equal_cuts_are_equal() {
        let (bytes, _) = recorded();
        let cut = Cut { seed: 9, number: 4 };
        assert_eq!(after(&bytes, cut), after(&bytes, cut));
    }
}
