//! The server's report of itself.

use serde::{Deserialize, Serialize};

/// A session, for a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionReport {
    /// The user's name.
    pub user: String,
    /// The client's address.
    pub address: String,
    /// The dialect, such as 3.1.1.
    pub dialect: String,
    /// Messages are encrypted, by the client's choice or the share's.
    pub encrypted: bool,
    /// The shares that are connected.
    pub shares: Vec<String>,
    /// The number of opens.
    pub opens: usize,
}

/// The state of the server, for a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerReport {
    /// The number of connections.
    pub connections: usize,
    /// The sessions.
    pub sessions: Vec<SessionReport>,
    /// The number of opens.
    pub opens: usize,
    /// The number of leases and oplocks.
    pub leases: usize,
    /// The number of breaks that are not acknowledged yet.
    pub breaks: usize,
}
