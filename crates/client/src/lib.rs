//! The client's state machine: a machine's single holder of leases.
//!
//! The crate cannot reach connections, disks, clocks, threads and the directory.
//!
//! The client decides and does operations that its leases cover, and logs them. The server replays
//! the log later (Farsite §2.3, §6). [`Client`] is pure. Calls, messages and the time come in.
//! Answers, messages and actions for the host go out.

#![allow(missing_docs, reason = "fields of calls are documented once, on the calls")]

pub mod call;
mod calls;
mod client;
mod ending;
mod io;
mod knowledge;
mod leases;
mod lost;
mod messages;
mod publish;
mod publishing;
mod reply;
mod salvage;
mod server;
mod session;
#[cfg(test)]
mod tests;

pub use call::{AllocateMode, Call};
pub use calls::{WaitReason, WaitReport};
pub use client::{Client, Settings};
pub use content::Upload;
pub use ending::{Continuation, Heard};
pub use io::{Input, Invalidation, Now, Outcome, Output, Ticket};
pub use leases::{Entries, Given, When};
pub use lost::{KnownPath, Lost, LostWhat, Salvage};
pub use reply::{Listed, Reply, Upto};
