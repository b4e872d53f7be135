//! Work on content: long sequential transfers, and small random synced writes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of one transfer.
const BLOCK: usize = 1 << 20;
/// Bytes of one page of a database.
pub const PAGE: usize = 4096;

/// Writes `bytes` in order, then fsync.
pub fn write(file: &Path, bytes: u64) -> io::Result<()> {
    let mut out = File::create(file)?;
    let mut block = vec![0u8; BLOCK];
    for n in 0..bytes / BLOCK as u64 {
        // The bytes neither repeat nor stay constant, so no layer can cut its work short.
        block.iter_mut().step_by(64).enumerate().for_each(|(i, byte)| *byte = (i as u64 * 31 + n) as u8);
        out.write_all(&block)?;
    }
    out.sync_all()
}

/// Reads the whole file in order.
pub fn read(file: &Path) -> io::Result<()> {
    let mut input = File::open(file)?;
    let mut block = vec![0u8; BLOCK];
    while input.read(&mut block)? > 0 {}
    Ok(())
}

/// Writes random pages of `file` for `time`, each followed by fdatasync. Returns how many.
pub fn random_synced_writes(file: &Path, bytes: u64, time: Duration) -> io::Result<u64> {
    let out = OpenOptions::new().write(true).create(true).truncate(false).open(file)?;
    out.set_len(bytes)?;
    let end = Instant::now() + time;
    let mut page = vec![0u8; PAGE];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut count = 0;
    while Instant::now() < end {
        // xorshift64: the pages need not be unpredictable, only spread.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        page[..8].copy_from_slice(&state.to_le_bytes());
        out.write_all_at(&page, state % (bytes / PAGE as u64) * PAGE as u64)?;
        out.sync_data()?;
        count += 1;
    }
    Ok(count)
}

/// An appended file begins anew after so many bytes.
const APPENDED_MAX: u64 = 64 << 20;

/// The disk's own rate: appends of so many bytes to a file for `time`, each followed by fdatasync.
/// Returns how many.
pub fn disk_syncs(file: &Path, bytes: usize, time: Duration) -> io::Result<u64> {
    let out = File::create(file)?;
    let text = vec![7u8; bytes];
    let end = Instant::now() + time;
    let mut count = 0;
    while Instant::now() < end {
        out.write_all_at(&text, count * bytes as u64 % APPENDED_MAX)?;
        out.sync_data()?;
        count += 1;
    }
    Ok(count)
}
