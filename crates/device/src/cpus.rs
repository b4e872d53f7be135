//! The numbers of the processors: the kernel has a queue of requests for each.

use rustix::thread::CpuSet;
use std::io;
use std::ops::RangeInclusive;

/// A list of processor numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(Vec<u32>);

impl Cpus {
    /// The processors that this system may ever have. Each has a queue, and the kernel serves no
    /// queue before all are served.
    ///
    /// # Errors
    /// If `/sys` cannot be read, or has no list there.
    pub fn possible() -> io::Result<Cpus> {
        Cpus::read("possible")
    }

    /// The processors that work now.
    ///
    /// # Errors
    /// If `/sys` cannot be read, or has no list there.
    pub fn online() -> io::Result<Cpus> {
        Cpus::read("online")
    }

    fn read(which: &str) -> io::Result<Cpus> {
        let list = std::fs::read_to_string(format!("/sys/devices/system/cpu/{which}"))?;
        let wrong = || io::Error::other(format!("no list of processors: {}", list.trim()));
        Cpus::parse(list.trim()).ok_or_else(wrong)
    }

    /// Parses a list such as `0-3,8`.
    fn parse(list: &str) -> Option<Cpus> {
        let range = |range: &str| -> Option<RangeInclusive<u32>> {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            // CONFIG_NR_CPUS is 8192 at most.
            (first <= last && last < 1 << 16).then_some(first..=last)
        };
        let ranges: Option<Vec<_>> = list.split(',').map(range).collect();
        Some(Cpus(ranges?.into_iter().flatten().collect()))
    }

    /// The numbers in ascending order, as `/sys` lists them.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The number of processors.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Has the calling thread run on `cpu` only, where this process may. So a request is served on the
/// processor where its program waits, and wakes no other one.
pub fn stay_on(cpu: u32) {
    let mut set = CpuSet::new();
    if (cpu as usize) < CpuSet::MAX_CPU {
        set.set(cpu as usize);
        // It fails where this process may not run. Then the requests are served from another
        // processor.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(Cpus::parse("0-3,8,10-11"), Some(Cpus(vec![0, 1, 2, 3, 8, 10, 11])));
        assert_eq!(Cpus::parse("0"), Some(Cpus(vec![0])));
        for none in ["", "a", "3-1", "0-", "0-99999999"] {
            assert_eq!(Cpus::parse(none), None, "{none}");
        }
        let (online, possible) = (Cpus::online().unwrap(), Cpus::possible().unwrap());
        assert!(online.iter().all(|cpu| possible.iter().any(|other| other == cpu)) && online.count() > 0);
    }
}
