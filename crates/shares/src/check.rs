//! The check of the whole database: SQLite's own structure, every row's seal, and every sum.

use std::collections::BTreeMap;

use namespace::ShareId;
use rusqlite::Connection;

use crate::{
    accounts,
    rows::{IncidentRow, LeaseRow, PassRow, ShareRow},
    seal::{Sealed, unseal},
    share::{AccountId, State, Usage},
    tx,
};

/// Checks the database. `Err`: the fault, in words. The outer error may say "corrupt", too.
pub(crate) fn check(connection: &Connection) -> rusqlite::Result<Result<(), String>> {
    // One snapshot.
    let transaction = connection.unchecked_transaction()?;
    let verdict: String = transaction.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Ok(Err(verdict));
    }
    seals::<PassRow>(&transaction)?;
    seals::<IncidentRow>(&transaction)?;
    let (stored, held) = match recount(&transaction)? {
        Ok(sums) => sums,
        Err(what) => return Ok(Err(what)),
    };
    let store = tx::store(&transaction)?;
    if store.stored != stored {
        return Ok(Err(format!("the store sums up {}, and has {}", told(store.stored), told(stored))));
    }
    let accounts = accounts::all(&transaction)?;
    for account in &accounts {
        let holds = held.get(&account.id).copied().unwrap_or_default();
        if account.usage != holds {
            let (name, usage) = (&account.name, account.usage);
            return Ok(Err(format!("account {name} sums up {}, and holds {}", told(usage), told(holds))));
        }
    }
    let known = |id: &AccountId| accounts.iter().any(|account| account.id == *id);
    Ok(match held.keys().find(|id| !known(id)) {
        Some(id) => Err(format!("there are leases of account {}, which there is not", id.0)),
        None => Ok(()),
    })
}

fn told(Usage { shares, bytes }: Usage) -> String {
    format!("{shares} shares of {bytes} bytes")
}

fn seals<T: Sealed>(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("SELECT * FROM {}", T::TABLE))?;
    statement.query_map([], unseal::<T>)?.try_for_each(|row| row.map(|_| ()))
}

type Sums = (Usage, BTreeMap<AccountId, Usage>);

/// Goes through shares and leases side by side, since both are in the order of shares.
fn recount(connection: &Connection) -> rusqlite::Result<Result<Sums, String>> {
    let mut shares = connection.prepare("SELECT * FROM shares ORDER BY share")?;
    let mut leases = connection.prepare("SELECT * FROM leases ORDER BY share, account")?;
    let shares = shares.query_map([], unseal::<ShareRow>)?;
    let mut leases = leases.query_map([], unseal::<LeaseRow>)?.peekable();
    let (mut stored, mut held) = (Usage::default(), BTreeMap::<AccountId, Usage>::new());
    for share in shares {
        let share = share?;
        stored.add(share.length);
        let mut count = 0;
        while let Some(lease) = leases.next_if(|lease| !matches!(lease, Ok(lease) if lease.share != share.id))
        {
            held.entry(lease?.account).or_default().add(share.length);
            count += 1;
        }
        let unleased = share.state == State::Stable && count == 0;
        if share.leases != count
            || (share.state == State::Stable && share.unleased_since.is_some() != unleased)
        {
            return Ok(Err(format!("share {} has {count} leases, which is not what its row says", share.id)));
        }
    }
    Ok(match leases.next() {
        Some(lease) => Err(format!("a lease on share {}, of which there is no row", lease?.share)),
        None => Ok((stored, held)),
    })
}

/// The position of a share in the order of all shares, from 0 to 1.
pub(crate) fn fraction(id: &ShareId) -> f64 {
    (u128::from_be_bytes(id.0) >> 64) as f64 / (u64::MAX as f64)
}
