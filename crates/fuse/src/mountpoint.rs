//! The directory to mount on.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::mount_error::MountError;
use crate::proc;

/// The type of our mounts in mountinfo.
const KIND: &str = "fuse.leasehold";

/// How long a mount that is there may take to go.
const ENDING: Duration = Duration::from_secs(5);
/// How often that is looked at.
const ENDING_LOOK: Duration = Duration::from_millis(20);

/// Processes that are named as users of a mount, at most.
const USERS_TOLD: usize = 10;

/// A line of /proc/self/mountinfo.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    /// major:minor.
    device: String,
    kind: String,
}

/// Makes `dir` fit to be mounted on, and returns its absolute path. A mount that a dead process has
/// left there is unmounted. A process that is about to end gets some time for it.
pub fn prepare(dir: &Path) -> Result<PathBuf, MountError> {
    let until = Instant::now() + ENDING;
    loop {
        match prepare_once(dir) {
            Err(MountError::Taken { .. }) if Instant::now() < until => std::thread::sleep(ENDING_LOOK),
            prepared => return prepared,
        }
    }
}

fn prepare_once(dir: &Path) -> Result<PathBuf, MountError> {
    let failed = |source| MountError::Mountpoint { dir: dir.to_owned(), source };
    // Several dead mounts may lie on top of each other.
    while is_dead(dir) {
        tracing::warn!(dir = %dir.display(), "unmounting what a process that is gone has left");
        detach(&absolute(dir).map_err(failed)?).map_err(failed)?;
    }
    if let Err(error) = dir.metadata()
        && error.kind() == io::ErrorKind::NotFound
    {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    let dir = dir.canonicalize().map_err(failed)?;
    if mounted_on(&dir).is_some_and(|mounted| mounted.kind == KIND) {
        return Err(MountError::Taken { dir });
    }
    if dir.read_dir().map_err(failed)?.next().is_some() {
        tracing::warn!(dir = %dir.display(), "not empty: what is in it is hidden while mounted");
    }
    Ok(dir)
}

/// Whether the process behind the mount on `dir` is dead. It asks with statfs, since the kernel
/// keeps no copy of that answer. The kernel goes on showing attributes that it has cached.
fn is_dead(dir: &Path) -> bool {
    use rustix::io::Errno;
    // CONNABORTED and CANCELED come while the kernel still clears away requests under way.
    let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    rustix::fs::statfs(dir).is_err_and(|errno| gone.contains(&errno))
}

/// Whether `path` is on a mount of ours.
pub fn is_leasehold(path: &Path) -> bool {
    path.ancestors().find_map(mounted_on).is_some_and(|mounted| mounted.kind == KIND)
}

/// Unmounts the file system on `dir`, if that is ours. The process that serves it learns of that.
pub fn unmount(dir: &Path) -> Result<(), MountError> {
    let dir = absolute(dir).map_err(|source| MountError::Mountpoint { dir: dir.to_owned(), source })?;
    if mounted_on(&dir).is_none_or(|mounted| mounted.kind != KIND) {
        return Err(MountError::NotOurs { dir });
    }
    let refused = |source| MountError::Busy { dir: dir.clone(), source };
    match rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => fusermount(&["-u"], &dir).map_err(refused),
        Err(errno) => Err(refused(errno.into())),
    }
}

fn fusermount(how: &[&str], dir: &Path) -> io::Result<()> {
    let output = Command::new("fusermount3").args(how).arg("--").arg(dir).output()?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(io::Error::other(said())) }
}

/// The processes that use the mount on `dir`, by name and number, as far as this process may see
/// them. It does not ask the mounted file system.
pub(crate) fn users(dir: &Path) -> Vec<String> {
    let own = std::process::id().to_string();
    let uses = |process: &Path| {
        let open = process.join("fd").read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        let links = open.chain(["cwd", "root", "exe"].map(|name| process.join(name)));
        links.filter_map(|link| link.read_link().ok()).any(|file| file.starts_with(dir))
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let users = processes.filter_map(|entry| {
        let number = entry.file_name().into_string().ok()?;
        let is_other = number.bytes().all(|byte| byte.is_ascii_digit()) && number != own;
        let name = || std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        (is_other && uses(&entry.path())).then(|| format!("{} ({number})", name().trim()))
    });
    users.take(USERS_TOLD).collect()
}

/// Takes the mount on `dir` out of the tree at once. The mount ends with its last user.
pub(crate) fn detach(dir: &Path) -> io::Result<()> {
    match rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => fusermount(&["-u", "-z"], dir),
        Err(errno) => Err(errno.into()),
    }
}

/// The number of the connection of the mount on `dir`: the minor part of its device.
pub(crate) fn connection(dir: &Path) -> Option<u32> {
    mounted_on(dir)?.device.split_once(':')?.1.parse().ok()
}

/// Whether anything is mounted below `dir`, as far as mountinfo shows.
pub(crate) fn has_mounts_within(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let within =
        |point: String| Path::new(&point).strip_prefix(dir).is_ok_and(|rest| !rest.as_os_str().is_empty());
    points.any(within)
}

/// Ends a connection, mounted on `dir`, that no process serves any more: programs that wait for an
/// answer get an error. The dead mount stays, so that no program takes the directory below for it.
pub fn abort(connection: u32, dir: &Path) -> io::Result<()> {
    match std::fs::write(format!("/sys/fs/fuse/connections/{connection}/abort"), "1") {
        // The file system of these control files need not be mounted. Then the mount is ended by
        // force. That needs root, and the unmount itself then fails since the mount is in use.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && self::connection(dir) == Some(connection) =>
        {
            let _in_use = rustix::fs::open(dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            match rustix::mount::unmount(dir, rustix::mount::UnmountFlags::FORCE) {
                Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
                Err(errno) => Err(errno.into()),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Lets the kernel read ahead on the mount at `dir` by `bytes`, if this process may. For more than
/// 128 KiB root has to tell the kernel so.
pub(crate) fn set_readahead(dir: &Path, bytes: u32) {
    let Some(Mounted { device, .. }) = mounted_on(dir) else { return };
    if let Err(error) =
        std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), (bytes / 1024).to_string())
    {
        tracing::debug!(%error, "the kernel reads ahead by its default");
    }
}

/// Makes `dir` absolute without a look at the directory itself, which would ask the file system
/// that is mounted there.
fn absolute(dir: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    Ok(match (absolute.parent().map(Path::canonicalize), absolute.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => absolute,
    })
}

fn mounted_on(dir: &Path) -> Option<Mounted> {
    find(&proc::read("self/mountinfo").ok()?, dir)
}

/// The last, and so the uppermost, mount on `dir`.
fn find(mountinfo: &str, dir: &Path) -> Option<Mounted> {
    mountinfo.lines().rev().find_map(|line| {
        // 36 35 98:0 /root /mount/point options [optional ...] - type source options
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?.to_owned();
        let on = unescape(fields.nth(1)?);
        let kind = fields.skip_while(|field| *field != "-").nth(1)?.to_owned();
        (Path::new(&on) == dir).then_some(Mounted { device, kind })
    })
}

/// Undoes the octal escapes: mountinfo writes space, tab, newline and backslash as `\ooo`.
fn unescape(field: &str) -> String {
    [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", r"\")]
        .iter()
        .fold(field.to_owned(), |s, (code, is)| s.replace(code, is))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_from_the_top() {
        let info = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
            70 21 0:52 / /mnt/a\\040b rw,nosuid,nodev - fuse.other x rw\n\
            71 21 0:53 / /mnt/a\\040b rw,nosuid,nodev shared:3 master:1 - fuse.leasehold leasehold rw,user_id=0\n";
        let at = |dir: &str| find(info, Path::new(dir));
        assert_eq!(at("/mnt/a b"), Some(Mounted { device: "0:53".into(), kind: "fuse.leasehold".into() }));
        assert_eq!(at("/"), Some(Mounted { device: "8:1".into(), kind: "ext4".into() }));
        assert_eq!(at("/mnt"), None);
    }
}
