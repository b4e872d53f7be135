//! Takes hold of a data directory: its format, its lock, and the steps by which it comes to be.

use crate::cluster::Cluster;
use crate::error::{DataError, io, missing};
use crate::identity::{Identity, REMEMBERED};
use crate::server_files::remove_server;
use crate::small::{COPIES, read_file, replace_plain};
use crate::{FORMAT, ballast};
use os::fill_random;
use os::private;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{FOUNDER, MachineId};

/// The small files of machines, in the order in which a joining machine gets them.
const SMALL: [&str; 6] =
    ["machine.key", "machine.crt", "authority.crt", "authority.key", "cluster.json", "machine.json"];
/// The names that only the directory of a machine that has started contains.
const STARTED: [&str; 3] = ["server", "shares", "salvage"];
/// How long a process that has the directory may take to end when another one starts there.
const ENDING: Duration = Duration::from_secs(5);
/// How often that is looked at.
const ENDING_LOOK: Duration = Duration::from_millis(20);
/// The file that marks an unfinished restore into the directory.
const RESTORING: &str = "restoring";

/// A data directory of a machine that is about to join.
#[derive(Debug)]
pub struct Joining {
    path: PathBuf,
    _lock: File,
}

impl Joining {
    /// Completes the directory: the machine has joined as `machine`, called `name`.
    pub fn finish_join(&self, machine: MachineId, name: &str, addresses: &[String]) -> Result<(), DataError> {
        let (addresses, name) = (addresses.to_vec(), Some(name.to_owned()));
        Cluster { addresses, name, ..Cluster::default() }.keep(&self.path)?;
        Identity { machine: machine.0, made: true, ..Identity::default() }.keep(&self.path)?;
        keep_format(&self.path)
    }
}

/// A data directory that is being made out of a backup.
#[derive(Debug)]
pub struct BegunRestore {
    path: PathBuf,
    _lock: File,
}

impl BegunRestore {
    /// Completes the restore: from now on the directory belongs to the machine `identity`.
    pub fn finish(&self, identity: Identity) -> Result<(), DataError> {
        identity.keep(&self.path)?;
        keep_format(&self.path)?;
        let mark = self.path.join(RESTORING);
        fs::remove_file(&mark).map_err(io("remove", &mark))?;
        File::open(&self.path).and_then(|dir| dir.sync_all()).map_err(io("sync", &self.path))
    }
}

/// A data directory that this process holds.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    created: bool,
    lock: DirLock,
}

/// The lock on a data directory, held as long as any of its clones exists.
pub(crate) type DirLock = Arc<File>;

impl DataDir {
    /// Takes hold of `path`, makes it if it does not exist, and counts a start. Another process
    /// that finds the directory in use reports `purpose`.
    pub fn take(path: &Path, purpose: &str) -> Result<DataDir, DataError> {
        private::make_dir(path).map_err(io("make", path))?;
        if path.join(RESTORING).exists() {
            return Err(DataError::Restoring { dir: path.to_path_buf() });
        }
        let created = !has_format(path);
        if created && !is_blank(path)? {
            return Err(if was_started(path)? {
                missing(path, "format")
            } else {
                DataError::Foreign { dir: path.to_path_buf() }
            });
        }
        let lock = lock_soon(path, purpose)?;
        if created {
            Identity { machine: FOUNDER.0, ..Identity::default() }.keep(path)?;
            keep_format(path)?;
        }
        check_format(path)?;
        Identity::of(path)?.is_whole(path)?;
        let drawn = draw().map_err(io("draw random numbers for", path))?;
        let identity = Identity::change(path, |identity| {
            identity.starts += 1;
            identity.drawn.rotate_left(1);
            identity.drawn[REMEMBERED - 1] = drawn;
        })?;
        Ok(DataDir { path: path.to_path_buf(), identity, created, lock: Arc::new(lock) })
    }

    /// Takes hold of `path` for a machine that is about to join. The directory must hold nothing
    /// yet.
    pub fn begin_join(path: &Path) -> Result<Joining, DataError> {
        private::make_dir(path).map_err(io("make", path))?;
        if has_format(path) {
            return Err(DataError::Joined { dir: path.to_path_buf() });
        }
        if !is_blank(path)? {
            return Err(DataError::Foreign { dir: path.to_path_buf() });
        }
        Ok(Joining { path: path.to_path_buf(), _lock: lock(path, "leasehold join")? })
    }

    /// Takes hold of `path` to make it a data directory out of a backup. The directory must hold
    /// nothing yet, except for the remains of a restore that was cut short. Until the restore is
    /// finished no machine can use the directory.
    pub fn begin_restore(path: &Path) -> Result<BegunRestore, DataError> {
        private::make_dir(path).map_err(io("make", path))?;
        let mark = path.join(RESTORING);
        if !mark.exists() {
            if has_format(path) {
                return Err(DataError::Joined { dir: path.to_path_buf() });
            }
            let mut entries = fs::read_dir(path).map_err(io("read", path))?;
            // The last one is there if a restore was cut short before its mark was whole.
            let ours = [OsStr::new("lost+found"), OsStr::new("lock"), OsStr::new("restoring.new")];
            if !entries.all(|entry| entry.is_ok_and(|entry| ours.contains(&&*entry.file_name()))) {
                return Err(DataError::Foreign { dir: path.to_path_buf() });
            }
        }
        let lock = lock(path, "leasehold restore")?;
        replace_plain(path, RESTORING, b"a restore into this directory has not ended\n")?;
        remove_server(path)?;
        Ok(BegunRestore { path: path.to_path_buf(), _lock: lock })
    }

    /// Takes hold of the data directory `path` of a machine that is down, to inspect it. This
    /// counts no start. The hold lasts as long as the file is open.
    pub fn hold(path: &Path, purpose: &str) -> Result<File, DataError> {
        if path.join(RESTORING).exists() {
            return Err(DataError::Restoring { dir: path.to_path_buf() });
        }
        if !has_format(path) {
            return Err(DataError::Foreign { dir: path.to_path_buf() });
        }
        let lock = lock(path, purpose)?;
        check_format(path)?;
        Ok(lock)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of this machine.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The lock, for whatever may write to the directory longer than this exists.
    pub(crate) fn lock(&self) -> DirLock {
        self.lock.clone()
    }

    /// Whether this call made the directory: a new cluster.
    pub fn is_new(&self) -> bool {
        self.created
    }

    /// The path of the control socket of a process on `path`.
    pub fn control_socket(path: &Path) -> PathBuf {
        path.join("control")
    }
}

/// The process that holds the data directory `path`, if there is one. Its number is 0 if the lock
/// file does not name it.
pub fn holder(path: &Path) -> Result<Option<u32>, DataError> {
    let name = path.join("lock");
    let file = match File::open(&name) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(io("open", &name))?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => return Ok(None),
        Err(rustix::io::Errno::WOULDBLOCK) => {}
        Err(errno) => return Err(io("lock", &name)(errno.into())),
    }
    let mut holder = String::new();
    (&file).take(1024).read_to_string(&mut holder).map_err(io("read", &name))?;
    // The holder may not have written its number yet.
    Ok(Some(
        holder.strip_prefix("process ").and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0),
    ))
}

fn draw() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

fn has_format(path: &Path) -> bool {
    path.join("format").exists() || path.join(COPIES).join("format").exists()
}

/// Whether the directory, which has no format file, belongs to a machine that has been started. The
/// format file is written before the first start is counted.
fn was_started(path: &Path) -> Result<bool, DataError> {
    Ok(STARTED.iter().any(|name| path.join(name).exists())
        && (path.join(COPIES).exists() || read_file(path, "machine.json")?.is_some()))
}

/// Whether the directory counts as empty. An interrupted first start leaves its lock and perhaps
/// its identity: such a directory is still blank.
fn is_blank(path: &Path) -> Result<bool, DataError> {
    let mut entries = fs::read_dir(path).map_err(io("read", path))?;
    Ok(entries.all(|entry| {
        entry.is_ok_and(|e| {
            let name = e.file_name();
            SMALL.iter().any(|small| name == *small)
                || name == "lock"
                || name == COPIES
                || name == "lost+found"
                || name == "leasehold.log"
                || name.to_string_lossy().ends_with(".new")
        })
    }))
}

/// Locks as [`lock`] does. A process that is about to end gets some time for it.
fn lock_soon(path: &Path, purpose: &str) -> Result<File, DataError> {
    let until = Instant::now() + ENDING;
    loop {
        match lock(path, purpose) {
            Err(DataError::InUse { .. }) if Instant::now() < until => std::thread::sleep(ENDING_LOOK),
            locked => return locked,
        }
    }
}

fn lock(path: &Path, purpose: &str) -> Result<File, DataError> {
    private::make_private(path).map_err(io("guard", path))?;
    let name = path.join("lock");
    let mut file = private::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&name)
        .map_err(io("open", &name))?;
    if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(io("lock", &name)(error.into()));
        }
        let mut holder = String::new();
        // The lock file's text is only for people; the lock itself counts.
        let _ = (&file).take(1024).read_to_string(&mut holder);
        return Err(DataError::InUse { dir: path.to_path_buf(), holder: holder.trim().to_owned() });
    }
    ballast::release(path);
    let text = format!("process {} ({purpose})\n", std::process::id());
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(text.as_bytes()))
        .map_err(io("write", &name))?;
    Ok(file)
}

/// Reads all small files of the data directory `dir`. The reading repairs each damaged file that
/// has a sound copy.
pub fn read_small(dir: &Path) -> Result<(), DataError> {
    check_format(dir)?;
    SMALL.iter().try_for_each(|name| read_file(dir, name).map(drop))
}

/// Writes the format file as plain text, so that every version can read it. Its copy makes a
/// checksum unnecessary.
fn keep_format(path: &Path) -> Result<(), DataError> {
    let (text, copies) = (format!("{FORMAT}\n"), path.join(COPIES));
    private::make_dir(&copies).map_err(io("make", &copies))?;
    replace_plain(&copies, "format", text.as_bytes())?;
    replace_plain(path, "format", text.as_bytes())
}

/// Checks that the directory `path` has the format of this program.
///
/// A copy with this format repairs a file that the disk has damaged. A later format changes the
/// copy too, so the copy cannot undo an upgrade.
fn check_format(path: &Path) -> Result<(), DataError> {
    let read = |file: &Path| {
        let bytes = fs::read(file).map_err(io("read", file))?;
        let text = String::from_utf8_lossy(&bytes);
        let found = text.trim().parse().ok().filter(|found| *found >= FORMAT);
        let why = || format!("'{}' is not a version", text.trim().escape_debug());
        found.ok_or_else(|| DataError::Damaged { file: file.to_owned(), why: why() })
    };
    match (read(&path.join("format")), read(&path.join(COPIES).join("format"))) {
        (Ok(FORMAT), _) => Ok(()),
        (_, Ok(FORMAT)) => keep_format(path),
        (found, _) => Err(DataError::Newer { dir: path.to_path_buf(), found: found? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_is_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let held = DataDir::take(dir.path(), "the first").unwrap();
        let refused = DataDir::take(dir.path(), "the second").unwrap_err();
        assert!(refused.to_string().contains("the first"), "{refused}");
        // A process that ends meanwhile is waited for.
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(held);
        });
        DataDir::take(dir.path(), "the second").unwrap();
        ends.join().unwrap();
    }

    #[test]
    fn a_restore_that_was_killed_at_its_first_step_can_be_run_again() {
        let dir = tempfile::tempdir().unwrap();
        for left in ["lock", "restoring.new"] {
            fs::write(dir.path().join(left), b"").unwrap();
            drop(DataDir::begin_restore(dir.path()).unwrap());
            fs::remove_file(dir.path().join(RESTORING)).unwrap();
        }
        fs::write(dir.path().join("letter"), b"").unwrap();
        let refused = DataDir::begin_restore(dir.path());
        assert!(matches!(refused, Err(DataError::Foreign { .. })));
    }

    #[test]
    fn starts_are_counted_across_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::take(dir.path(), "a").unwrap();
        assert!(first.is_new());
        let starts = first.identity().starts;
        drop(first);
        let second = DataDir::take(dir.path(), "b").unwrap();
        assert!(!second.is_new());
        assert_eq!(second.identity().starts, starts + 1);
    }

    #[test]
    fn newer_and_foreign_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("format"), "999\n").unwrap();
        assert!(matches!(DataDir::take(dir.path(), "x"), Err(DataError::Newer { found: 999, .. })));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "...").unwrap();
        assert!(matches!(DataDir::take(dir.path(), "x"), Err(DataError::Foreign { .. })));
    }
}
