//! The share server: stored pieces of content, and the database of who wants them kept (leasedb).
//!
//! A share is an immutable file; a lease is an account's wish that it be kept. Whatever is written
//! passes through the states COMING → STABLE → GOING, which are rows of the database: `transitions`
//! has the table of them, `upload` and `reaper` the order of their steps on disk, `restart` what is
//! put right after these were cut short.
//!
//! # The faults of the earlier code (leasedb, "Faults found in the earlier code"), and where they are answered
//!
//! | fault | answer |
//! | --- | --- |
//! | 1 failed write for a new share | going at once, deleted by the reaper until confirmed |
//! | 2 objects vanish | row and leases stay, `health` and an incident, not held, may be stored again |
//! | 3 corrupted shares | the same, in quarantine; storing again replaces the file atomically |
//! | 4 duplicate upload took no lease | announcing leases what is there already, in the same transaction |
//! | 5 crawler races | files are listed before rows; whatever is noted or taken in is looked at again in turn, and what is doomed within its transaction |
//! | 6 discovered shares were never stable | found, stable and leased for 60 days in one transaction |
//! | 7 stuck coming and going | both are put right at restart |
//! | 8 names that begin others | fixed length, exact match |
//! | 9 cancel secrets | there are none: an account lets go of its own leases, and of nothing that it has none on |
//! | 10 negative answers from the database | whatever has no row is looked for where the files are |
//! | 11 deposits | taken in when they are asked for, by discovery, or from a parcel |
//! | 12 expiry anxiety | deletion needs no lease *and* the grace period; leases that never end, and quotas |

mod accounts;
mod backend;
mod bridge;
mod check;
mod content;
mod crawler;
mod database;
mod digest;
mod direct;
mod discovery;
mod disk;
mod error;
mod expirer;
mod file;
mod file_locks;
mod finding;
mod header;
mod inventory;
mod leases;
mod local;
mod objects;
mod passes;
mod reading;
mod reaper;
mod restart;
mod rounds;
mod rows;
mod s3;
pub mod sample;
mod schema;
mod scrub;
mod seal;
mod server;
mod settings;
mod share;
mod shelf;
#[cfg(test)]
mod tests;
mod transitions;
mod tx;
mod upload;
mod wal;

pub use accounts::{Account, AccountError, AccountKey, AccountSecret, SecretError, SignatureError, Signed};
pub use content::{Location, LocationError, clear, lacks, remember};
pub use crawler::Pace;
pub use digest::digest;
pub use error::{Damage, DatabaseError, DiskError, OpenError, ReadError, ReapError, Refusal, StoreError};
pub use expirer::Expiry;
pub use header::HeaderError;
pub use inventory::Inventory;
pub use server::{ShareServer, Suspended};
pub use settings::{Clock, ShareServerSettings, Tell};
pub use share::{
    AccountId, Deletion, Health, Holds, Incident, NewShare, Pass, Process, Seconds, ShareId, ShareLease,
    State, StoredShare, Uploaders, Usage,
};
