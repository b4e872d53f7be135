//! Keeps work on one processor, and other processes off that processor.
//!
//! A FUSE request wakes a thread, and its answer wakes another. The scheduler chooses their
//! processors, and seldom moves them later. On a virtual machine a sleeping processor takes several
//! times an operation to wake up. So chance decided which of two file systems looked faster.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Keeps this thread, and all threads and processes that it starts, on one processor until dropped.
pub struct OneProcessor {
    before: CpuSet,
}

impl OneProcessor {
    /// Takes the last processor that this thread may use. Devices interrupt the first one.
    pub fn take() -> io::Result<OneProcessor> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        if let Some(last) = last(&before) {
            one.set(last);
        }
        sched_setaffinity(None, &one)?;
        Ok(OneProcessor { before })
    }

    /// Moves a process, and all that it starts from now on, to the other processors, if there are
    /// any.
    pub fn leave(&self, process: u32) -> io::Result<()> {
        let mut others = self.before;
        if others.count() > 1
            && let Some(last) = last(&others)
        {
            others.unset(last);
        }
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.file_name().to_str().and_then(|thread| thread.parse().ok());
            let Some(thread) = thread.and_then(Pid::from_raw) else { continue };
            match sched_setaffinity(Some(thread), &others) {
                // The thread has ended meanwhile.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn last(processors: &CpuSet) -> Option<usize> {
    (0..CpuSet::MAX_CPU).rev().find(|processor| processors.is_set(*processor))
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        // The thread may use its former processors again; otherwise the rest would be measured on
        // one.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_used_by_all_threads_until_dropped_and_left_by_others() {
        let before = sched_getaffinity(None).unwrap();
        let one = OneProcessor::take().unwrap();
        let inherited = std::thread::spawn(|| sched_getaffinity(None).unwrap().count()).join().unwrap();
        assert_eq!(inherited, 1);
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        one.leave(other.id()).unwrap();
        let left = sched_getaffinity(Pid::from_raw(other.id().cast_signed())).unwrap();
        assert_eq!(left.count(), (before.count() - 1).max(1));
        other.kill().unwrap();
        other.wait().unwrap();
        drop(one);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
