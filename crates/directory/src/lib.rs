//! The directory server's state machine: the leases and their holders, the files, and the handling
//! of clients' requests and logs.
//!
//! `Directory` takes inputs and gives outputs. All state that belongs to files stands in an ordered
//! [`Store`], keyed so that a region of identifiers is a range of keys (Farsite §4.1). The state
//! machine knows no clock, no disk and no network.

mod balance;
mod cluster;
mod corrupt;
mod directory;
mod io;
mod joint;
mod memory;
mod paths;
mod policy;
mod regions;
mod report;
mod requests;
mod rows;
mod sessions;
mod state;
mod store;
mod transaction;

pub use balance::activity::{ACTIVE_MS, ActiveFiles};
pub use balance::rule::{BalanceRule, Exchange, StayReason};
pub use cluster::enrolment::{INVITATIONS_MAX, MACHINES_MAX};
pub use cluster::registry::Registry;
pub use corrupt::{Corrupt, Fault};
pub use directory::{Directory, Status};
pub use io::{DelegateError, FoundError, Input, Output, SERVERS_MAX};
pub use memory::MemoryStore;
pub use policy::Policy;
pub use regions::report::{RegionReport, RegionStanding};
pub use report::{InvitationReport, LeaseReport, MachineReport, SessionReport, Standing, WaitReport};
pub use requests::grant::PAGE;
pub use requests::patience::{RECALL_MS_MAX, SILENT_MS_MAX};
pub use rows::check::{Inspector, OuterEdge, Violation};
pub use rows::found::Found;
pub use rows::machines::{CertificateAuthority, MachineCredential, is_machine_name};
pub use rows::placement::{MoveReason, Moved, Placement};
pub use rows::share_index::{publisher, refers_to, share_of_row, shares_after};
pub use sessions::session::{INODE_BLOCK, Misdeed};
pub use store::Store;
pub use transaction::TERM_MS;
pub use wire::{FOUNDER, ShareWork};
