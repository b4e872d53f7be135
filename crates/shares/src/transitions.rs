//! The transitions between a share's states (leasedb, "States and transitions"). Each is one
//! function that runs within a transaction.
//!
//! | from → to | function | rule |
//! | --- | --- | --- |
//! | none → coming | [`begin`] | committed before a file is put in its place |
//! | coming → stable | [`finish`] | the file is durable in its place; with the uploader's lease |
//! | coming → going | [`abandon`], [`interrupt_all`] | the upload failed, or the server ended before it |
//! | stable → going | [`doom`] | re-tests that the share has no lease and no upload writes it |
//! | stable → going | [`turn_away`] | the holders should not have stored the share |
//! | going → none | [`forget`] | the file is durably gone |
//! | none → stable | [`find`] | a share was found; with a starter lease |
//!
//! Shares never change. Stable → coming would only be the repair of a damaged share. Its row stays
//! stable and in quarantine while [`begin`]'s upload writes the new file beside the old one.

use namespace::ShareId;
use rusqlite::{Connection, OptionalExtension, Row, types::Type};

use crate::{
    digest::Digest,
    error::{Damage, Refusal},
    header::ShareHeader,
    leases,
    rows::ShareRow,
    seal,
    share::{AccountId, Health, Seconds, State, Usage},
    tx::Tx,
};

/// Finds shares to be deleted; `?1`: unleased no later, `?2`: how many.
pub(crate) const UNLEASED: &str = "SELECT share FROM shares
    WHERE state = 1 AND nleases = 0 AND unleased_since <= ?1 AND upload_id IS NULL LIMIT ?2";
/// Selects the time since which the longest unleased share has been so.
pub(crate) const NEXT_UNLEASED: &str = "SELECT unleased_since FROM shares
    WHERE state = 1 AND nleases = 0 AND unleased_since IS NOT NULL AND upload_id IS NULL ORDER BY unleased_since LIMIT 1";
/// Finds shares that became unleased in the future.
pub(crate) const FROM_THE_FUTURE: &str = "SELECT share FROM shares
    WHERE state = 1 AND nleases = 0 AND unleased_since > ?1 LIMIT ?2";
/// Finds coming and going shares.
pub(crate) const UNFINISHED: &str = "SELECT share FROM shares WHERE state <> 1";
/// Finds quarantined shares.
pub(crate) const UNHEALTHY: &str = "SELECT share FROM shares WHERE health <> 0 AND state = 1";
/// How long the lease of the account `starter` lasts.
pub(crate) const STARTER_SECONDS: Seconds = 60 * 24 * 3600;

/// The row data of a share in an upload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coming {
    pub id: ShareId,
    pub length: u32,
    pub digest: Digest,
}

/// A reason why an upload may not begin or end, with the share concerned.
pub(crate) type Refused = (ShareId, Refusal);

/// Announces an upload and returns the shares to be written. The other shares are stored already
/// and are leased now: "already have it" without a lease would let the reaper win (leasedb, fault
/// 4). A damaged share's file is to be rewritten; its row and leases stay.
pub(crate) fn begin(
    tx: &mut Tx<'_>,
    upload: i64,
    coming: &[Coming],
    account: AccountId,
    until: Option<Seconds>,
) -> rusqlite::Result<Result<Vec<ShareId>, Refused>> {
    let (mut to_write, mut more) = (Vec::new(), Usage::default());
    for share in coming {
        let refused = |why| Ok(Err((share.id, why)));
        let Some(row) = tx.share(&share.id)? else {
            let row = ShareRow {
                id: share.id,
                state: State::Coming,
                health: Health::Ok,
                length: share.length,
                digest: Some(share.digest),
                leases: 0,
                unleased_since: None,
                changed_at: tx.now,
                upload: Some(upload),
            };
            tx.add_share(&row)?;
            to_write.push(share.id);
            more.add(share.length);
            continue;
        };
        match row.state {
            State::Coming => return refused(Refusal::Coming),
            State::Going => return refused(Refusal::Going),
            State::Stable if row.digest.is_some_and(|d| d != share.digest) => {
                return refused(Refusal::Different);
            }
            State::Stable if row.health == Health::Ok => {
                if !leases::lease_row(tx, &row, account, until)? {
                    return refused(Refusal::Quota);
                }
            }
            State::Stable if row.upload.is_some() => return refused(Refusal::Coming),
            State::Stable => {
                tx.change_share(&row, &ShareRow { upload: Some(upload), ..row.clone() })?;
                to_write.push(share.id);
                more.add(share.length);
            }
        }
    }
    // The quota is checked before any file is in its place. Leases that other uploads take
    // meanwhile are counted when this upload ends.
    match to_write.first() {
        Some(first) if !tx.has_room(account, more)? => Ok(Err((*first, Refusal::Quota))),
        _ => Ok(Ok(to_write)),
    }
}

/// Completes an upload whose files are durable in their places. `Err`: the upload was abandoned
/// meanwhile, or exceeds the account's quota.
pub(crate) fn finish(
    tx: &mut Tx<'_>,
    upload: i64,
    written: &[Coming],
    account: AccountId,
    until: Option<Seconds>,
) -> rusqlite::Result<Result<(), Refused>> {
    for share in written {
        let row = tx.share(&share.id)?.filter(|row| row.upload == Some(upload) && row.state != State::Going);
        let Some(row) = row else { return Ok(Err((share.id, Refusal::Going))) };
        let stable = ShareRow {
            state: State::Stable,
            health: Health::Ok,
            length: share.length,
            digest: Some(share.digest),
            unleased_since: (row.leases == 0).then_some(row.unleased_since.unwrap_or(tx.now)),
            changed_at: tx.now,
            upload: None,
            ..row.clone()
        };
        tx.change_share(&row, &stable)?;
        if !leases::lease_row(tx, &stable, account, until)? {
            return Ok(Err((share.id, Refusal::Quota)));
        }
    }
    Ok(Ok(()))
}

/// The fate of an abandoned upload's shares. A share in neither list was finished after all.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    /// To be deleted.
    pub going: Vec<ShareId>,
    /// Repairs that failed: these shares are as damaged as before.
    pub damaged: Vec<ShareId>,
}

/// Abandons an upload. Repeating this is safe.
pub(crate) fn abandon(tx: &mut Tx<'_>, upload: i64, ids: &[ShareId]) -> rusqlite::Result<Abandoned> {
    let mut abandoned = Abandoned::default();
    for id in ids {
        let Some(row) = tx.share(id)?.filter(|row| row.upload == Some(upload)) else { continue };
        match row.state {
            State::Coming => {
                let going = ShareRow { state: State::Going, upload: None, changed_at: tx.now, ..row.clone() };
                tx.change_share(&row, &going)?;
                abandoned.going.push(*id);
            }
            State::Stable => {
                tx.change_share(&row, &ShareRow { upload: None, ..row.clone() })?;
                abandoned.damaged.push(*id);
            }
            State::Going => {}
        }
    }
    Ok(abandoned)
}

/// Marks coming shares as going: no upload survives a restart (leasedb, fault 7). Returns all going
/// shares.
pub(crate) fn interrupt_all(tx: &mut Tx<'_>) -> rusqlite::Result<Vec<ShareId>> {
    let unfinished = ids(tx.connection, UNFINISHED)?;
    let mut going = Vec::with_capacity(unfinished.len());
    for id in unfinished {
        let Some(row) = tx.share(&id)?.filter(|row| row.state != State::Stable) else { continue };
        if row.state == State::Coming {
            let row_now = ShareRow { state: State::Going, upload: None, changed_at: tx.now, ..row.clone() };
            tx.change_share(&row, &row_now)?;
        }
        going.push(id);
    }
    for id in ids(tx.connection, UNHEALTHY)? {
        if let Some(row) = tx.share(&id)?.filter(|row| row.upload.is_some()) {
            tx.change_share(&row, &ShareRow { upload: None, ..row.clone() })?;
        }
    }
    Ok(going)
}

/// Forgets coming and going shares, in a database that has missed something. They may have been
/// finished since; then the file says so, because only a complete file is in its place.
pub(crate) fn forget_unfinished(tx: &mut Tx<'_>) -> rusqlite::Result<()> {
    for id in ids(tx.connection, UNFINISHED)? {
        if let Some(row) = tx.share(&id)?.filter(|row| row.state != State::Stable && row.leases == 0) {
            tx.remove_share(&row)?;
        }
    }
    interrupt_all(tx).map(|_| ())
}

/// The shares in quarantine.
pub(crate) fn unhealthy(connection: &Connection) -> rusqlite::Result<Vec<ShareId>> {
    ids(connection, UNHEALTHY)
}

/// Marks shares for deletion that have been unleased for `grace`. They are found and re-tested
/// within one transaction (leasedb, fault 5). The index finds them; the row and the leases must
/// confirm it.
pub(crate) fn doom(tx: &mut Tx<'_>, grace: i64, limit: usize) -> rusqlite::Result<Vec<ShareId>> {
    if !tx.store.is_discovered() {
        return Ok(Vec::new());
    }
    // A share that was released for deletion at once does not depend on the clock.
    let unleased_by = if tx.trusts_the_clock() { tx.now.saturating_sub(grace).max(0) } else { 0 };
    for id in some(tx.connection, FROM_THE_FUTURE, tx.now, limit)? {
        if let Some(row) = tx.share(&id)?.filter(|row| row.unleased_since.is_some_and(|t| t > tx.now)) {
            tx.change_share(&row, &ShareRow { unleased_since: Some(tx.now), ..row.clone() })?;
        }
    }
    let mut going = Vec::new();
    for id in some(tx.connection, UNLEASED, unleased_by, limit)? {
        let Some(row) = tx.share(&id)? else { continue };
        let unleased = row.leases == 0 && row.unleased_since.is_some_and(|since| since <= unleased_by);
        if row.state == State::Stable && unleased && row.upload.is_none() && tx.leases(&id)?.is_empty() {
            tx.change_share(&row, &ShareRow { state: State::Going, changed_at: tx.now, ..row.clone() })?;
            going.push(id);
        }
    }
    Ok(going)
}

/// Marks a stable share for deletion with all its leases, whatever the clock says. A key's lease on
/// it goes too: it was for other content than the share's name promises. `false`: leases may be
/// wrong now, or the share is being repaired.
pub(crate) fn turn_away(tx: &mut Tx<'_>, row: &ShareRow) -> rusqlite::Result<bool> {
    if !tx.store.is_discovered() || row.upload.is_some() {
        return Ok(false);
    }
    let mut row = row.clone();
    for lease in tx.leases(&row.id)? {
        row = tx.remove_lease(&row, lease.account)?;
    }
    tx.change_share(&row, &ShareRow { state: State::Going, changed_at: tx.now, ..row.clone() })?;
    Ok(true)
}

/// The time since which the longest unleased share has been so.
pub(crate) fn next_unleased(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(NEXT_UNLEASED)?.query_row([], |row| row.get(0)).optional()
}

/// Removes the rows of shares whose files are durably gone.
pub(crate) fn forget(tx: &mut Tx<'_>, ids: &[ShareId]) -> rusqlite::Result<()> {
    for id in ids {
        if let Some(row) = tx.share(id)?.filter(|row| row.state == State::Going) {
            tx.remove_share(&row)?;
        }
    }
    Ok(())
}

/// Takes in a file that was found without a row, damaged or not.
///
/// An incomplete share becomes stable and damaged. This departs from leasedb, where it is coming. A
/// file here gets its name only when it is complete, so an incomplete one is damage and no upload
/// under way. A coming share counts as leased until its upload ends, and here none would end it. A
/// damaged share is never served, is repaired by any uploader that has it, and goes when it is
/// unleased.
pub(crate) fn find(
    tx: &mut Tx<'_>,
    id: &ShareId,
    found: Result<&ShareHeader, Damage>,
) -> rusqlite::Result<bool> {
    if tx.share(id)?.is_some() {
        return Ok(false);
    }
    let row = ShareRow {
        id: *id,
        state: State::Stable,
        health: if found.is_ok() { Health::Ok } else { Health::Corrupt },
        length: found.map_or(0, |header| header.length),
        digest: found.ok().map(|header| header.digest),
        leases: 0,
        unleased_since: Some(tx.now),
        changed_at: tx.now,
        upload: None,
    };
    tx.add_share(&row)?;
    give_starter(tx, &row)?;
    if let Err(damage) = found {
        tx.incident(Some(*id), format!("found damaged: {damage}"))?;
    }
    Ok(true)
}

/// Gives a stable share, damaged or not, the starter lease.
pub(crate) fn give_starter(tx: &mut Tx<'_>, row: &ShareRow) -> rusqlite::Result<ShareRow> {
    let until = u64::try_from(tx.now).unwrap_or(0).saturating_add(STARTER_SECONDS);
    leases::take(tx, row, AccountId::STARTER, Some(until))
}

/// Notes the health of a stable share's bytes. Newly found damage is an incident. Row and leases
/// stay: the loss of bytes is worth knowing (leasedb, faults 2 and 3).
pub(crate) fn note_health(
    tx: &mut Tx<'_>,
    id: &ShareId,
    health: Health,
    detail: &str,
) -> rusqlite::Result<bool> {
    let row = tx.share(id)?.filter(|row| row.state == State::Stable && row.upload.is_none());
    let Some(row) = row else { return Ok(false) };
    if row.health != health {
        tx.change_share(&row, &ShareRow { health, changed_at: tx.now, ..row.clone() })?;
        if health != Health::Ok {
            tx.incident(Some(*id), detail.to_owned())?;
        }
    }
    Ok(true)
}

/// A share's row.
pub(crate) fn row(connection: &Connection, id: &ShareId) -> rusqlite::Result<Option<ShareRow>> {
    seal::one(connection, crate::tx::SHARE, [id.0])
}

/// At most `limit` rows from `first` on, in order of id.
pub(crate) fn page(
    connection: &Connection,
    first: &ShareId,
    limit: usize,
) -> rusqlite::Result<Vec<ShareRow>> {
    let sql = "SELECT * FROM shares WHERE share >= ?1 ORDER BY share LIMIT ?2";
    seal::all(connection, sql, rusqlite::params![first.0, limit])
}

/// The id of a share that an index found. Its row must be looked up before it is believed.
pub(crate) fn share_id(row: &Row<'_>) -> rusqlite::Result<ShareId> {
    let bytes: Vec<u8> = row.get(0)?;
    let wrong = |_| rusqlite::Error::InvalidColumnType(0, "share".into(), Type::Blob);
    bytes.try_into().map(ShareId).map_err(wrong)
}

fn ids(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<ShareId>> {
    connection.prepare(sql)?.query_map([], share_id)?.collect()
}

fn some(connection: &Connection, sql: &str, time: i64, limit: usize) -> rusqlite::Result<Vec<ShareId>> {
    connection.prepare_cached(sql)?.query_map(rusqlite::params![time, limit], share_id)?.collect()
}
