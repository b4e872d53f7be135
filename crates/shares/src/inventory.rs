//! What is stored, and how it stands: for people, so that sums are made when they are asked for.

use rusqlite::Connection;

use crate::{
    rows::ShareRow,
    seal::unseal,
    share::{Health, Seconds, State, Usage},
    tx,
};

/// What is neither stable nor leased; the partial index knows it.
pub(crate) const WORK: &str = "SELECT * FROM shares INDEXED BY shares_work WHERE state <> 1 OR nleases = 0";
/// What is damaged.
pub(crate) const DAMAGED: &str = "SELECT * FROM shares INDEXED BY shares_unhealthy WHERE health <> 0";

/// How what is stored stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Being written.
    pub coming: Usage,
    /// Written, and wanted by somebody or not.
    pub stable: Usage,
    /// Being deleted.
    pub going: Usage,
    /// Of the stable ones, those that nobody holds.
    pub unleased: Usage,
    /// Of these, those that may be deleted now.
    pub due: Usage,
    /// When the first of the rest may be.
    pub next_due: Option<Seconds>,
    /// Stable ones of which some is gone.
    pub partial: Usage,
    /// Stable ones whose file is gone.
    pub missing: Usage,
    /// Stable ones that are not what was stored.
    pub corrupt: Usage,
}

/// As of `now`, where unleased shares stay for `grace`.
pub(crate) fn take(connection: &Connection, now: Seconds, grace: Seconds) -> rusqlite::Result<Inventory> {
    let (mut sums, mut unstable) = (Inventory::default(), Usage::default());
    for row in connection.prepare_cached(WORK)?.query_map([], unseal::<ShareRow>)? {
        let row = row?;
        match row.state {
            State::Coming => sums.coming.add(row.length),
            State::Going => sums.going.add(row.length),
            State::Stable => {
                sums.unleased.add(row.length);
                let since = row.unleased_since.and_then(|since| u64::try_from(since).ok()).unwrap_or(now);
                // 0 is "at once".
                let due = if since == 0 { 0 } else { since.saturating_add(grace) };
                if due <= now {
                    sums.due.add(row.length);
                } else {
                    sums.next_due = Some(sums.next_due.map_or(due, |next| next.min(due)));
                }
                continue;
            }
        }
        unstable.add(row.length);
    }
    for row in connection.prepare_cached(DAMAGED)?.query_map([], unseal::<ShareRow>)? {
        let row = row?;
        match row.health {
            _ if row.state != State::Stable => {}
            Health::Ok => {}
            Health::Partial => sums.partial.add(row.length),
            Health::Missing => sums.missing.add(row.length),
            Health::Corrupt => sums.corrupt.add(row.length),
        }
    }
    let stored = tx::store(connection)?.stored;
    sums.stable = Usage {
        shares: stored.shares.saturating_sub(unstable.shares),
        bytes: stored.bytes.saturating_sub(unstable.bytes),
    };
    Ok(sums)
}
