//! The data directory of a machine: its format, its lock, and the machine's identity.
//!
//! ```text
//! format         the version of this layout
//! copies/        second copies of the small files of this list: see `small`
//! ballast        space kept free for a start on a full disk, see `ballast`
//! lock           held while a process uses the directory; names that process
//! machine.json   the machine's number, the count of its starts, and the parts its directory has had
//! machine.key    its private key; machine.crt, authority.crt: its certificate and the authority's
//! authority.key  the key of the first authority, until it stands in the rows
//! cluster.json   on a machine that has joined: the servers' addresses, and whether it is a server
//! salvage/       changes that could not be applied
//! server/        the directory server: Raft log and store of rows
//! server.mark    how far the log in server/ is durable: see `group::log`
//! server.damaged-SECONDS/  the former state of a server that was added anew: see `quarantine`
//! scrub.json     when everything but the shares was last read: see `scrub`
//! shares/        the share server: share files and lease database
//! restoring      present while the directory is made out of a backup
//! leasehold.log  the log of a machine in the background
//! control        socket for `status` and `fsck` while a process runs
//! ```

use crate::ballast;
use crate::placed::Placed;
use crate::small::{COPIES, read_file, remove_file, replace_file, replace_plain};
use os::fill_random;
use os::private;
use parking_lot::Mutex;
use raft::FOUNDER;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use wire::{MachineId, Start};

/// The layout that this program reads and writes.
pub const FORMAT: u32 = 1;
/// The small files of machines, in the order in which a joining machine gets them.
const SMALL: [&str; 6] =
    ["machine.key", "machine.crt", "authority.crt", "authority.key", "cluster.json", "machine.json"];
/// The small files that every machine has after its first start.
const KEYS: [&str; 3] = ["machine.key", "machine.crt", "authority.crt"];
/// The names that only the directory of a machine that has started contains.
const STARTED: [&str; 3] = ["server", "shares", "salvage"];
/// The file that notes how far the log in `server/` is durable.
pub(crate) const MARK: &str = "server.mark";
/// The file that marks an unfinished restore into the directory.
const RESTORING: &str = "restoring";

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Another process holds the directory.
    #[error("{dir} is in use by {holder}; stop that one first, or choose another directory with --data")]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The text of its lock file.
        holder: String,
    },
    /// A newer version has written the directory.
    #[error("{dir} has format {found}, this leasehold knows format {FORMAT}: use a newer leasehold")]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The directory is no data directory, and not empty.
    #[error("{dir} is not empty and not a leasehold data directory: choose another with --data")]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory belongs to a machine already.
    #[error(
        "{dir} is a machine's data directory already: choose another with --data, or leave its cluster first (leasehold leave)"
    )]
    Joined {
        /// The directory.
        dir: PathBuf,
    },
    /// A restore into the directory was cut short.
    #[error("a restore into {dir} has not ended: run it again, or remove the directory")]
    Restoring {
        /// The directory.
        dir: PathBuf,
    },
    /// No salvage has this number.
    #[error("nothing is kept by number {number}: leasehold salvage list says what is")]
    NoSalvage {
        /// The number.
        number: u64,
    },
    /// Salvage is not written over another file.
    #[error("{file} is there already, and is left alone: write to an empty directory with --to")]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// A file of the directory does not parse.
    #[error("{file} is damaged: {why}")]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The fault.
        why: String,
    },
    /// A file differs from its checksum, and so does its copy.
    #[error(
        "{file} is damaged, and so is its copy in copies/: put the file back from elsewhere (a backup of the data directory), or have this machine join anew with another data directory"
    )]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// The directory lacks a part that it had before.
    #[error(
        "{dir} lacks {what}, which it had before: mount or put back what is missing, and start again. If that is gone for good, restore the latest backup into another directory (leasehold restore), or have this machine join anew with another data directory; of shares that other servers have, too, a server makes its own anew if it is started with --accept-older-state"
    )]
    Missing {
        /// The directory.
        dir: PathBuf,
        /// The missing part.
        what: String,
    },
    /// The operating system refused an operation.
    #[error("cannot {verb} {file}")]
    Io {
        /// The operation.
        verb: &'static str,
        /// The operation's file.
        file: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// The number of latest starts that a directory remembers, to tell its own starts from those of its
/// copies.
const REMEMBERED: usize = 8;

/// A machine's number and starts, and the parts that its directory has had. A recorded part that is
/// missing was lost: its absence is never taken for a first start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The machine's number in the cluster.
    pub machine: u64,
    /// The count of its starts: its incarnation.
    pub starts: u64,
    /// The machine has made or joined a cluster: keys and certificates are there.
    pub made: bool,
    /// The member of the server group whose state is in `server/`.
    pub serves: Option<u64>,
    /// `shares/` has a share server's database.
    pub shares: bool,
    /// The shares are not in `shares/` as well, but in an object store.
    pub elsewhere: bool,
    /// The random numbers of its latest starts, this start's last. Copies of a directory count
    /// their starts alike, so only these numbers tell them apart.
    pub drawn: [u64; REMEMBERED],
    /// The state in `server/` was proven older than the server's acknowledgements.
    pub older: bool,
    /// The identity of the files in `server/` at the last start.
    pub placed: Option<Placed>,
}

/// Held during a change of an identity: a start changes it, and so does a change of the machine's
/// part.
static CHANGING: Mutex<()> = Mutex::new(());

impl Identity {
    /// Reads the identity of the machine in `dir`.
    pub(crate) fn of(dir: &Path) -> Result<Identity, DataError> {
        let bytes = read_file(dir, "machine.json")?.ok_or_else(|| missing(dir, "machine.json"))?;
        let damaged =
            |e: serde_json::Error| DataError::Damaged { file: dir.join("machine.json"), why: e.to_string() };
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// This start, as the machine reports it to servers.
    pub(crate) fn start(&self) -> Start {
        let (drawn, before) =
            self.drawn.split_last().map_or((0, Vec::new()), |(it, all)| (*it, all.to_vec()));
        Start { incarnation: self.starts, drawn, before: before.into_iter().filter(|it| *it != 0).collect() }
    }

    /// Changes the identity in `dir`, durably.
    pub(crate) fn change(dir: &Path, change: impl FnOnce(&mut Identity)) -> Result<Identity, DataError> {
        let _changing = CHANGING.lock();
        let before = Identity::of(dir)?;
        let mut now = before;
        change(&mut now);
        if now != before {
            now.keep(dir)?;
        }
        Ok(now)
    }

    fn keep(&self, dir: &Path) -> Result<(), DataError> {
        replace_file(dir, "machine.json", &serde_json::to_vec(self).unwrap_or_default())
    }

    /// Checks the parts of the directory `dir` that every machine has, server or not. A missing
    /// part is an error.
    fn is_whole(&self, dir: &Path) -> Result<(), DataError> {
        if !self.made {
            return Ok(());
        }
        let has_cluster = || Ok::<_, DataError>(read_file(dir, "cluster.json")?.is_some());
        let mut lacks = Vec::new();
        for name in KEYS {
            if read_file(dir, name)?.is_none() {
                lacks.push(name);
            }
        }
        // The founder needs `cluster.json` only in a cluster with other machines.
        let founder = self.machine == directory::FOUNDER.0 && self.serves == Some(FOUNDER);
        if !founder && !has_cluster()? {
            lacks.push("cluster.json");
        }
        if lacks.is_empty() { Ok(()) } else { Err(missing(dir, &lacks.join(", "))) }
    }
}

/// Removes the state of the server in `dir`, and the mark of how far its log was durable.
pub(crate) fn remove_server(dir: &Path) -> Result<(), DataError> {
    let (server, mark) = (dir.join("server"), dir.join(MARK));
    let removed = [(&server, fs::remove_dir_all(&server)), (&mark, fs::remove_file(&mark))];
    for (file, removed) in removed {
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io("remove", file)(error)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The missing part of `server/` in `dir`, of a machine whose server has been started.
pub(crate) fn lacks_server(dir: &Path) -> Option<String> {
    let server = dir.join("server");
    let is_empty = |file: &Path| fs::metadata(file).map_or(true, |it| it.is_file() && it.len() == 0);
    let has_log = || {
        let files = fs::read_dir(server.join("log")).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.path().extension().is_some_and(|kind| kind == "log"))
    };
    let (rows, log) = (is_empty(&server.join("rows")), !has_log());
    match (rows, log) {
        (true, true) => Some("server/".to_owned()),
        (true, false) => Some("server/rows".to_owned()),
        (false, true) => Some("server/log".to_owned()),
        (false, false) => None,
    }
}

/// Checks that the share server in `dir` is there if the machine has had one. A missing part is an
/// error.
pub(crate) fn has_shares(dir: &Path, identity: Identity) -> Result<(), DataError> {
    let lacks = shares::lacks(&dir.join("shares"), identity.elsewhere).filter(|_| identity.shares);
    lacks.map_or(Ok(()), |what| Err(missing(dir, &format!("shares/{what}"))))
}

pub(crate) fn missing(dir: &Path, what: &str) -> DataError {
    DataError::Missing { dir: dir.to_path_buf(), what: what.to_owned() }
}

/// The cluster that a machine has joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cluster {
    /// The addresses at which its servers listen.
    pub addresses: Vec<String>,
    /// The machine's number in the server group, if it is a server.
    pub member: Option<u64>,
    /// The machine was a server, has lost its state, and is to become one again.
    pub again: bool,
    /// The address at which its server listens unless told otherwise. After an outage of all
    /// servers the others look for it there.
    pub listens: Option<SocketAddr>,
    /// The name of this machine.
    pub name: Option<String>,
}

impl Cluster {
    /// Reads the cluster of the machine in `dir`. None if the machine made its own cluster, and
    /// serves.
    pub(crate) fn of(dir: &Path) -> Result<Option<Cluster>, DataError> {
        let Some(bytes) = read_file(dir, "cluster.json")? else { return Ok(None) };
        let cluster = serde_json::from_slice(&bytes);
        cluster
            .map(Some)
            .map_err(|e| DataError::Damaged { file: dir.join("cluster.json"), why: e.to_string() })
    }

    /// Notes that the machine in `dir` is in no cluster but its own.
    pub(crate) fn forget(dir: &Path) -> Result<(), DataError> {
        remove_file(dir, "cluster.json")
    }

    /// Writes this to `dir`.
    pub(crate) fn keep(&self, dir: &Path) -> Result<(), DataError> {
        replace_file(dir, "cluster.json", &serde_json::to_vec(self).unwrap_or_default())
    }
}

/// A data directory of a machine that is about to join.
#[derive(Debug)]
pub(crate) struct Joining {
    path: PathBuf,
    _lock: File,
}

impl Joining {
    /// Completes the directory: the machine has joined as `machine`, called `name`.
    pub(crate) fn finish_join(
        &self,
        machine: MachineId,
        name: &str,
        addresses: &[String],
    ) -> Result<(), DataError> {
        let (addresses, name) = (addresses.to_vec(), Some(name.to_owned()));
        Cluster { addresses, name, ..Cluster::default() }.keep(&self.path)?;
        Identity { machine: machine.0, made: true, ..Identity::default() }.keep(&self.path)?;
        keep_format(&self.path)
    }
}

/// A data directory that is being made out of a backup.
#[derive(Debug)]
pub(crate) struct BegunRestore {
    path: PathBuf,
    _lock: File,
}

impl BegunRestore {
    /// Completes the restore: from now on the directory belongs to the machine `identity`.
    pub(crate) fn finish(&self, identity: Identity) -> Result<(), DataError> {
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
    /// The lock, held as long as the file is open.
    _lock: File,
}

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
        let lock = lock(path, purpose)?;
        if created {
            Identity { machine: directory::FOUNDER.0, ..Identity::default() }.keep(path)?;
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
        Ok(DataDir { path: path.to_path_buf(), identity, created, _lock: lock })
    }

    /// Takes hold of `path` for a machine that is about to join. The directory must hold nothing
    /// yet.
    pub(crate) fn begin_join(path: &Path) -> Result<Joining, DataError> {
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
    pub(crate) fn begin_restore(path: &Path) -> Result<BegunRestore, DataError> {
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
        let shares = path.join("shares");
        shares::clear(&shares).map_err(io("clear", &shares))?;
        Ok(BegunRestore { path: path.to_path_buf(), _lock: lock })
    }

    /// Takes hold of the data directory `path` of a machine that is down, to inspect it. This
    /// counts no start. The hold lasts as long as the file is open.
    pub(crate) fn hold(path: &Path, purpose: &str) -> Result<File, DataError> {
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

fn lock(path: &Path, purpose: &str) -> Result<File, DataError> {
    private::mend(path).map_err(io("guard", path))?;
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
pub(crate) fn read_small(dir: &Path) -> Result<(), DataError> {
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

/// Makes changes of names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), DataError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io("sync", dir))
}

pub(crate) fn io<'a>(verb: &'static str, file: &'a Path) -> impl FnOnce(std::io::Error) -> DataError + 'a {
    move |source| DataError::Io { verb, file: file.to_path_buf(), source }
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
        drop(held);
        DataDir::take(dir.path(), "the second").unwrap();
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
