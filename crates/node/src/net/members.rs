//! What members of the server group say to each other: over connections of their own, between
//! machines that both have a server's certificate.

use super::credential_store::Caller;
use super::discovery::Places;
use super::frames::{self, Frames};
use super::link::{End, Stream, agree, call, is_at};
use super::reach;
use bytes::Bytes;
use parking_lot::Mutex;
use raft::{AnswerFuture, Wire, Wires};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use wire::{MachineId, Purpose, Version, Welcome};

/// The way to other members, by their addresses.
pub(crate) struct MemberNet {
    config: Caller,
    places: Arc<Places>,
    spoken: Spoken,
}

/// By member: what was spoken with it last, and where, as far as that was since this one's start.
type Spoken = Arc<Mutex<BTreeMap<u64, (Version, String)>>>;

impl MemberNet {
    /// Of a machine that calls so. Members may also be at these places.
    pub(crate) fn new(config: Caller, places: Arc<Places>) -> MemberNet {
        MemberNet { config, places, spoken: Spoken::default() }
    }
}

impl Wires for MemberNet {
    fn to(&self, id: u64, machine: u64) -> Box<dyn Wire> {
        Box::new(MemberWire {
            id,
            machine: MachineId(machine),
            spoken: self.spoken.clone(),
            config: self.config.clone(),
            places: self.places.clone(),
            frames: None,
        })
    }

    fn speaks(&self, id: u64) -> Option<Version> {
        self.spoken.lock().get(&id).map(|(version, _)| *version)
    }
}

struct MemberWire {
    id: u64,
    machine: MachineId,
    spoken: Spoken,
    config: Caller,
    places: Arc<Places>,
    /// Between two calls only: a conversation that was broken off is not gone on with.
    frames: Option<Frames<Stream>>,
}

impl Wire for MemberWire {
    fn ask<'a>(&'a mut self, addresses: &'a [String], call: Bytes) -> AnswerFuture<'a> {
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
    /// openraft makes a wire for each vote: where the member was found last is tried first, or it
    /// would have to be found within each.
    async fn connect(&self, addresses: &[String]) -> io::Result<Frames<Stream>> {
        let last = self.spoken.lock().get(&self.id).map(|(_, address)| address.clone());
        let places = self.places.all();
        let others = addresses.iter().chain(&places).filter(|address| Some(*address) != last.as_ref());
        let all: Vec<String> = last.iter().chain(others).cloned().collect();
        let called = reach::first(&all, |address| self.greet(address)).await;
        let (mut frames, version, address) =
            called.ok_or(io::ErrorKind::AddrNotAvailable)?.map_err(io::Error::other)?;
        self.spoken.lock().insert(self.id, (version, address.clone()));
        frames::peers(&mut frames);
        Ok(frames)
    }

    async fn greet<'a>(&self, address: &'a String) -> Result<(Frames<Stream>, Version, &'a String), End> {
        let stream = call(address, &self.config).await?;
        // A server listens at its loopback address, too, and there everybody finds himself.
        is_at(&stream, self.machine)?;
        let mut frames = frames::greetings(stream);
        match agree(&mut frames, &self.config, &Purpose::Peer).await? {
            (version, Welcome::Peer) => Ok((frames, version, address)),
            _ => Err(wire::GreetingError::Foreign.into()),
        }
    }
}
