//! Administration of the shares that a server's machine has stored: their state, their leases,
//! their deletion, and their export and import.

mod accounts;
mod garbage;
mod leases;
mod parcel;
mod report;

use crate::error::failed;
use crate::server::Server;
use admin::{ControlProgress, ControlRefusal, ParcelReport, RequestWork, SharesRequest};
use namespace::ShareId;
use serde::Serialize;
use serde_json::Value;
use share_hosts::{Shares, Sum, wall_clock};
use std::path::Path;

/// Carries out a request. Every user who may enter the data directory may ask.
pub(crate) fn reply(
    server: &Server,
    request: SharesRequest,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<Value, ControlRefusal> {
    let store = server.shares().server();
    match request {
        SharesRequest::Status => value(&report::all(server)),
        SharesRequest::Usage => value(&leases::usage(server).map_err(unread)?),
        SharesRequest::Leases(which) => {
            let shares = which_shares(server, &[which])?;
            value(&leases::of(server, &shares).map_err(unread)?)
        }
        SharesRequest::Collect { dry_run } => value(&garbage::collect(server, dry_run, progress)?),
        SharesRequest::Deletion => value(&garbage::standing(server.share_host()).map_err(unread)?),
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
            store.discover().map_err(unread)?;
            value(&Sum::from(store.stored().map_err(unread)?))
        }
    }
}

/// Exports from a store whose machine is not up. It finds what its own disk has, by names of
/// shares, or everything.
pub(crate) fn export_alone(
    store: &Shares,
    file: &Path,
    which: &[String],
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<ParcelReport, ControlRefusal> {
    let of_name =
        |name: &String| share_of(name).ok_or_else(|| ControlRefusal::NoShare { name: name.clone() });
    let named = which.iter().map(of_name).collect::<Result<Vec<_>, _>>()?;
    parcel::export(store, |_| None, file, (!which.is_empty()).then_some(named), progress)
}

/// The shares that `which` names: shares by their names, and shares of files by their paths.
fn which_shares(server: &Server, which: &[String]) -> Result<Vec<ShareId>, ControlRefusal> {
    let mut shares = Vec::new();
    for name in which {
        match share_of(name) {
            Some(share) => shares.push(share),
            None => {
                let below = |path: &[u8]| {
                    server.group().query(|directory, store| directory.shares_below(store, path))
                };
                let below = below(name.as_bytes());
                let below = below.ok_or_else(|| ControlRefusal::NoShareOrFile { name: name.clone() })?;
                shares.extend(below.iter().flat_map(ShareId::kept_as));
            }
        }
    }
    shares.sort_unstable();
    shares.dedup();
    Ok(shares)
}

/// Turns an answer into JSON for the asker.
pub(crate) fn value(answer: &impl Serialize) -> Result<Value, ControlRefusal> {
    serde_json::to_value(answer).map_err(|error| failed(RequestWork::Answering, &error))
}

/// Parses the name of a share: 32 hexadecimal digits.
pub fn share_of(name: &str) -> Option<ShareId> {
    let is_name = name.len() == 32 && name.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_name.then(|| u128::from_str_radix(name, 16).ok()).flatten()?;
    Some(ShareId(number.to_be_bytes()))
}

/// The refusal because the share server reports an error of its own.
fn unread(error: impl std::error::Error) -> ControlRefusal {
    failed(RequestWork::UsingShares, &error)
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
