//! A process beside the one that mounts, to end its mount's connection should it be killed.
//!
//! A thread that tells the kernel of something recalled may have to wait in the kernel for a page
//! whose request waits for this very process. Killed then, the process stays, and with it the
//! connection, which nobody serves any more: whoever uses the mount hangs, and the next `up` too.

use crate::Failure;
use crate::answer::Answer;
use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What the guard is told.
#[derive(Debug, Args)]
pub struct Stand {
    /// Whom it was started by.
    process: u32,
    /// The connection's number.
    connection: u32,
    /// Where that is mounted.
    dir: PathBuf,
}

/// Ends when dropped.
pub struct Guard(Child);

impl Guard {
    /// To be called on the main thread: when that ends, the guard is told.
    pub fn start(connection: u32, dir: &Path) -> std::io::Result<Guard> {
        let mut guard = Command::new(std::env::current_exe()?);
        guard.arg("guard").args([std::process::id(), connection].map(|number| number.to_string())).arg(dir);
        // A group of its own, since Ctrl-C is not for it.
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
    /// Waits for the end of who started it, and ends the connection.
    pub fn run(self) -> Result<Answer, Failure> {
        let mut signals = Signals::new([SIGTERM])?;
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // It may have been killed before that.
        if !self.is_killed() {
            let _ = signals.forever().next();
        }
        if self.is_killed() {
            fuse::abort(self.connection, &self.dir)?;
        }
        Ok(Answer::nothing())
    }

    /// Its main thread has ended; others may hang in the kernel, and then the process is still
    /// there.
    fn is_killed(&self) -> bool {
        let is_parent =
            getppid().map(Pid::as_raw_nonzero).is_some_and(|pid| pid.get() as u32 == self.process);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap_or_default();
        // `pid (name) state`, and a name may have anything in it.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        !is_parent || matches!(state, None | Some('Z' | 'X'))
    }
}
