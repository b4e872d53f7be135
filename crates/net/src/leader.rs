//! Requests to the leader: those of a machine on its way to being a server, and those of people,
//! which another server forwards.

use crate::call::{self, End};
use crate::credential_store::Caller;
use crate::frames;
use std::io;
use std::time::Duration;
use tokio::time::timeout;
use wire::{Certificates, Purpose, Welcome};

/// How long the leader may take: it changes the membership.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why the leader did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("the leader cannot be asked: {0}")]
pub struct LeaderError(String);

impl From<End> for LeaderError {
    fn from(end: End) -> LeaderError {
        LeaderError(end.to_string())
    }
}

/// Sends one request to `address`. Blocks.
fn ask(address: &str, caller: &Caller, purpose: &Purpose) -> Result<Welcome, LeaderError> {
    let asked = async { timeout(TIMEOUT, call::ask(address, caller, purpose)).await.map_err(End::from)? };
    block_on(async { Ok(asked.await?.2) })
}

/// Waits for `work` on this thread.
fn block_on<T>(work: impl Future<Output = Result<T, LeaderError>>) -> Result<T, LeaderError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(End::Io)?.block_on(work)
}

/// Gets this machine's member number, and its certificates as a server. Blocks.
pub fn ask_to_serve(address: &str, caller: &Caller) -> Result<(u64, Certificates), LeaderError> {
    match ask(address, caller, &Purpose::Serve)? {
        Welcome::Serve { member, certificates } => Ok((member, certificates)),
        other => Err(unexpected(other)),
    }
}

/// Reports to the leader that the server is up, and its addresses. Returns when the group has the
/// server among its members. Blocks.
pub fn tell_ready(
    address: &str,
    caller: &Caller,
    member: u64,
    addresses: Vec<String>,
) -> Result<(), LeaderError> {
    match ask(address, caller, &Purpose::Ready { member, addresses })? {
        Welcome::Done => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn unexpected(welcome: Welcome) -> LeaderError {
    match welcome {
        Welcome::Elsewhere { .. } => LeaderError("another server leads now".to_owned()),
        _ => End::Io(io::ErrorKind::InvalidData.into()).into(),
    }
}

/// Forwards an administrator's request to the leader at `address`; each line of its answer goes to
/// `line`. Blocks.
pub fn ask_control(
    address: &str,
    caller: &Caller,
    request: String,
    line: &mut dyn FnMut(&[u8]),
) -> Result<(), LeaderError> {
    block_on(async {
        let purpose = Purpose::Control { request };
        let asked = timeout(TIMEOUT, call::ask(address, caller, &purpose)).await;
        let mut frames = match asked.map_err(End::from)?? {
            (frames, _, Welcome::Control) => frames,
            (_, _, other) => return Err(unexpected(other)),
        };
        frames::messages(&mut frames);
        // An empty frame ends the answer.
        loop {
            let frame = frames::receive(&mut frames).await.map_err(End::from)?;
            if frame.is_empty() {
                return Ok(());
            }
            line(&frame);
        }
    })
}
