//! Leases: who wants which share kept, and until when (leasedb, "Leases and policies").

use namespace::ShareId;
use rusqlite::{Connection, OptionalExtension, params};

use crate::share::{AccountId, Deletion, Holds, Seconds, ShareLease, Usage};
use crate::transitions;

/// Letting go of what an account has not renewed since a time.
pub(crate) const SWEEP: &str = "DELETE FROM leases WHERE account = ?1 AND renewed_at < ?2";

/// Takes or renews leases; returns the shares that are now held: stable and undamaged ones only. Never shortens one.
pub(crate) fn lease(
    tx: &Connection,
    now: i64,
    account: AccountId,
    ids: &[ShareId],
    until: Option<Seconds>,
) -> rusqlite::Result<Vec<ShareId>> {
    let mut held = Vec::new();
    for id in ids {
        if lease_one(tx, now, account, id, until)? {
            held.push(*id);
        }
    }
    Ok(held)
}

/// Takes or renews one lease, if the share can be held.
pub(crate) fn lease_one(
    tx: &Connection,
    now: i64,
    account: AccountId,
    id: &ShareId,
    until: Option<Seconds>,
) -> rusqlite::Result<bool> {
    let until = until.map(|t| i64::try_from(t).unwrap_or(i64::MAX));
    let changed = tx
        .prepare_cached(
            "INSERT INTO leases (share, shnum, account, renewed_at, expires_at)
             SELECT share, shnum, ?2, ?3, ?4 FROM shares WHERE share = ?1 AND shnum = 0 AND state = 1 AND health = 0
             ON CONFLICT (share, shnum, account) DO UPDATE SET
                 renewed_at = max(renewed_at, excluded.renewed_at),
                 expires_at = CASE WHEN expires_at IS NOT NULL AND excluded.expires_at IS NOT NULL
                     THEN max(expires_at, excluded.expires_at) END",
        )?
        .execute(params![id.0, account.0, now, until])?;
    Ok(changed > 0)
}

/// Lets go of an account's leases (of all accounts' leases: `None`); returns how many shares nobody holds now.
pub(crate) fn let_go(
    tx: &Connection,
    account: Option<AccountId>,
    ids: &[ShareId],
    deletion: Deletion,
) -> rusqlite::Result<usize> {
    let mut unleased = 0;
    for id in ids {
        match account {
            Some(account) => tx
                .prepare_cached("DELETE FROM leases WHERE share = ?1 AND shnum = 0 AND account = ?2")?
                .execute(params![id.0, account.0])?,
            None => tx
                .prepare_cached("DELETE FROM leases WHERE share = ?1 AND shnum = 0")?
                .execute(params![id.0])?,
        };
        // The beginning of time is past any grace period, also after a restart.
        let at_once = deletion == Deletion::AtOnce;
        unleased += tx
            .prepare_cached(
                "UPDATE shares SET unleased_since = iif(?2, 0, unleased_since)
                 WHERE share = ?1 AND shnum = 0 AND state = 1 AND nleases = 0",
            )?
            .execute(params![id.0, at_once])?;
    }
    Ok(unleased)
}

/// Lets go of what an account has not renewed since `since`: it marks by renewing, then sweeps. Returns how many leases went.
pub(crate) fn drop_unrenewed(tx: &Connection, account: AccountId, since: Seconds) -> rusqlite::Result<usize> {
    let since = i64::try_from(since).unwrap_or(i64::MAX);
    tx.prepare_cached(SWEEP)?.execute(params![account.0, since])
}

/// The leases on a share, by account.
pub(crate) fn leases_of(connection: &Connection, id: &ShareId) -> rusqlite::Result<Vec<ShareLease>> {
    let mut statement = connection.prepare_cached(
        "SELECT account, renewed_at, expires_at FROM leases WHERE share = ?1 AND shnum = 0 ORDER BY account",
    )?;
    let rows = statement.query_map(params![id.0], |row| {
        Ok(ShareLease { account: AccountId(row.get(0)?), renewed_at: row.get(1)?, expires_at: row.get(2)? })
    })?;
    rows.collect()
}

/// What an account's leases hold, summed up when they change.
pub(crate) fn usage(connection: &Connection, account: AccountId) -> rusqlite::Result<Usage> {
    let usage = connection
        .prepare_cached("SELECT shares, bytes FROM usage WHERE account = ?1")?
        .query_row([account.0], |row| Ok(Usage { shares: row.get(0)?, bytes: row.get(1)? }))
        .optional()?;
    Ok(usage.unwrap_or_default())
}

/// All rows of shares, summed up when they change.
pub(crate) fn stored(connection: &Connection) -> rusqlite::Result<Usage> {
    let value = |name: &str| {
        connection
            .prepare_cached("SELECT value FROM meta WHERE name = ?1")?
            .query_row([name], |row| row.get(0))
    };
    Ok(Usage { shares: value("stored_shares")?, bytes: value("stored_bytes")? })
}

/// The account of that name, made if there is none.
pub(crate) fn account(tx: &Connection, now: i64, name: &str) -> rusqlite::Result<AccountId> {
    tx.execute(
        "INSERT INTO accounts (name, created_at) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
        params![name, now],
    )?;
    tx.query_row("SELECT id FROM accounts WHERE name = ?1", [name], |row| Ok(AccountId(row.get(0)?)))
}

/// All accounts.
pub(crate) fn accounts(connection: &Connection) -> rusqlite::Result<Vec<(AccountId, String)>> {
    let mut statement = connection.prepare_cached("SELECT id, name FROM accounts ORDER BY id")?;
    let rows = statement.query_map([], |row| Ok((AccountId(row.get(0)?), row.get(1)?)))?;
    rows.collect()
}

/// Lets go of all that an account holds, and forgets it; returns how many leases went.
pub(crate) fn end_account(tx: &Connection, account: AccountId) -> rusqlite::Result<usize> {
    let dropped = tx.prepare_cached("DELETE FROM leases WHERE account = ?1")?.execute([account.0])?;
    tx.prepare_cached("DELETE FROM usage WHERE account = ?1")?.execute([account.0])?;
    tx.prepare_cached("DELETE FROM accounts WHERE id = ?1")?.execute([account.0])?;
    Ok(dropped)
}

/// How an account stands to each of these shares.
pub(crate) fn holds(
    connection: &Connection,
    account: AccountId,
    ids: &[ShareId],
) -> rusqlite::Result<Vec<Holds>> {
    let mut statement = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM leases WHERE share = ?1 AND shnum = 0 AND account = ?2)
         FROM shares WHERE share = ?1 AND shnum = 0 AND state = 1 AND health = 0",
    )?;
    let holds = |id: &ShareId| {
        let leased = statement.query_row(params![id.0, account.0], |row| row.get(0)).optional()?;
        Ok(match leased {
            None => Holds::Nothing,
            Some(false) => Holds::Unleased,
            Some(true) => Holds::Leased,
        })
    };
    ids.iter().map(holds).collect()
}

/// The first shares after `after` that an account has leases on, in order.
pub(crate) fn leased_by(
    connection: &Connection,
    account: AccountId,
    after: Option<&ShareId>,
    limit: usize,
) -> rusqlite::Result<Vec<ShareId>> {
    // Nearly all leases are the group's: the table's own order is the quickest. The plus sign keeps SQLite from the account's index.
    let mut statement = connection.prepare_cached(
        "SELECT share FROM leases WHERE share > ?1 AND +account = ?2 ORDER BY share LIMIT ?3",
    )?;
    // Nothing comes before a share as the empty blob does.
    let after: &[u8] = after.map_or(&[], |after| &after.0);
    let rows = statement.query_map(params![after, account.0, limit], transitions::share_id)?;
    rows.collect()
}

/// Leases shares for one account and for nobody else; returns those that are held now.
pub(crate) fn take_over(
    tx: &Connection,
    now: i64,
    account: AccountId,
    ids: &[ShareId],
) -> rusqlite::Result<Vec<ShareId>> {
    let held = lease(tx, now, account, ids, None)?;
    for id in &held {
        tx.prepare_cached("DELETE FROM leases WHERE share = ?1 AND shnum = 0 AND account <> ?2")?
            .execute(params![id.0, account.0])?;
    }
    Ok(held)
}
