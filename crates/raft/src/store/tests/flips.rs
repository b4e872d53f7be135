//! Faults of the disk under the file: any single flipped bit is repaired, more is an error, and
//! nothing else is ever read.

use super::power::{Recorder, open};
use super::*;

/// Returns rows of all kinds: in leaves, over several pages, deleted again so that there is free
/// space, and enough for branches.
fn written() -> (Vec<u8>, RowModel) {
    let recorder = Recorder::default();
    let mut store = open(&recorder);
    for round in 1..=3u64 {
        for row in 0..400u64 {
            let value = vec![row as u8; if row.is_multiple_of(97) { 9000 } else { 60 + row as usize }];
            store.put(&(row * 7919 % 400).to_be_bytes(), value);
        }
        (0..400u64).step_by(3).for_each(|row| store.delete(&row.to_be_bytes()));
        store.checkpoint(round.to_le_bytes().to_vec()).unwrap().write().unwrap();
    }
    let rows = all(&store);
    assert!(rows.len() > 200);
    // A crash would leave this, with the head that matters most in the last copy.
    (recorder.image(), rows)
}

/// Opens the file and reads everything, as a server does, and once more from the disk.
fn read(image: Vec<u8>) -> Result<RowModel, RowStoreError> {
    let recorder = Recorder::with(image);
    let blocks = Blocks::open(recorder, None)
        .map_err(|cause| RowStoreError::new("opening", Path::new("rows"), cause))?;
    let store = RowFile::over(blocks, Path::new("rows"), SMALL)?.group(GroupId::FIRST)?;
    assert_eq!(store.position(), Some(3u64.to_le_bytes().to_vec()));
    let (view, reread) = (store.view(), store.view().reread()?);
    let rows: RowModel = view.page(None, usize::MAX)?.into_iter().collect();
    let again: RowModel = reread.page(None, usize::MAX)?.into_iter().collect();
    assert_eq!(rows, again);
    Ok(rows)
}

#[test]
fn a_bit_that_flips_anywhere_is_put_right() {
    let (image, rows) = written();
    let bits = image.len() * 8;
    // Some bits everywhere, and one of each byte in the special parts: both heads, and the first
    // sums.
    let heads = (0..400).chain(4096..4496).map(|byte| byte * 8 + byte % 8);
    let sums = (8192..8392).map(|byte| byte * 8 + byte % 8);
    let places: Vec<usize> =
        (0..1500).map(|place| place * (bits / 1500) + place % 8).chain(heads).chain(sums).collect();
    for bit in places {
        let mut image = image.clone();
        image[bit / 8] ^= 1 << (bit % 8);
        let read = read(image).unwrap_or_else(|error| panic!("bit {bit}: {error}"));
        assert!(read == rows, "bit {bit}: other rows");
    }
}

#[test]
fn more_than_a_bit_is_an_error_or_was_nothing() {
    let (image, rows) = written();
    let mut found = 0;
    // The heads are left out: a damaged second head is a lost write.
    for byte in (8192..image.len() - 64).step_by(image.len() / 700) {
        let mut image = image.clone();
        image[byte..byte + 64].iter_mut().enumerate().for_each(|(at, byte)| *byte ^= 0x55 + at as u8);
        match read(image) {
            Ok(read) => assert!(read == rows, "byte {byte}: other rows"),
            Err(error) => {
                assert!(error.is_damage(), "{error}");
                found += 1;
            }
        }
    }
    assert!(found > 50, "only {found} found");
}
