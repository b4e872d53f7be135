//! The files of a share server.
//!
//! `tmp/` is one flat directory of uploads under way. `shares/00` to `shares/ff` hold the shares by
//! the first byte of their ids. All of these directories are made when the server is first opened,
//! so storing a share makes none.

use std::{
    fmt::Debug,
    fs::{self, File},
    io::{self, IoSlice, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use namespace::ShareId;
use os::private;
use rustc_hash::FxHashSet;

use crate::{error::DiskError, share::file_name};

/// From this many files and directories on, one `syncfs` costs less than a flush of the device for
/// each (measured: 32 shares of 1 MiB reach disk in about a third of the time). `syncfs` also waits
/// for other programs' dirty data on the same file system. So the few files of a small upload are
/// synced one by one.
const SYNCFS_FROM: usize = 4;

/// An upload's file before it is put in its place.
#[derive(Debug)]
pub(crate) struct Temporary {
    pub name: String,
    pub file: File,
}

/// The object of a sync.
#[derive(Clone, Debug)]
pub(crate) enum Dirty {
    File(Arc<Temporary>),
    Prefix(u8),
}

/// The steps that make files durable (`local`). The tests have a second implementation, which loses
/// power at a chosen step.
pub(crate) trait ShareDisk: Debug + Send + Sync {
    /// Writes an upload's file. The file is on its way to the device, not durable yet.
    fn write(&self, name: String, parts: &[&[u8]]) -> Result<Temporary, DiskError>;
    /// Returns when everything in `dirty` is durable.
    fn sync(&self, dirty: &[Dirty]) -> Result<(), DiskError>;
    /// Renames an upload's file into its place, replacing an existing one.
    fn put_in_place(&self, temporary: &str, share: &ShareId) -> Result<(), DiskError>;
    /// Removes an upload's file; success if there is none.
    fn discard(&self, temporary: &str) -> Result<(), DiskError>;
    /// Removes a share's file; success if there is none.
    fn unlink(&self, share: &ShareId) -> Result<(), DiskError>;
    /// Opens a share's file for reading.
    fn open(&self, share: &ShareId) -> Result<File, DiskError>;
    /// Names of the files in a prefix directory.
    fn list(&self, prefix: u8) -> Result<Vec<String>, DiskError>;
}

/// The real disk.
#[derive(Debug)]
pub(crate) struct LocalDisk {
    dir: PathBuf,
    /// Any file on the file system, for `syncfs`.
    root: File,
    /// The store is certainly empty.
    pub is_new: bool,
}

impl LocalDisk {
    /// Makes the directories that are missing, and empties `tmp/`: no upload outlives the process.
    pub fn open(dir: &Path) -> Result<LocalDisk, DiskError> {
        let root = File::open(dir).map_err(|e| DiskError::new("opening", dir, e))?;
        make_dir(&dir.join("tmp"))?;
        let is_new = make_dir(&dir.join("shares"))?;
        let disk = LocalDisk { dir: dir.to_owned(), root, is_new };
        // Nearly always all of them are present.
        let present: FxHashSet<String> = names(&dir.join("shares"))?.into_iter().collect();
        let is_lacking = |prefix: &u8| !present.contains(&format!("{prefix:02x}"));
        let lacking: Vec<u8> = (0..=u8::MAX).filter(is_lacking).collect();
        for prefix in &lacking {
            make_dir(&disk.prefix(*prefix))?;
        }
        // An earlier opening may have stopped before it counted. It may have made directories
        // without syncing them.
        if !lacking.is_empty() || !dir.join("epoch").exists() {
            sync_dir(&disk.dir.join("shares"))?;
            sync_dir(&disk.dir)?;
        }
        for name in names(&disk.dir.join("tmp"))? {
            disk.discard(&name)?;
        }
        Ok(disk)
    }

    fn prefix(&self, prefix: u8) -> PathBuf {
        self.dir.join(format!("shares/{prefix:02x}"))
    }

    fn share(&self, share: &ShareId) -> PathBuf {
        self.prefix(share.0[0]).join(file_name(share))
    }

    fn temporary(&self, name: &str) -> PathBuf {
        self.dir.join("tmp").join(name)
    }
}

impl ShareDisk for LocalDisk {
    fn write(&self, name: String, parts: &[&[u8]]) -> Result<Temporary, DiskError> {
        let path = self.temporary(&name);
        let error = |e| DiskError::new("writing", &path, e);
        let mut file = private::options().write(true).create_new(true).open(&path).map_err(error)?;
        if let Err(e) = write_parts(&mut file, parts) {
            // The room is needed now, not when the reaper comes by.
            drop(file);
            let _ = self.discard(&name);
            return Err(error(e));
        }
        // This advice makes Linux start to write dirty pages back and drop the clean ones. The
        // device is busy while the next share is being written. A failure changes nothing.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        Ok(Temporary { name, file })
    }

    fn sync(&self, dirty: &[Dirty]) -> Result<(), DiskError> {
        if dirty.len() >= SYNCFS_FROM {
            return rustix::fs::syncfs(&self.root)
                .map_err(|e| DiskError::new("syncing", &self.dir, e.into()));
        }
        for each in dirty {
            match each {
                Dirty::File(temporary) => temporary
                    .file
                    .sync_all()
                    .map_err(|e| DiskError::new("syncing", self.temporary(&temporary.name), e))?,
                Dirty::Prefix(prefix) => sync_dir(&self.prefix(*prefix))?,
            }
        }
        Ok(())
    }

    fn put_in_place(&self, temporary: &str, share: &ShareId) -> Result<(), DiskError> {
        let to = self.share(share);
        fs::rename(self.temporary(temporary), &to).map_err(|e| DiskError::new("renaming into place", to, e))
    }

    fn discard(&self, temporary: &str) -> Result<(), DiskError> {
        remove(&self.temporary(temporary))
    }

    fn unlink(&self, share: &ShareId) -> Result<(), DiskError> {
        remove(&self.share(share))
    }

    fn open(&self, share: &ShareId) -> Result<File, DiskError> {
        let path = self.share(share);
        File::open(&path).map_err(|e| DiskError::new("opening", path, e))
    }

    fn list(&self, prefix: u8) -> Result<Vec<String>, DiskError> {
        names(&self.prefix(prefix))
    }
}

/// Writes a whole file under a temporary name, then renames it. The small files beside the shares
/// are written so.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let error = |e| DiskError::new("writing", path, e);
    let new = path.with_extension("new");
    let mut file = private::options().write(true).create(true).truncate(true).open(&new).map_err(error)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(error)?;
    fs::rename(&new, path).map_err(error)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Makes a directory's entries durable.
pub(crate) fn sync_dir(path: &Path) -> Result<(), DiskError> {
    File::open(path).and_then(|d| d.sync_all()).map_err(|e| DiskError::new("syncing", path, e))
}

/// Makes a directory. Returns whether it was missing.
fn make_dir(path: &Path) -> Result<bool, DiskError> {
    let is_new = !path.exists();
    private::make_dir(path).map_err(|e| DiskError::new("making", path, e))?;
    Ok(is_new)
}

fn remove(path: &Path) -> Result<(), DiskError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(DiskError::new("removing", path, e)),
        _ => Ok(()),
    }
}

/// The names in a directory. Names that are not UTF-8 are foreign and left out.
fn names(path: &Path) -> Result<Vec<String>, DiskError> {
    let error = |e| DiskError::new("listing", path, e);
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(error)? {
        names.extend(entry.map_err(error)?.file_name().into_string());
    }
    Ok(names)
}

fn write_parts(file: &mut File, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = slices.as_mut_slice();
    // A vector that is empty, or holds only empty slices, writes nothing and would look like a full
    // disk.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
