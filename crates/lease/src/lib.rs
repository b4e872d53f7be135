//! Leases on single metadata fields: holdings, requests, recalls, reports (Farsite §5). Below them,
//! the caching leases of SMB clients ([`caching`]).
//!
//! The crate knows identifiers alone. It cannot reach files, messages, clocks and randomness.

pub mod blackbox;
pub mod caching;
mod field;
mod flushes;
mod granularity;
mod held;
mod holdings;
mod label;
mod open;
mod queue;
mod recalls;
mod recent;
mod time;

pub use field::{Field, Kind, Lease, Released, SessionId};
pub use flushes::Flushes;
pub use granularity::Granularity;
pub use held::Held;
pub use holdings::{Holdings, InTheWay, LeaseViolation};
pub use label::{LABEL_BYTES_MAX, Label, NotALabel};
pub use open::{Mode, OpenModes, Others};
pub use queue::{Arrival, Queue, REQUESTS_MAX, Request, RequestKind, WANTS_MAX};
pub use recalls::Recalls;
pub use recent::Recent;
pub use time::Time;
