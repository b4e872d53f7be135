//! Opening a share server. The state left by the last run is repaired before anything is served.
//!
//! A database that is missing, empty or corrupt is renamed (`.quarantine-`), and a new one is
//! begun. A database that may have missed something is kept. Either it is older than the shares
//! beside it (restored from a backup, which the epochs show), or its log has lost its end. In both
//! cases discovery begins, every share gets a starter lease of 60 days, and nothing is deleted
//! before all shares have been examined (leasedb, "Fail-safe").

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use namespace::ShareId;
use os::private;
use rusqlite::Connection;

use crate::{
    check,
    database::{self, SUSPECT},
    disk::{replace_file, sync_dir},
    error::{DatabaseError, DiskError, OpenError},
    schema::{self, FoundSchema},
    share::{Clock, Seconds},
    transitions,
    tx::{self, Tx},
    wal,
};

/// Version of the directory's layout.
const FORMAT_VERSION: u64 = 1;
const FORMAT: &str = "leasehold shares ";

/// Claims the directory for this process and checks its format. The lock is held as long as the
/// file is open.
pub(crate) fn claim(dir: &Path) -> Result<File, OpenError> {
    private::make_dir(dir).map_err(|e| DiskError::new("making", dir, e))?;
    private::make_private(dir).map_err(|e| DiskError::new("guarding", dir, e))?;
    let path = dir.join("lock");
    let error = |e| DiskError::new("locking", &path, e);
    let lock = private::options().create(true).truncate(false).write(true).open(&path).map_err(error)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(dir.to_owned())),
        Err(TryLockError::Error(e)) => return Err(error(e).into()),
    }
    check_format(dir)?;
    Ok(lock)
}

fn check_format(dir: &Path) -> Result<(), OpenError> {
    let path = dir.join("format");
    match fs::read(&path) {
        Ok(bytes) => {
            let text = std::str::from_utf8(&bytes).ok();
            let version = text.and_then(|text| text.strip_prefix(FORMAT));
            match version.and_then(|version| version.trim_end().parse::<u64>().ok()) {
                Some(FORMAT_VERSION) => Ok(()),
                Some(found) => Err(OpenError::Newer {
                    what: "the share directory",
                    dir: dir.to_owned(),
                    found,
                    known: FORMAT_VERSION,
                }),
                None => Err(OpenError::Foreign { path }),
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Ok(replace_file(&path, format!("{FORMAT}{FORMAT_VERSION}\n").as_bytes())?)
        }
        Err(e) => Err(DiskError::new("reading", path, e).into()),
    }
}

/// The state left by the last run, from the database.
pub(crate) struct LastRun {
    pub connection: Connection,
    /// To be deleted: every share that was coming or going.
    pub going: Vec<ShareId>,
    /// In quarantine.
    pub damaged: Vec<ShareId>,
    /// Counts openings.
    pub epoch: i64,
}

/// Opens the database. It begins a new one if there is none, or an untrusted one.
pub(crate) fn open_database(dir: &Path, clock: &Clock, nothing_there: bool) -> Result<LastRun, OpenError> {
    let path = dir.join(database::FILE);
    let now = signed((clock)());
    let present = fs::metadata(&path).is_ok_and(|m| m.len() > 0);
    let known = if present { look_at(dir, now)? } else { None };
    let last_run = match known {
        Some(last_run) => last_run,
        None => {
            quarantine_database(dir, (clock)())?;
            let opening = |e| DatabaseError::new("creating", e);
            let mut connection = database::connect(dir).map_err(opening)?;
            schema::create(&mut connection, now, nothing_there).map_err(opening)?;
            // Shares that are there without a database are discovered, whatever was counted.
            let epoch = epoch_beside(dir)?.unwrap_or(0);
            begin_run(now, connection, epoch, false).map_err(opening)?
        }
    };
    // The database comes first: it is behind the file only after it was restored.
    replace_file(&dir.join("epoch"), format!("{}\n", last_run.epoch).as_bytes())?;
    let suspect = dir.join(SUSPECT);
    if suspect.exists() {
        fs::remove_file(&suspect).map_err(|e| DiskError::new("removing", suspect, e))?;
    }
    Ok(last_run)
}

/// Opens the existing database. `None`: it is corrupt, or empty.
fn look_at(dir: &Path, now: i64) -> Result<Option<LastRun>, OpenError> {
    let path = dir.join(database::FILE);
    let log = dir.join(format!("{}-wal", database::FILE));
    // SQLite forgets the frames that it does not accept, so this check comes first.
    let cut_short = wal::is_cut_short(&log).map_err(|e| DiskError::new("reading", log, e))?;
    let epoch = epoch_beside(dir)?;
    if cut_short {
        tracing::warn!("the lease database's log has lost its end: every share is given a starter lease");
    }
    let opened = database::connect(dir).and_then(|connection| Ok((schema::look(&connection)?, connection)));
    let last_run = opened.and_then(|(found, connection)| match found {
        FoundSchema::Ours => {
            let doubted = cut_short || dir.join(SUSPECT).exists();
            if doubted && let Err(what) = check::check(&connection)? {
                tracing::warn!(what, "the lease database is damaged");
                return Ok((found, None));
            }
            let counted = tx::store(&connection)?.epoch;
            let behind = cut_short || epoch.is_none_or(|epoch| epoch > counted);
            let begun = begin_run(now, connection, epoch.unwrap_or(counted), behind);
            begun.map(|last_run| (found, Some(last_run)))
        }
        _ => Ok((found, None)),
    });
    match last_run {
        Ok((FoundSchema::Newer(found), _)) => Err(OpenError::Newer {
            what: "the lease database",
            dir: dir.to_owned(),
            found: u64::try_from(found).unwrap_or(0),
            known: schema::SCHEMA_VERSION.unsigned_abs(),
        }),
        Ok((FoundSchema::Foreign, _)) => Err(OpenError::Foreign { path }),
        Ok((_, last_run)) => Ok(last_run),
        Err(cause) if DatabaseError::says_corrupt(&cause) => Ok(None),
        Err(cause) => Err(DatabaseError::new("opening", cause).into()),
    }
}

/// The number of openings, as counted beside the database: 0 before the first. None if the file is
/// damaged. Then the database counts as one that was restored.
fn epoch_beside(dir: &Path) -> Result<Option<i64>, DiskError> {
    let path = dir.join("epoch");
    match fs::read(&path) {
        Ok(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(|text| text.trim_end().parse().ok())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Some(0)),
        Err(e) => Err(DiskError::new("reading", path, e)),
    }
}

/// Repairs the state left by the last run, which was at least the `epoch`th. If the database is
/// `behind` the files beside it, discovery begins anew.
fn begin_run(now: i64, mut connection: Connection, epoch: i64, behind: bool) -> rusqlite::Result<LastRun> {
    let transaction = connection.transaction()?;
    let mut tx = Tx::begin(&transaction, now)?;
    let epoch = tx.store.epoch.max(epoch).saturating_add(1);
    tx.store.epoch = epoch;
    if behind {
        tx.store.discovered = 0;
        tx.store.starters_for_all = true;
        transitions::forget_unfinished(&mut tx)?;
    }
    let going = transitions::interrupt_all(&mut tx)?;
    let damaged = transitions::unhealthy(&transaction)?;
    tx.keep();
    tx.end()?;
    transaction.commit()?;
    Ok(LastRun { connection, going, damaged, epoch })
}

/// Moves the database to a new, unused name. Its log moves too: SQLite would take it for the log of
/// the new database.
fn quarantine_database(dir: &Path, now: Seconds) -> Result<(), DiskError> {
    let parts: Vec<PathBuf> = ["", "-wal", "-shm"].map(|s| dir.join(format!("{}{s}", database::FILE))).into();
    let mut suffix = format!("quarantine-{now}");
    while dir.join(format!("{}.{suffix}", database::FILE)).exists() {
        suffix.push('x');
    }
    for from in parts.into_iter().rev().filter(|p| p.exists()) {
        let mut to = from.clone().into_os_string();
        to.push(format!(".{suffix}"));
        tracing::warn!(database = %from.display(), "the lease database is not usable and is quarantined");
        fs::rename(&from, &to).map_err(|e| DiskError::new("quarantining", from, e))?;
    }
    sync_dir(dir)
}

fn signed(now: Seconds) -> i64 {
    i64::try_from(now).unwrap_or(i64::MAX)
}
