//! A machine in the background: `up --background`, `down`, `umount`, and the messages to a service
//! manager.
//!
//! A started machine reports that it is mounted the way systemd wants it (sd_notify): a datagram to
//! the socket that `NOTIFY_SOCKET` names.

use crate::answer::Answer;
use crate::progress::step;
use crate::{Failure, places};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process, setsid};
use sd_notify::NotifyState;
use serde::Serialize;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often to check whether an ending machine has ended.
const LOOK: Duration = Duration::from_millis(50);
/// How often the reason for waiting is repeated.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Bytes of the log's end that are shown when a start fails.
const TAIL: u64 = 2000;
/// A larger log is renamed when a machine starts, bytes. There are two logs at most.
const LOG_MAX: u64 = 16 << 20;

/// The log of a machine in the background, in its data directory.
fn log_of(data: &Path) -> PathBuf {
    data.join("leasehold.log")
}

/// Reports to the starter of this machine that it is mounted, and where.
pub fn is_ready(dir: &Path) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("mounted on {}", dir.display()))]);
}

/// Reports to the starter of this machine how far its start is, before it is mounted.
pub fn has_come_to(what: &str) {
    tell(&[NotifyState::Status(what)]);
}

/// Reports that the machine is ending.
pub fn is_stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::debug!(%error, "whoever started this machine cannot be told how it stands");
    }
}

/// Leaves the terminal's session, so that its end does not end this process. For a process that
/// `begin` has started.
pub fn detach() {
    if let Err(error) = setsid() {
        tracing::debug!(%error, "this process stays in the session that it was started in");
    }
}

/// Starts this command once more, in the background. Waits until that process has mounted or has
/// ended.
pub fn begin(data: &Path) -> Result<Answer, Failure> {
    let ear = Ear::open()?;
    let log = open_log(data)?;
    let began = log.metadata()?.len();
    // This process writes the answer.
    let arguments = std::env::args_os().skip(1).filter(|argument| argument != "--json");
    let arguments =
        arguments.map(|argument| if argument == "--background" { "--detached".into() } else { argument });
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .env("NOTIFY_SOCKET", ear.address())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let mut buffer = [0; 4096];
    loop {
        if let Some(status) = child.try_wait()? {
            let why = tail(&log_of(data), began).unwrap_or_default();
            return Err(format!("it has ended ({status}): {}", why.trim()).into());
        }
        let Ok(length) = ear.socket.recv(&mut buffer) else { continue };
        let told = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
        let come_to = told.lines().find_map(|line| line.strip_prefix("STATUS="));
        if told.lines().any(|line| line == "READY=1") {
            tail(&log_of(data), began)
                .unwrap_or_default()
                .lines()
                .filter(|line| is_warning(line))
                .for_each(step);
            let words = format!(
                "{}\nin the background: process {}, log {}\nit ends with: leasehold down",
                come_to.unwrap_or_default(),
                child.id(),
                log_of(data).display()
            );
            let status = admin::ask_status(data)?.ok_or("it has ended since it was mounted")?;
            return Answer::told(&status, words);
        }
        come_to.into_iter().for_each(step);
    }
}

/// Whether a line of the log is a warning or an error, in either format of the log.
fn is_warning(line: &str) -> bool {
    let level = line.split_whitespace().nth(1);
    matches!(level, Some("WARN" | "ERROR"))
        || ["\"level\":\"WARN\"", "\"level\":\"ERROR\""].iter().any(|level| line.contains(level))
}

/// A socket where the machine reports how it stands, in a private directory.
struct Ear {
    dir: PathBuf,
    socket: UnixDatagram,
}

impl Ear {
    fn open() -> std::io::Result<Ear> {
        let dir = std::env::temp_dir().join(format!("leasehold-{}", std::process::id()));
        // An existing directory is not ours.
        DirBuilder::new().mode(0o700).create(&dir)?;
        let socket = UnixDatagram::bind(dir.join("notify"))?;
        socket.set_read_timeout(Some(LOOK))?;
        Ok(Ear { dir, socket })
    }

    fn address(&self) -> PathBuf {
        self.dir.join("notify")
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // A leftover does no harm.
        let _ = std::fs::remove_file(self.address());
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn open_log(data: &Path) -> Result<File, Failure> {
    std::fs::create_dir_all(data).map_err(|error| format!("cannot make {}: {error}", data.display()))?;
    let name = log_of(data);
    if name.metadata().is_ok_and(|log| log.len() > LOG_MAX) {
        std::fs::rename(&name, name.with_extension("log.old"))?;
    }
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&name);
    Ok(log.map_err(|error| format!("cannot write {}: {error}", name.display()))?)
}

/// Returns the log from there on, or its end if that is long.
fn tail(log: &Path, from: u64) -> std::io::Result<String> {
    let mut log = File::open(log)?;
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL))))?;
    let mut bytes = Vec::new();
    log.take(TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Down {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// A machine that has ended.
#[derive(Serialize)]
struct EndedMachine {
    data: String,
    /// Its process; absent if none was up.
    process: Option<u32>,
}

impl Down {
    /// Ends the machine, and waits until everything is durable. Exits with 1 if none is up.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let ended = EndedMachine { data: data.display().to_string(), process: node::holder(&data)? };
        let Some(process) = ended.process else {
            return Ok(Answer::told(&ended, format!("no machine is up on {}", ended.data))?.no_if(true));
        };
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or("its lock names no process")?;
        kill_process(pid, Signal::TERM)
            .map_err(|errno| format!("process {process}, which has {}, cannot be told to end: {errno}; run this as who started it, or as root", ended.data))?;
        let mut said = Instant::now();
        while node::holder(&data)? == Some(process) {
            std::thread::sleep(LOOK);
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                step(&format!(
                    "process {process} is still at it: what it has is stored at the servers first"
                ));
            }
        }
        Answer::told(&ended, "down; everything is durable, or kept for the next start")
    }
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Umount {
    /// Where it is mounted.
    dir: PathBuf,
}

/// A mount that is gone.
#[derive(Serialize)]
struct Unmounted {
    dir: String,
}

impl Umount {
    /// Unmounts; the machine behind it ends by itself.
    pub fn run(self) -> Result<Answer, Failure> {
        fuse::unmount(&self.dir)?;
        let gone = Unmounted { dir: self.dir.display().to_string() };
        Answer::told(&gone, format!("unmounted {}; the machine behind it ends in order", gone.dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_a_start_are_told_from_the_rest_of_the_log() {
        let warnings = [
            "2026-11-28T17:00:00.000001Z  WARN node::membership: the clock was set back",
            "2026-11-28T17:00:00.000001Z ERROR raft: a row is damaged",
            r#"{"timestamp":"2026-11-28T17:00:00Z","level":"WARN","message":"x","target":"node"}"#,
        ];
        let others = [
            "",
            "mounted on WARN",
            "2026-11-28T17:00:00.000001Z  INFO node: a WARN of nothing",
            r#"{"timestamp":"2026-11-28T17:00:00Z","level":"INFO","message":"WARN","target":"node"}"#,
        ];
        assert!(warnings.iter().all(|line| is_warning(line)));
        assert!(!others.iter().any(|line| is_warning(line)));
    }
}
