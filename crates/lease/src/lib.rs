//! Leases on single metadata fields: who holds what, requests, recalls, reports (Farsite §5).

mod field;
mod held;
mod holdings;
mod label;
mod time;

pub use field::{Field, Kind, Lease, Released, SessionId};
pub use held::Held;
pub use holdings::{Holdings, InTheWay, Violation};
pub use label::{LABEL_BYTES_MAX, Label, NotALabel};
pub use time::Time;
