//! The lease database's schema (leasedb, "Schema"), version 1.
//!
//! [`crate::tx::Tx`] keeps the invariants between rows, in the same transaction. A share counts its
//! leases and notes since when it has none, an account sums up its leased shares, and the store all
//! shares. Every row ends with a seal (see [`crate::seal`]).

use rusqlite::Connection;

use crate::{
    rows::{AccountRow, PREFIXES, StoreRow},
    seal::put,
    share::{AccountId, Usage},
};

/// Version of the tables below.
pub(crate) const SCHEMA_VERSION: i64 = 1;
/// "LHsh": tells the file from other SQLite databases.
pub(crate) const APPLICATION_ID: i64 = 0x4c48_7368;

/// The kinds of databases that a file may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundSchema {
    /// No table yet.
    Empty,
    /// This schema.
    Ours,
    /// This schema, damaged.
    Damaged,
    /// That of a later program.
    Newer(i64),
    /// A foreign database.
    Foreign,
}

/// Examines a file's schema. The caller judges errors that say "corrupt".
pub(crate) fn look(connection: &Connection) -> rusqlite::Result<FoundSchema> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(match (tables, application, version) {
        (0, 0, 0) => FoundSchema::Empty,
        (_, APPLICATION_ID, SCHEMA_VERSION) if is_whole(connection)? => FoundSchema::Ours,
        (_, APPLICATION_ID, SCHEMA_VERSION) => FoundSchema::Damaged,
        (_, APPLICATION_ID, version) if version > SCHEMA_VERSION => FoundSchema::Newer(version),
        _ => FoundSchema::Foreign,
    })
}

/// Whether the tables are declared as they are here: SQLite believes whatever the file says.
fn is_whole(connection: &Connection) -> rusqlite::Result<bool> {
    let declared = |connection: &Connection| -> rusqlite::Result<Vec<(String, String, String)>> {
        let sql = "SELECT name, tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY name";
        let mut statement = connection.prepare(sql)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect()
    };
    let pattern = Connection::open_in_memory()?;
    pattern.execute_batch(TABLES)?;
    Ok(declared(connection)? == declared(&pattern)?)
}

/// Makes the tables in one transaction. Unless `nothing_there`, there may be unknown shares: then
/// nothing is deleted before discovery has completed.
pub(crate) fn create(connection: &mut Connection, now: i64, nothing_there: bool) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    let id: [u8; 16] = transaction.query_row("SELECT randomblob(16)", [], |row| row.get(0))?;
    let discovered = if nothing_there { PREFIXES } else { 0 };
    let store = StoreRow {
        id,
        epoch: 0,
        discovered,
        starters_for_all: false,
        wall_clock: now,
        clock_doubted_at: None,
        stored: Usage::default(),
    };
    put(&transaction, &store)?;
    for (id, name) in [(AccountId::ANONYMOUS, "anonymous"), (AccountId::STARTER, "starter")] {
        put(&transaction, &account(id, name.to_owned(), now))?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

/// An account of the cluster's own that holds nothing.
pub(crate) fn account(id: AccountId, name: String, now: i64) -> AccountRow {
    AccountRow { id, name, key: None, created_at: now, quota: None, nonce: 0, usage: Usage::default() }
}

/// Keys are binary, and the first byte of a share's is its prefix: a prefix is a range of the key
/// and needs neither column nor index. `state`: 0 coming, 1 stable, 2 going. `health`: 0 ok, 1
/// partial, 2 missing, 3 corrupt. Times are UTC seconds. [`crate::rows`] documents the columns of
/// `store`, `accounts` and the rest.
const TABLES: &str = "
CREATE TABLE store (
    id BLOB NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    discovered INTEGER NOT NULL,
    starters_for_all INTEGER NOT NULL,
    wall_clock INTEGER NOT NULL,
    clock_doubted_at INTEGER,
    shares INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    seal INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    pubkey BLOB UNIQUE,
    created_at INTEGER NOT NULL,
    quota_shares INTEGER,
    quota_bytes INTEGER,
    nonce INTEGER NOT NULL,
    shares INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    seal INTEGER NOT NULL
) STRICT;

CREATE TABLE shares (
    share BLOB NOT NULL PRIMARY KEY CHECK (length(share) = 16),
    state INTEGER NOT NULL,
    health INTEGER NOT NULL,
    length INTEGER NOT NULL,
    digest BLOB,
    nleases INTEGER NOT NULL,
    unleased_since INTEGER,
    changed_at INTEGER NOT NULL,
    upload_id INTEGER,
    seal INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX shares_work ON shares (state, unleased_since) WHERE state <> 1 OR nleases = 0;
CREATE INDEX shares_unhealthy ON shares (health) WHERE health <> 0;

CREATE TABLE leases (
    share BLOB NOT NULL,
    account INTEGER NOT NULL,
    renewed_at INTEGER NOT NULL,
    expires_at INTEGER,
    seal INTEGER NOT NULL,
    PRIMARY KEY (share, account)
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_by_account ON leases (account);

CREATE TABLE passes (
    process INTEGER NOT NULL,
    cycle INTEGER NOT NULL,
    began_at INTEGER NOT NULL,
    ended_at INTEGER,
    position BLOB,
    examined INTEGER NOT NULL,
    acted INTEGER NOT NULL,
    seal INTEGER NOT NULL,
    PRIMARY KEY (process, cycle)
) STRICT, WITHOUT ROWID;

CREATE TABLE incidents (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    share BLOB,
    what TEXT NOT NULL,
    seal INTEGER NOT NULL
) STRICT;
";

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(connection: &Connection, sql: &str) -> String {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = rusqlite::params_from_iter(vec![1; statement.parameter_count()]);
        let rows = statement.query_map(parameters, |row| row.get::<_, String>(3)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn work_is_found_by_the_partial_indexes() {
        let mut connection = Connection::open_in_memory().unwrap();
        create(&mut connection, 1, true).unwrap();
        assert_eq!(look(&connection).unwrap(), FoundSchema::Ours);
        for (sql, index) in [
            (crate::transitions::UNLEASED, "shares_work"),
            (crate::transitions::NEXT_UNLEASED, "shares_work"),
            (crate::transitions::UNFINISHED, "shares_work"),
            (crate::transitions::FROM_THE_FUTURE, "shares_work"),
            (crate::transitions::UNHEALTHY, "shares_unhealthy"),
            (crate::inventory::WORK, "shares_work"),
            (crate::inventory::DAMAGED, "shares_unhealthy"),
            (crate::leases::OF_ACCOUNT, "leases_by_account"),
        ] {
            let plan = plan(&connection, sql);
            assert!(plan.contains(index), "{sql}: {plan}");
        }
    }
}
