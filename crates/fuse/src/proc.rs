//! Reads what the kernel shows of threads.
//!
//! Requests name threads by their numbers in the pid namespace in which we mount. Trap: /proc may
//! belong to another namespace, where the same number is another thread. So its numbers count only
//! if it belongs to ours. Otherwise we mount a procfs of our own, if we may.

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::LazyLock;

/// The procfs of our pid namespace, if there is one. A process never changes its namespace.
static PROC: LazyLock<Option<OwnedFd>> = LazyLock::new(|| {
    let found = mounted().filter(is_ours).or_else(|| own().ok().filter(is_ours));
    if found.is_none() {
        tracing::warn!(
            "no /proc of this pid namespace can be seen or mounted: what users may by further groups and capabilities the kernel says \
             alone, and names in /proc are not looked at; mount one (`mount -t proc proc /proc`)"
        );
    }
    found
});

fn mounted() -> Option<OwnedFd> {
    openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// A new procfs that is mounted nowhere.
fn own() -> io::Result<OwnedFd> {
    let made = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&made)?;
    Ok(fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Whether this procfs is of our pid namespace. A process has a number in each namespace from that
/// of the procfs inwards (proc_pid_status(5), NSpid).
fn is_ours(proc: &OwnedFd) -> bool {
    read_in(proc, "self/status").is_ok_and(|status| numbers(&status) == 1)
}

fn numbers(status: &str) -> usize {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.map_or(0, |numbers| numbers.split_ascii_whitespace().count())
}

fn read_in(proc: impl AsFd, path: &str) -> io::Result<String> {
    let mut text = String::new();
    open_in(proc, path)?.read_to_string(&mut text)?;
    Ok(text)
}

fn open_in(proc: impl AsFd, path: &str) -> io::Result<File> {
    Ok(File::from(openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
}

/// Opens a file of the procfs.
pub(crate) fn open(path: &str) -> io::Result<File> {
    open_in(PROC.as_ref().ok_or(io::ErrorKind::Unsupported)?, path)
}

/// Reads a file of the procfs.
pub(crate) fn read(path: &str) -> io::Result<String> {
    read_in(PROC.as_ref().ok_or(io::ErrorKind::Unsupported)?, path)
}

/// Reads a link of the procfs.
pub(crate) fn link(path: &str) -> io::Result<Vec<u8>> {
    let proc = PROC.as_ref().ok_or(io::ErrorKind::Unsupported)?;
    Ok(rustix::fs::readlinkat(proc, path, Vec::new())?.into_bytes())
}

/// The names in a directory of the procfs.
pub(crate) fn names(path: &str) -> io::Result<Vec<String>> {
    let proc = PROC.as_ref().ok_or(io::ErrorKind::Unsupported)?;
    let dir = openat(proc, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let names = Dir::new(dir)?.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
    Ok(names.filter(|name| !name.starts_with('.')).collect())
}

/// Whether thread `tid` can be seen there.
pub(crate) fn shows(tid: u32) -> bool {
    tid != 0 && PROC.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procfs_of_another_namespace_names_us_twice() {
        assert_eq!(numbers("Name:\tx\nNSpid:\t4711\n"), 1);
        assert_eq!(numbers("Name:\tx\nNSpid:\t4711\t1\n"), 2);
        assert_eq!(numbers("Name:\tx\n"), 0);
    }

    #[test]
    fn threads_are_seen() {
        let status = read("self/status").unwrap();
        assert!(status.contains(&format!("\nPid:\t{}\n", std::process::id())), "{status}");
        assert!(shows(1) && !shows(0) && open("self/nothing").is_err());
    }
}
