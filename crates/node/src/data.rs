//! The data directory of a machine: its format, its lock, who the machine is.
//!
//! ```text
//! format         the version of this layout
//! copies/        the small files below once more: see `small`
//! spare          room for a start on a full disk: see `ballast`
//! lock           held while a process uses the directory; says which one
//! machine.json   the machine's number, how often it started, what the directory has been given
//! machine.key    its private key; machine.crt, authority.crt: its certificate and the authority's
//! authority.key  that of the first authority, until it stands in the rows
//! cluster.json   where the servers are, and whether it is one, on a machine that has joined
//! salvage/       what could not be applied
//! server/        the directory server: Raft log and store of rows
//! server.mark    how far the log in server/ is durable: see `group::log`
//! server.damaged-SECONDS/  what a server had that was added anew: see `quarantine`
//! scrub.json     when all but the shares was read last: see `scrub`
//! shares/        the share server: share files and lease database
//! restoring      while the directory is made out of a backup
//! leasehold.log  what a machine in the background tells
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
/// What machines have of small files, and in which order one that is let in gets them.
const SMALL: [&str; 6] =
    ["machine.key", "machine.crt", "authority.crt", "authority.key", "cluster.json", "machine.json"];
/// Those that no machine does without which was started before.
const KEYS: [&str; 3] = ["machine.key", "machine.crt", "authority.crt"];
/// What only a directory has that was started before.
const STARTED: [&str; 3] = ["server", "shares", "salvage"];
/// Notes how far the log in `server/` is durable.
pub(crate) const MARK: &str = "server.mark";
/// The file that says that a restore into the directory has not ended.
const RESTORING: &str = "restoring";

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Another process has it.
    #[error("{dir} is in use by {holder}; stop that one first, or choose another directory with --data")]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// What its lock file says.
        holder: String,
    },
    /// Written by a newer version.
    #[error("{dir} has format {found}, this leasehold knows format {FORMAT}: use a newer leasehold")]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Not a data directory, and not empty.
    #[error("{dir} is not empty and not a leasehold data directory: choose another with --data")]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// It is a machine's already.
    #[error(
        "{dir} is a machine's data directory already: choose another with --data, or leave its cluster first (leasehold leave)"
    )]
    Joined {
        /// The directory.
        dir: PathBuf,
    },
    /// A restore into it was cut short.
    #[error("a restore into {dir} has not ended: run it again, or remove the directory")]
    Restoring {
        /// The directory.
        dir: PathBuf,
    },
    /// Nothing is kept by this number.
    #[error("nothing is kept by number {number}: leasehold salvage list says what is")]
    NoSalvage {
        /// The number.
        number: u64,
    },
    /// What is kept is not written over another file.
    #[error("{file} is there already, and is left alone: write to an empty directory with --to")]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// A file of it does not parse.
    #[error("{file} is damaged: {why}")]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It is not what was written, nor is its copy.
    #[error(
        "{file} is damaged, and so is its copy in copies/: put the file back from elsewhere (a backup of the data directory), or have this machine join anew with another data directory"
    )]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// What it had is not there any more.
    #[error(
        "{dir} lacks {what}, which it had before: mount or put back what is missing, and start again. If that is gone for good, restore the latest backup into another directory (leasehold restore), or have this machine join anew with another data directory; of shares that other servers have, too, a server makes its own anew if it is started with --accept-older-state"
    )]
    Missing {
        /// The directory.
        dir: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The system refused.
    #[error("cannot {verb} {file}")]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On what.
        file: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// So many of its starts a directory tells apart from those of its copies.
const REMEMBERED: usize = 8;

/// Who a machine is, and what its directory has been given: what of that is missing was lost, and
/// is never taken for a first start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number in the cluster.
    pub machine: u64,
    /// How often it started: its incarnation.
    pub starts: u64,
    /// It has made a cluster, or joined one: keys and certificates are there.
    pub made: bool,
    /// The member of the server group whose state is in `server/`.
    pub serves: Option<u64>,
    /// `shares/` has a share server's database.
    pub shares: bool,
    /// Its shares are not there as well, but in an object store.
    pub elsewhere: bool,
    /// What its latest starts have drawn, this one the last: copies of a directory count alike.
    pub drawn: [u64; REMEMBERED],
    /// The state in `server/` was proven to be older than what it had acknowledged.
    pub older: bool,
    /// Which files those in `server/` were at the last start.
    pub placed: Option<Placed>,
}

/// Held while an identity is changed: by whoever starts, and by what the machine comes to be.
static CHANGING: Mutex<()> = Mutex::new(());

impl Identity {
    /// That of the machine in `dir`.
    pub(crate) fn of(dir: &Path) -> Result<Identity, DataError> {
        let bytes = read_file(dir, "machine.json")?.ok_or_else(|| missing(dir, "machine.json"))?;
        let damaged =
            |e: serde_json::Error| DataError::Damaged { file: dir.join("machine.json"), why: e.to_string() };
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// This start, as servers are told of it.
    pub(crate) fn start(&self) -> Start {
        let (drawn, before) =
            self.drawn.split_last().map_or((0, Vec::new()), |(it, all)| (*it, all.to_vec()));
        Start { incarnation: self.starts, drawn, before: before.into_iter().filter(|it| *it != 0).collect() }
    }

    /// Changes it in `dir`, durably.
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

    /// An error if something of the directory `dir` is missing that is no server's alone.
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
        // The founder needs to know of a cluster only if it is in one with others.
        let founder = self.machine == directory::FOUNDER.0 && self.serves == Some(FOUNDER);
        if !founder && !has_cluster()? {
            lacks.push("cluster.json");
        }
        if lacks.is_empty() { Ok(()) } else { Err(missing(dir, &lacks.join(", "))) }
    }
}

/// Removes the state of the server in `dir`, and the note of how far its log went.
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

/// What of `server/` in `dir` is not there, though the machine's server has been started.
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

/// An error if the share server in `dir`, which the machine was found to have, is not there.
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
    /// Where its servers listen.
    pub addresses: Vec<String>,
    /// Its number in the server group, if it is a server.
    pub member: Option<u64>,
    /// It was a server, has lost what that had, and is to be one again.
    pub again: bool,
    /// Where its server listens, if nobody says otherwise: the others look for it there when all
    /// have been down.
    pub listens: Option<SocketAddr>,
    /// What this machine is called.
    pub name: Option<String>,
}

impl Cluster {
    /// That of the machine in `dir`; none if it made its own, and serves.
    pub(crate) fn of(dir: &Path) -> Result<Option<Cluster>, DataError> {
        let Some(bytes) = read_file(dir, "cluster.json")? else { return Ok(None) };
        let cluster = serde_json::from_slice(&bytes);
        cluster
            .map(Some)
            .map_err(|e| DataError::Damaged { file: dir.join("cluster.json"), why: e.to_string() })
    }

    /// The machine in `dir` is in no cluster but its own.
    pub(crate) fn forget(dir: &Path) -> Result<(), DataError> {
        remove_file(dir, "cluster.json")
    }

    /// Keeps it in `dir`.
    pub(crate) fn keep(&self, dir: &Path) -> Result<(), DataError> {
        replace_file(dir, "cluster.json", &serde_json::to_vec(self).unwrap_or_default())
    }
}

/// A data directory that is to be that of a machine which is about to join.
#[derive(Debug)]
pub(crate) struct Joining {
    path: PathBuf,
    _lock: File,
}

impl Joining {
    /// The machine has joined as `machine`, called `name`.
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
    /// All is there: it is that machine's from now on.
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
    /// Held as long as it is open.
    _lock: File,
}

impl DataDir {
    /// Takes hold of `path`, making it if it does not exist; counts a start. `purpose` is what
    /// others are told who find it taken.
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

    /// Takes hold of `path` for a machine that is about to join: there must be nothing yet.
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

    /// Takes hold of `path` to make it a data directory out of a backup: there must be nothing yet,
    /// but for what a restore has left that was cut short. Until it is finished it is nobody's.
    pub(crate) fn begin_restore(path: &Path) -> Result<BegunRestore, DataError> {
        private::make_dir(path).map_err(io("make", path))?;
        let mark = path.join(RESTORING);
        if !mark.exists() {
            if has_format(path) {
                return Err(DataError::Joined { dir: path.to_path_buf() });
            }
            let mut entries = fs::read_dir(path).map_err(io("read", path))?;
            let ours = [OsStr::new("lost+found"), OsStr::new("lock")];
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

    /// Takes hold of `path`, a machine's that is not up, for as long as the file is open: to look
    /// at what is there, which is no start.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who this machine is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether it was made just now: a new cluster.
    pub fn is_new(&self) -> bool {
        self.created
    }

    /// Where the control socket of a process on `path` is.
    pub fn control_socket(path: &Path) -> PathBuf {
        path.join("control")
    }
}

/// The process that has the data directory `path`, if one has.
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
    // It may be about to write who it is.
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

/// Whether the directory, which has no format, was a machine's that has been started: the format is
/// there before it counts a start.
fn was_started(path: &Path) -> Result<bool, DataError> {
    Ok(STARTED.iter().any(|name| path.join(name).exists())
        && (path.join(COPIES).exists() || read_file(path, "machine.json")?.is_some()))
}

/// An interrupted first start leaves its lock and perhaps its identity; that is still blank.
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
        // What it says is for people; that it is held is what counts.
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

/// Reads all small files of the data directory `dir`, which puts right what is damaged and has a
/// sound copy.
pub(crate) fn read_small(dir: &Path) -> Result<(), DataError> {
    check_format(dir)?;
    SMALL.iter().try_for_each(|name| read_file(dir, name).map(drop))
}

/// Plain, so that every version can read it; what its copy is for goes without a checksum.
fn keep_format(path: &Path) -> Result<(), DataError> {
    let (text, copies) = (format!("{FORMAT}\n"), path.join(COPIES));
    private::make_dir(&copies).map_err(io("make", &copies))?;
    replace_plain(&copies, "format", text.as_bytes())?;
    replace_plain(path, "format", text.as_bytes())
}

/// An error if the directory `path` has another format. A copy that has this one puts right what a
/// disk has done to the other: a later format leaves no copy as it was.
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

/// Makes what was done to names in `dir` durable.
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
