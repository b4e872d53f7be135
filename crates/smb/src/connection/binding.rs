//! Binding a session to a further connection of its client (MS-SMB2 §3.3.5.5.2): multichannel.

use super::Connection;
use crate::request::Request;
use crate::session::Session;
use crate::wire::bodies::SessionSetupRequest;
use crate::wire::{Command, NtStatus};
use crypto::smb::SigningAlgorithm;
use std::sync::Arc;

/// SMB2_SESSION_FLAG_BINDING.
pub(super) const BINDING: u8 = 1;

impl Connection {
    /// Finds the session that a request is to bind to this connection. The session's own key signs
    /// such a request.
    pub(super) fn bound_by(&self, request: &Request) -> Option<Arc<Session>> {
        if request.header.command != Command::SessionSetup as u16 {
            return None;
        }
        let fixed = SessionSetupRequest::parse(&request.message).ok()?;
        if fixed.flags & BINDING == 0 { None } else { self.server.session(request.header.session_id) }
    }

    /// Checks that a session may be bound to this connection. Both connections must have agreed on
    /// the same, since the session has one dialect and one cipher.
    pub(super) fn may_bind(&self, request: &Request) -> Result<Arc<Session>, NtStatus> {
        let session = self.bound_by(request).ok_or(NtStatus::USER_SESSION_DELETED)?;
        let state = self.state.lock();
        let here = state.negotiated.as_ref().ok_or(NtStatus::INVALID_PARAMETER)?;
        let first = &session.negotiated;
        if !here.dialect.is_3() || state.sessions.contains_key(&session.id) {
            return Err(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        if here.dialect != first.dialect || here.cipher != first.cipher || request.signed_by.is_none() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let has_gmac = [here.signing, first.signing].contains(&SigningAlgorithm::AesGmac);
        if has_gmac && here.signing != first.signing {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        Ok(session)
    }
}
