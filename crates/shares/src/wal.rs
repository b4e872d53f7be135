//! The tail of SQLite's log (<https://www.sqlite.org/fileformat2.html#walformat>, section 4).
//!
//! After a crash SQLite uses the log's frames before the first one with a wrong checksum, and says
//! nothing of the rest. Every commit is synced before it is acknowledged. So this is right after a
//! power cut, and wrong after a bit flip: acknowledged commits are gone then. A log that ends in
//! nothing, or in the remains of an earlier generation, is whole. A log with frames of its own
//! beyond its end may not be.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The last bit gives the byte order of the words in checksums: set means big-endian.
const MAGIC: u32 = 0x377f_0682;

/// Whether the log at `path` has frames of its own beyond those that SQLite will use.
pub(crate) fn is_cut_short(path: &Path) -> io::Result<bool> {
    match File::open(path) {
        Ok(file) => has_lost_frames(BufReader::with_capacity(1 << 20, file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn has_lost_frames(mut log: impl Read) -> io::Result<bool> {
    let mut bytes = [0; HEADER_BYTES];
    let length = read_up_to(&mut log, &mut bytes)?;
    if length == 0 {
        return Ok(false);
    }
    let Some(header) = WalHeader::parse(bytes.get(..length).unwrap_or_default()) else { return Ok(true) };
    let mut sums = header.sums;
    let mut frame = vec![0; header.frame_bytes()];
    let mut ended = false;
    while read_up_to(&mut log, &mut frame)? == frame.len() {
        // The frame is of an earlier generation, or of this one with a flipped salt.
        ended |= word(&frame, 8) != header.salts.0 || word(&frame, 12) != header.salts.1;
        if ended {
            if header.may_have_written(&frame) {
                return Ok(true);
            }
            continue;
        }
        header.add(&mut sums, frame.get(..8).unwrap_or_default());
        header.add(&mut sums, frame.get(FRAME_HEADER_BYTES..).unwrap_or_default());
        if sums != (word(&frame, 16), word(&frame, 20)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fills the buffer, unless the log ends before. Returns the number of bytes read.
fn read_up_to(log: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest @ [_, ..]) = buffer.get_mut(length..) {
        match log.read(rest) {
            Ok(0) => break,
            Ok(some) => length += some,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(length)
}

struct WalHeader {
    big_endian: bool,
    page_bytes: usize,
    salts: (u32, u32),
    sums: (u32, u32),
}

impl WalHeader {
    /// Parses the log's header. `None`: it is damaged.
    fn parse(log: &[u8]) -> Option<WalHeader> {
        let bytes = log.get(..HEADER_BYTES)?;
        let page_bytes = word(bytes, 8) as usize;
        if word(bytes, 0) & !1 != MAGIC
            || !page_bytes.is_power_of_two()
            || !(512..=65536).contains(&page_bytes)
        {
            return None;
        }
        let salts = (word(bytes, 16), word(bytes, 20));
        let mut header = WalHeader { big_endian: word(bytes, 0) & 1 == 1, page_bytes, salts, sums: (0, 0) };
        let mut sums = (0, 0);
        header.add(&mut sums, bytes.get(..24)?);
        header.sums = sums;
        (sums == (word(bytes, 24), word(bytes, 28))).then_some(header)
    }

    fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.page_bytes
    }

    /// Whether this generation may have written the frame. Earlier generations have another second
    /// salt, which is random, and a smaller first one.
    fn may_have_written(&self, frame: &[u8]) -> bool {
        word(frame, 8) == self.salts.0 || word(frame, 12) == self.salts.1
    }

    fn add(&self, sums: &mut (u32, u32), bytes: &[u8]) {
        let word = |bytes: &[u8], at| {
            let word = word(bytes, at);
            if self.big_endian { word } else { word.swap_bytes() }
        };
        for pair in bytes.chunks_exact(8) {
            sums.0 = sums.0.wrapping_add(word(pair, 0)).wrapping_add(sums.1);
            sums.1 = sums.1.wrapping_add(word(pair, 4)).wrapping_add(sums.0);
        }
    }
}

/// Four bytes, big-endian. Missing bytes count as zeros.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rusqlite::Connection;

    use super::*;

    fn lost(log: &[u8]) -> bool {
        has_lost_frames(log).unwrap()
    }

    /// A log with several commits. With `second_generation` the frames of the first generation
    /// follow them.
    fn log(second_generation: bool) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("database");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.execute_batch("CREATE TABLE numbers (n)").unwrap();
        let insert = |count| {
            for n in 0..count {
                connection.execute("INSERT INTO numbers VALUES (?1)", [n]).unwrap();
            }
        };
        insert(20);
        if second_generation {
            connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
            insert(5);
        }
        std::fs::read(dir.path().join("database-wal")).unwrap()
    }

    #[test]
    fn a_whole_log_has_lost_nothing_whatever_an_earlier_generation_left() {
        let (first, second) = (log(false), log(true));
        assert_eq!(first.len(), second.len(), "the second is written over the first");
        assert!(!lost(&first) && !lost(&second) && !lost(&[]));
        // The log is cut off by a crash of the process, between frames or in the middle of one.
        let frame = FRAME_HEADER_BYTES + 4096;
        for end in [HEADER_BYTES, HEADER_BYTES + frame * 3, HEADER_BYTES + frame * 3 + 100] {
            assert!(!lost(&first[..end]), "{end}");
        }
    }

    #[test]
    fn a_bit_that_flipped_anywhere_in_the_generation_is_noticed() {
        for (log, own) in
            [(log(false), usize::MAX), (log(true), HEADER_BYTES + 5 * (FRAME_HEADER_BYTES + 4096))]
        {
            for at in (0..log.len().min(own)).step_by(37).chain(0..64) {
                let mut flipped = log.clone();
                flipped[at] ^= 1 << (at % 8);
                assert!(lost(&flipped), "byte {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..3000), at in 0..40_000_usize, like_a_log: bool,
        ) {
            let mut log = if like_a_log { log(true) } else { Vec::new() };
            log.truncate(at);
            log.extend(bytes);
            lost(&log);
        }
    }
}
