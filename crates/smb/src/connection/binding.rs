//! Binding a session to a further connection of its client (MS-SMB2 §3.3.5.5.2): multichannel.

use super::Connection;
use crate::request::Request;
use crate::session::Session;
use crate::wire::{Command, Header, NtStatus};
use crypto::smb::SigningAlgorithm;
use std::sync::Arc;

/// SMB2_SESSION_FLAG_BINDING.
pub(super) const BINDING: u8 = 1;

impl Connection {
    /// Finds the session of another connection that a logon is for: to bind it, or by mistake. The
    /// session's own key signs the request, and the answer until it is bound.
    pub(super) fn elsewhere(&self, header: &Header) -> Option<Arc<Session>> {
        let is_setup = header.command == Command::SessionSetup as u16;
        self.server.session(header.session_id).filter(|_| is_setup)
    }

    /// Checks that a session may be bound to this connection. Both connections must have agreed on
    /// the same, since the session has one dialect and one cipher.
    pub(super) fn may_bind(&self, request: &Request) -> Result<Arc<Session>, NtStatus> {
        let session = self.elsewhere(&request.header).ok_or(NtStatus::USER_SESSION_DELETED)?;
        let state = self.state.lock();
        let here = state.negotiated.as_ref().ok_or(NtStatus::INVALID_PARAMETER)?;
        let first = &session.negotiated;
        // A key of AES-GMAC serves no other algorithm (§3.3.5.5.2).
        if here.signing != first.signing {
            if here.signing == SigningAlgorithm::AesGmac {
                return Err(NtStatus::NOT_SUPPORTED);
            }
            if first.signing == SigningAlgorithm::AesGmac {
                return Err(NtStatus::REQUEST_OUT_OF_SEQUENCE);
            }
        }
        if !here.dialect.is_3() || state.sessions.contains_key(&session.id) {
            return Err(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        if here.dialect != first.dialect || here.cipher != first.cipher || request.signed_by.is_none() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(session)
    }
}

#[cfg(test)]
pub(super) mod tests;
