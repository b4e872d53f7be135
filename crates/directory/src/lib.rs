//! The directory server's state machine: the leases and their holders, the files, and the handling
//! of clients' requests and logs.
//!
//! `Directory` takes inputs and gives outputs. All state that belongs to files stands in an ordered
//! [`Store`], keyed so that a region of identifiers is a range of keys (Farsite §4.1). The state
//! machine knows no clock, no disk and no network.

mod ask;
mod authority;
mod certification;
mod check;
mod corrupt;
mod departed_sessions;
mod directory;
mod effects;
mod enrolment;
mod extents;
mod files;
mod found;
mod grant;
mod greeting;
mod io;
mod keys;
mod locks;
mod memory;
mod patience;
mod pending;
mod ping_pong;
mod record;
mod replay;
mod report;
mod restored;
mod rights;
mod session;
mod share_index;
mod transaction;
mod values;
mod versions;
mod write_through;

pub use certification::{CertificateAuthority, Known};
pub use check::{Inspector, Violation};
pub use corrupt::{Corrupt, Fault};
pub use directory::{Directory, Policy, Status};
pub use enrolment::{FOUNDER, INVITATIONS_MAX, MACHINES_MAX, is_machine_name};
pub use found::Found;
pub use grant::PAGE;
pub use io::{Input, Output, ShareWork, Store};
pub use memory::MemoryStore;
pub use patience::{AGAIN_MS_MAX, RECALL_MS_MAX, SILENT_MS_MAX};
pub use report::{InvitationReport, LeaseReport, MachineReport, SessionReport, Standing, WaitReport};
pub use session::{INODE_BLOCK, Misdeed};
pub use share_index::{publisher, refers_to, share_of_row, shares_after};
pub use transaction::TERM_MS;
