//! The format of a backup's file and of a share's copy.
//!
//! ```text
//! backup   a chain (`LHBACKUP`) of a Frame each
//! copy     LHCOPY · format (u16 LE) · share (16) · length (u32 LE) · BLAKE3 of the body
//!          · BLAKE3 of all this · the body
//! ```
//!
//! The last frame is marked as the last.

use crate::hash_chain::{self, ChainError};
use lease::Time;
use namespace::ShareId;
use raft::Row;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// The format of backups that this program writes.
pub(crate) const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"LHBACKUP";
const COPY_MAGIC: &[u8; 8] = b"LHCOPY\x01\x00";
/// Bytes of a share's copy before its body.
pub(crate) const COPY_HEADER: usize = 8 + 16 + 4 + 32 + 32;

/// A part of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// The first one.
    About(About),
    /// The next rows, in the order of their keys.
    Rows(Vec<Row>),
    /// The last frame: the number of rows.
    End(u64),
}

/// The description of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// The format of rows ([`raft`]).
    pub rows: u32,
    /// The time when it was made, UTC seconds.
    pub at: u64,
    /// The directory's time.
    pub time: Time,
    /// The cluster's authority, by which machines recognize their servers: its key (PKCS #8) and
    /// its certificate (DER).
    pub authority: (Vec<u8>, Vec<u8>),
}

/// Writes a backup.
pub(crate) struct BackupWriter<W> {
    chain: hash_chain::Writer<W>,
    rows: u64,
}

impl<W: Write> BackupWriter<W> {
    /// Begins a backup with its description.
    pub(crate) fn new(out: W, about: About) -> io::Result<BackupWriter<W>> {
        let mut chain = hash_chain::Writer::new(out, MAGIC, FORMAT)?;
        chain.frame(&Frame::About(about))?;
        Ok(BackupWriter { chain, rows: 0 })
    }

    /// Writes the next rows.
    pub(crate) fn rows(&mut self, rows: Vec<Row>) -> io::Result<()> {
        self.rows += rows.len() as u64;
        self.chain.frame(&Frame::Rows(rows))
    }

    /// Ends the backup. Returns the output and the approximate number of bytes written.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        self.chain.frame(&Frame::End(self.rows))?;
        self.chain.finish()
    }
}

/// Reads a backup.
pub(crate) struct BackupReader<R> {
    chain: hash_chain::Reader<R>,
    rows: u64,
}

impl<R: Read> BackupReader<R> {
    /// Opens a backup and reads its description.
    pub(crate) fn new(from: R) -> Result<(BackupReader<R>, About), ChainError> {
        let mut chain = hash_chain::Reader::new(from, MAGIC, FORMAT)?;
        match chain.frame()? {
            Frame::About(about) => Ok((BackupReader { chain, rows: 0 }, about)),
            _ => Err(ChainError::Code),
        }
    }

    /// Reads the next rows; none behind the last.
    pub(crate) fn rows(&mut self) -> Result<Option<Vec<Row>>, ChainError> {
        match self.chain.frame()? {
            Frame::Rows(rows) => {
                self.rows += rows.len() as u64;
                Ok(Some(rows))
            }
            Frame::End(rows) if rows == self.rows => self.chain.end().map(|()| None),
            Frame::About(_) | Frame::End(_) => Err(ChainError::Code),
        }
    }
}

/// The header of a share's copy.
pub(crate) fn copy_header(share: &ShareId, body: &[u8]) -> Vec<u8> {
    let mut header = COPY_MAGIC.to_vec();
    header.extend_from_slice(&share.0);
    header.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    header.extend_from_slice(crypto::hash(body).as_bytes());
    let check = crypto::hash(&header);
    header.extend_from_slice(check.as_bytes());
    header
}

/// Parses a header of the copy of `share`: the length of its body and its hash. None if the header
/// is not valid for this share.
pub(crate) fn read_copy_header(share: &ShareId, header: &[u8]) -> Option<(u32, [u8; 32])> {
    let (said, check) = header.get(..COPY_HEADER)?.split_last_chunk::<32>()?;
    let rest = said.strip_prefix(COPY_MAGIC)?.strip_prefix(&share.0)?;
    let (length, hash) = rest.split_first_chunk()?;
    let is_sound = crypto::hash(said) == *check;
    is_sound.then_some((u32::from_le_bytes(*length), hash.try_into().ok()?))
}

/// The body of the copy of `share`, if the copy is whole and sound.
pub(crate) fn read_copy(share: &ShareId, copy: &[u8]) -> Option<Vec<u8>> {
    let (length, hash) = read_copy_header(share, copy)?;
    let body = copy.get(COPY_HEADER..)?;
    (body.len() == length as usize && crypto::hash(body) == hash).then(|| body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn about() -> About {
        About { rows: 5, at: 1_800_000_000, time: Time(77), authority: (vec![1, 2], vec![3, 4]) }
    }

    fn written(rows: &[Vec<Row>]) -> Vec<u8> {
        let mut writer = BackupWriter::new(Vec::new(), about()).unwrap();
        rows.iter().for_each(|rows| writer.rows(rows.clone()).unwrap());
        writer.finish().unwrap().0
    }

    fn read(bytes: &[u8]) -> Result<Vec<Vec<Row>>, ChainError> {
        let (mut reader, about_it) = BackupReader::new(bytes)?;
        assert_eq!(about_it, about());
        let mut all = Vec::new();
        while let Some(rows) = reader.rows()? {
            all.push(rows);
        }
        Ok(all)
    }

    fn rows() -> impl Strategy<Value = Vec<Vec<Row>>> {
        let row = (prop::collection::vec(any::<u8>(), 0..20), prop::collection::vec(any::<u8>(), 0..60));
        prop::collection::vec(prop::collection::vec(row, 0..5), 0..6)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(rows in rows()) {
            prop_assert_eq!(read(&written(&rows)).unwrap(), rows);
        }

        #[test]
        fn a_byte_that_is_changed_or_missing_or_too_much_is_an_error(
            rows in rows(), at: prop::sample::Index, by in 1..=255u8,
        ) {
            let whole = written(&rows);
            let at = at.index(whole.len());
            let mut flipped = whole.clone();
            flipped[at] ^= by;
            prop_assert!(read(&flipped).is_err());
            prop_assert!(read(&whole[..at]).is_err());
            let mut missing = whole.clone();
            missing.remove(at);
            prop_assert!(read(&missing).is_err());
            let mut more = whole;
            more.push(by);
            prop_assert!(read(&more).is_err());
        }

        #[test]
        fn what_is_wrong_with_a_copy_is_seen(body in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, by in 1..=255u8) {
            let share = ShareId([7; 16]);
            let mut copy = copy_header(&share, &body);
            copy.extend(&body);
            prop_assert_eq!(read_copy(&share, &copy), Some(body));
            prop_assert_eq!(read_copy(&ShareId([8; 16]), &copy), None);
            let at = at.index(copy.len());
            prop_assert_eq!(read_copy(&share, &copy[..at]), None);
            copy[at] ^= by;
            prop_assert_eq!(read_copy(&share, &copy), None);
        }
    }

    #[test]
    fn frames_cannot_change_places() {
        let row = |byte| vec![(vec![byte], vec![byte])];
        let whole = written(&[row(1), row(2)]);
        let length = |frame| 4 + postcard::to_allocvec(&frame).unwrap().len() + 32;
        let (frame, end) = (length(Frame::Rows(row(1))), whole.len() - length(Frame::End(2)));
        let mut swapped = whole.clone();
        swapped[end - 2 * frame..end - frame].copy_from_slice(&whole[end - frame..end]);
        swapped[end - frame..end].copy_from_slice(&whole[end - 2 * frame..end - frame]);
        assert!(matches!(read(&swapped), Err(ChainError::Hash)));
    }

    #[test]
    fn a_later_format_is_told_from_damage() {
        let mut later = written(&[]);
        later[8] = 9;
        assert!(matches!(read(&later), Err(ChainError::Version(9))));
        assert!(matches!(read(b"something else altogether"), Err(ChainError::Foreign)));
    }
}
