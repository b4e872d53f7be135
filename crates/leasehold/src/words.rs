//! The reports of a machine in words for people.

mod backups;
mod balance;
mod cluster;
mod progress;
mod refusals;
mod salvage;
mod shares;
mod status;

/// A report, written in words.
pub struct Words<'a, T>(pub &'a T);

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}
