//! Hosts the state machines: data directory, Raft, metadata store, network, threads, clocks.

mod asking;
mod backup_source;
mod callers;
mod change;
mod client_host;
mod clock;
mod cluster;
mod control;
mod control_socket;
mod error;
mod fsck;
mod machine;
mod members;
mod membership;
mod receipts;
mod references;
mod renewal;
mod routes;
mod salvage;
mod salvaged;
mod scrub;
mod server;
mod servers;
mod settings;
mod space;
mod status;
mod stored;
#[cfg(test)]
mod tests;
mod traffic;
mod unsent;
mod upgrade;
mod upstream;
mod waits;
mod words;

pub use asking::{
    AskError, add_server, ask_live, ask_status, back_up, drain, expel, export_shares, fsck, invitations,
    invite, leases, machines, remove_server, renew_authority, revoke, scrub, servers, shares,
};
pub use change::{Change, Existing, SalvagedChange};
pub use cluster::{
    FileLeases, Invitation, InvitationReport, Invited, LeaseLine, MachineName, MachineReport, RightsReport,
};
pub use data_dir::{DataDir, DataError, FORMAT, Identity, Placed, holder};
pub use error::MachineError;
pub use fsck::FsckReport;
pub use machine::Machine;
pub use net::{
    CarrierError, CertificateError, JoinError, ListenError, RoundTripReport, Token, TokenError, join, leave,
};
pub use raft::{GroupSettings, Host, Keeping};
pub use renewal::AuthorityReport;
pub use salvage::SalvageStore;
pub use salvaged::{Salvaged, SalvagedContent, SalvagedItem};
pub use scrub::ScrubReport;
pub use servers::ServerStanding;
pub use settings::{Listen, MachineSettings};
pub use share_hosts::{AccountClient, AccountClientError, KeyFile, ShareSettings, SharesError, Sum};
pub use shares::{Expiry, Location};
pub use status::{
    CallReport, ClientReport, HostReport, LinkReport, LiveReport, Role, ServerReport, StatusReport,
};
pub use stored::{
    Allowance, DeletionReport, EndedLeases, GarbageReport, LeasesReport, ParcelReport, SharesRequest,
    StoresReport, UsageReport, share_of,
};
pub use traffic::TrafficReport;
pub use upgrade::VersionReport;
pub use wire::{ShareStanding, Version, Versions};
pub use words::Words;
