//! The disk under a member of the group: files in directories, and when they are durable. The
//! traits cover what decides about the state after a crash.
//!
//! A member on a machine has [`Local`]. A simulated member has a disk that forgets unsynced writes.

use crate::store::{RowFile, RowStoreError, StoreSettings};
use os::private;
use rustix::fs::{Advice, fadvise};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A disk with the files of a member.
pub trait Disk: Send + Sync + 'static {
    /// Opens an existing file, or creates it if `make` is set.
    fn open(&self, path: &Path, make: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a directory and its parents.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns the names of the files in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Renames a file. It replaces an existing one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the entries of a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Opens a file of rows, or creates it.
    fn open_rows(&self, path: &Path, settings: StoreSettings) -> Result<Arc<RowFile>, RowStoreError>;
}

/// An open file.
pub trait DiskFile: Send + Sync + std::fmt::Debug {
    /// Returns its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Sets its length: it is cut, or extended by zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Reserves space for that many bytes.
    fn reserve(&self, bytes: u64) -> io::Result<()>;
    /// Fills `out` with the bytes from `at` on. Fewer bytes are an error.
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all of `data` at `at`.
    fn write_at(&self, data: &[u8], at: u64) -> io::Result<()>;
    /// Drops the first `bytes` bytes from memory, so that the next read takes them from the disk.
    fn forget(&self, bytes: u64) -> io::Result<()>;
    /// Makes the written bytes and the length durable.
    fn sync(&self) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Local;

impl Disk for Local {
    fn open(&self, path: &Path, make: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = private::options().read(true).write(true).create(make).truncate(false).open(path)?;
        Ok(Arc::new(file))
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        private::make_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        std::fs::read_dir(dir)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::File::open(dir)?.sync_all()
    }

    fn open_rows(&self, path: &Path, settings: StoreSettings) -> Result<Arc<RowFile>, RowStoreError> {
        RowFile::open(path, settings)
    }
}

impl DiskFile for std::fs::File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        std::fs::File::set_len(self, bytes)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(self, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(out, at)
    }

    fn write_at(&self, data: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(data, at)
    }

    fn forget(&self, bytes: u64) -> io::Result<()> {
        Ok(fadvise(self, 0, NonZeroU64::new(bytes), Advice::DontNeed)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
