//! A machine without a mount, in a process of its own. It makes the calls of its part through the
//! machine's file API.
//!
//! Its parent sends orders over standard input and reads the results from standard output. A frame
//! is a length and postcard.

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

/// The client itself gives up a call after two minutes.
const CALL_TIMEOUT: Duration = Duration::from_secs(180);

/// An order to a machine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Take this part, and begin once it is its turn.
    Take(Actor),
    /// Make the next call of the part. The machine sends [`Said::Turned`] once that call is
    /// answered.
    Turn,
    /// Report the server's messages. The machine sends [`Said::Heard`].
    Tell,
}

/// A machine's message to its parent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// The machine is up.
    Up,
    /// The call was answered. If the part had no call left, this has the part as it is at the end.
    Turned(Option<Actor>),
    /// The server's messages to this machine's client since the last report.
    Heard(Vec<ToClient>),
}

/// Runs the machine of `data` and obeys `orders` until they end. The machine listens at `listen` if
/// it has the server.
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
    let file_service = machine.file_service();
    let mut under_way = None;
    while let Some(order) = receive(orders)? {
        match order {
            Order::Take(part) => under_way = Some((Script::of(part), None)),
            Order::Turn => {
                let (mut script, answer) = under_way.take().ok_or("a turn, and no part to do")?;
                let done = match script.next(answer)? {
                    Some(call) => {
                        under_way = Some((script, Some(answer_to(&*file_service, call)?)));
                        None
                    }
                    None => Some(script.into_part()),
                };
                send(out, &Said::Turned(done))?;
            }
            Order::Tell => send(out, &Said::Heard(std::mem::take(&mut *heard.lock())))?,
        }
    }
    drop(file_service);
    Ok(machine.stop()?)
}

/// Makes a call, and waits for the answer.
fn answer_to(file_service: &dyn FileService, call: Call) -> Result<Result<Reply, Error>, String> {
    let (tell, told) = mpsc::sync_channel(1);
    let named = format!("{call:?}");
    let answer = Box::new(move |answer| {
        // The waiting side may have given up.
        let _ = tell.send(answer);
    });
    file_service.call(&Cred::default(), call, answer);
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

/// Receives a frame; `None` at the end.
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
