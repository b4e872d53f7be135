//! The network between members of server groups. They use connections of their own, between
//! machines that both have a server's certificate. A connection is for the members of all groups.
//! It carries one call at a time, and between two calls it is nobody's.

use bytes::Bytes;
use net::call::{End, Stream, agree, call, is_at};
use net::frames::{self, Frames};
use net::{Caller, Places, RoundTrip, RoundTrips, TimedConnection, reach};
use parking_lot::Mutex;
use raft::{AnswerFuture, Wire, Wires};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{MachineId, Purpose, Version, Welcome};

/// How long a connection stays that no call uses, while others are used.
const IDLE: Duration = Duration::from_secs(60);

/// The network to the machines of other members, by their addresses.
pub(crate) struct MemberNet(Arc<NetParts>);

struct NetParts {
    config: Caller,
    places: Arc<Places>,
    round_trips: Arc<RoundTrips>,
    /// The version and the address of the latest connection to each machine since this one's start.
    spoken: Mutex<BTreeMap<MachineId, (Version, String)>>,
    /// The connections that no call uses. The one that was used last is at the end.
    idle: Mutex<BTreeMap<MachineId, VecDeque<MemberConnection>>>,
}

struct MemberConnection {
    frames: Frames<Stream>,
    round_trip: Arc<RoundTrip>,
    used_at: Instant,
}

/// A call over a connection that was idle. If the call ends without an answer, the other idle ones
/// are not used any more: they are as old.
struct Doubtful<'a> {
    wire: &'a MemberWire,
    answered: bool,
}

impl Drop for Doubtful<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.wire.net.idle.lock().remove(&self.wire.machine);
        }
    }
}

impl MemberNet {
    /// Makes the network of a machine that calls as `config`. Members may also be at `places`.
    pub(crate) fn new(config: Caller, places: Arc<Places>, round_trips: Arc<RoundTrips>) -> MemberNet {
        let (spoken, idle) = Default::default();
        MemberNet(Arc::new(NetParts { config, places, round_trips, spoken, idle }))
    }
}

impl Wires for MemberNet {
    fn to(&self, machine: u64) -> Box<dyn Wire> {
        let (machine, net) = (MachineId(machine), self.0.clone());
        Box::new(MemberWire { machine, net, stays: false, connection: None })
    }

    fn speaks(&self, machine: u64) -> Option<Version> {
        self.0.spoken.lock().get(&MachineId(machine)).map(|(version, _)| *version)
    }
}

struct MemberWire {
    machine: MachineId,
    net: Arc<NetParts>,
    /// Whether the conversation stays on one connection.
    stays: bool,
    /// That connection, present between two calls only: a conversation that was broken off does not
    /// go on.
    connection: Option<MemberConnection>,
}

impl Wire for MemberWire {
    fn stay(&mut self) {
        self.stays = true;
    }

    fn ask<'a>(&'a mut self, addresses: &'a [String], call: Bytes) -> AnswerFuture<'a> {
        Box::pin(async move {
            if self.stays {
                let mut connection = match self.connection.take() {
                    Some(connection) => connection,
                    None => self.connect(addresses).await?,
                };
                let answer = connection.carry(call).await?;
                self.connection = Some(connection);
                return Ok(answer);
            }
            let idle = self.net.idle.lock().get_mut(&self.machine).and_then(VecDeque::pop_back);
            if let Some(mut connection) = idle {
                let mut call_under_way = Doubtful { wire: self, answered: false };
                if let Ok(answer) = connection.carry(call.clone()).await {
                    call_under_way.answered = true;
                    self.put_back(connection);
                    return Ok(answer);
                }
            }
            let mut connection = self.connect(addresses).await?;
            let answer = connection.carry(call).await?;
            self.put_back(connection);
            Ok(answer)
        })
    }
}

impl MemberConnection {
    /// Sends a call, and waits for the answer.
    async fn carry(&mut self, call: Bytes) -> io::Result<Bytes> {
        let asked = Instant::now();
        frames::send_bytes(&mut self.frames, call).await?;
        let answer = frames::receive(&mut self.frames).await?.freeze();
        self.used_at = Instant::now();
        self.round_trip.note(self.used_at - asked);
        Ok(answer)
    }
}

impl MemberWire {
    /// Gives a connection to the next call of any group.
    fn put_back(&self, connection: MemberConnection) {
        let mut idle = self.net.idle.lock();
        let idle = idle.entry(self.machine).or_default();
        idle.push_back(connection);
        while idle.front().is_some_and(|oldest| oldest.used_at.elapsed() > IDLE) {
            idle.pop_front();
        }
    }

    /// Calls the machine, and tries its latest address first.
    async fn connect(&self, addresses: &[String]) -> io::Result<MemberConnection> {
        let last = self.net.spoken.lock().get(&self.machine).map(|(_, address)| address.clone());
        let places = self.net.places.all();
        let others = addresses.iter().chain(&places).filter(|address| Some(*address) != last.as_ref());
        let all: Vec<String> = last.iter().chain(others).cloned().collect();
        let called = reach::first(&all, |address| self.greet(address)).await;
        let (mut frames, version, address) =
            called.ok_or(io::ErrorKind::AddrNotAvailable)?.map_err(io::Error::other)?;
        self.net.spoken.lock().insert(self.machine, (version, address.clone()));
        frames::peers(&mut frames);
        let round_trip = self.net.round_trips.to(self.machine, TimedConnection::Group);
        Ok(MemberConnection { frames, round_trip, used_at: Instant::now() })
    }

    async fn greet<'a>(&self, address: &'a String) -> Result<(Frames<Stream>, Version, &'a String), End> {
        let stream = call(address, &self.net.config).await?;
        // A server listens at its loopback address, too. Every machine that calls there reaches
        // itself.
        is_at(&stream, self.machine)?;
        let mut frames = frames::greetings(stream);
        match agree(&mut frames, &self.net.config, &Purpose::Peer).await? {
            (version, Welcome::Peer) => Ok((frames, version, address)),
            _ => Err(wire::GreetingError::Foreign.into()),
        }
    }
}
