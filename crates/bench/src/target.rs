//! The file systems that are compared.

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The running processes, in the order in which they were started, and whether a signal has ended
/// them all.
static RUNNING: Mutex<Running> = Mutex::new(Running { processes: Vec::new(), ended: false });

struct Running {
    processes: Vec<Pid>,
    ended: bool,
}

/// From now on a signal to this process ends the targets. The work on them fails, and its cleanup
/// removes everything.
pub fn end_on_signals() -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            let processes = {
                let mut running = RUNNING.lock();
                running.ended = true;
                running.processes.clone()
            };
            // One by one, the latest first: a machine needs its server to end. The threads that
            // stop them reap them. Trap: a mount with open files of this process ends only when
            // these threads have closed them, and they take the lock.
            for process in processes.into_iter().rev() {
                let _ = kill_process(process, Signal::TERM);
                let _ = waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            }
        }
    })?;
    Ok(())
}

/// Fails if a signal has ended the targets.
pub fn not_ended() -> io::Result<()> {
    RUNNING.lock().not_ended()
}

impl Running {
    fn not_ended(&self) -> io::Result<()> {
        match self.ended {
            true => Err(io::Error::other("ended by a signal")),
            false => Ok(()),
        }
    }
}

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
    process: Option<Child>,
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
            Target { kind, binary, dir, data, log, server_memory: None, process: None, out: None };
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
        self.process.as_ref().map(Child::id)
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
            }
            TargetKind::Floor => {
                command.args(["bench", "floor"]).arg(&self.dir);
            }
            TargetKind::Disk => return Ok(()),
        }
        let mut child = spawn(command.stdout(Stdio::piped()).stderr(File::create(&self.log)?))?;
        let out = self.out.insert(BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?));
        self.process = Some(child);
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
        let Some(mut child) = self.process.take() else { return Ok(()) };
        let pid = Pid::from_child(&child);
        RUNNING.lock().processes.retain(|process| *process != pid);
        kill_process(pid, Signal::TERM)?;
        let deadline = Instant::now() + Duration::from_secs(120);
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::other(format!("the {} does not stop", self.kind)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
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

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Starts a process that a signal to this process ends. The process has its own group, so no Ctrl-C
/// ends it before its turn.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut running = RUNNING.lock();
    running.not_ended()?;
    let child = command.process_group(0).spawn()?;
    running.processes.push(Pid::from_child(&child));
    Ok(child)
}

fn sync_all() {
    rustix::fs::sync();
}
