//! `leasehold bench shares`: a share server alone, in this process, and the rates of its disk in
//! the same run.

mod files;
mod row;
mod rows;

pub use row::{SharesRow, text};

use crate::{bulk, cost::Cost};
use ::shares::ShareServerSettings as ServerSettings;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A part of the measurements, which can run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Storing small shares, and finding them again without a database.
    Files,
    /// Reading all shares and checking their digests.
    Scrub,
    /// The lease database of a large store.
    Rows,
    /// Memory, with the database of a very large one.
    Memory,
}

impl Section {
    /// All parts, in the order in which they run. Small files come first: ext4 without a journal
    /// makes them slowly for a minute after many were deleted.
    pub const ALL: [Section; 4] = [Section::Files, Section::Scrub, Section::Rows, Section::Memory];

    /// The part's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Section::Files => "files",
            Section::Scrub => "scrub",
            Section::Rows => "rows",
            Section::Memory => "memory",
        }
    }
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Parts to measure.
    pub parts: Vec<Section>,
    /// Shares in the database of `rows`.
    pub shares: u64,
    /// Shares in the database of `memory`.
    pub memory_shares: u64,
    /// Length of each measurement that can go on for any time.
    pub time: Duration,
}

/// Measures in a new directory of `base`, which is on the disk to compare with. `tell` reports
/// progress.
pub fn run(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharesRow>> {
    let base = tempfile::Builder::new().prefix("leasehold-bench-").tempdir_in(base)?;
    let mut rows = Vec::new();
    for part in Section::ALL.into_iter().filter(|part| settings.parts.contains(part)) {
        let dir = base.path().join(part.name());
        std::fs::create_dir(&dir)?;
        rows.extend(match part {
            Section::Files => files::storing(&dir, settings.time, tell)?,
            Section::Scrub => files::scrub(&dir, tell)?,
            Section::Rows => rows::database(&dir, settings, tell)?,
            Section::Memory => rows::memory(&dir, settings, tell)?,
        });
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(rows)
}

/// Settings with the wall clock. Nothing runs in the background but what the caller asks for.
fn server() -> ServerSettings {
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    ServerSettings::new(Arc::new(clock))
}

/// Times a second that the disk makes 4 KiB durable.
fn disk_syncs(dir: &Path, time: Duration, tell: &mut dyn FnMut(&str)) -> io::Result<f64> {
    tell("the disk's own fdatasync rate");
    let mut count = 0;
    let file = dir.join("syncs");
    let cost = Cost::of(None, || bulk::disk_syncs(&file, bulk::PAGE, time).map(|syncs| count = syncs))?;
    Ok(count as f64 / cost.wall.as_secs_f64())
}

/// Calls `what` on `threads` threads until the time is up, each time with another number. Returns
/// the calls a second of all threads together.
fn together(threads: usize, time: Duration, what: impl Fn(u64) -> io::Result<()> + Sync) -> io::Result<f64> {
    let (next, began) = (AtomicU64::new(0), Instant::now());
    let work = || -> io::Result<()> {
        while began.elapsed() < time {
            what(next.fetch_add(1, Ordering::Relaxed))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| io::Error::other("a thread failed"))?)
    })?;
    Ok(next.into_inner() as f64 / began.elapsed().as_secs_f64())
}

/// The median.
fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or_default()
}
