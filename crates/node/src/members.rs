//! The network between members of the server group. They use connections of their own, between
//! machines that both have a server's certificate.

use bytes::Bytes;
use net::call::{End, Stream, agree, call, is_at};
use net::frames::{self, Frames};
use net::{Caller, Places, RoundTrip, RoundTrips, TimedConnection, reach};
use parking_lot::Mutex;
use raft::{AnswerFuture, Wire, Wires};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use wire::{MachineId, Purpose, Version, Welcome};

/// The network to the other members, by their addresses.
pub(crate) struct MemberNet {
    config: Caller,
    places: Arc<Places>,
    round_trips: Arc<RoundTrips>,
    spoken: Spoken,
}

/// By member: the version and the address of the latest connection since this member's start.
type Spoken = Arc<Mutex<BTreeMap<u64, (Version, String)>>>;

impl MemberNet {
    /// Makes the network of a machine that calls as `config`. Members may also be at `places`.
    pub(crate) fn new(config: Caller, places: Arc<Places>, round_trips: Arc<RoundTrips>) -> MemberNet {
        MemberNet { config, places, round_trips, spoken: Spoken::default() }
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
            round_trips: self.round_trips.clone(),
            connection: None,
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
    round_trips: Arc<RoundTrips>,
    /// The connection, present between two calls only: a conversation that was broken off does not
    /// go on.
    connection: Option<(Frames<Stream>, Arc<RoundTrip>)>,
}

impl Wire for MemberWire {
    fn ask<'a>(&'a mut self, addresses: &'a [String], call: Bytes) -> AnswerFuture<'a> {
        Box::pin(async move {
            let (mut frames, round_trip) = match self.connection.take() {
                Some(connection) => connection,
                None => {
                    let frames = self.connect(addresses).await?;
                    (frames, self.round_trips.to(self.machine, TimedConnection::Group))
                }
            };
            let asked = Instant::now();
            frames::send_bytes(&mut frames, call).await?;
            let answer = frames::receive(&mut frames).await?.freeze();
            round_trip.note(asked.elapsed());
            self.connection = Some((frames, round_trip));
            Ok(answer)
        })
    }
}

impl MemberWire {
    /// Calls the member, and tries its latest address first. openraft makes a wire for each vote,
    /// so each would otherwise have to find the member within the vote.
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
        // A server listens at its loopback address, too. Every machine that calls there reaches
        // itself.
        is_at(&stream, self.machine)?;
        let mut frames = frames::greetings(stream);
        match agree(&mut frames, &self.config, &Purpose::Peer).await? {
            (version, Welcome::Peer) => Ok((frames, version, address)),
            _ => Err(wire::GreetingError::Foreign.into()),
        }
    }
}
