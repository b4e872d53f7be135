//! A server's connections and sessions, and the cluster that it begins with.

use crate::host::Violation;
use crate::host::server::{enrols, root};
use directory::{Directory, Input, MemoryStore};
use lease::{SessionId, Time};
use std::collections::BTreeMap;
use wire::{MachineId, Rights, Versions};

/// A server's connections and sessions.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// By machine: the connection of its last greeting.
    pub listens: BTreeMap<usize, u64>,
    /// By connection: its session.
    pub sessions: BTreeMap<u64, SessionId>,
    /// By session: the machine and the connection for its messages.
    pub routes: BTreeMap<SessionId, (usize, u64)>,
}

impl Host {
    /// The machine has greeted over this connection, so its earlier ones no longer count. Returns
    /// false if the machine has greeted over a later one.
    pub fn listens_to(&mut self, at: usize, connection: u64) -> bool {
        let before = self.listens.get(&at).copied();
        if before.is_some_and(|before| before > connection) {
            return false;
        }
        self.listens.insert(at, connection);
        before.map(|before| self.sessions.remove(&before));
        true
    }
}

/// Inputs that enrol so many machines in a cluster, the founder apart.
pub(crate) fn invitations(machines: u64) -> impl Iterator<Item = [Input; 2]> {
    let joining = (1..=machines).map(MachineId).filter(|id| *id != directory::FOUNDER);
    joining.map(|id| enrols(id, Rights::FULL))
}

/// A new cluster with so many machines in it.
pub(crate) fn found(machines: u64) -> Result<(Directory, MemoryStore), Violation> {
    let mut store = MemoryStore::default();
    let mut directory = Directory::create(&mut store, root(), "machine-1", Versions::KNOWN);
    for input in invitations(machines).flatten() {
        directory.handle(Time(1), input, &mut store, &mut Vec::new()).map_err(|e| e.to_string())?;
    }
    directory.checkpoint(&mut store);
    Ok((directory, store))
}
