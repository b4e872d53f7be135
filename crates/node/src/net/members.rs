//! What members of the server group say to each other: over connections of their own, between machines that both have a server's certificate.

use super::authority::Credentials;
use super::frames::{self, Frames};
use super::link::{Stream, agree, call};
use super::tls::{self, Caller};
use crate::group::{Asking, Wire, Wires};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use wire::{Purpose, Version, Welcome};

/// The way to other members, by their addresses.
pub(crate) struct MemberNet {
    config: Caller,
    spoken: Spoken,
}

/// By member: what was spoken with it last, as far as that was since this one's start.
type Spoken = Arc<Mutex<BTreeMap<u64, Version>>>;

impl MemberNet {
    /// Of a machine with these credentials.
    pub(crate) fn new(credentials: &Credentials) -> Result<MemberNet, super::CertificateError> {
        Ok(MemberNet { config: tls::client(credentials)?, spoken: Spoken::default() })
    }
}

impl Wires for MemberNet {
    fn to(&self, id: u64) -> Box<dyn Wire> {
        Box::new(MemberWire {
            id,
            spoken: self.spoken.clone(),
            config: self.config.clone(),
            turn: 0,
            frames: None,
        })
    }

    fn speaks(&self, id: u64) -> Option<Version> {
        self.spoken.lock().get(&id).copied()
    }
}

struct MemberWire {
    id: u64,
    spoken: Spoken,
    config: Caller,
    /// Which address is tried next.
    turn: usize,
    /// Between two calls only: a conversation that was broken off is not gone on with.
    frames: Option<Frames<Stream>>,
}

impl Wire for MemberWire {
    fn ask<'a>(&'a mut self, addresses: &'a [String], call: Bytes) -> Asking<'a> {
        Box::pin(async move {
            let mut frames = match self.frames.take() {
                Some(frames) => frames,
                None => self.connect(addresses).await?,
            };
            frames::send_bytes(&mut frames, call).await?;
            let answer = frames::receive(&mut frames).await?.freeze();
            self.frames = Some(frames);
            Ok(answer)
        })
    }
}

impl MemberWire {
    async fn connect(&mut self, addresses: &[String]) -> io::Result<Frames<Stream>> {
        let address = addresses.get(self.turn % addresses.len().max(1));
        let address = address.ok_or(io::ErrorKind::AddrNotAvailable)?;
        // Unless this one is taken: then it is the one to come back to.
        self.turn += 1;
        let connected = async {
            let mut frames = frames::greetings(call(address, &self.config).await?);
            match agree(&mut frames, self.config.knows, &Purpose::Peer).await? {
                (version, Welcome::Peer) => {
                    self.spoken.lock().insert(self.id, version);
                    Ok(frames)
                }
                _ => Err(wire::GreetingError::Foreign.into()),
            }
        };
        let mut frames = connected.await.map_err(|error: super::link::End| io::Error::other(error))?;
        frames::peers(&mut frames);
        self.turn -= 1;
        Ok(frames)
    }
}
