//! The file systems that are compared.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `leasehold up`.
    Mount,
    /// The null FUSE file system.
    Floor,
    /// The local disk's own file system.
    Disk,
}

/// A file system under test, in a fresh directory.
#[derive(Debug)]
pub struct Target {
    /// Which.
    pub kind: Kind,
    dir: PathBuf,
    data: PathBuf,
    /// MiB of memory for the mount's server, if it is not to be what it usually is.
    pub server_memory: Option<u32>,
    process: Option<Child>,
    /// Kept, since nobody likes to talk into a closed pipe.
    out: Option<BufReader<ChildStdout>>,
}

impl Target {
    /// Brings one up below `base`, which is on the disk to compare with.
    pub fn start(kind: Kind, base: &Path) -> io::Result<Target> {
        let (dir, data) = match kind {
            Kind::Mount => (base.join("mount"), base.join("data")),
            Kind::Floor => (base.join("floor"), PathBuf::new()),
            Kind::Disk => (base.join("disk"), PathBuf::new()),
        };
        std::fs::create_dir_all(&dir)?;
        let mut target = Target { kind, dir, data, server_memory: None, process: None, out: None };
        target.up()?;
        Ok(target)
    }

    /// Where to work.
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
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        match self.kind {
            Kind::Mount => {
                command.args(["up", "--data"]).arg(&self.data).arg("--mount").arg(&self.dir);
                if let Some(mib) = self.server_memory {
                    command.args(["--server-memory", &mib.to_string()]);
                }
            }
            Kind::Floor => {
                command.args(["bench", "floor"]).arg(&self.dir);
            }
            Kind::Disk => return Ok(()),
        }
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut out = child.stdout.take().map(BufReader::new);
        for line in out.iter_mut().flat_map(BufRead::lines) {
            if line?.starts_with("mounted on") {
                self.process = Some(child);
                self.out = out;
                return Ok(());
            }
        }
        let _ = child.kill();
        let status = child.wait()?;
        Err(io::Error::other(format!("{:?} did not mount: {status}", self.kind)))
    }

    /// Takes it down in order.
    pub fn stop(&mut self) -> io::Result<()> {
        let Some(mut child) = self.process.take() else { return Ok(()) };
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let deadline = Instant::now() + Duration::from_secs(120);
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::other(format!("{:?} does not stop", self.kind)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Forgets every cache: restarts it (but the floor, which would forget all), and drops the kernel's caches (needs root). How long it
    /// took to be up again.
    pub fn make_cold(&mut self) -> io::Result<Duration> {
        if self.kind != Kind::Floor {
            self.stop()?;
        }
        sync_all();
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        let began = Instant::now();
        if self.kind != Kind::Floor {
            self.up()?;
        }
        Ok(began.elapsed())
    }

    /// Waits until everything is durable.
    pub fn sync(&self) -> io::Result<()> {
        let dir = std::fs::File::open(&self.dir)?;
        // Linux passes syncfs on to no FUSE file system but virtiofs; fsync of the root is how ours hears of it.
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

fn sync_all() {
    rustix::fs::sync();
}
