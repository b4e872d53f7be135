//! The client's way to its server: within the process, or over the network.

use crate::server::Server;
use lease::SessionId;
use net::{ServerLink, SessionClient};
use std::sync::{Arc, Weak};
use wire::{ToClient, ToServer};

/// The client's way to its server.
#[derive(Clone)]
pub(crate) enum Upstream {
    /// This machine serves. The reference is weak: a server that has lost its data must end as a
    /// whole, and free its locks.
    Here(Weak<Server>),
    /// Another machine serves.
    There(Arc<ServerLink>),
}

impl Upstream {
    /// Sends in the session; over the network with the next [`Upstream::push`]. Never blocks.
    /// Without a connection the message is lost, and the client sends it again.
    pub(crate) fn send(&self, session: Option<SessionId>, message: ToServer) {
        match self {
            Upstream::Here(server) => {
                if let (Some(session), Some(server)) = (session, server.upgrade()) {
                    server.hear(session, message);
                }
            }
            Upstream::There(link) => link.send(message),
        }
    }

    /// Sends the queued messages on this thread: their encryption takes too long for a thread that
    /// holds a lock. Never blocks.
    pub(crate) fn push(&self) {
        if let Upstream::There(link) = self {
            link.push();
        }
    }

    /// Takes the messages of a server elsewhere, on this thread. Never blocks.
    pub(crate) fn look(&self, client: &dyn SessionClient) {
        if let Upstream::There(link) = self {
            link.look(client);
        }
    }

    /// Answers a request that changes no state at once, if the server is here. Otherwise it sends
    /// the request.
    pub(crate) fn ask(&self, session: Option<SessionId>, message: ToServer) -> Option<ToClient> {
        match self {
            Upstream::Here(server) => server.upgrade()?.answer(session?, &message),
            Upstream::There(_) => {
                self.send(session, message);
                None
            }
        }
    }
}
