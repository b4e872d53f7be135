//! The clocks of this machine.

use client::Now;
use lease::Time;
use namespace::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Reads both clocks together. Leases count in the clock that runs during suspend; files are
/// stamped with the other.
pub fn now() -> Now {
    let wall = clock_gettime(ClockId::Realtime);
    let nanos = u32::try_from(wall.tv_nsec).unwrap_or(0);
    Now { time: time(), wall: Timestamp { secs: wall.tv_sec, nanos } }
}

/// Reads the clock in which leases count.
pub fn time() -> Time {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(tv_sec).unwrap_or(0), u64::try_from(tv_nsec).unwrap_or(0));
    Time(secs * 1_000 + nanos / 1_000_000)
}
