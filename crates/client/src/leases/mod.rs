//! Leases on their way back, and the values that are kept or shown without one.

mod given;
mod lingering;
mod recall;
mod release;
mod reported;

pub use given::{Entries, Given, When};
pub(crate) use lingering::{Lingering, LookedUp};
pub(crate) use recall::{Flushing, Revocations};
pub(crate) use reported::PingPongFiles;
