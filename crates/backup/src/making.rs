//! Making a backup.

use crate::archive::Archive;
use crate::error::{BackupError, io};
use crate::format::{About, BackupWriter};
use crate::name;
use crate::{BackupOrder, BackupProgress, BackupReport, UncopiedShare};
use bytes::Bytes;
use directory::CertificateAuthority;
use namespace::ShareId;
use os::utc_secs;
use raft::Group;
use share_hosts::{ShareHost, whole};
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The rows in one frame.
const ROWS_TOGETHER: usize = 256;
/// The most copies that are made durable together.
const COPIES_MAX: usize = 16;
/// The most bytes of these copies.
const BYTES_MAX: usize = 16 << 20;
/// The most attempts at a backup. An attempt fails when other hosts have released shares that were
/// to be copied. Each attempt has less left to copy.
const ATTEMPTS: usize = 5;
/// The time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// The sources of a backup: a server's member of the group, and its shares.
pub struct Source<'a> {
    /// The member whose rows are kept.
    pub group: &'a Group,
    /// The shares here, and the way to those of other hosts.
    pub share_host: &'a Arc<ShareHost>,
    /// The authority that certifies machines. A restored server goes on with it.
    pub authority: CertificateAuthority,
    /// Has this machine's client send its changes. Returns whether the server has them in time.
    pub flush: &'a dyn Fn() -> bool,
    /// Whether the machine or its server stops.
    pub is_stopping: &'a dyn Fn() -> bool,
}

/// Makes a backup.
///
/// # Errors
/// If nothing could be kept. Shares that cannot be had are faults of the report.
pub fn run(
    source: &Source<'_>,
    order: &BackupOrder,
    progress: &mut dyn FnMut(&BackupProgress),
) -> Result<BackupReport, BackupError> {
    let begun = Instant::now();
    let authority = &source.authority;
    let mut archive = Archive::open_to_write(&order.dir, &authority.cluster)?;
    if !(source.flush)() {
        progress(&BackupProgress::NotFlushed);
    }
    let mut made = None;
    for _ in 0..ATTEMPTS {
        let about = About {
            rows: raft::FORMAT,
            at: utc_secs(),
            time: lease::Time(0),
            authority: (authority.key.clone(), authority.certificate.clone()),
        };
        match (Making { source, archive: &mut archive, progress }).attempt(about)? {
            Some(report) => {
                made = Some(report);
                break;
            }
            None => progress(&BackupProgress::Again),
        }
    }
    let mut report = made.ok_or(BackupError::Gone)?;
    if let Some(keep) = order.keep {
        progress(&BackupProgress::Pruning);
        (report.removed, report.removed_shares) = archive.prune(keep)?;
    }
    report.ms = begun.elapsed().as_millis() as u64;
    Ok(report)
}

/// A backup being made.
struct Making<'a> {
    source: &'a Source<'a>,
    archive: &'a mut Archive,
    progress: &'a mut dyn FnMut(&BackupProgress),
}

impl Making<'_> {
    /// Makes one attempt. None if other hosts have deleted shares that were to be copied.
    fn attempt(&mut self, mut about: About) -> Result<Option<BackupReport>, BackupError> {
        if !self.source.group.is_current() {
            return Err(BackupError::Behind);
        }
        // The hold comes before the snapshot of the rows: every share to which they refer stays
        // until the hold ends.
        let hold = self.source.share_host.hold();
        let (view, time) = self.source.group.freeze()?;
        about.time = time;
        let name = self.name(about.at)?;
        let files = self.source.group.query(|directory, _| directory.status(time).files);
        let mut report = BackupReport { name: name.clone(), files, ..BackupReport::default() };
        let new = self.archive.backup(&format!("{name}.new"));
        let file = BufWriter::with_capacity(1 << 20, self.archive.begin(&name)?);
        let mut writer = BackupWriter::new(file, about).map_err(io("write", &new))?;
        let mut copies = Copies::default();
        let (mut after, mut rows, mut told): (Option<Vec<u8>>, u64, _) = (None, 0, Instant::now());
        loop {
            let page = view.page(after.as_deref(), ROWS_TOGETHER)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for share in page.iter().filter_map(|(key, _)| directory::share_of_row(key)) {
                if !self.copy(share, &mut copies, &mut report)? {
                    return Ok(None);
                }
                self.tell(&mut told, rows, &report);
            }
            rows += page.len() as u64;
            self.tell(&mut told, rows, &report);
            writer.rows(page).map_err(io("write", &new))?;
        }
        self.archive.put(&copies.take())?;
        drop(hold);
        let (file, bytes) = writer.finish().map_err(io("write", &new))?;
        report.row_bytes = bytes;
        let file: File = file.into_inner().map_err(|error| io("write", &new)(error.into_error()))?;
        self.archive.finish(&name, &file)?;
        Ok(Some(report))
    }

    /// A name later than all others, whatever the clock says. Backups are kept and removed by their
    /// names.
    fn name(&self, at: u64) -> Result<String, BackupError> {
        let names = self.archive.names()?;
        let last = names.iter().rfind(|name| name::time(name).is_some());
        Ok(name::after(last.map(String::as_str), at))
    }

    /// Ensures that there is a copy of `share`. False if the share is gone because nothing refers
    /// to it any more.
    fn copy(
        &mut self,
        share: ShareId,
        copies: &mut Copies,
        report: &mut BackupReport,
    ) -> Result<bool, BackupError> {
        if (self.source.is_stopping)() {
            return Err(BackupError::Stopping);
        }
        if let Some(length) = self.archive.has(&share)? {
            report.shares += 1;
            report.bytes += u64::from(length);
            return Ok(true);
        }
        let share_host = self.source.share_host;
        let body = match whole(share_host, share) {
            Ok(body) => body,
            Err(_) if !self.source.group.query(|_, store| directory::refers_to(store, &share)) => {
                return Ok(false);
            }
            Err(error) => {
                report.faults.push(UncopiedShare { share: share.to_string(), why: error.to_string() });
                return Ok(true);
            }
        };
        report.shares += 1;
        report.new_shares += 1;
        report.bytes += body.len() as u64;
        report.new_bytes += body.len() as u64;
        if copies.add(share, body) {
            self.archive.put(&copies.take())?;
        }
        Ok(true)
    }

    fn tell(&mut self, told: &mut Instant, rows: u64, report: &BackupReport) {
        if told.elapsed() >= PROGRESS_EVERY {
            *told = Instant::now();
            let BackupReport { shares, new_shares, new_bytes, .. } = *report;
            (self.progress)(&BackupProgress::Copied { rows, shares, new_shares, new_bytes });
        }
    }
}

/// Copies that are stored together.
#[derive(Default)]
struct Copies {
    copies: Vec<(ShareId, Bytes)>,
    bytes: usize,
}

impl Copies {
    /// Adds a copy. Returns whether the batch is full.
    fn add(&mut self, share: ShareId, body: Bytes) -> bool {
        self.bytes += body.len();
        self.copies.push((share, body));
        self.copies.len() >= COPIES_MAX || self.bytes >= BYTES_MAX
    }

    fn take(&mut self) -> Vec<(ShareId, Bytes)> {
        self.bytes = 0;
        std::mem::take(&mut self.copies)
    }
}
