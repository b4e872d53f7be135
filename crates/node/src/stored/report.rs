//! The state of the stores of all hosts that answer.

use crate::server::Server;
use crate::words::Words;
use serde::{Deserialize, Serialize};
use share_hosts::StoreReport;
use std::fmt;
use wire::MachineId;

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

impl fmt::Display for StoresReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for HostStore { machine, name, store } in &self.hosts {
            match store {
                Some(store) => write!(f, "{name} (machine {machine})\n{}", Words(store))?,
                None => writeln!(f, "{name} (machine {machine}) DOES NOT ANSWER")?,
            }
        }
        Ok(())
    }
}
