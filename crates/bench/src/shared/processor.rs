//! Work on one processor, and no other.
//!
//! A request of FUSE wakes a thread, and its answer wakes another. Where those run is up to the scheduler, which seldom thinks better of it; on a virtual machine a
//! processor that sleeps takes several times an operation to wake up. So which of two file systems looks faster was chance.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Keeps this thread, and all threads and processes that it starts, on one processor until dropped.
pub struct OneProcessor {
    before: CpuSet,
}

impl OneProcessor {
    /// On the last of those that this thread may use: the first is where devices interrupt.
    pub fn take() -> io::Result<OneProcessor> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        if let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|cpu| before.is_set(*cpu)) {
            one.set(last);
        }
        sched_setaffinity(None, &one)?;
        Ok(OneProcessor { before })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        // What it could use before it can use again; else the rest is measured on one.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_used_by_all_threads_until_dropped() {
        let before = sched_getaffinity(None).unwrap();
        let one = OneProcessor::take().unwrap();
        let inherited = std::thread::spawn(|| sched_getaffinity(None).unwrap().count()).join().unwrap();
        assert_eq!(inherited, 1);
        drop(one);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
