//! SESSION_SETUP and LOGOFF (MS-SMB2 §3.3.5.5, §3.3.5.6).

use super::binding::BINDING;
use super::logon::{Aim, Logon};
use super::{Connection, Ends};
use crate::auth::{Authenticated, Mechanism, RANDOM_BYTES, Refused, Step, Trust, kerberos};
use crate::channel::Channel;
use crate::keeping::keep_or_close;
use crate::keys::{ChannelKey, EncryptionKeys, Secret};
use crate::limits::{FAILED_LOGON_DELAY, FAILED_LOGONS_MAX};
use crate::request::{Reply, Request};
use crate::server::Server;
use crate::session::Session;
use crate::time::now;
use crate::wire::bodies::{SessionSetupRequest, SessionSetupResponse};
use crate::wire::negotiate::Dialect;
use crate::wire::{HEADER_BYTES, NtStatus, Reader, Writer};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const TOO_MANY_FAILED: Ends = Ends("too many logons have failed");

impl Connection {
    /// Answers SESSION_SETUP.
    pub(super) async fn session_setup(&self, request: &Request) -> Result<Reply, Ends> {
        // Somebody who has logged on keeps his session, whoever else mistypes beside him.
        if self.failed_logons.load(Relaxed) >= FAILED_LOGONS_MAX && !self.has_logged_on() {
            return Err(TOO_MANY_FAILED);
        }
        // A logon that has failed is answered first: a connection has one guess in that time.
        drop(self.failing.lock().await);
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
                Ok(key) => {
                    Reply { session: Some(id), signed_by: Some(key), ..Reply::done(body(&done.token)) }
                }
                Err(status) => Reply::error(status),
            }),
            Err(refused) => {
                tracing::info!(address = %self.address, why = refused.0, "a logon over SMB failed");
                let logon = self.state.lock().logons.remove(&id);
                if let Some(Logon { aim: Aim::Renew(channel), .. }) = logon {
                    self.logoff(&channel.session).await;
                }
                // Counted before the delay, or a client would have as many tries at once as
                // credits.
                let failed = self.failed_logons.fetch_add(1, Relaxed) + 1;
                let _failing = self.failing.lock().await;
                tokio::time::sleep(FAILED_LOGON_DELAY).await;
                if failed >= FAILED_LOGONS_MAX && !self.has_logged_on() {
                    return Err(TOO_MANY_FAILED);
                }
                Ok(Reply { session: Some(id), ..Reply::error(NtStatus::LOGON_FAILURE) })
            }
        }
    }

    /// Takes the next token of a logon, new or under way.
    fn step_logon(&self, request: &Request) -> Result<(u64, Result<Step, Refused>), NtStatus> {
        let message = &request.message;
        let fixed = SessionSetupRequest::parse(message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let (at, length) = (usize::from(fixed.security_offset), usize::from(fixed.security_length));
        let token = Reader::buffer(message, at, length).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let binds = if fixed.flags & BINDING != 0 { Some(self.may_bind(request)?) } else { None };
        let mut random = [0; RANDOM_BYTES];
        os::fill_random(&mut random).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let mut state = self.state.lock();
        let negotiated = state.negotiated.clone().ok_or(NtStatus::INVALID_PARAMETER)?;
        let id = match request.header.session_id {
            0 => {
                let id = self.server.next_session();
                state.begin_logon(id, negotiated.hash, Aim::New)?
            }
            // The next token is for the same end as the first.
            id if state.logons.get(&id).is_some_and(|logon| logon.binds() == binds.is_some()) => id,
            id => {
                let aim = match binds {
                    Some(session) => Aim::Bind(session),
                    None => {
                        let channel = state.sessions.get(&id).cloned();
                        let channel = channel.filter(|channel| !channel.session.has_ended.load(Relaxed));
                        Aim::Renew(channel.ok_or(NtStatus::USER_SESSION_DELETED)?)
                    }
                };
                state.begin_logon(id, negotiated.hash, aim)?
            }
        };
        let logon = state.logons.get_mut(&id).expect("just looked up");
        if negotiated.dialect == Dialect::V3_1_1 {
            logon.hash.update(message);
        }
        let Server { accounts, mechanisms, replays, computer, .. } = &*self.server;
        let hash_of = |user: &str| accounts.user(user).and_then(|user| user.hash());
        let is_user = |name: &str| {
            let is_known = accounts.user(name).is_some();
            if !is_known {
                tracing::warn!(principal = name, "the machine has no such user: leasehold user add");
            }
            is_known
        };
        let keytab = || mechanisms.keytab();
        let kerberos = kerberos::Service { keytab: &keytab, replays, is_user: &is_user };
        let trust = Trust {
            computer,
            hash_of: if mechanisms.has(Mechanism::Ntlm) { Some(&hash_of) } else { None },
            kerberos: mechanisms.has(Mechanism::Kerberos).then_some(kerberos),
        };
        let step = logon.acceptor.step(token, &random, now(), &trust);
        Ok((id, step))
    }

    /// Makes the session, or confirms the one that there is. Returns the key that signs from now
    /// on.
    fn finish_logon(
        &self,
        id: u64,
        request: &Request,
        done: &Authenticated,
    ) -> Result<Arc<ChannelKey>, NtStatus> {
        let fixed = SessionSetupRequest::parse(&request.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let user = done.user.as_ref().map(|name| self.server.accounts.user(name));
        let user = user.map(|user| user.ok_or(NtStatus::LOGON_FAILURE)).transpose()?;
        let mut state = self.state.lock();
        let logon = state.logons.remove(&id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        let negotiated = state.negotiated.clone().ok_or(NtStatus::INVALID_PARAMETER)?;
        let secret = Secret {
            session_key: &done.session_key,
            full_session_key: &done.full_session_key,
            dialect: negotiated.dialect,
            hash: &logon.hash,
        };
        let key = ChannelKey::new(secret, negotiated.signing);
        let Some(user) = user else {
            // Opens stay, and keep their rights. The session's keys sign (§3.3.5.5.3).
            let Aim::Renew(channel) = logon.aim else { return Err(NtStatus::LOGON_FAILURE) };
            channel.session.is_anonymous.store(true, Relaxed);
            return Ok(channel.key);
        };
        match logon.aim {
            // Its keys stay (§3.3.5.5.3), and so does its user.
            Aim::Renew(channel) if channel.session.user == user.name => {
                channel.session.is_anonymous.store(false, Relaxed);
                channel.session.holds_until(done.expires);
                return Ok(channel.key);
            }
            Aim::Bind(session) if session.user == user.name => {
                session.join()?;
                let key = Arc::new(key);
                state.sessions.insert(id, Channel { session, key: key.clone() });
                drop(state);
                self.note_logged_on();
                return Ok(key);
            }
            Aim::Renew(_) | Aim::Bind(_) => return Err(NtStatus::ACCESS_DENIED),
            Aim::New => {}
        }
        let encryption = negotiated.cipher.map(|kind| EncryptionKeys::new(secret, kind));
        let who = (user.name.clone(), user.cred());
        let session = Session::new(id, who, (key, encryption), negotiated, self.address.clone());
        let session = Arc::new(session);
        session.holds_until(done.expires);
        let key = session.key.clone();
        state.sessions.insert(id, Channel { session: session.clone(), key: key.clone() });
        drop(state);
        self.server.add_session(&session);
        self.note_logged_on();
        if fixed.previous_session_id != 0 && fixed.previous_session_id != id {
            self.end_previous(fixed.previous_session_id, &session);
        }
        Ok(key)
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
        keep_or_close(&self.server, session.end()).await;
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
