//! Opening a share server: what the last run left is put right before anything is served.
//!
//! A database that is missing, empty or corrupt is moved aside and begun anew; one that is older than the shares beside it (restored from
//! a backup, which the epochs show) is kept. Either way every share found gets a starter lease of 60 days, and nothing is deleted before all have been
//! looked at (leasedb, "Fail-safe"). Discovery is done here in one go; a crawl in the background may take its place.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use namespace::ShareId;
use rusqlite::{Connection, params};
use rustc_hash::FxHashSet;

use crate::{
    Clock,
    database::{self, Database, SUSPECT},
    digest::Digest,
    disk::{Disk, replace_file, sync_dir},
    error::{Damage, DatabaseError, DiskError, OpenError},
    file::OpenShare,
    schema::{self, Found},
    share::{Health, Seconds, State, from_file_name, successor},
    transitions,
};

/// Version of the directory's layout.
const FORMAT_VERSION: u64 = 1;
const FORMAT: &str = "leasehold shares ";
/// How long discovery's leases last.
const STARTER_SECONDS: Seconds = 60 * 24 * 3600;
/// Rows of a transaction while discovering.
const BATCH: usize = 1000;

/// Takes the directory for this process and checks that it is ours. The lock is held as long as the file.
pub(crate) fn claim(dir: &Path) -> Result<File, OpenError> {
    fs::create_dir_all(dir).map_err(|e| DiskError::new("making", dir, e))?;
    let path = dir.join("lock");
    let error = |e| DiskError::new("locking", &path, e);
    let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(error)?;
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
    match fs::read_to_string(&path) {
        Ok(text) => {
            let version = text.strip_prefix(FORMAT).and_then(|v| v.trim_end().parse::<u64>().ok());
            match version {
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

/// What the database says of the last run.
pub(crate) struct LastRun {
    pub connection: Connection,
    /// To be deleted: everything that was coming or going.
    pub going: Vec<ShareId>,
    /// In quarantine.
    pub damaged: Vec<ShareId>,
    /// Shares have to be discovered before anything is deleted.
    pub rebuild: bool,
}

/// Opens the database, or a new one when there is none to be trusted.
pub(crate) fn open_database(dir: &Path, clock: &Clock) -> Result<LastRun, OpenError> {
    let path = dir.join(database::FILE);
    let present = fs::metadata(&path).is_ok_and(|m| m.len() > 0);
    if present {
        match look_at(dir, clock) {
            Ok(Some(last_run)) => return Ok(last_run),
            // Corrupt.
            Ok(None) => {}
            Err(error) => return Err(error),
        }
    }
    move_aside(dir, (clock)())?;
    let opening = |e| DatabaseError::new("creating", e);
    let mut connection = database::connect(dir).map_err(opening)?;
    schema::create(&mut connection, signed((clock)())).map_err(opening)?;
    let epoch = next_epoch(dir, &connection).map_err(opening)?.0;
    confirm_epoch(dir, &connection, epoch)?;
    Ok(LastRun { connection, going: Vec::new(), damaged: Vec::new(), rebuild: true })
}

/// `None`: the database is corrupt.
fn look_at(dir: &Path, clock: &Clock) -> Result<Option<LastRun>, OpenError> {
    let found = match database::connect(dir).and_then(|c| Ok((schema::look(&c)?, c))) {
        Ok((Found::Ours, connection)) => read_last_run(dir, connection, signed((clock)())),
        Ok((Found::Newer(found), _)) => {
            return Err(OpenError::Newer {
                what: "the lease database",
                dir: dir.to_owned(),
                found: u64::try_from(found).unwrap_or(0),
                known: 1,
            });
        }
        // Made, and the power gone before its first transaction: as good as none.
        Ok((Found::Empty, _)) => Ok(None),
        Ok((Found::Foreign, _)) => {
            return Err(OpenError::Foreign { path: dir.join(database::FILE) });
        }
        Err(cause) => Err(cause),
    };
    match found {
        Ok(Some((last_run, epoch))) => {
            confirm_epoch(dir, &last_run.connection, epoch)?;
            Ok(Some(last_run))
        }
        Ok(None) => Ok(None),
        Err(cause) if DatabaseError::says_corrupt(&cause) => Ok(None),
        Err(cause) => Err(DatabaseError::new("opening", cause).into()),
    }
}

fn read_last_run(
    dir: &Path,
    mut connection: Connection,
    now: i64,
) -> rusqlite::Result<Option<(LastRun, Epoch)>> {
    if dir.join(SUSPECT).exists() {
        let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Ok(None);
        }
    }
    let (epoch, stale) = next_epoch(dir, &connection)?;
    let transaction = connection.transaction()?;
    if stale {
        transaction.execute("INSERT OR REPLACE INTO meta VALUES ('rebuild', 'restored')", [])?;
    }
    let rebuild =
        transaction.query_row("SELECT count(*) FROM meta WHERE name = 'rebuild'", [], |row| row.get(0))?;
    // What was coming when the backup was made may have been acknowledged since: discovery decides.
    let going = if rebuild { Vec::new() } else { transitions::interrupt_all(&transaction, now)? };
    let damaged = transitions::unhealthy(&transaction)?;
    transaction.commit()?;
    Ok(Some((LastRun { connection, going, damaged, rebuild }, epoch)))
}

/// Counts openings, in the database and beside the shares.
struct Epoch(i64);

/// The epoch of this run, and whether the database is older than what is beside it.
fn next_epoch(dir: &Path, connection: &Connection) -> rusqlite::Result<(Epoch, bool)> {
    let inside: i64 =
        connection.query_row("SELECT value FROM meta WHERE name = 'epoch'", [], |row| row.get(0))?;
    let beside =
        fs::read_to_string(dir.join("epoch")).ok().and_then(|t| t.trim_end().parse().ok()).unwrap_or(0);
    Ok((Epoch(inside.max(beside).saturating_add(1)), beside > inside))
}

/// The database first: it is never behind but when it was restored.
fn confirm_epoch(dir: &Path, connection: &Connection, Epoch(epoch): Epoch) -> Result<(), OpenError> {
    connection
        .execute("UPDATE meta SET value = ?1 WHERE name = 'epoch'", [epoch])
        .map_err(|e| DatabaseError::new("opening", e))?;
    replace_file(&dir.join("epoch"), format!("{epoch}\n").as_bytes())?;
    let suspect = dir.join(SUSPECT);
    if suspect.exists() {
        fs::remove_file(&suspect).map_err(|e| DiskError::new("removing", suspect, e))?;
    }
    Ok(())
}

/// Keeps what is there of a database, under a name that nothing else has. Its log goes with it: SQLite would take it for the new one's.
fn move_aside(dir: &Path, now: Seconds) -> Result<(), DiskError> {
    let parts: Vec<PathBuf> = ["", "-wal", "-shm"].map(|s| dir.join(format!("{}{s}", database::FILE))).into();
    let mut suffix = format!("aside-{now}");
    while dir.join(format!("{}.{suffix}", database::FILE)).exists() {
        suffix.push('x');
    }
    for from in parts.into_iter().rev().filter(|p| p.exists()) {
        let mut to = from.clone().into_os_string();
        to.push(format!(".{suffix}"));
        tracing::warn!(database = %from.display(), "the lease database is not usable and is moved aside");
        fs::rename(&from, &to).map_err(|e| DiskError::new("moving aside", from, e))?;
    }
    sync_dir(dir)
}

fn signed(now: Seconds) -> i64 {
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// A file found, and what it is.
type Finding = (ShareId, Result<(u32, Digest), Damage>);

/// Takes every share file into the database with a starter lease, notes which known shares have no file, and allows deletion again.
/// Safe to repeat. Returns what was coming or going and is to be deleted.
pub(crate) fn discover(
    database: &Database,
    disk: &dyn Disk,
    clock: &Clock,
) -> Result<Vec<ShareId>, OpenError> {
    let until = (clock)().saturating_add(STARTER_SECONDS);
    let mut found = 0;
    for prefix in 0..=u8::MAX {
        found += discover_prefix(database, disk, prefix, until)?;
    }
    let going = database.write("ending discovery", |tx, now| {
        tx.execute("DELETE FROM meta WHERE name = 'rebuild'", [])?;
        tx.execute("INSERT OR REPLACE INTO meta VALUES ('discovered_at', ?1)", params![now])?;
        transitions::interrupt_all(tx, now)
    })?;
    if found > 0 {
        tracing::warn!(shares = found, "every share found is kept for 60 days, since the leases were lost");
    }
    Ok(going)
}

fn discover_prefix(
    database: &Database,
    disk: &dyn Disk,
    prefix: u8,
    until: Seconds,
) -> Result<usize, OpenError> {
    let mut present = FxHashSet::default();
    let mut batch: Vec<Finding> = Vec::new();
    for name in disk.list(prefix)? {
        let Some(id) = from_file_name(&name).filter(|id| id.0[0] == prefix) else {
            tracing::warn!(prefix, name, "a file among the shares that is none; it is left alone");
            continue;
        };
        present.insert(id);
        let file = OpenShare::open(disk, &id)?;
        batch.push((id, file.map(|f| (f.header.length, f.header.digest))));
        if batch.len() == BATCH {
            adopt(database, std::mem::take(&mut batch), until)?;
        }
    }
    adopt(database, batch, until)?;
    note_missing(database, prefix, &present)?;
    Ok(present.len())
}

fn adopt(database: &Database, batch: Vec<Finding>, until: Seconds) -> Result<(), DatabaseError> {
    if batch.is_empty() {
        return Ok(());
    }
    database.write("adopting shares", move |tx, now| {
        batch.into_iter().try_for_each(|(id, found)| transitions::adopt(tx, now, &id, found, until))
    })
}

/// Shares that the database knows and the disk does not.
fn note_missing(database: &Database, prefix: u8, present: &FxHashSet<ShareId>) -> Result<(), DatabaseError> {
    let mut first = Some(ShareId(std::array::from_fn(|i| if i == 0 { prefix } else { 0 })));
    while let Some(from) = first {
        let page = database.read("listing shares", |c| transitions::page(c, &from, BATCH))?;
        first = page.last().and_then(|last| successor(&last.id)).filter(|id| id.0[0] == prefix);
        let missing: Vec<ShareId> = page
            .iter()
            .filter(|s| s.id.0[0] == prefix && s.state == State::Stable && !present.contains(&s.id))
            .map(|s| s.id)
            .collect();
        if missing.is_empty() {
            continue;
        }
        database.write("noting lost shares", move |tx, now| {
            missing.iter().try_for_each(|id| {
                transitions::note_health(tx, now, id, Health::Missing, "not found at discovery").map(|_| ())
            })
        })?;
    }
    Ok(())
}
