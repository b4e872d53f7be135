//! The file systems that are compared.

use crate::process::Process;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// `leasehold up`. In a data directory that has joined a cluster, the mount is one more machine
    /// of that cluster.
    Mount,
    /// The same of another `leasehold` binary.
    Beside,
    /// The null FUSE file system.
    Floor,
    /// The local disk's own file system.
    Disk,
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TargetKind::Mount => "mount",
            TargetKind::Beside => "mount beside",
            TargetKind::Floor => "floor",
            TargetKind::Disk => "disk",
        })
    }
}

/// A file system under test, in a fresh directory.
#[derive(Debug)]
pub struct Target {
    /// The target's kind.
    pub kind: TargetKind,
    binary: PathBuf,
    dir: PathBuf,
    data: PathBuf,
    /// The process writes here what it tells beside its answer.
    log: PathBuf,
    /// MiB of memory for the mount's server, if not the default.
    pub server_memory: Option<u32>,
    /// Where the mount's machine serves SMB, too.
    smb: Option<SocketAddr>,
    process: Option<Process>,
    /// Kept open: a write to a closed pipe would fail.
    out: Option<BufReader<ChildStdout>>,
}

impl Target {
    /// Starts a target in a directory under `base`, which is on the disk to compare with.
    pub fn start(kind: TargetKind, base: &Path) -> io::Result<Target> {
        Target::of(std::env::current_exe()?, kind, base)
    }

    /// Starts the mount of another `leasehold` binary.
    pub fn beside(binary: &Path, base: &Path) -> io::Result<Target> {
        Target::of(binary.to_owned(), TargetKind::Beside, base)
    }

    fn of(binary: PathBuf, kind: TargetKind, base: &Path) -> io::Result<Target> {
        let (dir, data) = match kind {
            TargetKind::Mount => (base.join("mount"), base.join("data")),
            TargetKind::Beside => (base.join("mount-beside"), base.join("data-beside")),
            TargetKind::Floor => (base.join("floor"), PathBuf::new()),
            TargetKind::Disk => (base.join("disk"), PathBuf::new()),
        };
        std::fs::create_dir_all(&dir)?;
        let log = base.join(format!("{kind}.log"));
        let mut target =
            Target { kind, binary, dir, data, log, server_memory: None, smb: None, process: None, out: None };
        target.up()?;
        Ok(target)
    }

    /// The directory to work in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The mount's data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The file system's process, if it has one.
    pub fn process(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    fn up(&mut self) -> io::Result<()> {
        let mut command = Command::new(&self.binary);
        match self.kind {
            TargetKind::Mount | TargetKind::Beside => {
                command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(&self.data);
                command.arg("--mount").arg(&self.dir);
                if let Some(mib) = self.server_memory {
                    command.args(["--server-memory", &mib.to_string()]);
                }
                if let Some(address) = self.smb {
                    command.args(["--smb", &address.to_string()]);
                }
            }
            TargetKind::Floor => {
                command.args(["bench", "floor"]).arg(&self.dir);
            }
            TargetKind::Disk => return Ok(()),
        }
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(File::create(&self.log)?))?;
        let out = self.out.insert(BufReader::new(process.stdout()?));
        self.process = Some(process);
        let mut lines = out.lines().map_while(Result::ok);
        if lines.any(|line| line.starts_with("mounted on")) {
            return Ok(());
        }
        self.stop()?;
        let why = std::fs::read_to_string(&self.log).unwrap_or_default();
        Err(io::Error::other(format!("the {} did not mount: {}", self.kind, why.trim())))
    }

    /// Stops the file system in order.
    pub fn stop(&mut self) -> io::Result<()> {
        match self.process.take() {
            Some(process) => {
                process.stop().map_err(|error| io::Error::other(format!("the {}: {error}", self.kind)))
            }
            None => Ok(()),
        }
    }

    /// Starts the mount again, with SMB served at an address of the loopback, which is returned.
    pub fn serve_smb(&mut self) -> io::Result<SocketAddr> {
        self.stop()?;
        let address = free_address()?;
        self.smb = Some(address);
        self.up()?;
        Ok(address)
    }

    /// Empties every cache: restarts the file system and drops the kernel's caches (needs root).
    /// The floor is not restarted: it would lose all. Returns the time of the restart.
    pub fn make_cold(&mut self) -> io::Result<Duration> {
        if self.kind != TargetKind::Floor {
            self.stop()?;
        }
        sync_all();
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        let began = Instant::now();
        if self.kind != TargetKind::Floor {
            self.up()?;
        }
        Ok(began.elapsed())
    }

    /// Waits until everything is durable.
    pub fn sync(&self) -> io::Result<()> {
        let dir = File::open(&self.dir)?;
        // Linux forwards syncfs to no FUSE file system but virtiofs. An fsync of the root reaches
        // ours.
        dir.sync_all()?;
        rustix::fs::syncfs(&dir)?;
        Ok(())
    }
}

/// An address of the loopback at which nothing listens now.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

fn sync_all() {
    rustix::fs::sync();
}
