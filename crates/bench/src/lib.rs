//! Benchmarks: the mount, the floor, the disk, in one run.
//!
//! The crate runs programs and looks at mounts from outside. Nothing of the product depends on it
//! but the command line.
//!
//! Three targets do the same work in turns, so that disturbances of the machine fall on all of
//! them:
//!
//! - the *mount*: `leasehold up` in a process of its own;
//! - the *floor*: a null FUSE file system with the same caching flags, which shows the cost of
//!   FUSE;
//! - the *disk*: the file system that the data directory is on.
//!
//! CPU time is that of the file system's process and of the caller.
//!
//! [`shared`] measures several machines, as processes on this one. [`shares`] measures a share
//! server in this process, beside its disk. [`smb`] measures the SMB door beside Samba. [`paper`]
//! counts leases as the paper did, and needs none of the three targets.

pub mod bulk;
pub mod cost;
pub mod floor;
pub mod load;
pub mod local;
pub mod names;
pub mod paper;
pub mod process;
pub mod shared;
pub mod shares;
pub mod smb;
pub mod table;
pub mod target;
