//! A machine in the background: `up --background`, `down`, `umount`, and what a service manager is
//! told.
//!
//! Whoever started a machine hears when it is mounted the way systemd does (sd_notify): a datagram
//! to the socket that `NOTIFY_SOCKET` names.

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

/// How often is looked whether a machine that was told to end has.
const LOOK: Duration = Duration::from_millis(50);
/// How long until it is said once more what is waited for.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Of the log, so many bytes are shown when a start fails.
const TAIL: u64 = 2000;
/// A log that is larger is put aside when a machine starts: there are two at most.
const LOG_MAX: u64 = 16 << 20;

/// The log of a machine in the background, in its data directory.
fn log_of(data: &Path) -> PathBuf {
    data.join("leasehold.log")
}

/// Tells whoever started this machine that it is mounted, and where.
pub fn is_ready(dir: &Path) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("mounted on {}", dir.display()))]);
}

/// Tells whoever started this machine what it has come to, before it is mounted.
pub fn has_come_to(what: &str) {
    tell(&[NotifyState::Status(what)]);
}

/// It has been told to end.
pub fn is_stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::debug!(%error, "whoever started this machine cannot be told how it stands");
    }
}

/// No terminal's end is this process's: it belongs to nobody's session. For one that `begin` has
/// started.
pub fn detach() {
    if let Err(error) = setsid() {
        tracing::debug!(%error, "this process stays in the session that it was started in");
    }
}

/// Starts this very command once more, in the background, and waits until that is mounted or has
/// ended.
pub fn begin(data: &Path) -> Result<Answer, Failure> {
    let ear = Ear::open()?;
    let log = open_log(data)?;
    let began = log.metadata()?.len();
    // The answer is this process's to give.
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
            let words = format!(
                "{}\nin the background: process {}, log {}\nit ends with: leasehold down",
                come_to.unwrap_or_default(),
                child.id(),
                log_of(data).display()
            );
            let status = node::ask_status(data)?.ok_or("it has ended since it was mounted")?;
            return Answer::told(&status, words);
        }
        come_to.into_iter().for_each(step);
    }
}

/// Where the machine says how it stands, in a directory that is nobody else's.
struct Ear {
    dir: PathBuf,
    socket: UnixDatagram,
}

impl Ear {
    fn open() -> std::io::Result<Ear> {
        let dir = std::env::temp_dir().join(format!("leasehold-{}", std::process::id()));
        // One that is there already is somebody else's.
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
        // What cannot be removed does no harm.
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

/// What a log says from there on, the end of it if that is much.
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
struct Ended {
    data: String,
    /// Its process; absent if none was up.
    process: Option<u32>,
}

impl Down {
    /// Ends it, and waits until all is durable. Exits with 1 if none is up.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let ended = Ended { data: data.display().to_string(), process: node::holder(&data)? };
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
