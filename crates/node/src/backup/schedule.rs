//! Backups at regular times, as long as a machine is up.

use super::archive::Archive;
use super::{BackupError, BackupOrder, making, name};
use crate::machine::STOP_LOOK;
use crate::membership::Membership;
use os::utc_secs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A backup that failed is tried again after this long, or when the next one is due.
const AGAIN: Duration = Duration::from_secs(600);

/// When backups are to be made.
#[derive(Clone, Debug)]
pub struct BackupSchedule {
    /// What is to be done.
    pub order: BackupOrder,
    /// From one to the next.
    pub every: Duration,
}

impl BackupSchedule {
    /// Makes them until the machine stops. The first one at once, unless there is one that is young
    /// enough.
    pub(crate) fn run(&self, membership: &Arc<Membership>) {
        let mut next = Instant::now();
        while !membership.engine().is_stopping() {
            std::thread::sleep(STOP_LOOK);
            if Instant::now() < next {
                continue;
            }
            let wait = self.until_due();
            next = Instant::now() + wait;
            if wait > Duration::ZERO {
                continue;
            }
            let made =
                making::run(membership, &self.order, &mut |progress| tracing::debug!(progress, "backup"));
            next = Instant::now() + self.every;
            match made {
                Ok(report) if report.faults.is_empty() => tracing::info!("backup {report}"),
                Ok(report) => tracing::error!("backup {report}"),
                Err(BackupError::Stopping) => return,
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "there is no backup");
                    next = Instant::now() + self.every.min(AGAIN);
                }
            }
        }
    }

    /// How long the latest backup is young enough.
    fn until_due(&self) -> Duration {
        // What is wrong with the directory is said when a backup is made.
        let names = Archive::open_to_read(&self.order.dir).and_then(|archive| archive.names());
        let latest = names.ok().and_then(|names| names.iter().rev().find_map(|name| name::time(name)));
        let age = latest.and_then(|latest| utc_secs().checked_sub(latest)).map(Duration::from_secs);
        age.map_or(Duration::ZERO, |age| self.every.saturating_sub(age))
    }
}
