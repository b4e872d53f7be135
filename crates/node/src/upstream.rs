//! The client's way to its server and to shares: within the process, or over the network.

use crate::engine::Engine;
use crate::net::Link;
use crate::routes::HERE;
use crate::server::Server;
use client::Upload;
use lease::SessionId;
use namespace::{Error, ShareId};
use shares::NewShare;
use std::sync::Arc;
use wire::{MachineId, ToClient, ToServer};

/// What became of an upload: its number, and the hashes of its pieces.
pub(crate) type Stored = (u64, Result<Vec<[u8; 32]>, Error>);

/// A part of a share: which, from where, how many bytes.
pub(crate) type Part = (ShareId, u32, u32);

/// See the module.
#[derive(Clone)]
pub(crate) enum Upstream {
    /// This machine serves.
    Here(Arc<Server>, MachineId),
    /// Another one does.
    There(Arc<Link>),
}

impl Upstream {
    /// Sends in the session. Never blocks. Without a connection it is lost, which the client counts on.
    pub(crate) fn send(&self, session: Option<SessionId>, message: ToServer) {
        match self {
            Upstream::Here(server, _) => {
                if let Some(session) = session {
                    server.hear(session, message);
                }
            }
            Upstream::There(link) => link.send(message),
        }
    }

    /// Answers what changes no state at once, if the server is here; otherwise sends it.
    pub(crate) fn ask(&self, session: Option<SessionId>, message: ToServer) -> Option<ToClient> {
        match self {
            Upstream::Here(server, _) => server.answer(session?, &message),
            Upstream::There(_) => {
                self.send(session, message);
                None
            }
        }
    }

    /// The session is over: another one is to be opened.
    pub(crate) fn open_again(&self, engine: &Engine) {
        match self {
            Upstream::Here(server, _) => open_here(server, engine),
            Upstream::There(link) => link.begin_again(),
        }
    }

    /// Whether reading a share may take as long as a network does, so that no front door's thread should wait for it.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Upstream::There(_))
    }

    /// Seals uploads here, and has them stored together. Blocks until they are durable.
    pub(crate) fn store(&self, uploads: Vec<Upload>) -> Vec<Stored> {
        let mut shares = Vec::with_capacity(uploads.len());
        let mut sealed = Vec::with_capacity(uploads.len());
        for Upload { upload, share, key, pieces } in uploads {
            let (bytes, hashes) =
                content::seal_share(&key, pieces.iter().map(|(nonce, plain)| (*nonce, plain)));
            shares.push((share, bytes));
            sealed.push((upload, hashes));
        }
        let results = match self {
            Upstream::Here(server, machine) => {
                let shares = shares.into_iter().map(|(id, bytes)| NewShare { id, parts: vec![bytes.into()] });
                server.shares().store(*machine, shares.collect())
            }
            Upstream::There(link) => link.store(shares),
        };
        let all = sealed.into_iter().zip(results);
        all.map(|((upload, hashes), result)| (upload, result.map(|()| hashes))).collect()
    }

    /// Reads parts of shares, together. Blocks.
    pub(crate) fn read(&self, parts: &[Part]) -> Vec<Result<Vec<u8>, Error>> {
        match self {
            Upstream::Here(server, _) => {
                parts.iter().map(|(share, at, length)| server.shares().read(*share, *at, *length)).collect()
            }
            Upstream::There(link) => link.read(parts),
        }
    }

    /// Lets go what was stored and is not needed. Blocks.
    pub(crate) fn let_go(&self, shares: Vec<ShareId>) {
        match self {
            Upstream::Here(server, machine) => server.shares().let_go(*machine, &shares),
            Upstream::There(link) => link.let_go(shares),
        }
    }
}

/// Opens a session of this machine's client at its own server.
pub(crate) fn open_here(server: &Server, engine: &Engine) {
    let (machine, incarnation, session) = engine.greet();
    server.group().propose(directory::Input::Open { machine, incarnation, session, connection: HERE });
}
