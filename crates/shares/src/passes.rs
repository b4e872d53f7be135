//! The positions of the background processes, and the results of their last passes. Results and
//! positions are written in one transaction.

use namespace::ShareId;
use rusqlite::{Connection, params};

use crate::{
    rows::{PREFIXES, PassRow},
    seal,
    share::{Pass, Process},
    tx::{self, Tx},
};

/// The passes of each process that are kept.
const HISTORY: i64 = 10;

/// The last pass of a process, under way or over.
pub(crate) fn last(connection: &Connection, process: Process) -> rusqlite::Result<Option<PassRow>> {
    let sql = "SELECT * FROM passes WHERE process = ?1 ORDER BY cycle DESC LIMIT 1";
    seal::one(connection, sql, [process as i64])
}

/// The pass that is under way, or a new one.
pub(crate) fn current(connection: &Connection, process: Process, now: i64) -> rusqlite::Result<PassRow> {
    let last = last(connection, process)?;
    let cycle = last.as_ref().map_or(1, |last| last.cycle.saturating_add(1));
    let new =
        PassRow { process, cycle, began_at: now, ended_at: None, position: None, examined: 0, acted: 0 };
    Ok(last.filter(|last| last.ended_at.is_none()).unwrap_or(new))
}

/// Drops the pass that is under way: the next step begins a new one.
pub(crate) fn begin_anew(tx: &mut Tx<'_>, process: Process) -> rusqlite::Result<()> {
    let under_way = "DELETE FROM passes WHERE process = ?1 AND ended_at IS NULL";
    tx.connection.prepare_cached(under_way)?.execute([process as i64])?;
    Ok(())
}

/// Notes the position of a pass. Without a position the pass is over.
pub(crate) fn save(tx: &mut Tx<'_>, mut pass: PassRow, position: Option<ShareId>) -> rusqlite::Result<()> {
    pass.position = position;
    pass.ended_at = position.is_none().then_some(tx.now);
    put(tx, &pass)
}

fn put(tx: &mut Tx<'_>, pass: &PassRow) -> rusqlite::Result<()> {
    seal::put(tx.connection, pass)?;
    let old = "DELETE FROM passes WHERE process = ?1 AND cycle <= ?2";
    let kept_from = pass.cycle.saturating_sub(HISTORY);
    tx.connection.prepare_cached(old)?.execute(params![pass.process as i64, kept_from])?;
    Ok(())
}

/// Counts deletions of the reaper. It never ends, so its passes are days.
pub(crate) fn note_reaped(tx: &mut Tx<'_>, count: usize) -> rusqlite::Result<()> {
    let day = tx.now / (24 * 3600);
    let last = last(tx.connection, Process::Reaper)?.filter(|last| last.cycle == day);
    let new = || PassRow {
        process: Process::Reaper,
        cycle: day,
        began_at: tx.now,
        ended_at: None,
        position: None,
        examined: 0,
        acted: 0,
    };
    let mut pass = last.unwrap_or_else(new);
    pass.ended_at = Some(tx.now);
    pass.examined = pass.examined.saturating_add(count as u64);
    pass.acted = pass.acted.saturating_add(count as u64);
    put(tx, &pass)
}

/// The kept passes by process, the latest first.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<Pass>> {
    let store = tx::store(connection)?;
    let rows: Vec<PassRow> = seal::all(connection, "SELECT * FROM passes ORDER BY process, cycle DESC", [])?;
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    let told = |row: PassRow| Pass {
        process: row.process,
        cycle: unsigned(row.cycle),
        began_at: unsigned(row.began_at),
        ended_at: row.ended_at.map(unsigned),
        progress: match row.ended_at {
            Some(_) => 1.0,
            None if row.process == Process::Discovery => f64::from(store.discovered) / f64::from(PREFIXES),
            None => row.position.map_or(0.0, |share| crate::check::fraction(&share)),
        },
        examined: row.examined,
        acted: row.acted,
    };
    Ok(rows.into_iter().map(told).collect())
}
