//! Connections between machines, and who is at their other end: certificates and TLS, invitations,
//! greetings, discovery, the link to the leader, and the way to each share server. The crate opens
//! sockets. It cannot reach the directory's state, stored shares and front doors.

mod authority;
pub mod call;
mod carrier;
mod content;
mod credential_store;
mod discovery;
pub mod frames;
mod join;
mod leader;
mod line;
mod link;
pub mod listener;
mod movable;
pub mod reach;
mod round_trips;
mod socket;
#[cfg(test)]
mod tests;
mod thread;
mod tls;
mod token;

pub use authority::{Authority, AuthorityKeys, CertificateError, Credentials, fingerprint, machine_of};
pub use carrier::{CarrierError, ShareCarrier};
pub use content::{ANSWERED_WITHIN, Pending, ShareClient, ShareLink, Unanswered};
pub use credential_store::{Caller, CredentialStore};
pub use discovery::Places;
pub use join::{JoinError, join, leave};
pub use leader::{LeaderError, ask_control, ask_to_serve, tell_ready};
pub use link::{LinkDown, ServerLink, ServerLinkStatus, SessionClient};
pub use listener::{ListenError, Listener};
pub use round_trips::{RoundTrip, RoundTripReport, RoundTrips, TimedConnection};
pub use thread::NetThread;
pub use tls::{Reception, ShownCertificate};
pub use token::{Token, TokenError};
