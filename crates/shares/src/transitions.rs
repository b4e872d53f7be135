//! The transitions between a share's states (leasedb, "States and transitions"): each is one function, to be run within a transaction.
//!
//! | from → to | function | rule |
//! | --- | --- | --- |
//! | none → coming | [`begin`] | committed before the first byte is written |
//! | coming → stable | [`finish`] | the file is durable in its place; with the uploader's lease |
//! | coming → going | [`abandon`], [`interrupt_all`] | the upload failed, or did not outlive the server |
//! | stable → going | [`doom`] | re-tests that nobody holds the share and no upload writes it |
//! | going → none | [`forget`] | the file is gone, durably |
//! | none → stable | [`adopt`] | discovery found a complete share; with a starter lease |

use namespace::ShareId;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};

use crate::{
    digest::Digest,
    error::{Damage, Refusal},
    header::HEADER_BYTES,
    leases,
    share::{AccountId, Health, Seconds, State, StoredShare},
};

/// Finds shares to be deleted; `?1`: unleased no later, `?2`: how many.
pub(crate) const UNLEASED: &str = "SELECT share FROM shares
    WHERE state = 1 AND nleases = 0 AND unleased_since <= ?1 AND upload_id IS NULL LIMIT ?2";
/// When the share that has been unleased longest became so.
pub(crate) const NEXT_UNLEASED: &str = "SELECT unleased_since FROM shares
    WHERE state = 1 AND nleases = 0 AND unleased_since IS NOT NULL AND upload_id IS NULL ORDER BY unleased_since LIMIT 1";
/// Finds what is neither there nor gone.
pub(crate) const UNFINISHED: &str = "SELECT share FROM shares WHERE state <> 1";
/// Finds quarantined shares.
pub(crate) const UNHEALTHY: &str = "SELECT share FROM shares WHERE health <> 0 AND state = 1";

/// What an upload brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coming {
    pub id: ShareId,
    pub length: u32,
    pub digest: Digest,
}

/// Announces an upload; returns which of its shares are to be written. The others are there already, and leased now: "already have it"
/// without a lease would let the reaper win (leasedb, fault 4). A damaged share's file is to be written anew; its row and leases stay.
pub(crate) fn begin(
    tx: &Connection,
    now: i64,
    upload: i64,
    coming: &[Coming],
    account: AccountId,
    until: Option<Seconds>,
) -> rusqlite::Result<Result<Vec<ShareId>, (ShareId, Refusal)>> {
    let mut to_write = Vec::new();
    for share in coming {
        let Some((row, uploading)) = row(tx, &share.id)? else {
            tx.prepare_cached(
                "INSERT INTO shares (share, shnum, state, length, used_space, digest, changed_at, upload_id)
                 VALUES (?1, 0, 0, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                share.id.0,
                share.length,
                space(share.length),
                share.digest,
                now,
                upload
            ])?;
            to_write.push(share.id);
            continue;
        };
        let refusal = match row.state {
            State::Coming => Refusal::Coming,
            State::Going => Refusal::Going,
            State::Stable if row.digest.is_some_and(|d| d != share.digest) => Refusal::Different,
            State::Stable if row.health == Health::Ok => {
                leases::lease_one(tx, now, account, &share.id, until)?;
                continue;
            }
            State::Stable if uploading => Refusal::Coming,
            State::Stable => {
                tx.prepare_cached("UPDATE shares SET upload_id = ?2 WHERE share = ?1 AND shnum = 0")?
                    .execute(params![share.id.0, upload])?;
                to_write.push(share.id);
                continue;
            }
        };
        return Ok(Err((share.id, refusal)));
    }
    Ok(Ok(to_write))
}

/// Completes an upload whose files are durable in their places. `Err`: the upload was abandoned meanwhile.
pub(crate) fn finish(
    tx: &Connection,
    now: i64,
    upload: i64,
    written: &[Coming],
    account: AccountId,
    until: Option<Seconds>,
) -> rusqlite::Result<Result<(), (ShareId, Refusal)>> {
    for share in written {
        let changed = tx
            .prepare_cached(
                "UPDATE shares SET state = 1, health = 0, length = ?3, used_space = ?4, digest = ?5, changed_at = ?6,
                     upload_id = NULL
                 WHERE share = ?1 AND shnum = 0 AND upload_id = ?2 AND state <> 2",
            )?
            .execute(params![share.id.0, upload, share.length, space(share.length), share.digest, now])?;
        if changed != 1 {
            return Ok(Err((share.id, Refusal::Going)));
        }
        leases::lease_one(tx, now, account, &share.id, until)?;
    }
    Ok(Ok(()))
}

/// What becomes of an abandoned upload's shares; what is in neither list was finished after all.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    /// To be deleted.
    pub going: Vec<ShareId>,
    /// Were to be repaired, and are as damaged as before.
    pub damaged: Vec<ShareId>,
}

/// Gives up an upload. Safe to repeat.
pub(crate) fn abandon(
    tx: &Connection,
    now: i64,
    upload: i64,
    ids: &[ShareId],
) -> rusqlite::Result<Abandoned> {
    let mut abandoned = Abandoned::default();
    for id in ids {
        let changed = tx
            .prepare_cached(
                "UPDATE shares SET state = 2, upload_id = NULL, changed_at = ?3
                 WHERE share = ?1 AND shnum = 0 AND upload_id = ?2 AND state = 0",
            )?
            .execute(params![id.0, upload, now])?;
        if changed == 1 {
            abandoned.going.push(*id);
        }
        let damaged = tx
            .prepare_cached(
                "UPDATE shares SET upload_id = NULL WHERE share = ?1 AND shnum = 0 AND upload_id = ?2 AND state = 1",
            )?
            .execute(params![id.0, upload])?;
        if damaged == 1 {
            abandoned.damaged.push(*id);
        }
    }
    Ok(abandoned)
}

/// After a restart no upload lives: what was coming is going (leasedb, fault 7). Returns everything that is going.
pub(crate) fn interrupt_all(tx: &Connection, now: i64) -> rusqlite::Result<Vec<ShareId>> {
    tx.execute(
        "UPDATE shares SET state = 2, upload_id = NULL, changed_at = ?1
         WHERE (share, shnum) IN (SELECT share, shnum FROM shares WHERE state = 0)",
        [now],
    )?;
    tx.execute("UPDATE shares SET upload_id = NULL WHERE health <> 0 AND upload_id IS NOT NULL", [])?;
    ids(tx, UNFINISHED)
}

/// Shares in quarantine.
pub(crate) fn unhealthy(connection: &Connection) -> rusqlite::Result<Vec<ShareId>> {
    ids(connection, UNHEALTHY)
}

/// Marks shares for deletion that nobody has held since `unleased_by`: found and re-tested within one transaction (leasedb, fault 5).
pub(crate) fn doom(
    tx: &Connection,
    now: i64,
    unleased_by: i64,
    limit: usize,
) -> rusqlite::Result<Vec<ShareId>> {
    let found: Vec<ShareId> = tx
        .prepare_cached(UNLEASED)?
        .query_map(params![unleased_by, limit], share_id)?
        .collect::<Result<_, _>>()?;
    let mut going = Vec::with_capacity(found.len());
    for id in found {
        let changed = tx
            .prepare_cached(
                "UPDATE shares SET state = 2, changed_at = ?2
                 WHERE share = ?1 AND shnum = 0 AND state = 1 AND nleases = 0 AND upload_id IS NULL",
            )?
            .execute(params![id.0, now])?;
        if changed == 1 {
            going.push(id);
        }
    }
    Ok(going)
}

/// When the share that has been unleased longest became so.
pub(crate) fn next_unleased(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(NEXT_UNLEASED)?.query_row([], |row| row.get(0)).optional()
}

/// Removes the rows of shares whose files are durably gone.
pub(crate) fn forget(tx: &Connection, ids: &[ShareId]) -> rusqlite::Result<()> {
    for id in ids {
        tx.prepare_cached("DELETE FROM shares WHERE share = ?1 AND shnum = 0 AND state = 2")?
            .execute(params![id.0])?;
    }
    Ok(())
}

/// Takes a file that discovery found into the database. What is being deleted stays so; what the database knows keeps its leases and gets
/// the starter lease besides. `found`: length and digest, unless the file is damaged.
pub(crate) fn adopt(
    tx: &Connection,
    now: i64,
    id: &ShareId,
    found: Result<(u32, Digest), Damage>,
    starter_until: Seconds,
) -> rusqlite::Result<()> {
    let (length, digest) = found.map_or((0, None), |(length, digest)| (length, Some(digest)));
    tx.prepare_cached(
        "INSERT INTO shares (share, shnum, state, length, used_space, digest, changed_at)
         VALUES (?1, 0, 1, ?2, ?3, ?4, ?5)
         ON CONFLICT (share, shnum) DO UPDATE SET state = 1, upload_id = NULL WHERE state = 0",
    )?
    .execute(params![id.0, length, space(length), digest, now])?;
    leases::lease_one(tx, now, AccountId::STARTER, id, Some(starter_until))?;
    if let Err(damage) = found {
        note_health(tx, now, id, Health::Corrupt, &damage.to_string())?;
    }
    Ok(())
}

/// Notes what is known of a stable share's bytes; an incident if it is news and bad. Row and leases stay: that bytes were lost is worth
/// knowing (leasedb, faults 2 and 3).
pub(crate) fn note_health(
    tx: &Connection,
    now: i64,
    id: &ShareId,
    health: Health,
    detail: &str,
) -> rusqlite::Result<bool> {
    let changed = tx
        .prepare_cached(
            "UPDATE shares SET health = ?2, changed_at = ?3
             WHERE share = ?1 AND shnum = 0 AND state = 1 AND upload_id IS NULL",
        )?
        .execute(params![id.0, health as i64, now])?;
    if changed == 1 && health != Health::Ok {
        let kind = if health == Health::Missing { "missing" } else { "corrupt" };
        tx.prepare_cached(
            "INSERT INTO incidents (at, share, shnum, kind, detail) VALUES (?1, ?2, 0, ?3, ?4)",
        )?
        .execute(params![now, id.0, kind, detail])?;
    }
    Ok(changed == 1)
}

/// A share's row, and whether an upload is writing it.
pub(crate) fn row(connection: &Connection, id: &ShareId) -> rusqlite::Result<Option<(StoredShare, bool)>> {
    connection
        .prepare_cached(
            "SELECT share, state, health, length, digest, nleases, upload_id IS NOT NULL FROM shares
             WHERE share = ?1 AND shnum = 0",
        )?
        .query_row(params![id.0], |row| Ok((stored_share(row)?, row.get(6)?)))
        .optional()
}

/// At most `limit` rows from `first` on, in order of id.
pub(crate) fn page(
    connection: &Connection,
    first: &ShareId,
    limit: usize,
) -> rusqlite::Result<Vec<StoredShare>> {
    let mut statement = connection.prepare_cached(
        "SELECT share, state, health, length, digest, nleases FROM shares WHERE share >= ?1 ORDER BY share LIMIT ?2",
    )?;
    let rows = statement.query_map(params![first.0, limit], stored_share)?;
    rows.collect()
}

fn stored_share(row: &Row<'_>) -> rusqlite::Result<StoredShare> {
    let out_of_range = |column, value| rusqlite::Error::IntegralValueOutOfRange(column, value);
    let (state, health) = (row.get(1)?, row.get(2)?);
    Ok(StoredShare {
        id: share_id(row)?,
        state: State::from_row(state).ok_or(out_of_range(1, state))?,
        health: Health::from_row(health).ok_or(out_of_range(2, health))?,
        length: row.get(3)?,
        digest: row.get(4)?,
        leases: row.get(5)?,
    })
}

pub(crate) fn share_id(row: &Row<'_>) -> rusqlite::Result<ShareId> {
    let bytes: Vec<u8> = row.get(0)?;
    let wrong = |_| rusqlite::Error::InvalidColumnType(0, "share".into(), Type::Blob);
    bytes.try_into().map(ShareId).map_err(wrong)
}

fn ids(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<ShareId>> {
    connection.prepare(sql)?.query_map([], share_id)?.collect()
}

/// Bytes that a share takes on disk.
fn space(length: u32) -> u64 {
    u64::from(length) + HEADER_BYTES as u64
}
