//! A machine's requests to the leader on its way to being a server.

use super::credential_store::Caller;
use super::link::{self, End};
use super::{CertificateError, frames};
use std::io;
use std::time::Duration;
use tokio::time::timeout;
use wire::{Certificates, Purpose, Welcome};

/// How long the leader may take: it changes the membership.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why the leader did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Data(#[from] crate::data::DataError),
    #[error("the leader cannot be asked: {0}")]
    Asking(String),
    #[error(transparent)]
    Machine(Box<crate::machine::MachineError>),
}

impl From<End> for ServeError {
    fn from(end: End) -> ServeError {
        ServeError::Asking(end.to_string())
    }
}

/// Sends one request to `address`. Blocks.
fn ask(address: &str, caller: &Caller, purpose: &Purpose) -> Result<Welcome, ServeError> {
    let asked = async { timeout(TIMEOUT, link::ask(address, caller, purpose)).await.map_err(End::from)? };
    block_on(async { Ok(asked.await?.2) })
}

/// Waits for `work` on this thread.
fn block_on<T>(work: impl Future<Output = Result<T, ServeError>>) -> Result<T, ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(End::Io)?.block_on(work)
}

/// Gets this machine's member number, and its certificates as a server. Blocks.
pub(crate) fn ask_to_serve(address: &str, caller: &Caller) -> Result<(u64, Certificates), ServeError> {
    match ask(address, caller, &Purpose::Serve)? {
        Welcome::Serve { member, certificates } => Ok((member, certificates)),
        other => Err(unexpected(other)),
    }
}

/// Reports to the leader that the server is up, and its addresses. Returns when the group has the
/// server among its members. Blocks.
pub(crate) fn tell_ready(
    address: &str,
    caller: &Caller,
    member: u64,
    addresses: Vec<String>,
) -> Result<(), ServeError> {
    match ask(address, caller, &Purpose::Ready { member, addresses })? {
        Welcome::Done => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn unexpected(welcome: Welcome) -> ServeError {
    match welcome {
        Welcome::Elsewhere { .. } => ServeError::Asking("another server leads now".to_owned()),
        _ => End::Io(io::ErrorKind::InvalidData.into()).into(),
    }
}

/// Forwards an administrator's request to the leader at `address`; each line of its answer goes to
/// `line`. Blocks.
pub(crate) fn ask_control(
    address: &str,
    caller: &Caller,
    request: String,
    line: &mut dyn FnMut(&[u8]),
) -> Result<(), ServeError> {
    block_on(async {
        let purpose = Purpose::Control { request };
        let asked = timeout(TIMEOUT, link::ask(address, caller, &purpose)).await;
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
