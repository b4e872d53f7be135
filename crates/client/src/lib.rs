//! The client's state machine: a machine's single holder of leases.
//!
//! The client decides and does operations that its leases cover, and logs them. The server replays
//! the log later (Farsite §2.3, §6). [`Client`] is pure. Calls, messages and the time come in.
//! Answers, messages and actions for the host go out.

#![allow(missing_docs, reason = "fields of calls are documented once, on the calls")]

mod accesses;
mod attempt;
mod call;
mod client;
mod ending;
mod evict;
mod file_io;
mod given;
mod handles;
mod io;
mod known;
mod lingering;
mod locks;
mod log;
mod merge;
mod promised;
mod publish;
mod recall;
mod reopen;
mod reported;
mod requests;
mod reserve;
mod salvage;
mod session;
mod shipped;
#[cfg(test)]
mod tests;
mod waiting;
mod write_through;

pub use call::{Allocate, Call, Listed, Reply, Upto};
pub use client::{Client, Settings};
pub use ending::{Continuation, Heard};
pub use given::{Entries, Given, When};
pub use io::{Input, Invalidation, Now, Outcome, Output, Ticket, Upload};
pub use salvage::{KnownPath, Lost, LostWhat, Salvage};
pub use waiting::WaitReport;
