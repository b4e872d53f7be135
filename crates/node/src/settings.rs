//! The settings of a machine.

use crate::balance::settings::BalanceSettings;
use raft::GroupSettings;
use share_hosts::ShareSettings;
use std::net::SocketAddr;
use wire::Versions;

/// Whether and where a machine that serves listens for other machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listen {
    /// The machine does not listen.
    #[default]
    Nowhere,
    /// At this address; if that is not possible the machine does not start.
    At(SocketAddr),
    /// At this address, if it is free.
    IfFree(SocketAddr),
}

/// The settings of a machine.
#[derive(Clone, Debug)]
pub struct MachineSettings {
    /// Its name, if it founds a cluster.
    pub name: String,
    /// The settings of its server, if it has one.
    pub group: GroupSettings,
    /// The address at which it listens.
    pub listen: Listen,
    /// Further addresses where servers may be, `host:port`, for the case that all servers have
    /// moved.
    pub at: Vec<String>,
    /// The settings of its share server, if it has one.
    pub shares: ShareSettings,
    /// The versions that its program uses. Older ones leave the way back to an older program open.
    pub knows: Versions,
    /// Continue with a server state known to be older than its acknowledgements. All sessions end.
    pub accepts_older: bool,
    /// Whether its server, as the leader, raises the cluster's version once it can. Off while the
    /// server is up only to be checked.
    pub raises: bool,
    /// How it balances the loads of the servers of the directory that it leads.
    pub balance: BalanceSettings,
}

impl Default for MachineSettings {
    fn default() -> MachineSettings {
        MachineSettings {
            name: "machine".to_owned(),
            group: Default::default(),
            listen: Default::default(),
            at: Default::default(),
            shares: Default::default(),
            knows: Versions::KNOWN,
            accepts_older: false,
            raises: true,
            balance: Default::default(),
        }
    }
}
