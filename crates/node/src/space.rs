//! How much room this machine has.

use rustix::fs::statvfs;
use std::path::Path;
use wire::Space;

/// Kept back from what is set aside for users: deleting must always work, and needs room in the log, in the store and in the lease
/// database until it has freed some; a checkpoint of the store alone may need twice its overlay.
const RESERVE_BYTES: u64 = 128 << 20;

/// What the file system below `dir` has, less the reserve.
pub fn measure(dir: &Path) -> Result<Space, rustix::io::Errno> {
    let stat = statvfs(dir)?;
    let total = stat.f_blocks.saturating_mul(stat.f_frsize);
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    // On a small disk the reserve must not eat everything.
    let reserve = RESERVE_BYTES.min(total / 8);
    Ok(Space { total, free: free.saturating_sub(reserve), files: 0 })
}
