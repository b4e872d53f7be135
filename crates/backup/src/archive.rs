//! The archive: the directory of backups.
//!
//! ```text
//! leasehold-backups  the format of this directory, and which cluster's backups it has
//! lock               held while a process works here
//! backups/NAME       a backup; NAME is the time at which it was made, UTC
//! shares/xx/SHARE    the copy of a share, by the first byte of its name
//! ```
//!
//! Files that end in `.new` are unfinished. Only the owner can read the files: a backup has the
//! keys of the cluster.

use crate::error::{BackupError, io};
use crate::format::{self, About, BackupReader};
use crate::hash_chain::ChainError;
use crate::name;
use bytes::Bytes;
use namespace::ShareId;
use os::private;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// The layout that this program reads and writes.
const FORMAT: u32 = 1;
const MARK: &str = "leasehold-backups";

/// An open directory of backups.
pub struct Archive {
    dir: PathBuf,
    /// Directories of shares with new entries that may not be durable.
    touched: BTreeSet<u8>,
    /// The lock, held while the archive is open. A list takes none, and neither does an archive on
    /// a read-only file system, where nothing can change.
    _lock: Option<File>,
}

#[derive(Serialize, Deserialize)]
struct Mark {
    format: u32,
    cluster: String,
}

impl Archive {
    /// Opens the archive to make a backup of the cluster known by `cluster`. No other process works
    /// there meanwhile.
    pub fn open_to_write(dir: &Path, cluster: &[u8; 32]) -> Result<Archive, BackupError> {
        make_dir(dir)?;
        let cluster = data_encoding::HEXLOWER.encode(cluster);
        let known = match read_mark(dir)? {
            Some(known) => known == cluster,
            None => false,
        };
        if !known && (dir.join(MARK).exists() || !is_empty(dir)?) {
            return Err(if dir.join(MARK).exists() {
                BackupError::OtherCluster { dir: dir.to_path_buf() }
            } else {
                BackupError::Foreign { dir: dir.to_path_buf() }
            });
        }
        let lock = lock(dir, FlockOperation::NonBlockingLockExclusive)?;
        make_dir(&dir.join("backups"))?;
        make_dir(&dir.join("shares"))?;
        let archive = Archive { dir: dir.to_path_buf(), touched: BTreeSet::new(), _lock: lock };
        archive.remove_halves()?;
        if !known {
            let mark =
                serde_json::to_vec(&Mark { format: FORMAT, cluster }).expect("numbers and text are JSON");
            archive.place(&dir.join(MARK), &[&mark])?;
            sync_dir(dir)?;
        }
        Ok(archive)
    }

    /// Opens the archive to read backups. No backup is made or removed meanwhile.
    pub fn open_to_read(dir: &Path) -> Result<Archive, BackupError> {
        let archive = Archive::open_to_list(dir)?;
        Ok(Archive { _lock: lock(dir, FlockOperation::NonBlockingLockShared)?, ..archive })
    }

    /// Opens the archive to list its backups. A list and a backup under way do not wait for each
    /// other: a backup gets its name when it is whole.
    pub(crate) fn open_to_list(dir: &Path) -> Result<Archive, BackupError> {
        match read_mark(dir)? {
            Some(_) => Ok(Archive { dir: dir.to_path_buf(), touched: BTreeSet::new(), _lock: None }),
            None => Err(BackupError::NoBackup { what: "backup".to_owned(), dir: dir.to_path_buf() }),
        }
    }

    /// The names of all backups, the oldest first.
    pub(crate) fn names(&self) -> Result<Vec<String>, BackupError> {
        let dir = self.dir.join("backups");
        let names = entries(&dir)?.into_iter().filter(|name| !name.ends_with(".new"));
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names)
    }

    /// Chooses the backup of that name, or the latest without a name.
    pub(crate) fn choose(&self, name: Option<&str>) -> Result<String, BackupError> {
        let name = match name {
            Some(name) => Some(name.to_owned()),
            None => self.names()?.into_iter().rfind(|name| name::time(name).is_some()),
        };
        name.ok_or_else(|| BackupError::NoBackup { what: "backup".to_owned(), dir: self.dir.clone() })
    }

    /// The path of the backup of that name.
    pub(crate) fn backup(&self, name: &str) -> PathBuf {
        self.dir.join("backups").join(name)
    }

    /// Opens a backup. Its rows must have this program's format.
    pub(crate) fn read(&self, name: &str) -> Result<(BackupReader<BufReader<File>>, About), BackupError> {
        let path = self.backup(name);
        let file = File::open(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                BackupError::NoBackup { what: format!("backup {name}"), dir: self.dir.clone() }
            }
            _ => io("open", &path)(error),
        })?;
        let opened = BackupReader::new(BufReader::with_capacity(1 << 20, file));
        let (reader, about) = opened.map_err(|error| broken(&path, error))?;
        match about.rows {
            raft::FORMAT => Ok((reader, about)),
            found => Err(BackupError::Rows { file: path, found }),
        }
    }

    /// Begins the file of a new backup.
    pub(crate) fn begin(&self, name: &str) -> Result<File, BackupError> {
        let path = self.backup(&format!("{name}.new"));
        create(&path)
    }

    /// Finishes the new backup. All of it is written, and its shares are there.
    pub(crate) fn finish(&mut self, name: &str, file: &File) -> Result<(), BackupError> {
        let (new, path) = (self.backup(&format!("{name}.new")), self.backup(name));
        file.sync_all().map_err(io("write", &new))?;
        for first in std::mem::take(&mut self.touched) {
            sync_dir(&self.shelf(first))?;
        }
        sync_dir(&self.dir.join("shares"))?;
        fs::rename(&new, &path).map_err(io("name", &path))?;
        sync_dir(&self.dir.join("backups"))
    }

    /// The length of the share's body, if its copy is here. The bytes of the copy are not checked.
    pub(crate) fn has(&self, share: &ShareId) -> Result<Option<u32>, BackupError> {
        let path = self.share(share);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io("open", &path)(error)),
        };
        let mut header = [0; format::COPY_HEADER];
        if let Err(error) = file.read_exact(&mut header) {
            return if error.kind() == ErrorKind::UnexpectedEof {
                Ok(None)
            } else {
                Err(io("read", &path)(error))
            };
        }
        let held = file.metadata().map_err(io("look at", &path))?.len();
        let length = format::read_copy_header(share, &header).map(|(length, _)| length);
        Ok(length.filter(|length| u64::from(*length) + format::COPY_HEADER as u64 == held))
    }

    /// Stores copies. Their bytes are durable at once, their names only after [`Archive::finish`].
    pub(crate) fn put(&mut self, copies: &[(ShareId, Bytes)]) -> Result<(), BackupError> {
        let mut written = Vec::with_capacity(copies.len());
        for (share, body) in copies {
            let [first, ..] = share.0;
            if self.touched.insert(first) {
                make_dir(&self.shelf(first))?;
            }
            let path = self.share(share);
            let new = path.with_extension("new");
            let mut file = create(&new)?;
            let header = format::copy_header(share, body);
            file.write_all(&header).and_then(|()| file.write_all(body)).map_err(io("write", &new))?;
            written.push((new, path, file));
        }
        // The files are synced together: while one waits for the disk, the system writes the next.
        for (new, path, file) in written {
            file.sync_all().map_err(io("write", &new))?;
            fs::rename(&new, &path).map_err(io("name", &path))?;
        }
        Ok(())
    }

    /// The body of a share. None if its copy is missing or damaged.
    pub(crate) fn get(&self, share: &ShareId) -> Result<Option<Vec<u8>>, BackupError> {
        let path = self.share(share);
        match fs::read(&path) {
            Ok(copy) => Ok(format::read_copy(share, &copy)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            // A bad sector costs one share; the others may be intact.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Ok(None),
            Err(error) => Err(io("read", &path)(error)),
        }
    }

    /// Removes all backups except the latest `keep`, and then the shares to which no backup refers.
    /// Returns how many of each.
    pub(crate) fn prune(&mut self, keep: usize) -> Result<(usize, u64), BackupError> {
        let names = self.names()?;
        // A backup with a name given by its users stays.
        let (ours, named): (Vec<_>, Vec<_>) = names.iter().partition(|name| name::time(name).is_some());
        let (old, latest) = ours.split_at(ours.len().saturating_sub(keep.max(1)));
        // An unreadable backup may refer to any share: nothing is removed then.
        let mut wanted = BTreeSet::new();
        for name in latest.iter().chain(&named) {
            self.shares_of(name, &mut wanted)?;
        }
        for name in old {
            remove(&self.backup(name))?;
        }
        // Shares stay until the backups that refer to them are durably gone.
        sync_dir(&self.dir.join("backups"))?;
        let mut removed = 0;
        for shelf in entries(&self.dir.join("shares"))? {
            let shelf = self.dir.join("shares").join(shelf);
            for name in entries(&shelf)? {
                let share = share_of(&name);
                if name.ends_with(".new") || share.is_some_and(|share| !wanted.contains(&share)) {
                    remove(&shelf.join(&name))?;
                    removed += u64::from(share.is_some());
                }
            }
        }
        Ok((old.len(), removed))
    }

    fn shares_of(&self, name: &str, shares: &mut BTreeSet<ShareId>) -> Result<(), BackupError> {
        let (mut reader, _) = self.read(name)?;
        while let Some(rows) = reader.rows().map_err(|error| broken(&self.backup(name), error))? {
            shares.extend(rows.iter().filter_map(|(key, _)| directory::share_of_row(key)));
        }
        Ok(())
    }

    /// Removes the remains of an interrupted backup.
    fn remove_halves(&self) -> Result<(), BackupError> {
        let backups = self.dir.join("backups");
        let names = entries(&backups)?;
        names.iter().filter(|name| name.ends_with(".new")).try_for_each(|half| remove(&backups.join(half)))
    }

    fn shelf(&self, first: u8) -> PathBuf {
        self.dir.join("shares").join(format!("{first:02x}"))
    }

    fn share(&self, share: &ShareId) -> PathBuf {
        let [first, ..] = share.0;
        self.shelf(first).join(format!("{:032x}", u128::from_be_bytes(share.0)))
    }
}

/// The share of a copy's file name.
fn share_of(name: &str) -> Option<ShareId> {
    let share = u128::from_str_radix(name, 16).ok().map(|number| ShareId(number.to_be_bytes()))?;
    (format!("{:032x}", u128::from_be_bytes(share.0)) == name).then_some(share)
}

impl Archive {
    fn place(&self, path: &Path, parts: &[&[u8]]) -> Result<(), BackupError> {
        let new = path.with_extension("new");
        let mut file = create(&new)?;
        for part in parts {
            file.write_all(part).map_err(io("write", &new))?;
        }
        file.sync_all().map_err(io("write", &new))?;
        fs::rename(&new, path).map_err(io("name", path))
    }
}

/// The error for damage in this backup's file.
pub(crate) fn broken(file: &Path, error: ChainError) -> BackupError {
    match error {
        ChainError::Io(source) => io("read", file)(source),
        ChainError::Version(found) if found > format::FORMAT => {
            BackupError::Newer { file: file.to_path_buf(), found }
        }
        error => BackupError::damaged(file, error),
    }
}

/// The cluster that owns the backups in `dir`; none if there are none.
fn read_mark(dir: &Path) -> Result<Option<String>, BackupError> {
    let file = dir.join(MARK);
    let bytes = match fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("read", &file)(error)),
    };
    let mark: Mark = serde_json::from_slice(&bytes).map_err(|error| BackupError::damaged(&file, error))?;
    match mark.format {
        FORMAT => Ok(Some(mark.cluster)),
        found if found > FORMAT => Err(BackupError::Newer { file, found }),
        found => Err(BackupError::damaged(&file, format!("format {found}"))),
    }
}

fn lock(dir: &Path, operation: FlockOperation) -> Result<Option<File>, BackupError> {
    let path = dir.join("lock");
    let writes = operation == FlockOperation::NonBlockingLockExclusive;
    let opened = private::options().read(true).write(writes).create(writes).truncate(false).open(&path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if !writes && error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("open", &path)(error)),
    };
    match flock(&file, operation) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(BackupError::Busy { dir: dir.to_path_buf() }),
        Err(error) => Err(io("lock", &path)(error.into())),
    }
}

fn is_empty(dir: &Path) -> Result<bool, BackupError> {
    // The entries that an interrupted first backup may leave.
    let ours = ["lost+found", "lock", "backups", "shares", "leasehold-backups.new"];
    Ok(entries(dir)?.iter().all(|name| ours.contains(&name.as_str())) && {
        let inside = |sub: &str| entries(&dir.join(sub)).is_ok_and(|entries| !entries.is_empty());
        !inside("backups") && !inside("shares")
    })
}

/// The names in a directory that are text. All names of the archive are.
fn entries(dir: &Path) -> Result<Vec<String>, BackupError> {
    let entries = fs::read_dir(dir).map_err(io("list", dir))?;
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(io("list", dir))?.file_name().into_string());
    }
    Ok(names)
}

fn make_dir(dir: &Path) -> Result<(), BackupError> {
    private::make_dir(dir).map_err(io("make", dir))
}

fn create(path: &Path) -> Result<File, BackupError> {
    let opened = private::options().write(true).create(true).truncate(true).open(path);
    opened.map_err(io("make", path))
}

fn remove(path: &Path) -> Result<(), BackupError> {
    fs::remove_file(path).map_err(io("remove", path))
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), BackupError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io("sync", dir))
}
