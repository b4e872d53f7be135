//! The rows of the lease database, table by table.

use namespace::ShareId;
use rusqlite::types::Value;

use crate::{
    digest::Digest,
    seal::{Columns, Sealed},
    share::{AccountId, Health, Process, State, StoredShare, Usage},
};

fn blob(bytes: &[u8]) -> Value {
    Value::Blob(bytes.to_owned())
}

fn unsigned(value: u64) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// A share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShareRow {
    pub id: ShareId,
    pub state: State,
    pub health: Health,
    pub length: u32,
    pub digest: Option<Digest>,
    /// The number of leases on it.
    pub leases: u32,
    /// Set exactly while the share is stable and unleased. 0: released for
    /// [`crate::Deletion::AtOnce`].
    pub unleased_since: Option<i64>,
    pub changed_at: i64,
    /// The upload that writes its file. The reaper leaves the share alone meanwhile.
    pub upload: Option<i64>,
}

impl Sealed for ShareRow {
    const TABLE: &'static str = "shares";
    const PUT: &'static str = "INSERT INTO shares VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
        ON CONFLICT (share) DO UPDATE SET state = excluded.state, health = excluded.health,
            length = excluded.length, digest = excluded.digest, nleases = excluded.nleases,
            unleased_since = excluded.unleased_since, changed_at = excluded.changed_at,
            upload_id = excluded.upload_id, seal = excluded.seal";

    fn values(&self) -> Vec<Value> {
        vec![
            blob(&self.id.0),
            Value::Integer(self.state as i64),
            Value::Integer(self.health as i64),
            Value::Integer(self.length.into()),
            self.digest.map_or(Value::Null, |digest| blob(&digest)),
            Value::Integer(self.leases.into()),
            self.unleased_since.into(),
            Value::Integer(self.changed_at),
            self.upload.into(),
        ]
    }

    fn parse(columns: &Columns<'_>) -> Option<ShareRow> {
        Some(ShareRow {
            id: columns.share(0)?,
            state: State::from_row(columns.integer(1)?)?,
            health: Health::from_row(columns.integer(2)?)?,
            length: columns.integer(3)?.try_into().ok()?,
            digest: columns.blob(4)?.map(Digest::try_from).transpose().ok()?,
            leases: columns.integer(5)?.try_into().ok()?,
            unleased_since: columns.optional(6)?,
            changed_at: columns.integer(7)?,
            upload: columns.optional(8)?,
        })
    }
}

impl ShareRow {
    pub fn told(&self) -> StoredShare {
        StoredShare {
            id: self.id,
            state: self.state,
            health: self.health,
            length: self.length,
            digest: self.digest,
            leases: self.leases,
        }
    }

    /// Whether the share can be held: it is there, and no damage is known.
    pub fn is_sound(&self) -> bool {
        self.state == State::Stable && self.health == Health::Ok
    }
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRow {
    pub share: ShareId,
    pub account: AccountId,
    pub renewed_at: i64,
    /// `None`: never.
    pub expires_at: Option<i64>,
}

impl Sealed for LeaseRow {
    const TABLE: &'static str = "leases";
    // The columns of the index by account are not set, so a renewal touches one page.
    const PUT: &'static str = "INSERT INTO leases VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (share, account) DO UPDATE SET renewed_at = excluded.renewed_at,
            expires_at = excluded.expires_at, seal = excluded.seal";

    fn values(&self) -> Vec<Value> {
        vec![
            blob(&self.share.0),
            Value::Integer(self.account.0),
            Value::Integer(self.renewed_at),
            self.expires_at.into(),
        ]
    }

    fn parse(columns: &Columns<'_>) -> Option<LeaseRow> {
        Some(LeaseRow {
            share: columns.share(0)?,
            account: AccountId(columns.integer(1)?),
            renewed_at: columns.integer(2)?,
            expires_at: columns.optional(3)?,
        })
    }
}

/// An account and its usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountRow {
    pub id: AccountId,
    pub name: String,
    /// An Ed25519 key. The cluster's own accounts have none.
    pub key: Option<[u8; 32]>,
    pub created_at: i64,
    pub quota: Option<Usage>,
    /// The number of the last signed request.
    pub nonce: i64,
    pub usage: Usage,
}

impl Sealed for AccountRow {
    const TABLE: &'static str = "accounts";
    const PUT: &'static str = "INSERT INTO accounts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
        ON CONFLICT (id) DO UPDATE SET quota_shares = excluded.quota_shares, quota_bytes = excluded.quota_bytes,
            nonce = excluded.nonce, shares = excluded.shares, bytes = excluded.bytes, seal = excluded.seal";

    fn values(&self) -> Vec<Value> {
        vec![
            Value::Integer(self.id.0),
            Value::Text(self.name.clone()),
            self.key.map_or(Value::Null, |key| blob(&key)),
            Value::Integer(self.created_at),
            self.quota.map_or(Value::Null, |quota| unsigned(quota.shares)),
            self.quota.map_or(Value::Null, |quota| unsigned(quota.bytes)),
            Value::Integer(self.nonce),
            unsigned(self.usage.shares),
            unsigned(self.usage.bytes),
        ]
    }

    fn parse(columns: &Columns<'_>) -> Option<AccountRow> {
        let quota = match columns.optional(4)? {
            None => None,
            Some(_) => Some(Usage { shares: columns.unsigned(4)?, bytes: columns.unsigned(5)? }),
        };
        Some(AccountRow {
            id: AccountId(columns.integer(0)?),
            name: columns.text(1)?,
            key: columns.blob(2)?.map(<[u8; 32]>::try_from).transpose().ok()?,
            created_at: columns.integer(3)?,
            quota,
            nonce: columns.integer(6)?,
            usage: Usage { shares: columns.unsigned(7)?, bytes: columns.unsigned(8)? },
        })
    }
}

/// The state of the whole store: one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreRow {
    /// Signed requests name it.
    pub id: [u8; 16],
    /// The number of openings, as in the file beside the database.
    pub epoch: i64,
    /// The number of prefix directories that discovery has completed. With all of them no share is
    /// unknown.
    pub discovered: u16,
    /// Discovery gives starter leases to known shares too: the database may have lost leases.
    pub starters_for_all: bool,
    /// The wall clock at the last transaction.
    pub wall_clock: i64,
    /// The time when the wall clock was found to have jumped. Nothing expires until an operator
    /// confirms the clock.
    pub clock_doubted_at: Option<i64>,
    /// The usage of all shares.
    pub stored: Usage,
}

impl StoreRow {
    /// Whether every share file has a row.
    pub fn is_discovered(&self) -> bool {
        self.discovered >= PREFIXES
    }
}

/// The number of prefix directories.
pub(crate) const PREFIXES: u16 = 256;

impl Sealed for StoreRow {
    const TABLE: &'static str = "store";
    const PUT: &'static str = "INSERT OR REPLACE INTO store VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

    fn values(&self) -> Vec<Value> {
        vec![
            blob(&self.id),
            Value::Integer(self.epoch),
            Value::Integer(self.discovered.into()),
            Value::Integer(self.starters_for_all.into()),
            Value::Integer(self.wall_clock),
            self.clock_doubted_at.into(),
            unsigned(self.stored.shares),
            unsigned(self.stored.bytes),
        ]
    }

    fn parse(columns: &Columns<'_>) -> Option<StoreRow> {
        Some(StoreRow {
            id: columns.blob(0)??.try_into().ok()?,
            epoch: columns.integer(1)?,
            discovered: columns.integer(2)?.try_into().ok()?,
            starters_for_all: columns.integer(3)? != 0,
            wall_clock: columns.integer(4)?,
            clock_doubted_at: columns.optional(5)?,
            stored: Usage { shares: columns.unsigned(6)?, bytes: columns.unsigned(7)? },
        })
    }
}

/// One pass of a background process: its position, or its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PassRow {
    pub process: Process,
    pub cycle: i64,
    pub began_at: i64,
    pub ended_at: Option<i64>,
    /// The last share examined.
    pub position: Option<ShareId>,
    pub examined: u64,
    pub acted: u64,
}

impl Sealed for PassRow {
    const TABLE: &'static str = "passes";
    const PUT: &'static str = "INSERT OR REPLACE INTO passes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

    fn values(&self) -> Vec<Value> {
        vec![
            Value::Integer(self.process as i64),
            Value::Integer(self.cycle),
            Value::Integer(self.began_at),
            self.ended_at.into(),
            self.position.map_or(Value::Null, |share| blob(&share.0)),
            unsigned(self.examined),
            unsigned(self.acted),
        ]
    }

    fn parse(columns: &Columns<'_>) -> Option<PassRow> {
        Some(PassRow {
            process: Process::from_row(columns.integer(0)?)?,
            cycle: columns.integer(1)?,
            began_at: columns.integer(2)?,
            ended_at: columns.optional(3)?,
            position: columns.blob(4)?.map(<[u8; 16]>::try_from).transpose().ok()?.map(ShareId),
            examined: columns.unsigned(5)?,
            acted: columns.unsigned(6)?,
        })
    }
}

/// An event that should not have happened, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IncidentRow {
    pub number: i64,
    pub at: i64,
    pub share: Option<ShareId>,
    pub what: String,
}

impl Sealed for IncidentRow {
    const TABLE: &'static str = "incidents";
    const PUT: &'static str = "INSERT INTO incidents VALUES (?1, ?2, ?3, ?4, ?5)";

    fn values(&self) -> Vec<Value> {
        vec![
            Value::Integer(self.number),
            Value::Integer(self.at),
            self.share.map_or(Value::Null, |share| blob(&share.0)),
            Value::Text(self.what.clone()),
        ]
    }

    fn parse(columns: &Columns<'_>) -> Option<IncidentRow> {
        Some(IncidentRow {
            number: columns.integer(0)?,
            at: columns.integer(1)?,
            share: columns.blob(2)?.map(<[u8; 16]>::try_from).transpose().ok()?.map(ShareId),
            what: columns.text(3)?,
        })
    }
}
