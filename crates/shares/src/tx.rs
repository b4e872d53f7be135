//! A transaction of the lease database: its rows, and the invariants between them.
//!
//! A share counts its leases and notes since when it is stable and has none. An account sums up the
//! shares that it leases, and the store sums up all shares. The sums stay in memory until the
//! transaction ends, since nearly every request changes the same few.

use std::collections::{BTreeMap, btree_map::Entry};

use namespace::ShareId;
use rusqlite::{Connection, params};

use crate::{
    rows::{AccountRow, IncidentRow, LeaseRow, ShareRow, StoreRow},
    seal,
    share::{AccountId, Usage},
};

pub(crate) const SHARE: &str = "SELECT * FROM shares WHERE share = ?1";
pub(crate) const LEASE: &str = "SELECT * FROM leases WHERE share = ?1 AND account = ?2";
pub(crate) const LEASES: &str = "SELECT * FROM leases WHERE share = ?1 ORDER BY account";
pub(crate) const ACCOUNT: &str = "SELECT * FROM accounts WHERE id = ?1";
pub(crate) const STORE: &str = "SELECT * FROM store";
/// A clock that has jumped forward by more than this is not believed (leasedb, "Fail-safe").
const JUMP_SECONDS: i64 = 24 * 3600;

/// A transaction and its sums.
pub(crate) struct Tx<'a> {
    pub connection: &'a Connection,
    /// The time of all operations in it.
    pub now: i64,
    pub store: StoreRow,
    /// `None`: the account is forgotten.
    accounts: BTreeMap<AccountId, Option<AccountRow>>,
    /// The old state of the two above, to roll the current request back.
    before: StoreRow,
    touched: BTreeMap<AccountId, Option<AccountRow>>,
}

impl<'a> Tx<'a> {
    /// Begins the transaction of `connection`.
    pub fn begin(connection: &'a Connection, now: i64) -> rusqlite::Result<Tx<'a>> {
        let store = store(connection)?;
        let (accounts, touched) = (BTreeMap::new(), BTreeMap::new());
        let mut tx = Tx { connection, now, before: store, store, accounts, touched };
        tx.look_at_the_clock()?;
        tx.keep();
        Ok(tx)
    }

    fn look_at_the_clock(&mut self) -> rusqlite::Result<()> {
        let last = std::mem::replace(&mut self.store.wall_clock, self.now);
        if self.now.saturating_sub(last) <= JUMP_SECONDS || self.store.clock_doubted_at.is_some() {
            return Ok(());
        }
        self.store.clock_doubted_at = Some(self.now);
        tracing::warn!(
            days = (self.now - last) / JUMP_SECONDS,
            "the clock has jumped, or no share was served for so long: no lease expires until the clock is confirmed"
        );
        self.incident(None, format!("the clock went from {last} to {}", self.now))
    }

    /// Keeps the changes of the current request.
    pub fn keep(&mut self) {
        self.accounts.append(&mut self.touched);
        self.before = self.store;
    }

    /// Rolls the current request back.
    pub fn take_back(&mut self) {
        self.touched.clear();
        self.store = self.before;
    }

    /// Writes the sums.
    pub fn end(self) -> rusqlite::Result<()> {
        for account in self.accounts.values().flatten() {
            seal::put(self.connection, account)?;
        }
        seal::put(self.connection, &self.store)
    }

    /// Whether the clock may decide which unleased shares are due.
    pub fn trusts_the_clock(&self) -> bool {
        self.store.clock_doubted_at.is_none()
    }

    pub fn share(&self, id: &ShareId) -> rusqlite::Result<Option<ShareRow>> {
        seal::one(self.connection, SHARE, [id.0])
    }

    /// Adds a share that has no row so far.
    pub fn add_share(&mut self, share: &ShareRow) -> rusqlite::Result<()> {
        seal::put(self.connection, share)?;
        self.store.stored.add(share.length);
        Ok(())
    }

    /// Replaces a share's row, which was `before`.
    pub fn change_share(&mut self, before: &ShareRow, share: &ShareRow) -> rusqlite::Result<()> {
        if before.length != share.length {
            self.store.stored.take(before.length);
            self.store.stored.add(share.length);
            for lease in self.leases(&share.id)? {
                let usage = &mut self.account(lease.account)?.usage;
                usage.take(before.length);
                usage.add(share.length);
            }
        }
        seal::put(self.connection, share)
    }

    /// Removes the row of an unleased share.
    pub fn remove_share(&mut self, share: &ShareRow) -> rusqlite::Result<()> {
        self.connection.prepare_cached("DELETE FROM shares WHERE share = ?1")?.execute([share.id.0])?;
        self.store.stored.take(share.length);
        Ok(())
    }

    pub fn lease(&self, id: &ShareId, account: AccountId) -> rusqlite::Result<Option<LeaseRow>> {
        seal::one(self.connection, LEASE, params![id.0, account.0])
    }

    /// All leases on a share.
    pub fn leases(&self, id: &ShareId) -> rusqlite::Result<Vec<LeaseRow>> {
        seal::all(self.connection, LEASES, [id.0])
    }

    /// Adds a lease of an account that had none on `share`, which is stable.
    pub fn add_lease(&mut self, share: &ShareRow, lease: &LeaseRow) -> rusqlite::Result<ShareRow> {
        self.account(lease.account)?.usage.add(share.length);
        seal::put(self.connection, lease)?;
        let leased =
            ShareRow { leases: share.leases.saturating_add(1), unleased_since: None, ..share.clone() };
        seal::put(self.connection, &leased)?;
        Ok(leased)
    }

    /// Ends a lease on `share`.
    pub fn remove_lease(&mut self, share: &ShareRow, account: AccountId) -> rusqlite::Result<ShareRow> {
        self.account(account)?.usage.take(share.length);
        self.connection
            .prepare_cached("DELETE FROM leases WHERE share = ?1 AND account = ?2")?
            .execute(params![share.id.0, account.0])?;
        let leases = share.leases.saturating_sub(1);
        let unleased_since = (leases == 0).then_some(self.now);
        let left = ShareRow { leases, unleased_since, ..share.clone() };
        seal::put(self.connection, &left)?;
        Ok(left)
    }

    /// An account, to be changed. The error says that it does not exist.
    pub fn account(&mut self, id: AccountId) -> rusqlite::Result<&mut AccountRow> {
        let account = match self.touched.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(match self.accounts.get(&id) {
                Some(account) => account.clone(),
                None => seal::one(self.connection, ACCOUNT, [id.0])?,
            }),
        };
        account.as_mut().ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// Removes the row of an account that holds nothing.
    pub fn forget_account(&mut self, id: AccountId) -> rusqlite::Result<()> {
        self.connection.prepare_cached("DELETE FROM accounts WHERE id = ?1")?.execute([id.0])?;
        self.touched.insert(id, None);
        Ok(())
    }

    /// Whether an account may lease this much more.
    pub fn has_room(&mut self, account: AccountId, more: Usage) -> rusqlite::Result<bool> {
        let AccountRow { quota, usage, .. } = self.account(account)?;
        Ok(quota.is_none_or(|quota| {
            usage.shares.saturating_add(more.shares) <= quota.shares
                && usage.bytes.saturating_add(more.bytes) <= quota.bytes
        }))
    }

    /// Notes an event that should not have happened; the last thousand are kept.
    pub fn incident(&mut self, share: Option<ShareId>, what: String) -> rusqlite::Result<()> {
        let last: i64 = self
            .connection
            .prepare_cached("SELECT coalesce(max(number), 0) FROM incidents")?
            .query_row([], |row| row.get(0))?;
        let number = last.saturating_add(1);
        seal::put(self.connection, &IncidentRow { number, at: self.now, share, what })?;
        self.connection
            .prepare_cached("DELETE FROM incidents WHERE number <= ?1 - 1000")?
            .execute([number])?;
        Ok(())
    }
}

/// The row of the whole store.
pub(crate) fn store(connection: &Connection) -> rusqlite::Result<StoreRow> {
    seal::one(connection, STORE, [])?.ok_or(rusqlite::Error::InvalidQuery)
}
