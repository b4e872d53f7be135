//! Benchmarks: the mount, the floor, the disk, in one run.
//!
//! Three targets do the same work in turns, so that what the machine does meanwhile befalls all of
//! them: the *mount* (`leasehold up` in a process of its own), the *floor* (a null FUSE file system
//! with the same caching flags: what FUSE itself costs), and the *disk* (the file system that the
//! data directory is on). CPU time is that of the file system's process and of the caller.
//!
//! Several machines, as processes on this one: [`shared`]. A share server in this process, beside
//! its disk: [`shares`]. And, without any of them, what the paper counted of its leases: [`paper`].

pub mod bulk;
pub mod cost;
pub mod floor;
pub mod load;
pub mod local;
pub mod names;
pub mod paper;
pub mod shared;
pub mod shares;
pub mod table;
pub mod target;
