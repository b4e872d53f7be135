//! A connection: what it has agreed on, its logons and its sessions (MS-SMB2 §3.3.1.7).

mod answering;
mod binding;
mod logon;
mod negotiation;
mod receiving;
mod session_setup;

use crate::channel::Channel;
use crate::client::Client;
use crate::credits::Window;
use crate::keeping::keep_or_close;
use crate::limits::{
    CREDITS_MAX, EARLY_CREDITS_MAX, EARLY_FRAME_BYTES_MAX, EARLY_UNSENT_BYTES_MAX, FRAME_BYTES_MAX,
    UNSENT_BYTES_MAX,
};
use crate::negotiated::Negotiated;
use crate::outbox::Outbox;
use crate::request::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::wire::bodies::error_body_with;
use crate::wire::negotiate::Dialect;
use crate::wire::{Command, Header, NtStatus};
use logon::Logon;
use objects::ClientGuid;
use os::Stranger;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
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
    /// The address of this machine that the client has reached.
    pub(crate) reached: Option<SocketAddr>,
    outbox: Outbox,
    state: Mutex<ConnectionState>,
    failed_logons: AtomicU32,
    /// Held while a logon that has failed waits for its answer.
    failing: tokio::sync::Mutex<()>,
    has_logged_on: AtomicBool,
    /// Its place among the connections of strangers, until a logon.
    stranger: Mutex<Option<Stranger>>,
    /// Ends the connection from within a request.
    ends: Notify,
}

#[derive(Default)]
struct ConnectionState {
    saw_smb1: bool,
    negotiated: Option<Negotiated>,
    credits: Window,
    logons: BTreeMap<u64, Logon>,
    sessions: BTreeMap<u64, Channel>,
    /// The session that has logged off last. Its client still wants to be told so with a signature.
    logged_off: Option<Channel>,
    client: Option<Arc<Client>>,
    /// Requests that wait and can be cancelled, by message number.
    waiting: BTreeMap<u64, CancellableRequest>,
}

struct CancellableRequest {
    header: Header,
    async_id: u64,
    cancelled: Arc<Notify>,
}

impl Connection {
    pub(crate) fn new(
        server: Arc<Server>,
        address: String,
        reached: Option<SocketAddr>,
        outbox: Outbox,
    ) -> Connection {
        Connection {
            server,
            address,
            reached,
            outbox,
            state: Mutex::default(),
            failed_logons: AtomicU32::new(0),
            failing: tokio::sync::Mutex::new(()),
            has_logged_on: AtomicBool::new(false),
            stranger: Mutex::new(None),
            ends: Notify::new(),
        }
    }

    /// Returns the most bytes that the next frame may have.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        if self.has_logged_on() { FRAME_BYTES_MAX } else { EARLY_FRAME_BYTES_MAX }
    }

    /// Returns the most bytes of answers that may wait when the next frame is read.
    pub(crate) fn unsent_bytes_max(&self) -> usize {
        if self.has_logged_on() { UNSENT_BYTES_MAX } else { EARLY_UNSENT_BYTES_MAX }
    }

    fn grant(&self, asked: u16) -> u16 {
        let most = if self.has_logged_on() { CREDITS_MAX } else { EARLY_CREDITS_MAX };
        self.state.lock().credits.grant(asked, most)
    }

    /// Returns whether there was a logon.
    pub(crate) fn has_logged_on(&self) -> bool {
        self.has_logged_on.load(Relaxed)
    }

    /// Takes the connection's place among those of strangers. A logon ends it.
    pub(crate) fn comes_from(&self, stranger: Stranger) {
        *self.stranger.lock() = Some(stranger);
    }

    /// Notes that the client has sent what can be read.
    pub(crate) fn speaks(&self) {
        if let Some(stranger) = &*self.stranger.lock() {
            stranger.speaks();
        }
    }

    fn note_logged_on(&self) {
        self.has_logged_on.store(true, Relaxed);
        if let Some(stranger) = self.stranger.lock().take() {
            stranger.is_known();
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

    /// Finds a session of this connection that has not ended.
    pub(crate) fn session(&self, id: u64) -> Option<Arc<Session>> {
        Some(self.channel(id)?.session).filter(|session| !session.has_ended.load(Relaxed))
    }

    /// Finds a session of this connection, or one that has ended, with the key that signs here.
    fn channel(&self, id: u64) -> Option<Channel> {
        let state = self.state.lock();
        let logged_off = state.logged_off.as_ref().filter(|channel| channel.session.id == id);
        state.sessions.get(&id).or(logged_off).cloned()
    }

    /// Returns the dialect: before a negotiation, the oldest.
    pub(crate) fn dialect(&self) -> Dialect {
        self.state.lock().negotiated.as_ref().map_or(Dialect::V2_0_2, |negotiated| negotiated.dialect)
    }

    /// Returns the ClientGuid: before a negotiation, zeros.
    pub(crate) fn client_guid(&self) -> ClientGuid {
        let state = self.state.lock();
        state.negotiated.as_ref().map_or(ClientGuid([0; 16]), |negotiated| negotiated.client)
    }

    /// Returns whether persistent handles were agreed on.
    pub(crate) fn has_persistent(&self) -> bool {
        let agreed = self.state.lock().negotiated.as_ref().map_or(0, |negotiated| negotiated.capabilities);
        agreed & negotiation::capability::PERSISTENT_HANDLES != 0
    }

    /// Returns a refusal with error data (§2.2.2): since 3.1.1 in a context of its own.
    pub(crate) fn refusal(&self, status: NtStatus, data: &[u8]) -> Reply {
        let is_in_context = self.dialect() == Dialect::V3_1_1;
        Reply { body: error_body_with(data, is_in_context), ..Reply::error(status) }
    }

    /// Returns whether the POSIX extensions were agreed on.
    pub(crate) fn has_posix(&self) -> bool {
        self.state.lock().negotiated.as_ref().is_some_and(|negotiated| negotiated.posix)
    }

    /// Ends everything of the connection, when it is gone.
    pub(crate) async fn close(&self) {
        drop(self.stranger.lock().take());
        let (sessions, client, guid) = {
            let mut state = self.state.lock();
            state.logons.clear();
            let guid = state.negotiated.as_ref().map(|negotiated| negotiated.client);
            (std::mem::take(&mut state.sessions), state.client.take(), guid)
        };
        let (ended, others) =
            sessions.into_values().partition::<Vec<Channel>, _>(|channel| channel.session.leave());
        {
            // A create of a session that has other channels goes on: its client asks for the
            // outcome there (§3.3.7.1).
            let goes_on = |header: &Header| {
                header.command == Command::Create as u16
                    && others.iter().any(|channel| channel.session.id == header.session_id)
            };
            let state = self.state.lock();
            let cancelled = state.waiting.values().filter(|waiting| !goes_on(&waiting.header));
            cancelled.for_each(|waiting| waiting.cancelled.notify_one());
        }
        for Channel { session, .. } in ended {
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
