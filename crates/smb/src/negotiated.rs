//! The agreement of a connection's two sides.

use crate::wire::negotiate::Dialect;
use crypto::smb::{MessageCipherKind, PreauthHash, SigningAlgorithm};
use objects::ClientGuid;

/// The outcome of a negotiation.
#[derive(Clone)]
pub(crate) struct Negotiated {
    pub(crate) dialect: Dialect,
    pub(crate) client: ClientGuid,
    pub(crate) signing: SigningAlgorithm,
    pub(crate) cipher: Option<MessageCipherKind>,
    pub(crate) hash: PreauthHash,
    pub(crate) posix: bool,
    /// The server's capabilities, and what the client said of itself: for the later check.
    pub(crate) capabilities: u32,
    pub(crate) client_capabilities: u32,
    pub(crate) client_mode: u16,
}
