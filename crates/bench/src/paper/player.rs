//! A machine without a mount, in a process of its own, that makes the calls of its part through the
//! door that front doors use.
//!
//! Its parent says when, over standard input, and hears what came of it over standard output:
//! frames of a length and postcard.

use client::{Call, Reply};
use file_service::{FileService, Response};
use namespace::{Cred, Error};
use node::{Listen, Machine, MachineSettings};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sim::paper::{Actor, Script};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use wire::{FRAME_BYTES_MAX, ToClient};

/// The client itself gives a call up after two minutes.
const CALL_TIMEOUT: Duration = Duration::from_secs(180);

/// What a machine is told to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// This part, once it is its turn.
    Take(Actor),
    /// The next call of its part: to be answered by [`Said::Turned`] once that has been answered.
    Turn,
    /// To be answered by [`Said::Heard`].
    Tell,
}

/// What a machine says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// It is up.
    Up,
    /// The call was answered. The part as it is at the end, if there was no call left.
    Turned(Option<Actor>),
    /// What the server has told its client since this was asked before.
    Heard(Vec<ToClient>),
}

/// Is the machine of `data`, listening if it has the server, and does what comes from `orders`
/// until they end.
pub fn play(
    data: &Path,
    listen: Option<SocketAddr>,
    orders: &mut impl Read,
    out: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let settings =
        MachineSettings { listen: listen.map_or(Listen::Nowhere, Listen::At), ..MachineSettings::default() };
    let machine = Machine::start(data, "leasehold bench paper", settings)?;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    machine.tap(move |message| hears.lock().push(message.clone()));
    send(out, &Said::Up)?;
    let door = machine.door();
    let mut under_way = None;
    while let Some(order) = receive(orders)? {
        match order {
            Order::Take(part) => under_way = Some((Script::of(part), None)),
            Order::Turn => {
                let (mut script, answer) = under_way.take().ok_or("a turn, and no part to do")?;
                let done = match script.next(answer)? {
                    Some(call) => {
                        under_way = Some((script, Some(answer_to(&*door, call)?)));
                        None
                    }
                    None => Some(script.into_part()),
                };
                send(out, &Said::Turned(done))?;
            }
            Order::Tell => send(out, &Said::Heard(std::mem::take(&mut *heard.lock())))?,
        }
    }
    drop(door);
    Ok(machine.stop()?)
}

/// Calls, and waits for the answer.
fn answer_to(door: &dyn FileService, call: Call) -> Result<Result<Reply, Error>, String> {
    let (tell, told) = mpsc::sync_channel(1);
    let named = format!("{call:?}");
    let answer = Box::new(move |answer| {
        // Whoever waited may have given up.
        let _ = tell.send(answer);
    });
    door.call(&Cred::default(), call, answer);
    let answer = told.recv_timeout(CALL_TIMEOUT).map_err(|_| format!("{named} is not answered"))?;
    Ok(answer.map(|told| match told {
        Response::Reply(reply) | Response::Uncached(reply) => reply.told(),
        Response::Data(parts) => Reply::Bytes(parts.concat()),
    }))
}

/// Sends a frame.
pub(super) fn send(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let frame = wire::encode(message);
    let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_be_bytes())?;
    out.write_all(&frame)?;
    out.flush()
}

/// Receives a frame; none at the end.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    wire::decode(&frame).map(Some).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}
