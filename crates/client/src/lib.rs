//! The client's state machine: a machine's single holder of leases.
//!
//! Operations that its leases cover are decided and done here, logged, and replayed at the server later (Farsite §2.3, §6). [`Client`] is
//! pure: calls, messages and the time come in; answers, messages and things for the host to do go out.

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
mod seam;
mod session;
mod shipped;
#[cfg(test)]
mod tests;
mod through;
mod waiting;

pub use call::{Allocate, Call, Listed, Reply, Upto};
pub use client::{Client, Settings};
pub use ending::{Continuation, Heard};
pub use given::{Entries, Given, When};
pub use salvage::{KnownPath, Lost, LostWhat, Salvage};
pub use seam::{Input, Invalidation, Now, Outcome, Output, Ticket, Upload};
pub use waiting::WaitReport;
