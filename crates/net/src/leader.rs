//! Requests to the leader: those of a machine on its way to being a server, and those of people,
//! which another server forwards.

use crate::call::{self, End, Stream};
use crate::credential_store::Caller;
use crate::frames::{self, Frames};
use std::io;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wire::{Certificates, Purpose, Welcome};

/// How long the leader may take: it changes the membership.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why the leader did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// No leader has heard of the request, which may be made again.
    #[error("the leader cannot be reached: {0}")]
    Unheard(End),
    /// Another server leads, so the request may be made again, of that one.
    #[error("another server leads now")]
    Elsewhere,
    /// The leader refuses, or its answer is missing: whether the request was done is not known.
    #[error("the leader cannot be asked: {0}")]
    Unanswered(#[from] End),
}

impl LeaderError {
    /// Whether nothing was done, and another try may find a leader.
    pub fn is_before_all(&self) -> bool {
        matches!(self, LeaderError::Unheard(_) | LeaderError::Elsewhere)
    }
}

/// Sends one request to `address`, and returns the connection with the answer.
async fn ask(
    address: &str,
    caller: &Caller,
    purpose: &Purpose,
) -> Result<(Frames<Stream>, Welcome), LeaderError> {
    let until = Instant::now() + TIMEOUT;
    let mut again = true;
    loop {
        let called = timeout_at(until, call::call(address, caller)).await.map_err(End::from).flatten();
        let mut frames = frames::greetings(called.map_err(LeaderError::Unheard)?);
        let answer = timeout_at(until, call::greet(&mut frames, caller, purpose)).await;
        match answer.map_err(End::from).flatten() {
            Ok(Welcome::Elsewhere { .. }) => return Err(LeaderError::Elsewhere),
            Ok(welcome) => return Ok((frames, welcome)),
            // The server did nothing but hand out other certificates.
            Err(End::Certified) if std::mem::take(&mut again) => {}
            Err(end) => return Err(end.into()),
        }
    }
}

/// Waits for `work` on this thread.
fn block_on<T>(work: impl Future<Output = Result<T, LeaderError>>) -> Result<T, LeaderError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(End::Io)?.block_on(work)
}

/// Gets this machine's member number, and its certificates as a server. Blocks.
pub fn ask_to_serve(address: &str, caller: &Caller) -> Result<(u64, Certificates), LeaderError> {
    match block_on(ask(address, caller, &Purpose::Serve))?.1 {
        Welcome::Serve { member, certificates } => Ok((member, certificates)),
        _ => Err(unexpected()),
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
    match block_on(ask(address, caller, &Purpose::Ready { member, addresses }))?.1 {
        Welcome::Done => Ok(()),
        _ => Err(unexpected()),
    }
}

/// The answer is none to the question.
fn unexpected() -> LeaderError {
    End::Io(io::ErrorKind::InvalidData.into()).into()
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
        let (mut frames, welcome) = ask(address, caller, &Purpose::Control { request }).await?;
        if !matches!(welcome, Welcome::Control) {
            return Err(unexpected());
        }
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
