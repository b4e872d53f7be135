//! The share server: stored pieces of content, and the database of who wants them kept (leasedb).
//!
//! A share is an immutable file; a lease is an account's wish that it be kept. Whatever is written passes through the states
//! COMING → STABLE → GOING, which are rows of the database: `transitions` has the table of them, `upload` and `reaper` the order of
//! their steps on disk, `restart` what is put right after these were cut short.
//!
//! # The faults of the earlier code (leasedb, "Faults found in the earlier code"), and where they are answered
//!
//! | fault | answer |
//! | --- | --- |
//! | 1 failed write for a new share | going at once, deleted by the reaper until confirmed |
//! | 2 objects vanish | row and leases stay, `health` and an incident, not held, may be stored again |
//! | 3 corrupted shares | the same, in quarantine; storing again replaces the file atomically |
//! | 4 duplicate upload took no lease | announcing leases what is there already, in the same transaction |
//! | 5 crawler races | what is noted or doomed is re-tested within its transaction; snapshots come with the crawls |
//! | 6 discovered shares were never stable | discovery at opening; the crawl in the background is to come |
//! | 7 stuck coming and going | both are put right at restart |
//! | 8 names that begin others | fixed length, exact match |
//! | 9 cancel secrets | there are none: account identity only |
//! | 12 expiry anxiety | deletion needs no lease *and* the grace period; leases that never end |
//! | 10 negative answers, 11 deposits | come with the crawls; discovery at opening leaves nothing undiscovered |

mod database;
mod digest;
mod disk;
mod error;
mod file;
mod header;
mod leases;
mod reading;
mod reaper;
mod restart;
mod rounds;
mod schema;
mod server;
mod share;
mod shelf;
#[cfg(test)]
mod tests;
mod transitions;
mod upload;

pub use digest::digest;
pub use error::{Damage, DatabaseError, DiskError, OpenError, ReadError, ReapError, Refusal, StoreError};
pub use header::HeaderError;
pub use server::{Clock, Settings, ShareServer};
pub use share::{
    AccountId, Deletion, Health, Holds, NewShare, Seconds, ShareId, ShareLease, State, StoredShare, Usage,
};
