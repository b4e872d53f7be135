//! The event raiser: a process that makes the system calls of which the kernel tells watchers.
//!
//! A thread of this process must not make them. If it were killed while it waits for this process'
//! own answer, it would keep the process, and with it the mount, for ever. So another process makes
//! them, and ends when it gets no more orders.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::phantoms::{ELSEWHERE_NAME, IN_ELSEWHERE};

/// The longest time for one system call: a lookup on its path may wait for another machine.
const WAIT: Duration = Duration::from_secs(20);

/// The most bytes of a word: a path of many labels.
const WORD_BYTES_MAX: usize = 1 << 20;

/// An order to the event raiser. Names are in the directory that was opened last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RaiseOrder {
    /// Opens the directory at this path from the root, and holds it. The mount then counts as used.
    Open { path: Vec<u8>, device: u32 },
    /// Closes that directory.
    Close,
    /// mknod, mkdir.
    Make { name: Vec<u8>, directory: bool },
    /// unlink, rmdir.
    Remove { name: Vec<u8>, directory: bool },
    /// rename.
    Rename { from: Vec<u8>, to: Vec<u8> },
    /// rename of the file in the phantom directory ([`ELSEWHERE_NAME`]).
    Replace { name: Vec<u8> },
    /// Sets times. Setting only that of the last modification is an event of modification. Setting
    /// both is one of changed attributes.
    Touch { name: Vec<u8>, both: bool },
}

impl RaiseOrder {
    /// The order as words: its kind, a number, one or two names.
    fn words(&self) -> [Vec<u8>; 4] {
        let (what, number, name, other): (u8, u32, &[u8], &[u8]) = match self {
            RaiseOrder::Open { path, device } => (b'o', *device, path, &[]),
            RaiseOrder::Close => (b'c', 0, &[], &[]),
            RaiseOrder::Make { name, directory } => (b'm', (*directory).into(), name, &[]),
            RaiseOrder::Remove { name, directory } => (b'r', (*directory).into(), name, &[]),
            RaiseOrder::Rename { from, to } => (b'n', 0, from, to),
            RaiseOrder::Replace { name } => (b'p', 0, name, &[]),
            RaiseOrder::Touch { name, both } => (b't', (*both).into(), name, &[]),
        };
        [vec![what], number.to_ne_bytes().to_vec(), name.to_vec(), other.to_vec()]
    }

    fn of_words([what, number, name, other]: [Vec<u8>; 4]) -> Option<RaiseOrder> {
        let number = u32::from_ne_bytes(number.try_into().ok()?);
        let (is, directory) = (number != 0, number != 0);
        Some(match what[..] {
            [b'o'] => RaiseOrder::Open { path: name, device: number },
            [b'c'] => RaiseOrder::Close,
            [b'm'] => RaiseOrder::Make { name, directory },
            [b'r'] => RaiseOrder::Remove { name, directory },
            [b'n'] => RaiseOrder::Rename { from: name, to: other },
            [b'p'] => RaiseOrder::Replace { name },
            [b't'] => RaiseOrder::Touch { name, both: is },
            _ => return None,
        })
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::new();
        for word in self.words() {
            bytes.extend((word.len() as u32).to_ne_bytes());
            bytes.extend(word);
        }
        to.write_all(&bytes)
    }

    fn read(from: &mut impl Read) -> io::Result<RaiseOrder> {
        let mut words: [Vec<u8>; 4] = Default::default();
        for word in &mut words {
            let mut length = [0; 4];
            from.read_exact(&mut length)?;
            let length = u32::from_ne_bytes(length) as usize;
            if length > WORD_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            word.resize(length, 0);
            from.read_exact(word)?;
        }
        RaiseOrder::of_words(words).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The event raiser, as this process sees it. Dropping it kills the process.
pub(super) struct EventRaiser {
    child: Child,
    orders: ChildStdin,
    results: ChildStdout,
}

impl EventRaiser {
    /// Starts the process by a program and its first arguments, to which the mount's directory is
    /// added.
    pub(super) fn start(program: &[OsString], mount: &Path) -> io::Result<EventRaiser> {
        let (program, arguments) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg(mount)
            // A group of its own, since Ctrl-C is not for it.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(orders), Some(results)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(EventRaiser { child, orders, results })
    }

    /// The number by which the kernel names it in requests.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it carry out an order. The inner error is that of its system call. The outer error means
    /// that the process is of no more use.
    pub(super) fn carry_out(&mut self, order: &RaiseOrder) -> io::Result<Result<(), i32>> {
        order.write(&mut self.orders)?;
        let timeout = Timespec { tv_sec: WAIT.as_secs().cast_signed(), tv_nsec: 0 };
        let mut ready = [PollFd::new(&self.results, PollFlags::IN)];
        if poll(&mut ready, Some(&timeout))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut errno = [0; 4];
        self.results.read_exact(&mut errno)?;
        Ok(match i32::from_ne_bytes(errno) {
            0 => Ok(()),
            errno => Err(errno),
        })
    }
}

impl Drop for EventRaiser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // A process that waits for an answer of ours ends once it has that. It is not waited for.
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The event raiser's work: carries out orders from standard input until they end.
///
/// # Errors
/// If it reads anything but an order.
pub fn raise_events(mount: &Path) -> io::Result<()> {
    let (mut orders, mut results) = (io::stdin().lock(), io::stdout().lock());
    let mut held = None;
    loop {
        let order = match RaiseOrder::read(&mut orders) {
            Ok(order) => order,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let errno = obey(mount, order, &mut held).map_or_else(|errno| errno.raw_os_error(), |()| 0);
        results.write_all(&errno.to_ne_bytes())?;
        results.flush()?;
    }
}

/// The open root and the open directory.
type HeldBack = (OwnedFd, OwnedFd);

fn obey(mount: &Path, order: RaiseOrder, held: &mut Option<HeldBack>) -> rustix::io::Result<()> {
    let order = match order {
        RaiseOrder::Open { path, device } => {
            *held = None;
            *held = Some(open(mount, &path, device)?);
            return Ok(());
        }
        RaiseOrder::Close => {
            *held = None;
            return Ok(());
        }
        order => order,
    };
    let Some((root, dir)) = held else { return Err(rustix::io::Errno::BADF) };
    match order {
        RaiseOrder::Make { name, directory: true } => rustix::fs::mkdirat(dir, &name[..], Mode::RWXU),
        RaiseOrder::Make { name, .. } => {
            rustix::fs::mknodat(dir, &name[..], FileType::RegularFile, Mode::RUSR, 0)
        }
        RaiseOrder::Remove { name, directory } => rustix::fs::unlinkat(
            dir,
            &name[..],
            if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() },
        ),
        RaiseOrder::Rename { from, to } => rustix::fs::renameat(&dir, &from[..], &dir, &to[..]),
        RaiseOrder::Replace { name } => {
            let elsewhere = open_directory(root, ELSEWHERE_NAME)?;
            rustix::fs::renameat(elsewhere, IN_ELSEWHERE, dir, &name[..])
        }
        RaiseOrder::Touch { name, both } => {
            let at = |nanos| Timespec { tv_sec: 0, tv_nsec: nanos };
            let last_access = at(if both { UTIME_NOW } else { UTIME_OMIT });
            let times = Timestamps { last_access, last_modification: at(UTIME_NOW) };
            rustix::fs::utimensat(dir, &name[..], &times, AtFlags::SYMLINK_NOFOLLOW)
        }
        RaiseOrder::Open { .. } | RaiseOrder::Close => Ok(()),
    }
}

/// Opens a directory on the mount itself: file systems mounted over it or within it are not ours.
fn open(mount: &Path, path: &[u8], device: u32) -> rustix::io::Result<HeldBack> {
    let root = open_directory(CWD, mount.as_os_str().as_bytes())?;
    let mut dir = root.try_clone().map_err(|_| rustix::io::Errno::MFILE)?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        dir = open_directory(dir, name)?;
    }
    if number(&root)? != device || number(&dir)? != device {
        return Err(rustix::io::Errno::XDEV);
    }
    Ok((root, dir))
}

fn open_directory(dir: impl std::os::fd::AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, OsStr::from_bytes(name), flags, Mode::empty())
}

/// The device's number, of which the major part is 0.
fn number(of: &OwnedFd) -> rustix::io::Result<u32> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(of, "", flags, StatxFlags::empty())?.stx_dev_minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_as_they_were_given() {
        let (name, to) = (b"a b\n".to_vec(), vec![0xff, b'\n']);
        for order in [
            RaiseOrder::Open { path: b"a/b".to_vec(), device: 47 },
            RaiseOrder::Close,
            RaiseOrder::Make { name: name.clone(), directory: true },
            RaiseOrder::Remove { name: name.clone(), directory: false },
            RaiseOrder::Rename { from: name.clone(), to },
            RaiseOrder::Replace { name: name.clone() },
            RaiseOrder::Touch { name, both: true },
        ] {
            let mut bytes = Vec::new();
            order.write(&mut bytes).unwrap();
            assert_eq!(RaiseOrder::read(&mut &bytes[..]).unwrap(), order);
            assert!(RaiseOrder::read(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert!(RaiseOrder::read(&mut &[0xff; 64][..]).is_err());
    }
}
