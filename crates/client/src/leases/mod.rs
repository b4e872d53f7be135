//! Leases on their way back, and the values that are kept or shown without one.

mod given;
mod lingering;
mod lingering_files;
mod ping_pong;
mod recall;
mod release;
mod reported;
mod revocations;
mod watched;

pub use given::{Entries, Given, When};
pub(crate) use lingering_files::Lingering;
pub(crate) use ping_pong::PingPongFiles;
pub(crate) use revocations::{Flushing, Revocations};
pub(crate) use watched::WatchedFiles;
