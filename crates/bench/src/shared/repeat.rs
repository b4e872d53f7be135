//! Repeats work for a time.

use std::io;
use std::time::{Duration, Instant};

/// Calls `what` again and again for `time`, with the number of calls so far. Returns the number of
/// calls.
pub(super) fn again_and_again(
    time: Duration,
    mut what: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let end = Instant::now() + time;
    let mut count = 0;
    while Instant::now() < end {
        what(count)?;
        count += 1;
    }
    Ok(count)
}
