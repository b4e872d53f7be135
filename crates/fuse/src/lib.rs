//! The FUSE front door: the kernel's requests on one side, the machine's file API
//! ([`file_service::FileService`]) on the other.
//!
//! The crate cannot reach the machine, connections and the data directory.
//!
//! Only `transport` knows how requests and answers travel. The modules above it speak of nodes,
//! askers and stats. The traps of docs/internals/kernel.md are marked `Trap:` where they are
//! avoided.

pub mod bare;
mod barred;
mod errno;
mod flight;
mod forgotten;
mod front;
mod groups;
mod hash;
mod intake;
mod interrupt;
mod mount;
mod mount_error;
mod mountpoint;
mod nodes;
mod notices;
mod options;
mod places;
mod proc;
mod syscall;
mod transport;
mod watches;
mod way;

pub use mount::Mount;
pub use mount_error::{MountError, may_mount_for_others};
pub use mountpoint::{abort, is_leasehold, prepare, unmount};
pub use options::Options;
pub use watches::event_raiser::raise_events;
