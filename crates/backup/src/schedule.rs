//! Scheduled backups while a machine is up.

use crate::archive::Archive;
use crate::{BackupError, BackupOrder, BackupProgress, BackupReport, UncopiedShare, name};
use os::STOP_LOOK;
use os::utc_secs;
use std::time::{Duration, Instant};

/// The pause before a failed backup is tried again, unless the next one is due earlier.
const AGAIN: Duration = Duration::from_secs(600);

/// The schedule of backups.
#[derive(Clone, Debug)]
pub struct BackupSchedule {
    /// The order for each backup.
    pub order: BackupOrder,
    /// The time from one backup to the next.
    pub every: Duration,
}

impl BackupSchedule {
    /// Has backups made until the machine `is_stopping`. The first one starts at once, unless there
    /// is a recent one.
    pub fn run(
        &self,
        is_stopping: impl Fn() -> bool,
        make: impl Fn(&BackupOrder, &mut dyn FnMut(&BackupProgress)) -> Result<BackupReport, BackupError>,
    ) {
        let mut next = Instant::now();
        while !is_stopping() {
            std::thread::sleep(STOP_LOOK);
            if Instant::now() < next {
                continue;
            }
            let wait = self.until_due();
            next = Instant::now() + wait;
            if wait > Duration::ZERO {
                continue;
            }
            let made = make(&self.order, &mut |progress| tracing::debug!(?progress, "backup"));
            next = Instant::now() + self.every;
            match made {
                Ok(BackupReport { name, files, shares, bytes, new_bytes, faults, .. }) => {
                    tracing::info!(name, files, shares, bytes, new_bytes, "a backup is made");
                    for UncopiedShare { share, why } in faults {
                        tracing::error!(name, share, why, "the backup lacks a share");
                    }
                }
                Err(BackupError::Stopping) => return,
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "there is no backup");
                    next = Instant::now() + self.every.min(AGAIN);
                }
            }
        }
    }

    /// The time until the next backup is due, by the latest one.
    fn until_due(&self) -> Duration {
        // The next backup reports any fault of the directory.
        let names = Archive::open_to_read(&self.order.dir).and_then(|archive| archive.names());
        let latest = names.ok().and_then(|names| names.iter().rev().find_map(|name| name::time(name)));
        let age = latest.and_then(|latest| utc_secs().checked_sub(latest)).map(Duration::from_secs);
        age.map_or(Duration::ZERO, |age| self.every.saturating_sub(age))
    }
}
