//! Processes of a measurement, which end with this one.

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command};
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

/// How long a process may take to end in order.
const END: Duration = Duration::from_secs(120);

/// A process that a signal to this process ends. When dropped, the process is stopped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts a process. It has its own group, so no Ctrl-C ends it before its turn.
    pub fn start(command: &mut Command) -> io::Result<Process> {
        let mut running = RUNNING.lock();
        running.not_ended()?;
        let child = command.process_group(0).spawn()?;
        running.processes.push(Pid::from_child(&child));
        Ok(Process(child))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Takes its standard output, which is a pipe.
    pub fn stdout(&mut self) -> io::Result<ChildStdout> {
        self.0.stdout.take().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Stops the process in order.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let pid = Pid::from_child(&self.0);
        RUNNING.lock().processes.retain(|process| *process != pid);
        if self.0.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(pid, Signal::TERM)?;
        let deadline = Instant::now() + END;
        while self.0.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.0.kill()?;
                self.0.wait()?;
                return Err(io::Error::other("it does not stop"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
