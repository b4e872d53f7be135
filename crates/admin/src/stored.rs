//! The shares that a server's machine has stored: requests about them, and the answers.

use serde::{Deserialize, Serialize};
use share_hosts::{PassReport, StoreReport, Sum, Suspension};
use std::path::PathBuf;

/// A request to the machine that has the store. Each variant links to the type of its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SharesRequest {
    /// The state of the stores of all hosts: [`StoresReport`].
    Status,
    /// The shares that each account has leased here: [`UsageReport`].
    Usage,
    /// The leases on a share, or on the shares of a path: [`LeasesReport`].
    Leases(String),
    /// The shares that nothing needs any more, and what keeps them: [`GarbageReport`]. Unless it is
    /// a `dry_run`, what may go is deleted first.
    Collect {
        /// Whether to change nothing.
        dry_run: bool,
    },
    /// The state of deletion: [`DeletionReport`].
    Deletion,
    /// Writes shares with their leases into a file: [`ParcelReport`].
    Export {
        /// The file, which must not exist yet.
        file: PathBuf,
        /// Shares and paths; everything if empty.
        which: Vec<String>,
    },
    /// Takes in an exported file: [`ParcelReport`].
    Import {
        /// The file.
        file: PathBuf,
    },
    /// Makes a key's account, or changes its quota: [`Allowance`].
    AddAccount {
        /// The account's name.
        name: String,
        /// The account's key, 64 hexadecimal digits.
        key: String,
        /// Bytes that it may lease at most.
        quota: Option<u64>,
    },
    /// Ends a key's account, by its name or key: [`EndedLeases`].
    RemoveAccount(String),
    /// Ends the leases of a key's account, by its name or key, that are older than so many seconds:
    /// [`EndedLeases`].
    SweepAccount {
        /// The account's name or key.
        account: String,
        /// The least age of the leases since their last renewal, in seconds.
        unrenewed: u64,
    },
    /// Takes in shares that lie in the store without a row in the database, and marks rows whose
    /// file is gone. The answer is the [`Sum`] of stored shares after that.
    Discover,
}

/// The state of the stores of all hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoresReport {
    /// One entry for each host.
    pub hosts: Vec<HostStore>,
}

/// A host's store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostStore {
    /// The machine's number.
    pub machine: u64,
    /// Its name.
    pub name: String,
    /// The state of the store; `None` if the host does not answer.
    pub store: Option<StoreReport>,
}

/// The stored shares that nothing needs, and what keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GarbageReport {
    /// The time by the share server's clock, UTC seconds.
    pub now: u64,
    /// Shares that have gone since the request, including those that others released meanwhile.
    /// Zero in a dry run.
    pub gone: Sum,
    /// Shares that files refer to; they stay.
    pub needed: Sum,
    /// Shares that may go now. After a collection their deletion is under way.
    pub goes: Sum,
    /// Shares that do not go yet, by the reason that keeps them.
    pub stays: Vec<KeptShares>,
    /// Why nothing is deleted at all, if so.
    pub suspended: Option<Suspension>,
}

/// Shares that nothing refers to and that stay for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptShares {
    /// The reason that keeps them.
    #[serde(flatten)]
    pub by: KeptBy,
    /// How many they are.
    #[serde(flatten)]
    pub sum: Sum,
    /// The end of the longest such lease; `None` if it has no end.
    pub until: Option<u64>,
}

/// The reason why a share stays that nothing refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum KeptBy {
    /// An account has leased it.
    Lease {
        /// The account.
        #[serde(flatten)]
        account: ShareAccount,
    },
    /// Its last lease ended only a while ago.
    GracePeriod,
}

/// An account that leases shares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "account", rename_all = "snake_case")]
pub enum ShareAccount {
    /// The files of the cluster.
    Cluster,
    /// A key's account.
    Key {
        /// The account's name.
        name: String,
    },
    /// The uploads of a session.
    Uploads {
        /// The number of the session's machine.
        machine: u64,
        /// The machine's name, if it is known.
        machine_name: Option<String>,
        /// The session's number.
        session: u64,
    },
    /// The store's own, of clients that give no name.
    Anonymous,
    /// The store's own, which leases found and imported shares for 60 days.
    Starter,
    /// Any other account of the store.
    Other {
        /// The account's name.
        name: String,
    },
    /// An account that has ended meanwhile.
    Gone,
}

/// The state of deletion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeletionReport {
    /// The time by the share server's clock, UTC seconds.
    pub now: u64,
    /// Shares that no account has leased.
    pub unleased: Sum,
    /// Those of them that may be deleted now.
    pub due: Sum,
    /// When the next unleased share may be deleted.
    pub next_due: Option<u64>,
    /// Shares that are being deleted.
    pub going: Sum,
    /// Why nothing is deleted, if so.
    pub suspended: Option<Suspension>,
    /// Whether a backup is being made. Until it ends, shares stay even if nothing refers to them
    /// any more.
    pub held: bool,
    /// When all that files refer to was last known to be leased.
    pub vouched: Option<u64>,
    /// The deletions day by day, the latest first.
    pub days: Vec<PassReport>,
}

/// The shares that each account has leased here.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UsageReport {
    /// All accounts.
    pub accounts: Vec<AccountReport>,
    /// All stored shares. A share that several accounts have leased counts with each of them.
    pub stored: Sum,
}

/// An account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountReport {
    /// The account.
    #[serde(flatten)]
    pub account: ShareAccount,
    /// The account's key; `None` for the cluster's own accounts.
    pub key: Option<String>,
    /// The shares that it has leased.
    #[serde(flatten)]
    pub leased: Sum,
    /// The quota of the account.
    pub quota: Option<Sum>,
}

/// The holders of leases on shares.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LeasesReport {
    /// The time by the share server's clock, UTC seconds.
    pub now: u64,
    /// The shares that were asked for.
    pub shares: Vec<ShareReport>,
}

/// A share.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShareReport {
    /// Its name.
    pub share: String,
    /// The state of the share here.
    pub standing: StoredState,
    /// Bytes of the share's body, if it is here.
    pub bytes: Option<u32>,
    /// Whether a file refers to it.
    pub referenced: bool,
    /// The leases on it here.
    pub leases: Vec<ShareLeaseReport>,
}

/// The state of a share at one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredState {
    /// The store does not know it.
    #[default]
    NotHere,
    /// It is being written.
    Coming,
    /// It is being deleted.
    Going,
    /// It is as it was stored.
    Sound,
    /// Its file is gone.
    Missing,
    /// It differs from what was stored, or is incomplete.
    Damaged,
}

/// A lease on a share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShareLeaseReport {
    /// The account that holds the lease.
    #[serde(flatten)]
    pub account: ShareAccount,
    /// When the lease was last taken or renewed, UTC seconds.
    pub renewed: u64,
    /// When the lease ends; never if absent.
    pub ends: Option<u64>,
}

/// The result of an export or import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParcelReport {
    /// The file.
    pub file: String,
    /// Shares.
    pub shares: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Leases, without the starter leases.
    pub leases: u64,
    /// The faults of shares and leases.
    pub faults: Vec<ParcelFault>,
}

/// Something that could not be exported or imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ParcelFault {
    /// No host has the share.
    Missing {
        /// The share.
        share: String,
    },
    /// The share in the file differs from what was stored.
    Damaged {
        /// The share.
        share: String,
    },
    /// The store has not taken in the share.
    Refused {
        /// The share.
        share: String,
        /// The store's error.
        why: String,
    },
    /// The lease of a key has ended, since its account could not be made.
    LeaseRefused {
        /// The name of the key's account.
        name: String,
        /// The store's error.
        why: String,
    },
    /// The file cannot be read from some place on. All that came before is stored.
    CutOff {
        /// The error.
        why: String,
    },
}

/// The limit of a key's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// The account's name.
    pub account: String,
    /// Bytes that it may lease at most; if absent, the free space is the limit.
    pub quota: Option<u64>,
}

/// The result of ending leases of a key's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedLeases {
    /// The account's name.
    pub account: String,
    /// How many leases have ended.
    pub leases: usize,
    /// Whether the account itself has ended with them.
    pub removed: bool,
}
