//! Which processors there are: the kernel has a queue of requests for each.

use rustix::thread::CpuSet;
use std::io;
use std::ops::RangeInclusive;

/// Processors' numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(Vec<u32>);

impl Cpus {
    /// All that this system may ever have: as many queues must be served before any is.
    ///
    /// # Errors
    /// If `/sys` cannot be read, or says what is no list.
    pub fn possible() -> io::Result<Cpus> {
        Cpus::read("possible")
    }

    /// Those that work.
    ///
    /// # Errors
    /// Likewise.
    pub fn online() -> io::Result<Cpus> {
        Cpus::read("online")
    }

    fn read(which: &str) -> io::Result<Cpus> {
        let list = std::fs::read_to_string(format!("/sys/devices/system/cpu/{which}"))?;
        let wrong = || io::Error::other(format!("no list of processors: {}", list.trim()));
        Cpus::parse(list.trim()).ok_or_else(wrong)
    }

    /// `0-3,8`.
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

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Has the calling thread run on `cpu` only, if it may: so a request is served where who made it
/// waits, and no other processor is woken for it.
pub fn stay_on(cpu: u32) {
    let mut set = CpuSet::new();
    if (cpu as usize) < CpuSet::MAX_CPU {
        set.set(cpu as usize);
        // Not where this process may run: then it is served from elsewhere.
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
