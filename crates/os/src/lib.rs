//! The operating system for the hosts of the state machines: files that only their owner reads,
//! random bytes, the wall clock, when a thread sleeps, and which connections of strangers make way.
//! No crate of state machines depends on this one.

mod patience;
pub mod private;
mod strangers;
mod tcp;

pub use patience::Patience;
pub use strangers::{Leaving, Stranger, StrangerBounds, Strangers};
pub use tcp::end_with_peer;

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often threads that wait for work check whether the machine stops.
pub const STOP_LOOK: Duration = Duration::from_millis(100);

/// Fills `bytes` with random bytes of the system.
///
/// # Errors
/// If the system has none to give.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let filled = getrandom(&mut *left, GetRandomFlags::empty())?;
        left = left.split_at_mut(filled).1;
    }
    Ok(())
}

/// Whether a read error means that written data is lost.
pub fn is_lost(cause: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    matches!(cause.kind(), InvalidData | UnexpectedEof)
        || cause.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// The wall clock, s since 1970; 0 before that.
pub fn utc_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
