//! The client's way to the servers of the directory: within the process, or over the network.

use crate::links::ServerLinks;
use crate::server::Server;
use ident::ServerId;
use lease::SessionId;
use net::SessionClient;
use std::sync::{Arc, Weak};
use wire::{ToClient, ToServer};

/// The client's way to the servers of the directory.
#[derive(Clone)]
pub(crate) enum Upstream {
    /// This machine has the only member of each. The reference is weak: a machine that has lost its
    /// server's data must end the server as a whole, and free its locks.
    Here(Weak<Server>),
    /// Other machines have members.
    There(Arc<ServerLinks>),
}

impl Upstream {
    /// Sends to `server` in the session; over the network with the next [`Upstream::push`]. Never
    /// blocks. Without a connection the message is lost, and the client sends it again.
    pub(crate) fn send(&self, server: ServerId, session: Option<SessionId>, message: ToServer) {
        match self {
            Upstream::Here(here) => {
                if let (Some(session), Some(here)) = (session, here.upgrade())
                    && let Some(hosted) = here.hosted(server)
                {
                    here.hear(&hosted, session, message);
                }
            }
            Upstream::There(links) => links.send(server, message),
        }
    }

    /// Sends the queued messages on this thread: their encryption takes too long for a thread that
    /// holds a lock. Never blocks.
    pub(crate) fn push(&self) {
        if let Upstream::There(links) = self {
            links.push();
        }
    }

    /// Takes the messages of a server elsewhere, on this thread. Never blocks.
    pub(crate) fn look(&self, client: &dyn SessionClient) {
        if let Upstream::There(links) = self {
            links.look(client);
        }
    }

    /// Answers a request to `server` that changes no state at once, if the server is here.
    /// Otherwise it sends the request.
    pub(crate) fn ask(
        &self,
        server: ServerId,
        session: Option<SessionId>,
        message: ToServer,
    ) -> Option<ToClient> {
        match self {
            Upstream::Here(here) => {
                let here = here.upgrade()?;
                here.answer(&*here.hosted(server)?, session?, &message)
            }
            Upstream::There(_) => {
                self.send(server, session, message);
                None
            }
        }
    }
}
