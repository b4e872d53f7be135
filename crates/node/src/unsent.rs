//! The unsent log of a machine that ended in order, as its next start needs it: the rest of its
//! session's log, and the shares that the log refers to, sealed. It lies beside its description for
//! people ([`crate::salvage`]). If the session is over by the next start, that description is all
//! that stays.
//!
//! ```text
//! salvage/NUMBER/log          a chain of frames: the session, the shares, the entries, the end
//! salvage/NUMBER/share-NAME   a share's bytes
//! ```

use backup::hash_chain::{ChainError, Reader, Writer};
use bytes::Bytes;
use data_dir::{DataError, io, sync_dir};
use lease::SessionId;
use namespace::ShareId;
use os::private;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use wire::{LogEntry, MachineId};

const LOG: &str = "log";
const MAGIC: &[u8; 8] = b"LHunsent";
const FORMAT: u32 = 1;

/// The owner of the log: a machine in one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whose {
    pub machine: MachineId,
    pub incarnation: u64,
    pub session: SessionId,
}

/// The unsent log of one session.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub whose: Whose,
    /// The number of the first entry.
    pub first: u64,
    pub entries: Vec<LogEntry>,
    dir: PathBuf,
    /// The BLAKE3 of each share.
    shares: BTreeMap<ShareId, [u8; 32]>,
}

#[derive(Serialize, Deserialize)]
enum UnsentFrame {
    Of { whose: Whose, first: u64 },
    Share(ShareId, [u8; 32]),
    Entry(LogEntry),
    End,
}

/// Writes an unsent log.
pub(crate) struct Writing {
    dir: PathBuf,
    shares: BTreeMap<ShareId, [u8; 32]>,
}

impl Writing {
    /// Begins in this directory, which exists.
    pub(crate) fn begin(dir: &Path) -> Writing {
        Writing { dir: dir.to_path_buf(), shares: BTreeMap::new() }
    }

    /// Keeps a share, durably.
    pub(crate) fn share(&mut self, share: ShareId, bytes: &[u8]) -> Result<(), DataError> {
        let file = name(&self.dir, share);
        let mut out = create(&file)?;
        out.write_all(bytes).and_then(|()| out.sync_all()).map_err(io("write", &file))?;
        self.shares.insert(share, *crypto::hash(bytes).as_bytes());
        Ok(())
    }

    /// Keeps the log durably, and reads all of it back.
    pub(crate) fn finish(self, whose: Whose, first: u64, entries: &[LogEntry]) -> Result<(), DataError> {
        let file = self.dir.join(LOG);
        let written = || -> std::io::Result<()> {
            let out = private::options().write(true).create(true).truncate(true).open(&file)?;
            let mut chain = Writer::new(BufWriter::new(out), MAGIC, FORMAT)?;
            chain.frame(&UnsentFrame::Of { whose, first })?;
            self.shares
                .iter()
                .try_for_each(|(share, hash)| chain.frame(&UnsentFrame::Share(*share, *hash)))?;
            entries.iter().try_for_each(|entry| chain.frame(&UnsentFrame::Entry(entry.clone())))?;
            chain.frame(&UnsentFrame::End)?;
            let (out, _) = chain.finish()?;
            out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
        };
        written().map_err(io("write", &file))?;
        sync_dir(&self.dir)?;
        let back = Unsent::read(&self.dir)?;
        self.shares.keys().try_for_each(|share| back.share(*share).map(drop))?;
        if (back.whose, back.first, back.entries.as_slice(), &back.shares)
            == (whose, first, entries, &self.shares)
        {
            return Ok(());
        }
        Err(DataError::Damaged { file, why: "what is read back is not what was written".to_owned() })
    }
}

impl Unsent {
    /// Reads the unsent log in `dir`.
    pub(crate) fn read(dir: &Path) -> Result<Unsent, DataError> {
        let file = dir.join(LOG);
        let from = BufReader::new(File::open(&file).map_err(io("open", &file))?);
        let read = || -> Result<Unsent, ChainError> {
            let mut chain = Reader::new(from, MAGIC, FORMAT)?;
            let UnsentFrame::Of { whose, first } = chain.frame()? else { return Err(ChainError::Code) };
            let (mut entries, mut shares) = (Vec::new(), BTreeMap::new());
            loop {
                match chain.frame()? {
                    UnsentFrame::Of { .. } => return Err(ChainError::Code),
                    UnsentFrame::Share(share, hash) => _ = shares.insert(share, hash),
                    UnsentFrame::Entry(entry) => entries.push(entry),
                    UnsentFrame::End => break,
                }
            }
            chain.end()?;
            Ok(Unsent { whose, first, entries, dir: dir.to_path_buf(), shares })
        };
        read().map_err(|error| DataError::Damaged { file, why: error.to_string() })
    }

    /// Returns the bytes of a share, if the log has it; otherwise the servers have it.
    pub(crate) fn share(&self, share: ShareId) -> Result<Option<Bytes>, DataError> {
        let Some(hash) = self.shares.get(&share) else { return Ok(None) };
        let file = name(&self.dir, share);
        let bytes = fs::read(&file).map_err(io("read", &file))?;
        if crypto::hash(&bytes) != *hash {
            return Err(DataError::Damaged { file, why: "it is not what was kept".to_owned() });
        }
        Ok(Some(bytes.into()))
    }
}

/// Removes the unsent log in `dir`, and leaves the rest.
pub(crate) fn discard(dir: &Path) -> Result<(), DataError> {
    for entry in fs::read_dir(dir).map_err(io("read", dir))?.flatten() {
        let is_ours =
            entry.file_name().to_str().is_some_and(|name| name == LOG || name.starts_with("share-"));
        if is_ours {
            fs::remove_file(entry.path()).map_err(io("remove", &entry.path()))?;
        }
    }
    sync_dir(dir)
}

fn create(file: &Path) -> Result<File, DataError> {
    let out = private::options().write(true).create(true).truncate(true).open(file);
    out.map_err(io("make", file))
}

fn name(dir: &Path, share: ShareId) -> PathBuf {
    dir.join(format!("share-{}", data_encoding::HEXLOWER.encode(&share.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ident::FileId;
    use lease::{Field, Released};

    fn whose() -> Whose {
        Whose { machine: MachineId(2), incarnation: 3, session: SessionId(4) }
    }

    fn written(dir: &Path) -> Vec<LogEntry> {
        let released = Released { file: FileId::root(), field: Field::Times, keep: None };
        let entries = vec![LogEntry::Release(vec![released]), LogEntry::Flushed { number: 0 }];
        let mut writing = Writing::begin(dir);
        writing.share(ShareId([1; 16]), b"sealed").unwrap();
        writing.finish(whose(), 7, &entries).unwrap();
        entries
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let entries = written(dir.path());
        let unsent = Unsent::read(dir.path()).unwrap();
        assert_eq!((unsent.whose, unsent.first, &unsent.entries), (whose(), 7, &entries));
        assert_eq!(unsent.share(ShareId([1; 16])).unwrap().unwrap(), "sealed");
        assert_eq!(unsent.share(ShareId([2; 16])).unwrap(), None);
        discard(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn nothing_that_is_cut_off_or_changed_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path());
        let log = dir.path().join(LOG);
        let whole = fs::read(&log).unwrap();
        for end in 0..whole.len() {
            fs::write(&log, &whole[..end]).unwrap();
            assert!(Unsent::read(dir.path()).is_err(), "{end} of {} bytes", whole.len());
        }
        for bit in 0..whole.len() * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            fs::write(&log, changed).unwrap();
            assert!(Unsent::read(dir.path()).is_err(), "bit {bit}");
        }
        fs::write(&log, whole).unwrap();
        fs::write(name(dir.path(), ShareId([1; 16])), b"other").unwrap();
        assert!(Unsent::read(dir.path()).unwrap().share(ShareId([1; 16])).is_err());
    }
}
