//! The guard: a process beside a mount. If the mounting process is killed, the guard ends the
//! connection of its mount.
//!
//! A thread that invalidates something in the kernel may have to wait there for a page. The request
//! for that page waits for this very process. If the process is killed then, it stays, and so does
//! its connection, which is served no more. Every user of the mount hangs, and so does the next
//! `up`.

use crate::Failure;
use crate::answer::Answer;
use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The arguments of the guard.
#[derive(Debug, Args)]
pub struct Stand {
    /// Whom it was started by.
    process: u32,
    /// The connection's number.
    connection: u32,
    /// Where that is mounted.
    dir: PathBuf,
}

/// The guard's process. Dropping it ends the guard.
pub struct Guard(Child);

impl Guard {
    /// Starts a guard. Call it on the main thread: the guard learns when that thread ends.
    pub fn start(connection: u32, dir: &Path) -> std::io::Result<Guard> {
        let mut guard = Command::new(std::env::current_exe()?);
        guard.arg("guard").args([std::process::id(), connection].map(|number| number.to_string())).arg(dir);
        // A process group of its own: Ctrl-C must not reach the guard.
        guard.process_group(0).current_dir("/");
        guard.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stand {
    /// Waits for the end of the process that started it, and ends the connection.
    pub fn run(self) -> Result<Answer, Failure> {
        let mut signals = Signals::new([SIGTERM])?;
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // The process may have been killed before that.
        if !self.is_killed() {
            let _ = signals.forever().next();
        }
        if self.is_killed() {
            fuse::abort(self.connection, &self.dir)?;
        }
        Ok(Answer::nothing())
    }

    /// Whether the main thread of the process has ended. Other threads may hang in the kernel, and
    /// the process exists as long.
    fn is_killed(&self) -> bool {
        let is_parent =
            getppid().map(Pid::as_raw_nonzero).is_some_and(|pid| pid.get() as u32 == self.process);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap_or_default();
        // `pid (name) state`, and a name may contain anything.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        !is_parent || matches!(state, None | Some('Z' | 'X'))
    }
}
