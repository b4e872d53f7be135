//! The lease database's schema (leasedb, "Schema", as proposed there), version 1.
//!
//! What must hold whatever statement changes the rows is kept by triggers, in the same transaction: `shares.nleases` counts a share's
//! leases, `shares.unleased_since` is set exactly while a stable share has none, `usage` sums each account's leased shares, and the
//! `stored_*` rows of `meta` sum all shares. The time that triggers note is `meta.wall_clock`, which every transaction sets first.

use rusqlite::Connection;

/// Version of the tables below.
pub(crate) const SCHEMA_VERSION: i64 = 1;
/// "LHsh": tells the file from other SQLite databases.
pub(crate) const APPLICATION_ID: i64 = 0x4c48_7368;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No table yet.
    Empty,
    /// This schema.
    Ours,
    /// That of a later program.
    Newer(i64),
    /// Somebody else's database.
    Foreign,
}

/// Looks at what a file holds. Errors that say "corrupt" are the caller's to judge.
pub(crate) fn look(connection: &Connection) -> rusqlite::Result<Found> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(match (tables, application, version) {
        (0, 0, 0) => Found::Empty,
        (_, APPLICATION_ID, SCHEMA_VERSION) => Found::Ours,
        (_, APPLICATION_ID, version) if version > SCHEMA_VERSION => Found::Newer(version),
        _ => Found::Foreign,
    })
}

/// Makes the tables in one transaction, in phase `rebuild`: nothing is deleted before discovery has completed.
pub(crate) fn create(connection: &mut Connection, now: i64) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.execute_batch(TRIGGERS)?;
    transaction.execute("UPDATE meta SET value = ?1 WHERE name = 'wall_clock'", [now])?;
    transaction.execute("UPDATE accounts SET created_at = ?1", [now])?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

/// Keys are binary, and the first byte of a share's is its prefix: a prefix is a range of the key and needs neither column nor index.
/// `shnum` is 0 for copies and numbers the shares of one coded piece later. `state`: 0 coming, 1 stable, 2 going. `sharetype`: 0
/// immutable, 1 mutable. `health`: 0 ok, 1 partial, 2 missing, 3 corrupt. `upload_id` is set while an upload writes the share's file; the
/// reaper keeps off then. Times are UTC seconds; a lease without `expires_at` never ends.
const TABLES: &str = "
CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES
    ('store_id', randomblob(16)),
    ('epoch', 0),
    ('rebuild', 'discovery'),
    ('wall_clock', 0),
    ('stored_shares', 0),
    ('stored_bytes', 0);

CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    pubkey BLOB UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;
INSERT INTO accounts VALUES (0, 'anonymous', NULL, 0), (1, 'starter', NULL, 0);

CREATE TABLE account_attributes (
    account INTEGER NOT NULL REFERENCES accounts (id),
    name TEXT NOT NULL,
    value ANY NOT NULL,
    PRIMARY KEY (account, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE shares (
    share BLOB NOT NULL CHECK (length(share) = 16),
    shnum INTEGER NOT NULL DEFAULT 0 CHECK (shnum >= 0),
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2)),
    sharetype INTEGER NOT NULL DEFAULT 0 CHECK (sharetype IN (0, 1)),
    health INTEGER NOT NULL DEFAULT 0 CHECK (health IN (0, 1, 2, 3)),
    length INTEGER NOT NULL CHECK (length >= 0),
    used_space INTEGER NOT NULL CHECK (used_space >= 0),
    digest BLOB CHECK (length(digest) = 16),
    backend_key TEXT,
    nleases INTEGER NOT NULL DEFAULT 0 CHECK (nleases >= 0),
    unleased_since INTEGER,
    changed_at INTEGER NOT NULL,
    upload_id INTEGER,
    PRIMARY KEY (share, shnum)
) STRICT, WITHOUT ROWID;
CREATE INDEX shares_work ON shares (state, unleased_since) WHERE state <> 1 OR nleases = 0;
CREATE INDEX shares_unhealthy ON shares (health) WHERE health <> 0;

CREATE TABLE leases (
    share BLOB NOT NULL,
    shnum INTEGER NOT NULL,
    account INTEGER NOT NULL REFERENCES accounts (id),
    renewed_at INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (share, shnum, account),
    FOREIGN KEY (share, shnum) REFERENCES shares (share, shnum)
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_by_account ON leases (account, renewed_at);
CREATE INDEX leases_by_expiry ON leases (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE usage (
    account INTEGER PRIMARY KEY REFERENCES accounts (id),
    shares INTEGER NOT NULL CHECK (shares >= 0),
    bytes INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT;

CREATE TABLE crawler_history (
    cycle INTEGER PRIMARY KEY,
    json TEXT NOT NULL
) STRICT;

CREATE TABLE incidents (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    share BLOB,
    shnum INTEGER,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
";

const TRIGGERS: &str = "
CREATE TRIGGER lease_added AFTER INSERT ON leases BEGIN
    UPDATE shares SET nleases = nleases + 1, unleased_since = NULL
        WHERE share = NEW.share AND shnum = NEW.shnum;
    INSERT INTO usage
        SELECT NEW.account, 1, length FROM shares WHERE share = NEW.share AND shnum = NEW.shnum
        ON CONFLICT (account) DO UPDATE SET shares = shares + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER lease_removed AFTER DELETE ON leases BEGIN
    UPDATE shares SET
        nleases = nleases - 1,
        unleased_since = CASE nleases WHEN 1 THEN (SELECT value FROM meta WHERE name = 'wall_clock') END
        WHERE share = OLD.share AND shnum = OLD.shnum;
    UPDATE usage SET
        shares = shares - 1,
        bytes = bytes - (SELECT length FROM shares WHERE share = OLD.share AND shnum = OLD.shnum)
        WHERE account = OLD.account;
END;
CREATE TRIGGER share_added AFTER INSERT ON shares BEGIN
    UPDATE meta SET value = value + 1 WHERE name = 'stored_shares';
    UPDATE meta SET value = value + NEW.length WHERE name = 'stored_bytes';
END;
CREATE TRIGGER share_removed AFTER DELETE ON shares BEGIN
    UPDATE meta SET value = value - 1 WHERE name = 'stored_shares';
    UPDATE meta SET value = value - OLD.length WHERE name = 'stored_bytes';
END;
CREATE TRIGGER share_length AFTER UPDATE OF length ON shares WHEN OLD.length <> NEW.length BEGIN
    UPDATE meta SET value = value + NEW.length - OLD.length WHERE name = 'stored_bytes';
    UPDATE usage SET bytes = bytes + NEW.length - OLD.length
        WHERE account IN (SELECT account FROM leases WHERE share = NEW.share AND shnum = NEW.shnum);
END;
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
        create(&mut connection, 1).unwrap();
        assert_eq!(look(&connection).unwrap(), Found::Ours);
        for (sql, index) in [
            (crate::transitions::UNLEASED, "shares_work"),
            (crate::transitions::NEXT_UNLEASED, "shares_work"),
            (crate::transitions::UNFINISHED, "shares_work"),
            (crate::transitions::UNHEALTHY, "shares_unhealthy"),
            (crate::leases::SWEEP, "leases_by_account"),
        ] {
            let plan = plan(&connection, sql);
            assert!(plan.contains(index), "{sql}: {plan}");
        }
    }
}
