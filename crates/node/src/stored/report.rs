//! The state of the stores of all hosts that answer.

use crate::server::Server;
use admin::{HostStore, StoresReport};
use wire::MachineId;

/// The state of the stores of all hosts.
pub(super) fn all(server: &Server) -> StoresReport {
    let names = server.machines();
    let name =
        |machine: u64| names.iter().find(|known| known.machine == machine).map(|known| known.name.clone());
    let stores = server.share_host().stores().into_iter().map(|(MachineId(machine), store)| HostStore {
        machine,
        name: name(machine).unwrap_or_else(|| format!("machine {machine}")),
        store,
    });
    StoresReport { hosts: stores.collect() }
}
