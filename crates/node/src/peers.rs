//! This machine's connections to the share servers of others: one for each host, made when it is
//! first wanted.

use crate::hosts::{HostList, Hosts};
use crate::net::{Caller, NetThread, Pending, ShareClient, ShareLink};
use bytes::Bytes;
use namespace::Error;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use wire::{MachineId, ShareCall};

/// See the module.
pub(crate) struct Peers {
    me: MachineId,
    hosts: Hosts,
    connections: Mutex<Connections>,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Connections {
    config: Option<Caller>,
    /// With the addresses that it calls.
    clients: BTreeMap<MachineId, (Vec<String>, ShareClient)>,
    /// Keeps them all. There is none before there is anybody to call.
    thread: Option<(mpsc::UnboundedSender<Keeping>, NetThread)>,
}

type Keeping = (ShareLink, Vec<String>, Caller);

impl Peers {
    /// Of the machine `me`. Whom it can call it must be told: [`Peers::hosts`], [`Peers::know`].
    pub(crate) fn new(me: MachineId) -> Arc<Peers> {
        let (hosts, connections) = (Hosts::default(), Mutex::default());
        Arc::new(Peers { me, hosts, connections, stopping: AtomicBool::new(false) })
    }

    /// This machine.
    pub(crate) fn me(&self) -> MachineId {
        self.me
    }

    /// Which hosts there are.
    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// From now on it calls so.
    pub(crate) fn know(&self, caller: Caller) {
        self.connections.lock().config = Some(caller);
    }

    /// Ends all connections: whoever waits is told that there is no answer.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let connections = std::mem::take(&mut *self.connections.lock());
        drop(connections);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Asks a host, unless it is known to be down or there is no way to it. Never blocks.
    pub(crate) fn call(
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
        let (client, link) = ShareClient::new(machine);
        keeping.send((link, addresses.to_vec(), config)).ok()?;
        let pending = client.call(what, body);
        connections.clients.insert(machine, (addresses.to_vec(), client));
        pending
    }

    /// Puts the nearest first: whoever answered fastest lately, and last who is down.
    pub(crate) fn by_distance(&self, machines: &mut [MachineId]) {
        let connections = self.connections.lock();
        machines.sort_by_key(|machine| match connections.clients.get(machine) {
            Some((_, client)) => client.distance(),
            None => (false, Duration::ZERO),
        });
    }
}

impl Connections {
    fn keeping(&mut self) -> Option<&mpsc::UnboundedSender<Keeping>> {
        if self.thread.is_none() {
            let (sender, mut links) = mpsc::unbounded_channel::<Keeping>();
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

/// What an answer to [`ShareCall::Fetch`] brought, if it has the digest that came with it.
pub(crate) fn fetched((results, mut whole): (Vec<Result<(), Error>>, Bytes)) -> Option<Bytes> {
    let Some(Ok(())) = results.first() else { return None };
    let digest = *whole.first_chunk::<16>()?;
    let body = whole.split_off(digest.len());
    (shares::digest(&body) == digest).then_some(body)
}
