//! Restoring: a new data directory is made from a backup.

use crate::archive::{Archive, broken, sync_dir};
use crate::error::{BackupError, io};
use crate::format::About;
use crate::progress::RestoreProgress;
use data_dir::{DataDir, Identity, replace_file};
use namespace::ShareId;
use os::utc_secs;
use raft::Restored;
use serde::{Deserialize, Serialize};
use share_hosts::{ShareSettings, Shares, wall_clock};
use shares::{Location, NewShare};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most shares that are stored together.
const SHARES_MAX: usize = 16;
/// The most bytes of these shares.
const BYTES_MAX: usize = 16 << 20;
/// The time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// An order to restore a backup.
#[derive(Clone, Debug)]
pub struct Restoring {
    /// The directory of backups.
    pub dir: PathBuf,
    /// The backup; the latest if absent.
    pub name: Option<String>,
    /// The data directory to be made.
    pub data: PathBuf,
    /// The place of content; `None`: the data directory.
    pub content: Option<Location>,
    /// Restores without the shares that are missing or damaged.
    pub incomplete: bool,
}

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    /// The backup's name.
    pub name: String,
    /// The number of the directory's rows.
    pub rows: u64,
    /// The number of shares.
    pub shares: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Shares that are missing or damaged.
    pub lost: Vec<String>,
}

/// The names of the backups in `dir`, the oldest first.
pub fn list(dir: &Path) -> Result<Vec<String>, BackupError> {
    Archive::open_to_list(dir)?.names()
}

/// Makes a data directory from a backup: that of the machine which founded the cluster, as its only
/// server.
pub fn restore(
    order: &Restoring,
    progress: &mut dyn FnMut(&RestoreProgress),
) -> Result<RestoreReport, BackupError> {
    let archive = Archive::open_to_read(&order.dir)?;
    let name = archive.choose(order.name.as_deref())?;
    let (mut reader, about) = archive.read(&name)?;
    let file = archive.backup(&name);
    let begun = DataDir::begin_restore(&order.data)?;
    let server = order.data.join("server");
    os::private::make_dir(&server).map_err(io("make", &server))?;
    let (dir, content) = (order.data.join("shares"), order.content.clone());
    shares::clear(&dir).map_err(io("clear", &dir))?;
    let shares = Shares::open(&dir, ShareSettings { content, expiry: None }, wall_clock(), Arc::new(|_| ()));
    let shares = shares.map_err(|error| BackupError::Shares(error.into()))?;
    let mut filling = Filling {
        archive: &archive,
        shares,
        together: Vec::new(),
        bytes: 0,
        report: RestoreReport { name, ..RestoreReport::default() },
    };
    let mut restored = Restored::begin(&server)?;
    let mut told = Instant::now();
    while let Some(rows) = reader.rows().map_err(|error| broken(&file, error))? {
        for (key, _) in &rows {
            if let Some(share) = directory::share_of_row(key) {
                filling.take(share)?;
            }
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                let RestoreReport { rows, shares, bytes, .. } = filling.report;
                progress(&RestoreProgress::Restored { rows, shares, bytes });
            }
        }
        filling.report.rows += rows.len() as u64;
        restored.take(rows)?;
    }
    let report = filling.finish()?;
    if let (Some(first), false) = (report.lost.first(), order.incomplete) {
        return Err(BackupError::Incomplete { count: report.lost.len(), first: first.clone() });
    }
    progress(&RestoreProgress::Finishing);
    let About { time, authority: (key, certificate), .. } = about;
    restored.finish(time, utc_secs())?;
    sync_dir(&server)?;
    // The machine makes its own key and certificate anew at its first start.
    replace_file(&order.data, "authority.key", &key)?;
    replace_file(&order.data, "authority.crt", &certificate)?;
    // The founder is never expelled, and every machine expects a lone server to be the founder. Its
    // earlier starts are over with their sessions.
    begun.finish(Identity { machine: directory::FOUNDER.0, ..Identity::default() })?;
    Ok(report)
}

/// The share server of the new data directory while it is being filled.
struct Filling<'a> {
    archive: &'a Archive,
    shares: Shares,
    together: Vec<NewShare>,
    bytes: usize,
    report: RestoreReport,
}

impl Filling<'_> {
    fn take(&mut self, share: ShareId) -> Result<(), BackupError> {
        let Some(body) = self.archive.get(&share)? else {
            self.report.lost.push(format!("{:032x}", u128::from_be_bytes(share.0)));
            return Ok(());
        };
        self.report.shares += 1;
        self.report.bytes += body.len() as u64;
        self.bytes += body.len();
        let kept = content::stored_parts(share, body.into()).into_iter().flatten();
        self.together.extend(kept.map(|(id, body)| NewShare { id, parts: vec![body] }));
        if self.together.len() >= SHARES_MAX || self.bytes >= BYTES_MAX { self.store() } else { Ok(()) }
    }

    fn store(&mut self) -> Result<(), BackupError> {
        self.bytes = 0;
        let shares = std::mem::take(&mut self.together);
        let end = self.shares.server().lease_end();
        let stored = self.shares.server().store_many(shares, self.shares.group, Some(end));
        stored.map_err(|error| BackupError::Shares(error.into()))
    }

    fn finish(mut self) -> Result<RestoreReport, BackupError> {
        self.store()?;
        Ok(self.report)
    }
}
