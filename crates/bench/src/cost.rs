//! The cost of some work: wall time, and CPU time of the file system and of the caller.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// The cost of some work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Wall time.
    pub wall: Duration,
    /// CPU time of the file system's process; zero for a file system in the kernel.
    pub server: Duration,
    /// CPU time of the caller: this process.
    pub caller: Duration,
}

impl Cost {
    /// Measures `work`; `server` is the file system's process, if it has one.
    pub fn of(server: Option<u32>, work: impl FnOnce() -> io::Result<()>) -> io::Result<Cost> {
        let before = (server_cpu(server)?, caller_cpu(), Instant::now());
        work()?;
        let wall = before.2.elapsed();
        let caller = caller_cpu().saturating_sub(before.1);
        Ok(Cost { wall, server: server_cpu(server)?.saturating_sub(before.0), caller })
    }

    /// The sum of this cost and another.
    pub fn plus(self, other: Cost) -> Cost {
        Cost {
            wall: self.wall + other.wall,
            server: self.server + other.server,
            caller: self.caller + other.caller,
        }
    }

    /// All CPU time.
    pub fn cpu(&self) -> Duration {
        self.server + self.caller
    }
}

fn server_cpu(process: Option<u32>) -> io::Result<Duration> {
    process.map_or(Ok(Duration::ZERO), process_cpu)
}

/// CPU time of a whole process so far.
pub fn process_cpu(process: u32) -> io::Result<Duration> {
    ProcessStat::of(process).map(|stat| stat.cpu)
}

/// CPU time so far of a process and all processes below it that are still there.
pub fn cpu_of_all_below(process: u32) -> io::Result<Duration> {
    let mut parents = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        // A process may end meanwhile.
        if let Some(number) = number
            && let Ok(stat) = ProcessStat::of(number)
        {
            parents.insert(number, stat);
        }
    }
    let is_below = |mut number: u32| {
        while number != process {
            match parents.get(&number) {
                Some(stat) => number = stat.parent,
                None => return false,
            }
        }
        true
    };
    Ok(parents.iter().filter(|(number, _)| is_below(**number)).map(|(_, stat)| stat.cpu).sum())
}

/// The figures that the system tells of a process.
struct ProcessStat {
    parent: u32,
    cpu: Duration,
}

impl ProcessStat {
    /// Reads the `stat` of a process: fields 4, 14 and 15, CPU time in clock ticks (Linux proc(5)).
    fn of(process: u32) -> io::Result<ProcessStat> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |number: usize| -> u64 {
            after_name.split_whitespace().nth(number - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
        };
        let ticks = field(14) + field(15);
        let cpu = Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1));
        Ok(ProcessStat { parent: field(4) as u32, cpu })
    }
}

fn caller_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Resident memory of a process, bytes.
pub fn resident_bytes(process: u32) -> io::Result<u64> {
    memory(process, "VmRSS:")
}

/// The most memory that this process had resident during `work`, bytes. The memory that it has
/// already counts.
pub fn peak_bytes(work: impl FnOnce() -> io::Result<()>) -> io::Result<u64> {
    // Linux proc(5), /proc/pid/clear_refs.
    std::fs::write("/proc/self/clear_refs", "5")?;
    work()?;
    memory(std::process::id(), "VmHWM:")
}

fn memory(process: u32, field: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib: u64 = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0);
    Ok(kib << 10)
}

/// Bytes that a process has written to block devices so far, from its `io` (Linux proc(5)).
pub fn bytes_written(process: u32) -> io::Result<u64> {
    let io = std::fs::read_to_string(format!("/proc/{process}/io"))?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Bytes that the block device of `dir` has written so far; `None` if `dir` has no block device
/// (tmpfs).
pub fn device_bytes_written(dir: &std::path::Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    // Seventh field: sectors written, of 512 bytes (Documentation/block/stat.rst).
    stat.split_whitespace().nth(6)?.parse::<u64>().ok().map(|sectors| sectors * 512)
}
