//! The share server: stored pieces of content, and the database of their leases (leasedb).
//!
//! The crate cannot reach files, the directory and connections: a share is bytes and a name.
//!
//! A share is an immutable file; a lease is an account's wish that it be kept. Every stored share
//! passes through the states COMING → STABLE → GOING, which are rows of the database. `transitions`
//! has their table. `upload` and `reaper` have the order of their steps on disk. `restart` repairs
//! the state after an interruption.
//!
//! # Faults of the earlier code (leasedb, "Faults found in the earlier code"), and their answers
//!
//! | fault | answer |
//! | --- | --- |
//! | 1 failed write for a new share | going at once, deleted by the reaper until confirmed |
//! | 2 objects vanish | row and leases stay, `health` and an incident, not held, may be stored again |
//! | 3 corrupted shares | the same, in quarantine; storing again replaces the file atomically |
//! | 4 duplicate upload took no lease | announcing leases what is there already, in the same transaction |
//! | 5 crawler races | files are listed before rows; a finding is checked again under the lock, and a doomed share within its transaction |
//! | 6 discovered shares were never stable | found, stable and leased for 60 days in one transaction |
//! | 7 stuck coming and going | both are put right at restart |
//! | 8 names that begin others | fixed length, exact match |
//! | 9 cancel secrets | there are none: an account releases its own leases, and no share that it has no lease on |
//! | 10 negative answers from the database | a share without a row is looked for where the files are |
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

pub use accounts::{Account, AccountError, AccountKey, SignatureError, Signed};
pub use content::{Location, LocationError, clear, lacks, remember};
pub use digest::digest;
pub use error::{Damage, DatabaseError, DiskError, OpenError, ReadError, ReapError, Refusal, StoreError};
pub use header::HeaderError;
pub use inventory::Inventory;
pub use server::{ShareServer, Suspended};
pub use settings::{Expiry, Pace, ShareServerSettings, Tell};
pub use share::{
    AccountId, Clock, Deletion, Health, Holds, Incident, NewShare, Pass, Process, Seconds, ShareId,
    ShareLease, State, StoredShare, Uploaders, Usage,
};
