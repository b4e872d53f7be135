//! Whole clusters in one thread, from one seed: network, disks, crashes, oracle.
//!
//! The crate cannot reach the machine, connections, FUSE and SMB.
//!
//! [`run()`] does what the seed chooses, and checks what users were promised. The shipped state
//! machines run unchanged.

mod calls;
mod campus;
mod cluster;
mod counts;
mod gather;
pub mod gremlins;
mod host;
mod kernel;
mod many;
mod model;
mod names;
pub mod paper;
pub mod renames;
mod run;
mod servers;
pub mod sharing;
pub mod snapshot;
#[cfg(test)]
mod tests;
mod workload;
mod world;

pub use host::Violation;
pub use many::{ManyMachines, Tally, run_many, run_many_under};
pub use run::{Failure, Summary, run};
pub use servers::{ServersTally, run_servers};
pub use world::{Mutation, Stats, Weather, run_world, run_world_in};
