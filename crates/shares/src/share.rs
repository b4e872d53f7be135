//! What the server knows of a share: its states, its health, who wants it kept.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use bytes::Bytes;
pub use namespace::ShareId;

/// UTC seconds.
pub type Seconds = u64;

/// Who wants shares kept. Accounts are numbered by the server that keeps the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub i64);

/// Who may have uploaded shares, of those of which that is known; others, any account of the
/// cluster's.
pub type Uploaders = BTreeMap<ShareId, Arc<[AccountId]>>;

impl AccountId {
    /// Whoever gives no name.
    pub const ANONYMOUS: AccountId = AccountId(0);
    /// Holds what discovery found, for 60 days.
    pub const STARTER: AccountId = AccountId(1);
}

/// A share to be stored: immutable once it is.
#[derive(Clone, Debug)]
pub struct NewShare {
    /// Its name: random, never used before.
    pub id: ShareId,
    /// Its body, in parts that are written one after the other.
    pub parts: Vec<Bytes>,
}

/// Where a share is in its life (leasedb, "Share states"). None of them: no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Being written; the disk has not confirmed all of it.
    Coming = 0,
    /// Written and durable.
    Stable = 1,
    /// Being deleted. There is no way back.
    Going = 2,
}

/// What is known of a stable share's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing bad.
    Ok = 0,
    /// Some of its objects are gone (shares of one file have only one object).
    Partial = 1,
    /// The file is gone.
    Missing = 2,
    /// The bytes are not what was stored.
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
    /// Where it is in its life.
    pub state: State,
    /// What is known of its bytes.
    pub health: Health,
    /// Bytes of its body.
    pub length: u32,
    /// XXH3 of its body; unknown for a share that was damaged when it was found.
    pub digest: Option<[u8; 16]>,
    /// How many accounts want it kept.
    pub leases: u32,
}

/// A lease of one account on one share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLease {
    /// Whose.
    pub account: AccountId,
    /// When it was last taken or renewed.
    pub renewed_at: Seconds,
    /// When it ends; `None`: never.
    pub expires_at: Option<Seconds>,
}

/// How an account stands to a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// There is none, or no sound one.
    Nothing,
    /// It is here, and the account has no lease on it.
    Unleased,
    /// It is here, and leased; the lease is to be renewed by now.
    Due,
    /// It is here, and leased.
    Leased,
}

/// How much is held. Each account's usage counts each of its shares in full, so that sums may
/// exceed what is stored.
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

/// What goes on in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    /// Ends leases that are over.
    Expirer = 0,
    /// Deletes what nobody holds.
    Reaper = 1,
    /// Takes in what has no row.
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

/// One time that a process went through everything, or is about to.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// Which process.
    pub process: Process,
    /// The how manieth; of the reaper, the day since 1970.
    pub cycle: u64,
    /// When it began.
    pub began_at: Seconds,
    /// When it was through; `None`: it is still under way.
    pub ended_at: Option<Seconds>,
    /// How far through it is, from 0 to 1.
    pub progress: f64,
    /// Shares (of the expirer: leases) that it has looked at.
    pub examined: u64,
    /// Of these, how many it did something about: ended, deleted, took in, found damaged.
    pub acted: u64,
}

/// Something that ought not to have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// When it was noticed.
    pub at: Seconds,
    /// The share that it is about.
    pub share: Option<ShareId>,
    /// What, in words.
    pub what: String,
}

/// When a share that nobody wants any more may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// As soon as it can be: who lets go knows that nothing refers to it.
    AtOnce,
    /// When it has been unleased for the server's grace period.
    AfterGrace,
}

/// The name of a share's file: 32 hexadecimal digits, of which the first two name its directory. Of
/// fixed length, so that no name is the beginning of another (leasedb, fault 8).
pub(crate) fn file_name(id: &ShareId) -> String {
    id.0.iter().fold(String::with_capacity(32), |mut name, byte| {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// The share that a file is called after.
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
