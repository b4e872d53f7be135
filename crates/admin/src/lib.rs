//! People's requests to a machine, and its reports to them. Reports are data; the command line puts
//! them into words. The crate has the protocol and its socket. It cannot reach the machine, which
//! answers.

mod asking;
mod checks;
mod cluster;
mod protocol;
pub mod socket;
mod status;
mod stored;

pub use asking::{
    AskError, add_server, ask, ask_live, ask_status, drain, expel, invitations, invite, leases, machines,
    remove_server, renew_authority, revoke, scrub, servers, shares,
};
pub use checks::{FsckReport, ScrubReport};
pub use cluster::{
    AuthorityReport, FileLeases, Invitation, InvitationReport, Invited, LeaseLine, MachineName,
    MachineReport, RightsReport, ServerStanding,
};
pub use protocol::{ControlReply, ControlRequest};
pub use status::{
    CallReport, ClientReport, HostReport, LinkReport, LiveReport, Role, ServerReport, StatusReport,
    TrafficReport, VersionReport,
};
pub use stored::{
    AccountReport, Allowance, DeletionReport, EndedLeases, GarbageReport, HostStore, Kept, LeaseReport,
    LeasesReport, ParcelReport, ShareReport, SharesRequest, Standing, StoresReport, UsageReport,
};
