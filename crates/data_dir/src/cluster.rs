//! The cluster that a machine belongs to, as it knows it without a server.

use crate::error::DataError;
use crate::small::{read_file, remove_file, replace_file};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::Path;

/// The cluster that a machine has joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The addresses at which its servers listen.
    pub addresses: Vec<String>,
    /// The machine's number in the server group, if it is a server.
    pub member: Option<u64>,
    /// The machine was a server, has lost its state, and is to become one again.
    pub again: bool,
    /// The address at which its server listens unless told otherwise. After an outage of all
    /// servers the others look for it there.
    pub listens: Option<SocketAddr>,
    /// The name of this machine.
    pub name: Option<String>,
}

impl Cluster {
    /// Reads the cluster of the machine in `dir`. None if the machine made its own cluster, and
    /// serves.
    pub fn of(dir: &Path) -> Result<Option<Cluster>, DataError> {
        let Some(bytes) = read_file(dir, "cluster.json")? else { return Ok(None) };
        let cluster = serde_json::from_slice(&bytes);
        cluster
            .map(Some)
            .map_err(|e| DataError::Damaged { file: dir.join("cluster.json"), why: e.to_string() })
    }

    /// Notes that the machine in `dir` is in no cluster but its own.
    pub fn forget(dir: &Path) -> Result<(), DataError> {
        remove_file(dir, "cluster.json")
    }

    /// Writes this to `dir`.
    pub fn keep(&self, dir: &Path) -> Result<(), DataError> {
        replace_file(dir, "cluster.json", &serde_json::to_vec(self).expect("numbers and text are JSON"))
    }
}
