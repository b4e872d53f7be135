//! Shares in files of the local disk: the order of the steps that make each of them whole and
//! durable.

use std::{fs::File, io, sync::Arc};

use namespace::ShareId;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use rustix::{buffer::spare_capacity, io::pread};

use crate::{
    backend::{Backend, OpenedShare, ReadAt, ShareFile},
    direct::Piece,
    disk::{Dirty, ShareDisk},
    error::DiskError,
    header::HEADER_BYTES,
    rounds::SyncRounds,
    share::file_name,
};

/// The backend on the local disk.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    disk: Arc<dyn ShareDisk>,
    rounds: SyncRounds,
    /// Read buffers: at most as many as files are read at once.
    pieces: Mutex<Vec<Piece>>,
}

impl LocalFiles {
    /// The backend on that disk.
    pub fn new(disk: Arc<dyn ShareDisk>) -> LocalFiles {
        LocalFiles { disk, rounds: SyncRounds::default(), pieces: Mutex::default() }
    }

    /// Writes and syncs all files under temporary names. So a renamed file is complete.
    fn write_all(&self, upload: i64, files: &[ShareFile]) -> Result<(), DiskError> {
        let mut written = Vec::with_capacity(files.len());
        for file in files {
            let mut parts: Vec<&[u8]> = vec![&file.header];
            parts.extend(file.parts.iter().map(|part| &part[..]));
            let name = temporary_name(&file.id, upload);
            written.push(Dirty::File(Arc::new(self.disk.write(name, &parts)?)));
        }
        self.rounds.sync(&*self.disk, written)
    }

    /// Makes the entries of these shares durable.
    fn sync_prefixes(&self, ids: impl Iterator<Item = ShareId>) -> Result<(), DiskError> {
        let prefixes: FxHashSet<u8> = ids.map(|id| id.0[0]).collect();
        self.rounds.sync(&*self.disk, prefixes.into_iter().map(Dirty::Prefix).collect())
    }

    /// Removes the temporary files of a failed upload at once, since its room may be what is
    /// missing. The reaper removes the rest.
    fn clear<T>(&self, upload: i64, files: &[ShareFile], done: Result<T, DiskError>) -> Result<T, DiskError> {
        if done.is_err() {
            for file in files {
                let _ = self.disk.discard(&temporary_name(&file.id, upload));
            }
        }
        done
    }
}

impl Backend for LocalFiles {
    fn is_local(&self) -> bool {
        true
    }

    fn stage(&self, upload: i64, files: &[ShareFile]) -> Result<(), DiskError> {
        self.clear(upload, files, self.write_all(upload, files))
    }

    fn place(&self, upload: i64, files: &[ShareFile]) -> Result<(), DiskError> {
        let place = |file: &ShareFile| self.disk.put_in_place(&temporary_name(&file.id, upload), &file.id);
        let placed = files.iter().try_for_each(place);
        self.clear(upload, files, placed.and_then(|()| self.sync_prefixes(files.iter().map(|file| file.id))))
    }

    fn discard(&self, upload: i64, ids: &[ShareId]) -> Result<(), DiskError> {
        ids.iter().try_for_each(|id| self.disk.discard(&temporary_name(id, upload)))
    }

    fn delete(&self, ids: &[ShareId]) -> Vec<(ShareId, DiskError)> {
        let mut unlinked = Vec::with_capacity(ids.len());
        let mut left = Vec::new();
        for id in ids {
            match self.disk.unlink(id) {
                Ok(()) => unlinked.push(*id),
                Err(error) => left.push((*id, error)),
            }
        }
        if let Err(error) = self.sync_prefixes(unlinked.iter().copied()) {
            left.extend(unlinked.into_iter().map(|id| (id, error.clone())));
        }
        left
    }

    fn open(&self, id: &ShareId) -> Result<OpenedShare, DiskError> {
        let file = self.disk.open(id)?;
        let failed = |e| DiskError::new("reading", file_name(id), e);
        let head = file.read_at(0, HEADER_BYTES).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Ok(OpenedShare { head, length, bytes: Box::new(file) })
    }

    fn read_through(&self, id: &ShareId, take: &mut dyn FnMut(&[u8])) -> Result<(), DiskError> {
        let file = self.disk.open(id)?;
        let failed = |e| DiskError::new("reading", file_name(id), e);
        let kept = self.pieces.lock().pop();
        let mut piece = kept.map_or_else(Piece::new, Ok).map_err(failed)?;
        let read = piece.read_through(&file, take);
        self.pieces.lock().push(piece);
        read.map_err(failed)
    }

    fn list(&self, prefix: u8) -> Result<Vec<String>, DiskError> {
        self.disk.list(prefix)
    }
}

impl ReadAt for File {
    fn read_at(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let position = at.saturating_add(bytes.len() as u64);
            match pread(self, spare_capacity(&mut bytes), position) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // A vector may have more room than it was asked for.
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Names an upload's file in `tmp/`.
fn temporary_name(id: &ShareId, upload: i64) -> String {
    format!("{}.{upload}", file_name(id))
}
