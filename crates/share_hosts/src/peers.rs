//! Connections of this machine to the share servers of others: one for each host, made at its first
//! use.

use crate::hosts::{HostList, Hosts};
use bytes::Bytes;
use namespace::Error;
use net::{ANSWERED_WITHIN, Caller, NetThread, Pending, RoundTrips, ShareClient, ShareLink};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use wire::{MachineId, ShareCall};

/// The connections of this machine to other hosts.
pub struct Peers {
    me: MachineId,
    hosts: Hosts,
    connections: Mutex<Connections>,
    round_trips: Arc<RoundTrips>,
    stopping: AtomicBool,
    /// How long a call may take.
    answered_within: Duration,
}

#[derive(Default)]
struct Connections {
    config: Option<Caller>,
    /// With the addresses that the client calls.
    clients: BTreeMap<MachineId, (Vec<String>, ShareClient)>,
    /// The thread that keeps the connections. It starts with the first call.
    thread: Option<(mpsc::UnboundedSender<NewConnection>, NetThread)>,
}

type NewConnection = (ShareLink, Vec<String>, Caller);

impl Peers {
    /// Makes the peers of machine `me`. [`Peers::hosts`] and [`Peers::know`] supply what it needs
    /// to call them.
    pub fn new(me: MachineId) -> Arc<Peers> {
        Peers::answered_within(me, ANSWERED_WITHIN)
    }

    /// The same, with another limit of the time that a call may take.
    pub(crate) fn answered_within(me: MachineId, answered_within: Duration) -> Arc<Peers> {
        let (hosts, connections, round_trips) = Default::default();
        let stopping = AtomicBool::new(false);
        Arc::new(Peers { me, hosts, connections, round_trips, stopping, answered_within })
    }

    /// This machine.
    pub fn me(&self) -> MachineId {
        self.me
    }

    /// The hosts of the cluster.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The round trips of all these connections.
    pub fn round_trips(&self) -> &Arc<RoundTrips> {
        &self.round_trips
    }

    /// Sets how this machine calls others from now on.
    pub fn know(&self, caller: Caller) {
        self.connections.lock().config = Some(caller);
    }

    /// Ends all connections. Each waiting call fails.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let connections = std::mem::take(&mut *self.connections.lock());
        drop(connections);
    }

    /// Whether [`Peers::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Sends a call to a host, unless the host is known to be down or cannot be reached. Never
    /// blocks.
    pub fn call(
        &self,
        hosts: &HostList,
        machine: MachineId,
        what: ShareCall,
        body: Vec<Bytes>,
    ) -> Option<Pending> {
        let addresses = hosts.addresses(machine)?;
        let mut connections = self.connections.lock();
        if self.is_stopping() {
            return None;
        }
        if let Some((called, client)) = connections.clients.get(&machine)
            && called == addresses
        {
            return client.call(what, body);
        }
        let config = connections.config.clone()?;
        let keeping = connections.keeping()?;
        let (client, link) = ShareClient::new(machine, self.round_trips.clone(), self.answered_within);
        keeping.send((link, addresses.to_vec(), config)).ok()?;
        let pending = client.call(what, body);
        connections.clients.insert(machine, (addresses.to_vec(), client));
        pending
    }

    /// Sorts machines by distance: the fastest of late first, and those that are down last.
    pub fn by_distance(&self, machines: &mut [MachineId]) {
        let connections = self.connections.lock();
        machines.sort_by_key(|machine| match connections.clients.get(machine) {
            Some((_, client)) => client.distance(),
            None => (false, Duration::ZERO),
        });
    }
}

impl Connections {
    fn keeping(&mut self) -> Option<&mpsc::UnboundedSender<NewConnection>> {
        if self.thread.is_none() {
            let (sender, mut links) = mpsc::unbounded_channel::<NewConnection>();
            let keep = move || async move {
                while let Some((link, addresses, config)) = links.recv().await {
                    tokio::task::spawn_local(link.keep(addresses, config));
                }
            };
            let thread = NetThread::spawn("content", keep);
            let thread = thread.inspect_err(|error| tracing::error!(%error, "shares cannot be asked for"));
            self.thread = Some((sender, thread.ok()?));
        }
        self.thread.as_ref().map(|(keeping, _)| keeping)
    }
}

/// Returns the body of an answer to [`ShareCall::Fetch`], if it matches the digest that came with
/// it.
///
/// # Errors
/// The host's error, or [`Error::Damaged`].
pub fn fetched((results, mut whole): (Vec<Result<(), Error>>, Bytes)) -> Result<Bytes, Error> {
    results.into_iter().next().unwrap_or(Err(Error::Damaged))?;
    let digest = *whole.first_chunk::<16>().ok_or(Error::Damaged)?;
    let body = whole.split_off(digest.len());
    if shares::digest(&body) == digest { Ok(body) } else { Err(Error::Damaged) }
}
