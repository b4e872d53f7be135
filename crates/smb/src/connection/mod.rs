//! A connection: frames in, messages out (MS-SMB2 §3.3.5.2).

mod answering;
mod logon;
mod negotiation;

pub(crate) use negotiation::ValidateError;

use crate::client::Client;
use crate::credits::Window;
use crate::keeping::keep_or_close;
use crate::limits::{COMPOUND_MAX, EARLY_FRAME_BYTES_MAX, FRAME_BYTES_MAX};
use crate::outbox::Outbox;
use crate::server::Server;
use crate::session::Session;
use crate::wire::bodies::{Empty, error_body};
use crate::wire::{
    Command, Flags, HEADER_BYTES, Header, NtStatus, SMB1_PROTOCOL, TRANSFORM_BYTES, TRANSFORM_PROTOCOL,
    TransformHeader,
};
use logon::Logon;
use negotiation::Negotiated;
use objects::ClientGuid;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use tokio::sync::Notify;

/// The reason why a connection is closed: its client does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Ends(pub &'static str);

/// A connection.
pub(crate) struct Connection {
    pub(crate) server: Arc<Server>,
    pub(crate) address: String,
    outbox: Outbox,
    state: Mutex<State>,
    failed_logons: AtomicU32,
    has_logged_on: AtomicBool,
    /// Ends the connection from within a request.
    ends: Notify,
}

#[derive(Default)]
struct State {
    saw_smb1: bool,
    negotiated: Option<Negotiated>,
    credits: Window,
    logons: BTreeMap<u64, Logon>,
    sessions: BTreeMap<u64, Arc<Session>>,
    /// The session that has logged off last. Its client still wants to be told so with a signature.
    logged_off: Option<Arc<Session>>,
    client: Option<Arc<Client>>,
    /// Requests that wait and can be cancelled, by message number.
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    async_id: u64,
    cancelled: Arc<Notify>,
}

/// A request.
pub(crate) struct Request {
    pub(crate) header: Header,
    /// The message, from its header on.
    pub(crate) message: Vec<u8>,
    /// It came encrypted.
    pub(crate) is_encrypted: bool,
    /// The check of its signature has refused it.
    refused: Option<NtStatus>,
    /// The session that signed it.
    signed_by: Option<Arc<Session>>,
}

/// The answer to a request, without its header.
pub(crate) struct Reply {
    pub(crate) status: NtStatus,
    pub(crate) body: Vec<u8>,
    /// The session that the request has made.
    pub(crate) session: Option<u64>,
    /// The tree connect that the request has made.
    pub(crate) tree: Option<u32>,
    /// The session whose key signs, if it is not the request's.
    pub(crate) signed_by: Option<Arc<Session>>,
    /// Dropped when the answer is on its way: see [`objects::Acknowledged`].
    pub(crate) after: Option<objects::Acknowledged>,
}

impl Reply {
    pub(crate) fn done(body: Vec<u8>) -> Reply {
        Reply { status: NtStatus::SUCCESS, body, session: None, tree: None, signed_by: None, after: None }
    }

    pub(crate) fn error(status: NtStatus) -> Reply {
        Reply { status, ..Reply::done(error_body()) }
    }

    pub(crate) fn empty() -> Reply {
        Reply::done(Empty::default().to_bytes())
    }
}

impl Connection {
    pub(crate) fn new(server: Arc<Server>, address: String, outbox: Outbox) -> Connection {
        Connection {
            server,
            address,
            outbox,
            state: Mutex::default(),
            failed_logons: AtomicU32::new(0),
            has_logged_on: AtomicBool::new(false),
            ends: Notify::new(),
        }
    }

    /// Returns the most bytes that the next frame may have.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        if self.has_logged_on() { FRAME_BYTES_MAX } else { EARLY_FRAME_BYTES_MAX }
    }

    /// Returns whether there was a logon.
    pub(crate) fn has_logged_on(&self) -> bool {
        self.has_logged_on.load(Relaxed)
    }

    fn note_logged_on(&self) {
        if !self.has_logged_on.swap(true, Relaxed) {
            self.server.early_connections.fetch_sub(1, Relaxed);
        }
    }

    /// Waits until the connection is to be closed.
    pub(crate) async fn ended(&self) {
        self.ends.notified().await;
    }

    fn join(&self, guid: ClientGuid) {
        let client = self.server.client(guid);
        client.add(self.outbox.clone());
        self.state.lock().client = Some(client);
    }

    /// Takes a frame. The answers go to the outbox, some of them later.
    pub(crate) fn receive(self: &Arc<Self>, mut frame: Vec<u8>) -> Result<(), Ends> {
        if frame.starts_with(&SMB1_PROTOCOL) {
            let answer = self.negotiate_smb1(&frame)?;
            self.outbox.send(answer);
            return Ok(());
        }
        let mut sealed_by = None;
        if frame.starts_with(&TRANSFORM_PROTOCOL) {
            let header = TransformHeader::parse(&frame).map_err(|malformed| Ends(malformed.0))?;
            let session = self.state.lock().sessions.get(&header.session_id).cloned();
            let session = session.ok_or(Ends("a message is encrypted for a session that is none"))?;
            session.keys.open(&header, &mut frame).map_err(|_| Ends("a message cannot be decrypted"))?;
            session.has_encrypted.store(true, Relaxed);
            frame.drain(..TRANSFORM_BYTES);
            sealed_by = Some(session);
        }
        let requests = self.split(frame, sealed_by.as_ref())?;
        if let [only] = &requests[..]
            && only.header.command == Command::Cancel as u16
        {
            self.cancel(only);
            return Ok(());
        }
        let mut state = self.state.lock();
        for request in &requests {
            let charge = match &state.negotiated {
                Some(negotiated) if negotiated.dialect > crate::wire::negotiate::Dialect::V2_0_2 => {
                    request.header.charge
                }
                _ => 1,
            };
            if !state.credits.consume(request.header.message_id, charge) {
                return Err(Ends("a message has a number that the client may not use"));
            }
        }
        drop(state);
        let connection = self.clone();
        tokio::spawn(async move {
            if let Err(ends) = connection.answer(requests, sealed_by).await {
                tracing::info!(address = %connection.address, why = ends.0, "an SMB connection is closed");
                connection.ends.notify_one();
            }
        });
        Ok(())
    }

    /// Splits a compound, and checks signatures.
    fn split(&self, frame: Vec<u8>, sealed_by: Option<&Arc<Session>>) -> Result<Vec<Request>, Ends> {
        let mut requests: Vec<Request> = Vec::new();
        let mut rest = frame;
        loop {
            let header = Header::parse(&rest).map_err(|malformed| Ends(malformed.0))?;
            if header.flags.has(Flags::ANSWER) {
                return Err(Ends("a client sends an answer"));
            }
            let next = header.next as usize;
            let after = if next == 0 {
                None
            } else if next < HEADER_BYTES || !next.is_multiple_of(8) || next > rest.len() {
                return Err(Ends("a compound has a gap"));
            } else {
                Some(rest.split_off(next))
            };
            if requests.len() >= COMPOUND_MAX {
                return Err(Ends("a compound is too long"));
            }
            let mut session_id = header.session_id;
            if header.flags.has(Flags::RELATED)
                && let Some(before) = requests.last()
                && session_id == u64::MAX
            {
                session_id = before.header.session_id;
            }
            let mut request = Request {
                header: Header { session_id, ..header },
                message: rest,
                is_encrypted: sealed_by.is_some(),
                refused: None,
                signed_by: None,
            };
            self.check_signature(&mut request, sealed_by);
            requests.push(request);
            match after {
                Some(after) => rest = after,
                None => return Ok(requests),
            }
        }
    }

    /// Checks a signature (§3.3.5.2.4). Every message of a session is signed or encrypted.
    fn check_signature(&self, request: &mut Request, sealed_by: Option<&Arc<Session>>) {
        let (header, session_id) = (request.header, request.header.session_id);
        let session = {
            let state = self.state.lock();
            let logged_off = state.logged_off.as_ref().filter(|session| session.id == session_id);
            state.sessions.get(&session_id).or(logged_off).cloned()
        };
        if let Some(sealed_by) = sealed_by {
            if session_id != 0 && sealed_by.id != session_id {
                request.refused = Some(NtStatus::ACCESS_DENIED);
            }
            return;
        }
        let Some(session) = session else { return };
        if header.flags.has(Flags::SIGNED) {
            let parsed = Header { session_id, ..header };
            if session.keys.is_signed(&parsed, &mut request.message) {
                request.signed_by = Some(session);
            } else {
                request.refused = Some(NtStatus::ACCESS_DENIED);
            }
        } else if header.command != Command::SessionSetup as u16
            && header.command != Command::Negotiate as u16
        {
            request.refused = Some(NtStatus::ACCESS_DENIED);
        }
    }

    /// Takes a CANCEL (§3.3.5.16), which has no answer.
    fn cancel(&self, request: &Request) {
        if request.refused.is_some() {
            return;
        }
        let state = self.state.lock();
        let found = if request.header.flags.has(Flags::ASYNC) {
            state.waiting.values().find(|waiting| waiting.async_id == request.header.tree_or_async)
        } else {
            state.waiting.get(&request.header.message_id)
        };
        if let Some(waiting) = found {
            waiting.cancelled.notify_one();
        }
    }

    /// Ends everything of the connection, when it is gone.
    pub(crate) async fn close(&self) {
        if !self.has_logged_on.swap(true, Relaxed) {
            self.server.early_connections.fetch_sub(1, Relaxed);
        }
        let (sessions, client, guid) = {
            let mut state = self.state.lock();
            state.waiting.values().for_each(|waiting| waiting.cancelled.notify_one());
            state.logons.clear();
            let guid = state.negotiated.as_ref().map(|negotiated| negotiated.client);
            (std::mem::take(&mut state.sessions), state.client.take(), guid)
        };
        for session in sessions.into_values() {
            self.server.remove_session(session.id);
            keep_or_close(&self.server, session.end()).await;
        }
        if let (Some(client), Some(guid)) = (client, guid) {
            client.remove(&self.outbox);
            self.server.leave(guid);
        }
    }
}

#[cfg(test)]
mod tests;
