//! The machine of a data directory, which ties the state machines to threads, clocks, disks and
//! connections: its membership, its server and endpoints, its client's host, its answers to people.
//! The command line starts it. The crate cannot reach front doors and the simulator.

mod backup_source;
mod balance;
mod beside;
mod callers;
mod change;
mod client_host;
mod clock;
mod cluster;
mod control;
mod error;
mod fsck;
mod hosted;
mod links;
mod machine;
mod map;
mod members;
mod membership;
mod receipts;
mod references;
mod renewal;
mod routes;
mod salvage;
mod scrub;
mod server;
mod servers;
mod settings;
mod space;
mod status;
mod stopped;
mod stored;
#[cfg(test)]
mod tests;
mod traffic;
mod unsent;
mod upgrade;
mod upstream;
mod waits;

pub use balance::settings::BalanceSettings;
pub use data_dir::{DataDir, DataError, FORMAT, Identity, Placed, holder};
pub use error::MachineError;
pub use machine::Machine;
pub use net::{
    CarrierError, CertificateError, JoinError, ListenError, RoundTripReport, Token, TokenError, join, leave,
};
pub use raft::{GroupSettings, Host, Keeping};
pub use salvage::SalvageStore;
pub use settings::{Listen, MachineSettings};
pub use share_hosts::{AccountClient, AccountClientError, KeyFile, ShareSettings, SharesError, Sum};
pub use shares::{Expiry, Location};
pub use stopped::{back_up, export_shares, fsck};
pub use stored::share_of;
pub use wire::{ShareStanding, Version, Versions};
