//! The SMB front door: SMB 2.0.2 to 3.1.1 (MS-SMB2), above the machine's local object store.
//!
//! The crate cannot reach the machine and its client, but through the object store.
//!
//! [`wire`] has the messages, [`auth`] the logon. A [`Listening`] server turns the frames of its
//! connections into calls of [`objects::Store`]. Users and shares are in [`accounts`].

pub mod accounts;
pub mod auth;
#[cfg(test)]
mod chance;
mod channel;
mod client;
mod commands;
mod connection;
mod credits;
mod durable;
mod fscc;
mod handle;
mod keeping;
mod keys;
mod limits;
mod listen;
mod mechanisms;
mod negotiated;
mod outbox;
mod records;
mod refusal;
mod replay;
mod report;
mod request;
mod rpc;
mod sequence;
mod server;
mod session;
mod time;
mod tree;
pub mod wire;

pub use auth::kerberos::KeytabError;
pub use listen::Listening;
pub use mechanisms::Mechanisms;
pub use report::{ServerReport, SessionReport};
pub use server::Server;
