//! SESSION_SETUP and LOGOFF (MS-SMB2 §3.3.5.5, §3.3.5.6).

use super::logon::Logon;
use super::{Connection, Ends};
use crate::auth::{Acceptor, Authenticated, Step};
use crate::handle::close_all;
use crate::keeping::keep_or_close;
use crate::keys::SessionKeys;
use crate::limits::{FAILED_LOGON_DELAY, FAILED_LOGONS_MAX, SESSIONS_MAX};
use crate::request::{Reply, Request};
use crate::session::Session;
use crate::time::now;
use crate::wire::bodies::{SessionSetupRequest, SessionSetupResponse};
use crate::wire::negotiate::Dialect;
use crate::wire::{HEADER_BYTES, NtStatus, Reader, Writer};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// SMB2_SESSION_FLAG_BINDING.
const BINDING: u8 = 1;

impl Connection {
    /// Answers SESSION_SETUP.
    pub(super) async fn session_setup(&self, request: &Request) -> Result<Reply, Ends> {
        let step = match self.step_logon(request) {
            Ok(step) => step,
            Err(status) => return Ok(Reply::error(status)),
        };
        let id = step.0;
        match step.1 {
            Ok(Step::More(token)) => Ok(Reply {
                status: NtStatus::MORE_PROCESSING_REQUIRED,
                session: Some(id),
                ..Reply::done(body(&token))
            }),
            Ok(Step::Done(done)) => Ok(match self.finish_logon(id, request, &done) {
                Ok(session) => {
                    let mut reply = Reply { session: Some(id), ..Reply::done(body(&done.token)) };
                    reply.signed_by = Some(session);
                    reply
                }
                Err(status) => Reply::error(status),
            }),
            Err(refused) => {
                tracing::info!(address = %self.address, why = refused.0, "a logon over SMB failed");
                self.state.lock().logons.remove(&id);
                tokio::time::sleep(FAILED_LOGON_DELAY).await;
                if self.failed_logons.fetch_add(1, Relaxed) + 1 >= FAILED_LOGONS_MAX {
                    return Err(Ends("too many logons have failed"));
                }
                Ok(Reply { session: Some(id), ..Reply::error(NtStatus::LOGON_FAILURE) })
            }
        }
    }

    /// Takes the next token of a logon, new or under way.
    fn step_logon(
        &self,
        request: &Request,
    ) -> Result<(u64, Result<Step, crate::auth::LogonFailed>), NtStatus> {
        let message = &request.message;
        let fixed = SessionSetupRequest::parse(message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let (at, length) = (usize::from(fixed.security_offset), usize::from(fixed.security_length));
        let token = Reader::buffer(message, at, length).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        if fixed.flags & BINDING != 0 {
            // One connection a session: there is no multichannel.
            return Err(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        let mut nonce = [0; 8];
        os::fill_random(&mut nonce).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let mut state = self.state.lock();
        let negotiated = state.negotiated.clone().ok_or(NtStatus::INVALID_PARAMETER)?;
        let id = match request.header.session_id {
            0 => {
                if state.logons.len() + state.sessions.len() >= SESSIONS_MAX {
                    return Err(NtStatus::INSUFFICIENT_RESOURCES);
                }
                let id = self.server.next();
                let logon = Logon { acceptor: Acceptor::default(), hash: negotiated.hash, renews: None };
                state.logons.insert(id, logon);
                id
            }
            id if state.logons.contains_key(&id) => id,
            id => {
                let session = state.sessions.get(&id).cloned().ok_or(NtStatus::USER_SESSION_DELETED)?;
                let logon =
                    Logon { acceptor: Acceptor::default(), hash: negotiated.hash, renews: Some(session) };
                state.logons.insert(id, logon);
                id
            }
        };
        let logon = state.logons.get_mut(&id).expect("just looked up");
        if negotiated.dialect == Dialect::V3_1_1 {
            logon.hash.update(message);
        }
        let hash_of = |user: &str| self.server.accounts.user(user).map(|user| user.hash());
        let step = logon.acceptor.step(token, nonce, now(), &self.server.computer, &hash_of);
        Ok((id, step))
    }

    /// Makes the session, or confirms the one that there is.
    fn finish_logon(
        &self,
        id: u64,
        request: &Request,
        done: &Authenticated,
    ) -> Result<Arc<Session>, NtStatus> {
        let fixed = SessionSetupRequest::parse(&request.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let user = self.server.accounts.user(&done.user).ok_or(NtStatus::LOGON_FAILURE)?;
        let mut state = self.state.lock();
        let logon = state.logons.remove(&id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        let negotiated = state.negotiated.clone().ok_or(NtStatus::INVALID_PARAMETER)?;
        if let Some(session) = logon.renews {
            // Its keys stay (§3.3.5.5.3), and so does its user.
            return if session.user == user.name { Ok(session) } else { Err(NtStatus::ACCESS_DENIED) };
        }
        let keys = SessionKeys::new(
            &done.session_key,
            negotiated.dialect,
            negotiated.signing,
            negotiated.cipher,
            &logon.hash,
        );
        let (name, cred) = (user.name.clone(), user.cred());
        let number = negotiated.dialect as u16;
        let dialect = match negotiated.dialect {
            Dialect::V2_1 => "2.1".to_owned(),
            _ => format!("{}.{}.{}", number >> 8, number >> 4 & 15, number & 15),
        };
        let session = Session::new(id, name, cred, keys, self.address.clone(), dialect);
        let session = Arc::new(session);
        state.sessions.insert(id, session.clone());
        drop(state);
        self.server.add_session(&session);
        self.note_logged_on();
        if fixed.previous_session_id != 0 && fixed.previous_session_id != id {
            self.end_previous(fixed.previous_session_id, &session);
        }
        Ok(session)
    }

    /// The client has come back, and says which session it has lost (§3.3.5.5.3).
    fn end_previous(&self, previous: u64, session: &Session) {
        let Some(old) = self.server.session(previous) else { return };
        if old.user == session.user {
            self.server.remove_session(previous);
            let handles = old.end();
            let server = self.server.clone();
            tokio::spawn(async move { keep_or_close(&server, handles).await });
        }
    }

    /// Answers LOGOFF.
    pub(super) async fn logoff(&self, session: &Session) -> Reply {
        {
            let mut state = self.state.lock();
            state.logged_off = state.sessions.remove(&session.id);
        }
        self.server.remove_session(session.id);
        close_all(session.end()).await;
        Reply::empty()
    }
}

fn body(token: &[u8]) -> Vec<u8> {
    let fixed = SessionSetupResponse {
        flags: 0,
        security_offset: HEADER_BYTES as u16 + 8,
        security_length: token.len() as u16,
    };
    let mut out = fixed.to_bytes();
    out.put(token);
    out
}
