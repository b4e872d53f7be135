//! A logon under way.

use crate::auth::Acceptor;
use crate::session::Session;
use crypto::smb::PreauthHash;
use std::sync::Arc;

/// The exchange of tokens with a user who has no session yet, or renews it.
pub(crate) struct Logon {
    pub(super) acceptor: Acceptor,
    pub(super) hash: PreauthHash,
    /// The session whose user logs on again.
    pub(super) renews: Option<Arc<Session>>,
}
