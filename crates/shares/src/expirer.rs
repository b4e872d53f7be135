//! The expirer ends leases whose term is over (leasedb, "Leases and policies"). It goes through all
//! leases in bounded steps, each one transaction.
//!
//! Leases of the cluster's own accounts, and of the account `starter`, end at their recorded time.
//! One exception: a lease that ended after the cluster's last promise
//! ([`crate::ShareServer::vouch`]) stays. The promise says that every wanted lease is renewed, and
//! a host that was off or cut off has renewed none. Leases of other accounts never expire unless a
//! policy says so. Nothing expires while the clock is in doubt or the database is damaged.

use std::sync::atomic::Ordering;

use rusqlite::{OptionalExtension, params};

use crate::{
    crawler::Step,
    error::DatabaseError,
    passes,
    rows::LeaseRow,
    seal,
    server::SharedState,
    settings::Expiry,
    share::{AccountId, Process, Seconds},
    tx::Tx,
};

/// The most leases of a step.
const STEP: i64 = 1000;

impl SharedState {
    /// Goes through the next leases.
    pub(crate) fn expire_some(&self) -> Result<Step, DatabaseError> {
        if self.database.suspicion().is_raised() {
            return Ok(Step::LAST);
        }
        let (others, vouched) = (self.settings.expiry, self.vouched.load(Ordering::SeqCst));
        let (step, acted) = self.database.write("expiring leases", move |tx| expire(tx, others, vouched))?;
        if acted > 0 {
            self.reaper.wake();
        }
        Ok(step)
    }
}

fn expire(tx: &mut Tx<'_>, others: Option<Expiry>, vouched: Seconds) -> rusqlite::Result<(Step, u64)> {
    let vouched = i64::try_from(vouched).unwrap_or(i64::MAX).min(tx.now);
    let mut pass = passes::current(tx.connection, Process::Expirer, tx.now)?;
    if !tx.trusts_the_clock() {
        return Ok((Step::LAST, 0));
    }
    let after: &[u8] = pass.position.as_ref().map_or(&[], |share| &share.0);
    // All leases of a share belong to one step.
    let end = tx
        .connection
        .prepare_cached("SELECT share FROM leases WHERE share > ?1 ORDER BY share LIMIT 1 OFFSET ?2")?
        .query_row(params![after, STEP - 1], crate::transitions::share_id)
        .optional()?;
    let last = end.map_or([u8::MAX; 16], |share| share.0);
    let sql = "SELECT * FROM leases WHERE share > ?1 AND share <= ?2 ORDER BY share";
    let leases: Vec<LeaseRow> = seal::all(tx.connection, sql, params![after, last])?;
    let mut acted = 0;
    for lease in &leases {
        let is_over = match is_own(tx, lease.account)? {
            true => Expiry::Age.is_over(lease, vouched),
            false => others.is_some_and(|policy| policy.is_over(lease, tx.now)),
        };
        if is_over && let Some(share) = tx.share(&lease.share)? {
            tx.remove_lease(&share, lease.account)?;
            acted += 1;
        }
    }
    pass.examined += leases.len() as u64;
    pass.acted += acted;
    passes::save(tx, pass, end)?;
    Ok((Step { work: leases.len() as u64, is_last: end.is_none() }, acted))
}

/// Whether an account is the cluster's: neither a key's nor the anonymous one.
fn is_own(tx: &mut Tx<'_>, account: AccountId) -> rusqlite::Result<bool> {
    Ok(account != AccountId::ANONYMOUS && tx.account(account)?.key.is_none())
}
