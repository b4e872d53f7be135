//! Which sort of lock a request is for: the protocol says so (FUSE_LK_FLOCK), and fuser 0.18 does not pass it on.
//!
//! Until it does, the thread is asked: it waits for our answer in flock(2) or in fcntl(2), and /proc says in which. Only requests about a whole file can be either; databases lock ranges.

use namespace::LockSpace;
use std::time::Duration;

/// A thread that has sent its request may not sleep yet: it is looked at once more, so often and after so long.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_micros(50);

/// flock(2) for 32-bit programs, on x86 and on ARM; no other call of this number locks anything.
const FLOCK_32: i64 = 143;

/// What `tid` waits in. Where that cannot be seen, fcntl: an owner's locks then still keep others' out, and only a program that uses both sorts on one file meets itself.
pub(super) fn sort_of(tid: u32) -> LockSpace {
    for _ in 0..TRIES {
        match std::fs::read_to_string(format!("/proc/{tid}/syscall")) {
            Ok(line) if line.starts_with("running") => std::thread::sleep(PAUSE),
            Ok(line) => return sort_in(&line),
            Err(_) => break,
        }
    }
    tracing::debug!(tid, "cannot see whether it calls flock or fcntl");
    LockSpace::Posix
}

fn sort_in(line: &str) -> LockSpace {
    let number = line.split_ascii_whitespace().next().and_then(|number| number.parse::<i64>().ok());
    match number {
        Some(libc::SYS_flock | FLOCK_32) => LockSpace::Flock,
        _ => LockSpace::Posix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_call_says_which_sort_it_is() {
        assert_eq!(sort_in(&format!("{} 0x3 0x2 0x0", libc::SYS_flock)), LockSpace::Flock);
        assert_eq!(sort_in("143 0x3 0x2 0x0"), LockSpace::Flock);
        assert_eq!(sort_in(&format!("{} 0x3 0x7 0x0", libc::SYS_fcntl)), LockSpace::Posix);
        assert_eq!((sort_in("-1 0x0"), sort_in("")), (LockSpace::Posix, LockSpace::Posix));
        assert_eq!(sort_of(u32::MAX), LockSpace::Posix);
    }
}
