//! Samba, with a configuration of its own, on the loopback.

use super::client::{PASSWORD, SHARE, USER};
use crate::process::Process;
use crate::target::free_address;
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SMBD: &str = "/usr/sbin/smbd";
/// How long the server may take until it answers.
const START: Duration = Duration::from_secs(30);

/// A Samba that serves a directory.
pub(super) struct Samba {
    process: Process,
    pub(super) address: SocketAddr,
    pub(super) dir: PathBuf,
}

/// Installs Samba by apt, if it is not there.
fn install(tell: &mut dyn FnMut(&str)) -> io::Result<()> {
    if Path::new(SMBD).exists() {
        return Ok(());
    }
    let missing = |why: &str| io::Error::other(format!("{SMBD} is missing: {why}"));
    if !rustix::process::geteuid().is_root() {
        return Err(missing("install Samba, or run this as root"));
    }
    tell("installing Samba");
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "--no-install-recommends", "samba"]);
    // Of run level 1 no service is started.
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    let done = command.stdin(Stdio::null()).output();
    match done {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(missing(&format!("apt-get: {}", String::from_utf8_lossy(&done.stderr).trim()))),
        Err(error) => Err(missing(&format!("apt-get: {error}"))),
    }
}

impl Samba {
    /// Starts Samba in a directory of `base`, which is on the disk to compare with.
    pub(super) fn start(base: &Path, tell: &mut dyn FnMut(&str)) -> io::Result<Samba> {
        install(tell)?;
        let (state, dir) = (base.join("samba"), base.join("samba-share"));
        std::fs::create_dir_all(&state)?;
        std::fs::create_dir_all(&dir)?;
        let address = free_address()?;
        let conf = state.join("smb.conf");
        std::fs::write(&conf, configuration(&state, &dir, address))?;
        add_user(&conf)?;
        let mut command = Command::new(SMBD);
        command.args(["--foreground", "--no-process-group", "--configfile"]).arg(&conf);
        let log = File::create(state.join("out"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let samba = Samba { process: Process::start(&mut command)?, address, dir };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            if began.elapsed() > START {
                return Err(io::Error::other("Samba does not answer"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(samba)
    }

    /// The process of the server, whose children serve a connection each.
    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }
}

/// Samba as it is by default, with signing required and its files in `state`.
fn configuration(state: &Path, dir: &Path, address: SocketAddr) -> String {
    let (state, dir, ip, port) = (state.display(), dir.display(), address.ip(), address.port());
    format!(
        "[global]
server role = standalone server
passdb backend = tdbsam:{state}/passdb.tdb
private dir = {state}
lock directory = {state}
state directory = {state}
cache directory = {state}
pid directory = {state}
ncalrpc dir = {state}/ncalrpc
log file = {state}/log
interfaces = {ip}
bind interfaces only = yes
smb ports = {port}
disable netbios = yes
load printers = no
disable spoolss = yes
server signing = mandatory
[{SHARE}]
path = {dir}
read only = no
"
    )
}

fn add_user(conf: &Path) -> io::Result<()> {
    let mut command = Command::new("smbpasswd");
    command.arg("-c").arg(conf).args(["-s", "-a", USER]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child
        .stdin
        .take()
        .ok_or(io::ErrorKind::BrokenPipe)?
        .write_all(format!("{PASSWORD}\n{PASSWORD}\n").as_bytes())?;
    let done = child.wait_with_output()?;
    match done.status.success() {
        true => Ok(()),
        false => {
            Err(io::Error::other(format!("smbpasswd: {}", String::from_utf8_lossy(&done.stderr).trim())))
        }
    }
}
