//! Administration of the shares that a server's machine has stored: their state, their leases,
//! their deletion, and their export and import.

mod accounts;
mod client;
mod garbage;
mod leases;
mod parcel;
mod report;

pub(crate) use accounts::answer as answer_account;
pub use accounts::{Allowance, EndedLeases};
pub use client::{AccountClient, AccountClientError, KeyFile};
pub use garbage::{DeletionReport, GarbageReport};
pub use leases::{LeasesReport, UsageReport};
pub use parcel::ParcelReport;
pub(crate) use report::StoreReport;
pub use report::StoresReport;

use crate::control::value;
use crate::figures::size;
use crate::server::Server;
use crate::shares_server::{Shares, wall_clock};
use namespace::ShareId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};

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

/// Carries out a request. Every user who may enter the data directory may ask.
pub(crate) fn reply(
    server: &Server,
    request: SharesRequest,
    progress: &mut dyn FnMut(&str),
) -> Result<Value, String> {
    let store = server.shares().server();
    match request {
        SharesRequest::Status => value(&report::all(server)),
        SharesRequest::Usage => value(&leases::usage(server).map_err(words)?),
        SharesRequest::Leases(which) => {
            let shares = which_shares(server, &[which])?;
            value(&leases::of(server, &shares).map_err(words)?)
        }
        SharesRequest::Collect { dry_run } => value(&garbage::collect(server, dry_run, progress)?),
        SharesRequest::Deletion => value(&garbage::standing(server.share_host()).map_err(words)?),
        SharesRequest::Export { file, which } => {
            let shares = if which.is_empty() { None } else { Some(which_shares(server, &which)?) };
            let of_others = |share: &ShareId| parcel::fetch(server.share_host(), share);
            value(&parcel::export(server.shares(), of_others, &file, shares, progress)?)
        }
        SharesRequest::Import { file } => value(&parcel::import(server, &file, progress)?),
        SharesRequest::AddAccount { name, key, quota } => value(&accounts::add(store, &name, &key, quota)?),
        SharesRequest::RemoveAccount(who) => value(&accounts::remove(store, &who)?),
        SharesRequest::SweepAccount { account, unrenewed } => {
            let since = wall_clock()().saturating_sub(unrenewed);
            value(&accounts::sweep(store, &account, since)?)
        }
        SharesRequest::Discover => {
            store.discover().map_err(words)?;
            value(&Sum::from(store.stored().map_err(words)?))
        }
    }
}

/// Exports from a store whose machine is not up. It finds what its own disk has, by names of
/// shares, or everything.
pub(crate) fn export_alone(
    store: &Shares,
    file: &Path,
    which: &[String],
    progress: &mut dyn FnMut(&str),
) -> Result<ParcelReport, String> {
    let of_name = |name: &String| {
        share_of(name).ok_or_else(|| {
            format!("{name} is no share, which has 32 hexadecimal digits; files have paths only while the machine is up")
        })
    };
    let named = which.iter().map(of_name).collect::<Result<Vec<_>, _>>()?;
    parcel::export(store, |_| None, file, (!which.is_empty()).then_some(named), progress)
}

/// The shares that `which` names: shares by their names, and shares of files by their paths.
fn which_shares(server: &Server, which: &[String]) -> Result<Vec<ShareId>, String> {
    let mut shares = Vec::new();
    for name in which {
        match share_of(name) {
            Some(share) => shares.push(share),
            None => {
                let below = |path: &[u8]| {
                    server.group().query(|directory, store| directory.shares_below(store, path))
                };
                let below = below(name.as_bytes()).ok_or_else(|| {
                    format!(
                        "{name} is neither a share, which has 32 hexadecimal digits, nor a file (paths begin at the root of the file system)"
                    )
                })?;
                shares.extend(below.iter().flat_map(ShareId::kept_as));
            }
        }
    }
    shares.sort_unstable();
    shares.dedup();
    Ok(shares)
}

/// Parses the name of a share: 32 hexadecimal digits.
pub fn share_of(name: &str) -> Option<ShareId> {
    let is_name = name.len() == 32 && name.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_name.then(|| u128::from_str_radix(name, 16).ok()).flatten()?;
    Some(ShareId(number.to_be_bytes()))
}

/// The text of an error with all its causes.
fn words(error: impl std::error::Error) -> String {
    crate::control::in_words(&error)
}

/// A number of shares and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// How many shares.
    pub shares: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl From<shares::Usage> for Sum {
    fn from(shares::Usage { shares, bytes }: shares::Usage) -> Sum {
        Sum { shares, bytes }
    }
}

impl Sum {
    fn add(&mut self, bytes: u32) {
        self.shares += 1;
        self.bytes += u64::from(bytes);
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shares, {}", self.shares, size(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_share_is_known_by_its_name_and_by_nothing_else(bytes: [u8; 16], text in ".{0,40}") {
            let share = ShareId(bytes);
            prop_assert_eq!(share_of(&share.to_string()), Some(share));
            prop_assert!(share_of(&text).is_none_or(|share| share.to_string().eq_ignore_ascii_case(&text)));
        }
    }
}
