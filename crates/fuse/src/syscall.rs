//! The system call in which a thread waits for our answer. The protocol does not say what a request
//! is for; /proc does.

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::proc;

/// How often a thread is looked at again at once. A thread that has sent its request may not sleep
/// yet.
const TRIES_AT_ONCE: u32 = 20;
/// How often a thread is looked at after that, after a pause each.
const TRIES_LATER: u32 = 100;
const PAUSE: Duration = Duration::from_micros(50);
/// More than such a line has: nine numbers, or the word `running`.
const LINE_BYTES: usize = 256;

/// A system call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemCall {
    pub(crate) number: i64,
    /// Its first arguments.
    pub(crate) arguments: [u64; 3],
}

/// The system call in which thread `tid` waits. Nothing where /proc does not show it, or the thread
/// is in none (it needs a page of its own).
pub(crate) fn of(tid: u32) -> Option<SystemCall> {
    let path = format!("{tid}/syscall");
    let mut line = [0; LINE_BYTES];
    for tries in 0..TRIES_AT_ONCE + TRIES_LATER {
        let read = proc::open(&path).and_then(|mut file| file.read(&mut line));
        let Some(line) = read.ok().and_then(|length| line.get(..length)) else { break };
        match line {
            [b'r', ..] if tries < TRIES_AT_ONCE => std::thread::yield_now(),
            [b'r', ..] => std::thread::sleep(PAUSE),
            line => return parse(std::str::from_utf8(line).ok()?),
        }
    }
    tracing::debug!(tid, "cannot see in which system call it waits");
    None
}

fn parse(line: &str) -> Option<SystemCall> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
    let mut arguments = [0; 3];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(SystemCall { number, arguments })
}

/// Whether `tid` may be about to show its program a directory's times. Calls that make, open, move
/// and remove names do not, whatever directories are on their paths.
pub(crate) fn may_see_times(tid: u32) -> bool {
    of(tid).is_none_or(|call| !BLIND.contains(&call.number))
}

/// The system call of `tid`, if that looks its path up again after ESTALE.
pub(crate) fn retries(tid: u32) -> Option<SystemCall> {
    of(tid).filter(|call| BLIND.contains(&call.number))
}

/// Whether `tid` may hold a lock for renaming: it renames, or /proc does not show what it does.
pub(crate) fn may_rename(tid: u32) -> bool {
    of(tid).is_none_or(|call| RENAMING.contains(&call.number))
}

const RENAMING: &[i64] = &[
    libc::SYS_renameat2,
    libc::SYS_io_uring_enter,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_renameat,
];

/// Whether `tid` opens a file to read or to write, and not for both: that shows its program no
/// size. Trap: a write to a mapping beyond the kernel's size of the file is lost. So a program that
/// may map the file to write to it must be given the true size.
pub(crate) fn opens_one_way(tid: u32) -> bool {
    of(tid).is_some_and(|call| {
        let flags = match (call.number, call.arguments) {
            (libc::SYS_openat, [_, _, flags]) => flags,
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open, [_, flags, _]) => flags,
            _ => return false,
        };
        matches!(flags as i32 & libc::O_ACCMODE, libc::O_RDONLY | libc::O_WRONLY)
    })
}

/// The number of bytes that the call writes in which `tid` waits. For a call of several pieces
/// their lengths are read from its memory, if so many pieces `matter`.
pub(crate) fn bytes_written(tid: u32, matter: impl Fn(u64) -> bool) -> Option<u64> {
    let SystemCall { number, arguments: [_, at, count] } = of(tid)?;
    match number {
        libc::SYS_write | libc::SYS_pwrite64 => Some(count),
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 if count <= PIECES_MAX && matter(count) => {
            // `struct iovec`: address and length.
            let mut pieces = vec![0; 16 * count as usize];
            let memory = proc::open(&format!("{tid}/mem")).ok()?;
            memory.read_exact_at(&mut pieces, at).ok()?;
            let lengths = pieces.chunks_exact(16).filter_map(|piece| piece.last_chunk());
            Some(lengths.fold(0, |total, length| total.saturating_add(u64::from_ne_bytes(*length))))
        }
        _ => None,
    }
}

/// Whether `tid` is in no call that writes any more.
pub(crate) fn has_left(tid: u32) -> bool {
    let Ok(line) = std::fs::read_to_string(format!("/proc/{tid}/syscall")) else { return true };
    // The call of a running thread cannot be seen.
    !line.starts_with("running") && parse(&line).is_none_or(|call| !WRITING.contains(&call.number))
}

/// `UIO_MAXIOV`.
const PIECES_MAX: u64 = 1024;

const WRITING: [i64; 5] =
    [libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev, libc::SYS_pwritev, libc::SYS_pwritev2];

/// Whether `tid` reads the file `node` by a handle, so that the content stays in no page. In any
/// other call, and in none, the read may be for a mapping.
pub(crate) fn reads(tid: u32, node: u64) -> bool {
    let reading = of(tid).filter(|call| READING.contains(&call.number));
    let Some(SystemCall { arguments: [handle, ..], .. }) = reading else { return false };
    let info = proc::read(&format!("{tid}/fdinfo/{handle}")).unwrap_or_default();
    info.lines().filter_map(|line| line.strip_prefix("ino:")).any(|ino| ino.trim().parse() == Ok(node))
}

const READING: [i64; 5] =
    [libc::SYS_read, libc::SYS_pread64, libc::SYS_readv, libc::SYS_preadv, libc::SYS_preadv2];

/// Calls that go by one or two paths, and show only whether they succeeded.
const BLIND: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_chdir,
    libc::SYS_execve,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_renameat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_the_call_and_its_first_argument() {
        let call = parse("257 0xffffffffffffff9c 0x7ffe 0x0 0x0 0x0 0x0 0x7ffd 0x7f2a\n");
        assert_eq!(call, Some(SystemCall { number: 257, arguments: [0xffff_ffff_ffff_ff9c, 0x7ffe, 0] }));
        for nothing in ["", "running\n", "-1 0x7ffd 0x7f2a\n", "257", "257 five", "257 0x1 0x2"] {
            assert_eq!(parse(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_thread_that_cannot_be_seen_may_see_times_and_may_not_read() {
        assert!(may_rename(u32::MAX));
        assert!(may_see_times(u32::MAX) && !reads(u32::MAX, 1) && !opens_one_way(u32::MAX));
    }

    #[test]
    fn a_thread_is_seen_to_read_its_file() {
        use std::os::unix::fs::MetadataExt;
        let (reader, writer) = std::io::pipe().unwrap();
        let ino = std::fs::File::from(std::os::fd::OwnedFd::from(reader.try_clone().unwrap()));
        let ino = ino.metadata().unwrap().ino();
        let (tell, told) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            Read::read(&mut &reader, &mut [0; 1]).unwrap()
        });
        let tid = told.recv().unwrap();
        // The thread is about to wait there.
        while of(tid).is_none_or(|call| call.number != libc::SYS_read) {
            std::thread::yield_now();
        }
        assert!(reads(tid, ino) && !reads(tid, ino + 1) && may_see_times(tid));
        drop(writer);
        assert_eq!(reading.join().unwrap(), 0);
    }
}
