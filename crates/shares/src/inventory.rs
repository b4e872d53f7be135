//! The inventory: the stored shares by state, for operators. So sums are made on request.

use rusqlite::Connection;

use crate::{
    rows::ShareRow,
    seal::unseal,
    share::{Health, Seconds, State, Usage},
    tx,
};

/// Selects shares that are not stable or not leased; the partial index knows them.
pub(crate) const WORK: &str = "SELECT * FROM shares INDEXED BY shares_work WHERE state <> 1 OR nleases = 0";
/// Selects damaged shares.
pub(crate) const DAMAGED: &str = "SELECT * FROM shares INDEXED BY shares_unhealthy WHERE health <> 0";

/// The stored shares by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Being written.
    pub coming: Usage,
    /// Written, leased or not.
    pub stable: Usage,
    /// Being deleted.
    pub going: Usage,
    /// The unleased ones of the stable shares.
    pub unleased: Usage,
    /// Those of them that may be deleted now.
    pub due: Usage,
    /// The time when the first of the others is due.
    pub next_due: Option<Seconds>,
    /// Stable shares of which a part is missing.
    pub partial: Usage,
    /// Stable shares whose file is missing.
    pub missing: Usage,
    /// Stable shares whose bytes differ from the stored ones.
    pub corrupt: Usage,
}

/// Counts the shares as of `now`, where unleased ones stay for `grace`.
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
                // 0 means "at once".
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
