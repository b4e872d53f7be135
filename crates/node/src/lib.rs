//! Hosts the state machines: data directory, Raft, metadata store, network, threads, clocks.

mod acted;
mod backup;
mod ballast;
mod change;
mod clock;
mod cluster;
mod control;
mod control_socket;
mod copies;
mod data;
mod engine;
pub mod figures;
mod fragments;
mod fsck;
mod hash_chain;
mod hosts;
mod machine;
mod membership;
mod net;
mod peers;
mod pieces;
mod placed;
mod quarantine;
mod receipts;
mod references;
mod renewal;
mod repair;
mod round_trips;
mod routes;
mod salvage;
mod salvaged;
mod scrub;
mod server;
mod servers;
mod share_host;
mod shares_server;
mod small;
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

pub use backup::{
    BackupError, BackupOrder, BackupReport, BackupSchedule, ExtractReport, Extracting, RestoreReport,
    Restoring, extract, list as backups, restore,
};
pub use change::{Change, Existing, SalvagedChange};
pub use cluster::{
    FileLeases, Invitation, InvitationReport, Invited, LeaseLine, MachineName, MachineReport, RightsReport,
};
pub use control::{
    AskError, add_server, ask_live, ask_status, back_up, drain, expel, export_shares, fsck, invitations,
    invite, leases, machines, remove_server, renew_authority, revoke, scrub, servers, shares,
};
pub use data::{DataDir, DataError, FORMAT, Identity, holder};
pub use fsck::FsckReport;
pub use machine::{Listen, Machine, MachineError, MachineSettings};
pub use net::{CarrierError, CertificateError, JoinError, ListenError, Token, TokenError, join, leave};
pub use placed::Placed;
pub use raft::{GroupSettings, Host, Keeping};
pub use renewal::AuthorityReport;
pub use round_trips::RoundTripReport;
pub use salvage::SalvageStore;
pub use salvaged::{Salvaged, SalvagedContent, SalvagedItem};
pub use scrub::ScrubReport;
pub use servers::ServerStanding;
pub use shares::{Expiry, Location};
pub use shares_server::ShareSettings;
pub use shares_server::SharesError;
pub use status::{
    CallReport, ClientReport, HostReport, LinkReport, LiveReport, Role, ServerReport, StatusReport,
};
pub use stored::{
    AccountClient, AccountClientError, Allowance, DeletionReport, EndedLeases, GarbageReport, KeyFile,
    LeasesReport, ParcelReport, SharesRequest, StoresReport, Sum, UsageReport, share_of,
};
pub use traffic::TrafficReport;
pub use upgrade::VersionReport;
pub use wire::{ShareStanding, Version, Versions};
