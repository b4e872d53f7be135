//! The public types of a share: its states, its health and its leases.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use bytes::Bytes;
pub use namespace::ShareId;

/// UTC seconds.
pub type Seconds = u64;

/// Tells UTC seconds.
pub type Clock = Arc<dyn Fn() -> Seconds + Send + Sync>;

/// An account, which leases shares. The server that keeps the database numbers its accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub i64);

/// The accounts that may have uploaded each share, where that is known. Any account of the cluster
/// may have uploaded the others.
pub type Uploaders = BTreeMap<ShareId, Arc<[AccountId]>>;

impl AccountId {
    /// The account of a client that gives no name.
    pub const ANONYMOUS: AccountId = AccountId(0);
    /// The account that leases discovered shares for 60 days.
    pub const STARTER: AccountId = AccountId(1);
}

/// A share to be stored. A stored share is immutable.
#[derive(Clone, Debug)]
pub struct NewShare {
    /// Its name: random, never used before.
    pub id: ShareId,
    /// Its body, in parts. They are written in order.
    pub parts: Vec<Bytes>,
}

/// The state of a share (leasedb, "Share states"). A share in none of them has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Being written: the disk has not confirmed all of it.
    Coming = 0,
    /// Written and durable.
    Stable = 1,
    /// Being deleted. This state is final.
    Going = 2,
}

/// The health of a stable share's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// No damage is known.
    Ok = 0,
    /// Some objects are missing (a share of one file has only one object).
    Partial = 1,
    /// The file is missing.
    Missing = 2,
    /// The bytes differ from the stored ones.
    Corrupt = 3,
}

impl State {
    pub(crate) fn from_row(value: i64) -> Option<State> {
        [State::Coming, State::Stable, State::Going].into_iter().find(|s| *s as i64 == value)
    }
}

impl Health {
    pub(crate) fn from_row(value: i64) -> Option<Health> {
        [Health::Ok, Health::Partial, Health::Missing, Health::Corrupt]
            .into_iter()
            .find(|h| *h as i64 == value)
    }
}

/// The database's row of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredShare {
    /// Its name.
    pub id: ShareId,
    /// Its state.
    pub state: State,
    /// Its health.
    pub health: Health,
    /// Bytes of its body.
    pub length: u32,
    /// XXH3 of its body. Unknown for a share that was damaged when it was found.
    pub digest: Option<[u8; 16]>,
    /// The number of accounts that lease it.
    pub leases: u32,
}

/// A lease of one account on one share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLease {
    /// The holder.
    pub account: AccountId,
    /// The time when it was taken or renewed last.
    pub renewed_at: Seconds,
    /// The time when it ends; `None`: never.
    pub expires_at: Option<Seconds>,
}

/// The relation of an account to a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The share is missing or damaged.
    Nothing,
    /// The share is here, and the account has no lease on it.
    Unleased,
    /// The share is here and leased; the lease is due for renewal.
    Due,
    /// The share is here and leased.
    Leased,
}

/// An amount of shares. Each account's usage counts each of its shares in full, so sums may exceed
/// the stored amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Shares.
    pub shares: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Usage {
    pub(crate) fn add(&mut self, length: u32) {
        self.shares = self.shares.saturating_add(1);
        self.bytes = self.bytes.saturating_add(length.into());
    }

    pub(crate) fn take(&mut self, length: u32) {
        self.shares = self.shares.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(length.into());
    }
}

/// The background processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    /// Ends leases that are over.
    Expirer = 0,
    /// Deletes unleased shares.
    Reaper = 1,
    /// Takes in shares without a row.
    Discovery = 2,
    /// Looks for damage.
    Scrub = 3,
}

impl Process {
    pub(crate) fn from_row(value: i64) -> Option<Process> {
        [Process::Expirer, Process::Reaper, Process::Discovery, Process::Scrub]
            .into_iter()
            .find(|p| *p as i64 == value)
    }
}

/// A pass: a process goes once through everything. It may be unfinished.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// The process.
    pub process: Process,
    /// The number of the pass; for the reaper, the day since 1970.
    pub cycle: u64,
    /// The time of its beginning.
    pub began_at: Seconds,
    /// The time of its end; `None`: it is under way.
    pub ended_at: Option<Seconds>,
    /// The fraction done, from 0 to 1.
    pub progress: f64,
    /// The number of shares (of the expirer: leases) examined.
    pub examined: u64,
    /// The number of these that the process acted on: ended, deleted, took in, found damaged.
    pub acted: u64,
}

/// An event that should not have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// The time when it was noticed.
    pub at: Seconds,
    /// The share concerned.
    pub share: Option<ShareId>,
    /// The event, in words.
    pub what: String,
}

/// When an unleased share may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// As soon as possible: the releaser knows that nothing refers to the share.
    AtOnce,
    /// After the share has been unleased for the server's grace period.
    AfterGrace,
}

/// The name of a share's file: 32 hexadecimal digits, of which the first two name its directory.
/// The length is fixed, so no name is the beginning of another (leasedb, fault 8).
pub(crate) fn file_name(id: &ShareId) -> String {
    id.0.iter().fold(String::with_capacity(32), |mut name, byte| {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// The share named by a file name.
pub(crate) fn from_file_name(name: &str) -> Option<ShareId> {
    let digits = name.as_bytes();
    if digits.len() != 32 || !digits.iter().all(|d| matches!(d, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    u128::from_str_radix(name, 16).ok().map(|number| ShareId(number.to_be_bytes()))
}

/// The next id in order.
pub(crate) fn successor(id: &ShareId) -> Option<ShareId> {
    u128::from_be_bytes(id.0).checked_add(1).map(|number| ShareId(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_file_name_names_a_share() {
        let id = ShareId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 254, 255]);
        let name = file_name(&id);
        assert_eq!(name, "000102030405060708090a0b0c0dfeff");
        assert_eq!(from_file_name(&name), Some(id));
        for other in [&name.to_uppercase(), &name[1..], &format!("{name}0"), &format!("+{}", &name[1..])] {
            assert_eq!(from_file_name(other), None, "{other}");
        }
    }
}
