//! Puts shares together from the fragments that can be had, wherever they are.

use crate::hosts::HostList;
use crate::peers::{Peers, fetched};
use crate::share_host::ShareHost;
use bytes::Bytes;
use namespace::{Error, ShareId, Spread};
use net::Pending;
use std::collections::VecDeque;
use std::time::Duration;
use wire::{MachineId, ShareCall};

/// Why a share cannot be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scattered {
    /// Too few fragments were found, and hosts that may have others could not be asked.
    Unreachable,
    /// Too few fragments were found, and hosts have others that nobody has adopted yet.
    Unadopted,
    /// Too few fragments were found, although all hosts were asked.
    Lost,
}

/// A fragment that is needed.
struct Wanted {
    number: u8,
    name: ShareId,
    /// The hosts that may have it and have not been asked.
    hosts: std::vec::IntoIter<MachineId>,
}

/// Puts a share together from as many of its fragments as are needed: the nearest ones, each
/// checked against its digest. Asks every host at most once for each fragment, and waits for each
/// no longer than `patience`.
pub fn put_together(
    peers: &Peers,
    here: Option<&ShareHost>,
    hosts: &HostList,
    share: ShareId,
    patience: Duration,
) -> Result<Bytes, Scattered> {
    let Spread::Code { data, parity } = share.spread() else { return Err(Scattered::Lost) };
    let mut wanted = wanted(peers, hosts, share);
    let mut had: Vec<(u8, Bytes)> = Vec::new();
    let (mut unreachable, mut unadopted) = (hosts.all().is_empty(), false);
    loop {
        if let Some(whole) = (had.len() >= data.into()).then(|| content::whole(data, parity, &had)) {
            return whole.map(Bytes::from).ok_or(Scattered::Lost);
        }
        let mut asked = Vec::new();
        while asked.len() + had.len() < data.into() {
            let Some(mut fragment) = wanted.pop_front() else { break };
            let Some(machine) = fragment.hosts.next() else { continue };
            asked.push((ask(peers, here, hosts, machine, fragment.name), fragment));
        }
        if asked.is_empty() {
            return Err(match (unreachable, unadopted) {
                (true, _) => Scattered::Unreachable,
                (false, true) => Scattered::Unadopted,
                (false, false) => Scattered::Lost,
            });
        }
        for (asked, fragment) in asked {
            let told = match asked {
                Fetching::Here(body) => Some(body),
                Fetching::Pending(pending) => pending.wait(Some(patience)).ok().map(fetched),
                Fetching::Unreachable => None,
            };
            unreachable |= told.is_none();
            unadopted |= told == Some(Err(Error::CutOff));
            match told {
                Some(Ok(body)) => had.push((fragment.number, body)),
                _ => wanted.push_back(fragment),
            }
        }
    }
}

/// All fragments, in the order of their hosts' distance, the nearest first.
fn wanted(peers: &Peers, hosts: &HostList, share: ShareId) -> VecDeque<Wanted> {
    let fragments = share.kept_as().filter_map(|name| {
        let hosts = hosts.having(&name);
        Some((*hosts.first()?, Wanted { number: name.number()?, name, hosts: hosts.into_iter() }))
    });
    let mut fragments: Vec<(MachineId, Wanted)> = fragments.collect();
    let mut nearest: Vec<MachineId> = fragments.iter().map(|(machine, _)| *machine).collect();
    peers.by_distance(&mut nearest);
    let place =
        |machine: &MachineId| (*machine != peers.me(), nearest.iter().position(|nearest| nearest == machine));
    fragments.sort_by_key(|(machine, _)| place(machine));
    fragments.into_iter().map(|(_, wanted)| wanted).collect()
}

/// A fragment that a host was asked for.
enum Fetching {
    Here(Result<Bytes, Error>),
    Pending(Pending),
    Unreachable,
}

fn ask(
    peers: &Peers,
    here: Option<&ShareHost>,
    hosts: &HostList,
    machine: MachineId,
    name: ShareId,
) -> Fetching {
    match here {
        Some(share_host) if machine == peers.me() => {
            let copy = share_host.copy(peers.me(), name);
            Fetching::Here(copy.map(|(body, _)| body.into()))
        }
        _ => peers
            .call(hosts, machine, ShareCall::Fetch(name), Vec::new())
            .map_or(Fetching::Unreachable, Fetching::Pending),
    }
}
