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
