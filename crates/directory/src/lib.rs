//! The directory server's state machine: the leases and their holders, the files, and the handling
//! of clients' requests and logs.
//!
//! `Directory` takes inputs and gives outputs. All state that belongs to files stands in an ordered
//! [`Store`], keyed so that a region of identifiers is a range of keys (Farsite §4.1). The state
//! machine knows no clock, no disk and no network.

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

pub use cluster::enrolment::{INVITATIONS_MAX, MACHINES_MAX};
pub use corrupt::{Corrupt, Fault};
pub use directory::{Directory, Status};
pub use io::{DelegateError, Input, Output};
pub use memory::MemoryStore;
pub use policy::Policy;
pub use report::{InvitationReport, LeaseReport, MachineReport, SessionReport, Standing, WaitReport};
pub use requests::grant::PAGE;
pub use requests::patience::{RECALL_MS_MAX, SILENT_MS_MAX};
pub use rows::check::{Inspector, Violation};
pub use rows::found::Found;
pub use rows::machines::{CertificateAuthority, MachineCredential, is_machine_name};
pub use rows::share_index::{publisher, refers_to, share_of_row, shares_after};
pub use sessions::session::{INODE_BLOCK, Misdeed};
pub use store::Store;
pub use transaction::TERM_MS;
pub use wire::{FOUNDER, ShareWork};
