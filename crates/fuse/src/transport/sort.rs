//! Which sort of lock a request is for: the protocol says so (FUSE_LK_FLOCK), and fuser 0.18 does not pass it on.
//!
//! Until it does, the thread is asked: it waits for our answer in flock(2) or in fcntl(2), and /proc says in which. Only requests about a whole file can be either; databases lock ranges.

use namespace::LockSpace;

use crate::syscall;

/// flock(2) for 32-bit programs, on x86 and on ARM; no other call of this number locks anything.
const FLOCK_32: i64 = 143;

/// What `tid` waits in. Where that cannot be seen, fcntl: an owner's locks then still keep others' out, and only a program that uses both sorts on one file meets itself.
pub(super) fn sort_of(tid: u32) -> LockSpace {
    sort_in(syscall::of(tid).map(|call| call.number))
}

fn sort_in(number: Option<i64>) -> LockSpace {
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
        assert_eq!(sort_in(Some(libc::SYS_flock)), LockSpace::Flock);
        assert_eq!(sort_in(Some(FLOCK_32)), LockSpace::Flock);
        assert_eq!((sort_in(Some(libc::SYS_fcntl)), sort_in(None)), (LockSpace::Posix, LockSpace::Posix));
        assert_eq!(sort_of(u32::MAX), LockSpace::Posix);
    }
}
