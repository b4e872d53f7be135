//! Leases: an account wants a share kept until a given time (leasedb, "Leases and policies").

use namespace::ShareId;
use rusqlite::{Connection, params};

use crate::{
    rows::{LeaseRow, ShareRow},
    seal,
    share::{AccountId, Deletion, Holds, Seconds, ShareLease, State, Uploaders, Usage},
    transitions,
    tx::{self, Tx},
};

/// The term of a lease of the cluster's own accounts.
pub(crate) const TERM: Seconds = 31 * 24 * 3600;
/// The age from which such a lease is due for renewal.
const RENEWED_EVERY: Seconds = 7 * 24 * 3600;

/// Selects an account's leases in order; `?1`: the account, `?2`: after which share, `?3`: how
/// many.
pub(crate) const OF_ACCOUNT: &str =
    "SELECT * FROM leases WHERE account = ?1 AND share > ?2 ORDER BY share LIMIT ?3";

/// The result of leasing shares. Shares in neither list are unreliable.
#[derive(Debug, Default)]
pub(crate) struct Leased {
    /// Held now: stable and undamaged shares only.
    pub held: Vec<ShareId>,
    /// Shares without a row.
    pub unknown: Vec<ShareId>,
    /// Shares that are going, since they should not have been stored.
    pub turned_away: Vec<ShareId>,
}

/// Takes or renews leases. Never shortens one.
pub(crate) fn lease(
    tx: &mut Tx<'_>,
    account: AccountId,
    ids: &[ShareId],
    until: Option<Seconds>,
) -> rusqlite::Result<Leased> {
    let mut leased = Leased::default();
    for id in ids {
        match tx.share(id)? {
            None => leased.unknown.push(*id),
            Some(row) if row.is_sound() && lease_row(tx, &row, account, until)? => leased.held.push(*id),
            Some(_) => {}
        }
    }
    Ok(leased)
}

/// Takes or renews a lease on a stable share. `false`: the account's quota has no room for it.
pub(crate) fn lease_row(
    tx: &mut Tx<'_>,
    share: &ShareRow,
    account: AccountId,
    until: Option<Seconds>,
) -> rusqlite::Result<bool> {
    let more = Usage { shares: 1, bytes: share.length.into() };
    if tx.lease(&share.id, account)?.is_none() && !tx.has_room(account, more)? {
        return Ok(false);
    }
    take(tx, share, account, until)?;
    Ok(true)
}

/// Takes or renews a lease on a stable share, whatever the quota and the share's health.
pub(crate) fn take(
    tx: &mut Tx<'_>,
    share: &ShareRow,
    account: AccountId,
    until: Option<Seconds>,
) -> rusqlite::Result<ShareRow> {
    let until = until.map(|t| i64::try_from(t).unwrap_or(i64::MAX));
    let Some(old) = tx.lease(&share.id, account)? else {
        let lease = LeaseRow { share: share.id, account, renewed_at: tx.now, expires_at: until };
        return tx.add_lease(share, &lease);
    };
    let expires_at = old.expires_at.zip(until).map(|(old, new)| old.max(new));
    let lease = LeaseRow { renewed_at: old.renewed_at.max(tx.now), expires_at, ..old };
    seal::put(tx.connection, &lease)?;
    Ok(share.clone())
}

/// Releases an account's leases on these shares (`None`: those of all accounts except the keys').
/// Returns how many shares are unleased now.
///
/// Deletion at once is for a share's holders to ask for: an account without a lease on the share
/// cannot (leasedb, fault 9).
pub(crate) fn release(
    tx: &mut Tx<'_>,
    account: Option<AccountId>,
    ids: &[ShareId],
    deletion: Deletion,
) -> rusqlite::Result<usize> {
    let mut unleased = 0;
    for id in ids {
        let Some(mut row) = tx.share(id)? else { continue };
        let leases = match account {
            Some(account) => tx.lease(id, account)?.into_iter().collect(),
            None => leases_of_the_clusters(tx, id)?,
        };
        for lease in &leases {
            row = tx.remove_lease(&row, lease.account)?;
        }
        if row.state != State::Stable || row.leases > 0 || (leases.is_empty() && account.is_some()) {
            continue;
        }
        if deletion == Deletion::AtOnce && row.unleased_since != Some(0) {
            // The beginning of time is past any grace period, also after a restart.
            tx.change_share(&row, &ShareRow { unleased_since: Some(0), ..row.clone() })?;
        }
        unleased += 1;
    }
    Ok(unleased)
}

/// Releases those of an account's next leases after `after` that it took or renewed last before
/// `since` (`None`: all of them). Returns how many it released, and where to continue.
pub(crate) fn drop_unrenewed(
    tx: &mut Tx<'_>,
    account: AccountId,
    since: Option<Seconds>,
    after: Option<&ShareId>,
    limit: usize,
) -> rusqlite::Result<(usize, Option<ShareId>)> {
    let since = since.map_or(i64::MAX, |since| i64::try_from(since).unwrap_or(i64::MAX));
    let after: &[u8] = after.map_or(&[], |after| &after.0);
    let leases: Vec<LeaseRow> = seal::all(tx.connection, OF_ACCOUNT, params![account.0, after, limit])?;
    let mut dropped = 0;
    for lease in leases.iter().filter(|lease| lease.renewed_at < since) {
        if let Some(row) = tx.share(&lease.share)? {
            tx.remove_lease(&row, account)?;
            dropped += 1;
        }
    }
    Ok((dropped, leases.last().filter(|_| leases.len() == limit).map(|lease| lease.share)))
}

/// The leases on a share, by account.
pub(crate) fn leases_of(connection: &Connection, id: &ShareId) -> rusqlite::Result<Vec<ShareLease>> {
    let leases: Vec<LeaseRow> = seal::all(connection, tx::LEASES, [id.0])?;
    Ok(leases.iter().map(told).collect())
}

fn told(lease: &LeaseRow) -> ShareLease {
    ShareLease {
        account: lease.account,
        renewed_at: u64::try_from(lease.renewed_at).unwrap_or(0),
        expires_at: lease.expires_at.map(|t| u64::try_from(t).unwrap_or(0)),
    }
}

/// The relation of an account to a share, by its row. `None`: there is no row.
pub(crate) fn holds(
    connection: &Connection,
    account: AccountId,
    id: &ShareId,
    now: Seconds,
) -> rusqlite::Result<Option<Holds>> {
    let Some(row) = transitions::row(connection, id)? else { return Ok(None) };
    if !row.is_sound() {
        return Ok(Some(Holds::Nothing));
    }
    let lease: Option<LeaseRow> = seal::one(connection, tx::LEASE, params![id.0, account.0])?;
    let due = |lease: LeaseRow| told(&lease).renewed_at.saturating_add(RENEWED_EVERY) <= now;
    Ok(Some(match lease.map(due) {
        None => Holds::Unleased,
        Some(true) => Holds::Due,
        Some(false) => Holds::Leased,
    }))
}

/// The first shares after `after` that an account has leases on, in order.
pub(crate) fn leased_by(
    connection: &Connection,
    account: AccountId,
    after: Option<&ShareId>,
    limit: usize,
) -> rusqlite::Result<Vec<ShareId>> {
    // Nearly all leases are the group's, so the table's own order is the quickest. The plus sign
    // keeps SQLite from using the account's index.
    let sql = "SELECT * FROM leases WHERE share > ?1 AND +account = ?2 ORDER BY share LIMIT ?3";
    // The empty blob sorts before every share.
    let after: &[u8] = after.map_or(&[], |after| &after.0);
    let leases: Vec<LeaseRow> = seal::all(connection, sql, params![after, account.0, limit])?;
    Ok(leases.iter().map(|lease| lease.share).collect())
}

/// As [`leased_by`], but by the index: for an account that holds a small part of the store.
pub(crate) fn held_by(
    connection: &Connection,
    account: AccountId,
    after: Option<&ShareId>,
    limit: usize,
) -> rusqlite::Result<Vec<ShareId>> {
    let after: &[u8] = after.map_or(&[], |after| &after.0);
    let leases: Vec<LeaseRow> = seal::all(connection, OF_ACCOUNT, params![account.0, after, limit])?;
    Ok(leases.iter().map(|lease| lease.share).collect())
}

/// The cluster's accounts' leases on a share. Only the keys themselves end the leases of keys.
fn leases_of_the_clusters(tx: &mut Tx<'_>, id: &ShareId) -> rusqlite::Result<Vec<LeaseRow>> {
    let mut own = Vec::new();
    for lease in tx.leases(id)? {
        if tx.account(lease.account)?.key.is_none() {
            own.push(lease);
        }
    }
    Ok(own)
}

/// Whether accounts of the cluster hold a share, but neither a `believed` one nor the one that
/// takes it over. A starter lease does not tell who stored the share. A share that nobody holds is
/// of strangers, too: its uploader may be one whose leases have ended.
fn is_of_strangers(
    tx: &mut Tx<'_>,
    id: &ShareId,
    account: AccountId,
    believed: &[AccountId],
) -> rusqlite::Result<bool> {
    if tx.leases(id)?.is_empty() {
        return Ok(true);
    }
    let mut leases = leases_of_the_clusters(tx, id)?;
    leases.retain(|lease| lease.account != AccountId::STARTER);
    let is_believed = |holder| holder == account || believed.contains(&holder);
    Ok(!leases.is_empty() && !leases.iter().any(|lease| is_believed(lease.account)))
}

/// Leases shares for [`TERM`] for one account of the cluster, and ends the leases of its other
/// accounts.
///
/// A damaged share is leased too, since it may be the only copy. It is not reported as held, and
/// its other leases stay. A share may be leased only by accounts that are not its `believed`
/// uploaders, or by none. Its content may then not be what its name promises, and it goes, if
/// anything `may_go`.
pub(crate) fn take_over(
    tx: &mut Tx<'_>,
    account: AccountId,
    ids: &[ShareId],
    believed: &Uploaders,
    may_go: bool,
) -> rusqlite::Result<Leased> {
    let until = i64::try_from(TERM).unwrap_or(i64::MAX).saturating_add(tx.now);
    let mut leased = Leased::default();
    for id in ids {
        let Some(share) = tx.share(id)? else {
            leased.unknown.push(*id);
            continue;
        };
        if share.state != State::Stable {
            continue;
        }
        if believed.get(id).map_or(Ok(false), |believed| is_of_strangers(tx, id, account, believed))? {
            if may_go && transitions::turn_away(tx, &share)? {
                leased.turned_away.push(*id);
            }
            continue;
        }
        let old = tx.lease(id, account)?;
        let end = old.and_then(|old| old.expires_at).map_or(until, |end| end.max(until));
        let renewed_at = old.map_or(tx.now, |old| old.renewed_at.max(tx.now));
        let lease = LeaseRow { share: *id, account, renewed_at, expires_at: Some(end) };
        let mut share = match old {
            None => tx.add_lease(&share, &lease)?,
            Some(_) => {
                seal::put(tx.connection, &lease)?;
                share
            }
        };
        if !share.is_sound() {
            continue;
        }
        for other in leases_of_the_clusters(tx, id)?.into_iter().filter(|lease| lease.account != account) {
            share = tx.remove_lease(&share, other.account)?;
        }
        leased.held.push(*id);
    }
    Ok(leased)
}

/// Adds leases that a share had in another store, by accounts of this one. Existing leases are
/// never shortened. The caller asks for leases that existed there, so no quota is checked. A share
/// leased by a key needs no starter lease.
pub(crate) fn bring(tx: &mut Tx<'_>, id: &ShareId, leases: &[LeaseRow]) -> rusqlite::Result<()> {
    for lease in leases {
        let Some(share) = tx.share(&lease.share)?.filter(|row| row.state == State::Stable) else { continue };
        let renewed_at = lease.renewed_at.min(tx.now);
        match tx.lease(&lease.share, lease.account)? {
            None => {
                tx.add_lease(&share, &LeaseRow { renewed_at, ..*lease })?;
            }
            Some(old) => {
                let expires_at = old.expires_at.zip(lease.expires_at).map(|(old, new)| old.max(new));
                let renewed_at = old.renewed_at.max(renewed_at);
                seal::put(tx.connection, &LeaseRow { renewed_at, expires_at, ..old })?;
            }
        }
    }
    let mut keys_hold_it = false;
    for lease in tx.leases(id)? {
        let lasts = lease.expires_at.is_none_or(|end| end > tx.now);
        keys_hold_it |= lasts && tx.account(lease.account)?.key.is_some();
    }
    if keys_hold_it
        && tx.lease(id, AccountId::STARTER)?.is_some()
        && let Some(share) = tx.share(id)?
    {
        tx.remove_lease(&share, AccountId::STARTER)?;
    }
    Ok(())
}
