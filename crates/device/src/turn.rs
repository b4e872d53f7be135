//! Waits for the kernel's locks in turn.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The lowest priority of real time.
const LOWEST: i32 = 1;

/// Calls `work`. Meanwhile the calling thread goes before all ordinary ones, and a lock of the
/// kernel for which it waits goes to it in its turn, if this process may have that (`CAP_SYS_NICE`,
/// `RLIMIT_RTPRIO`).
///
/// Trap: the kernel lets a thread that has just released a semaphore take it again at once, before
/// a waiting thread runs (kernel/locking/rwsem.c). It reserves the semaphore for a waiting thread
/// only if that has woken up in vain, or is a thread of real time.
pub fn in_turn<T>(work: impl FnOnce() -> T) -> T {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    let is_first = !REFUSED.load(Relaxed) && schedule(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, LOWEST);
    if !is_first {
        REFUSED.store(true, Relaxed);
    }
    let done = work();
    if is_first {
        schedule(libc::SCHED_OTHER, 0);
    }
    done
}

/// Sets the calling thread's policy. Whether the kernel allows that.
fn schedule(policy: i32, priority: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads the structure during the call, and 0 is the calling thread.
    #[allow(unsafe_code)]
    let set = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    set == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_an_ordinary_one_afterwards() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The 41st field; the second may hold spaces, and ends with the last bracket.
            let policy: i32 =
                stat.rsplit(')').next().unwrap().split_whitespace().nth(38).unwrap().parse().unwrap();
            policy
        };
        let before = policy();
        let meanwhile = in_turn(policy);
        let may = schedule(libc::SCHED_RR, LOWEST) && schedule(libc::SCHED_OTHER, 0);
        assert_eq!(meanwhile, if may { libc::SCHED_RR } else { before });
        assert_eq!(policy(), before);
        assert_eq!(in_turn(|| 7), 7);
    }
}
