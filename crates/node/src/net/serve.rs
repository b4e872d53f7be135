//! What a machine says to the leader on its way to being a server.

use super::authority::Credentials;
use super::link::{End, call, greet};
use super::{CertificateError, frames, tls};
use std::io;
use std::time::Duration;
use tokio::time::timeout;
use wire::{Purpose, Welcome};

/// How long the leader may take: it changes the membership.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The leader could not be asked, or says no.
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

/// Asks at `address` for one thing. Blocks.
fn ask(address: &str, credentials: &Credentials, purpose: &Purpose) -> Result<Welcome, ServeError> {
    let config = tls::client(credentials)?;
    let asked = async {
        let mut frames = frames::greetings(call(address, &config).await?);
        greet(&mut frames, config.knows, purpose).await
    };
    block_on(async { Ok(timeout(TIMEOUT, asked).await.map_err(End::from)??) })
}

/// Waits for `work` on this thread.
fn block_on<T>(work: impl Future<Output = Result<T, ServeError>>) -> Result<T, ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(End::Io)?.block_on(work)
}

/// Gets what makes this machine a server: its number in the group, its certificate and the authority's. Blocks.
pub(crate) fn ask_to_serve(
    address: &str,
    credentials: &Credentials,
) -> Result<(u64, (Vec<u8>, Vec<u8>)), ServeError> {
    match ask(address, credentials, &Purpose::Serve { key: credentials.public_key()? })? {
        Welcome::Serve { member, certificates } => Ok((member, certificates)),
        other => Err(unexpected(other)),
    }
}

/// Tells the leader that the server is up, and where. Returns when the group has it among its members. Blocks.
pub(crate) fn tell_ready(
    address: &str,
    credentials: &Credentials,
    member: u64,
    addresses: Vec<String>,
) -> Result<(), ServeError> {
    match ask(address, credentials, &Purpose::Ready { member, addresses })? {
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

/// Asks the leader at `address` what people ask; each line of its answer goes to `line`. Blocks.
pub(crate) fn ask_control(
    address: &str,
    credentials: &Credentials,
    request: String,
    line: &mut dyn FnMut(&[u8]),
) -> Result<(), ServeError> {
    let config = tls::client(credentials)?;
    block_on(async {
        let mut frames = frames::greetings(call(address, &config).await?);
        match timeout(TIMEOUT, greet(&mut frames, config.knows, &Purpose::Control { request }))
            .await
            .map_err(End::from)??
        {
            Welcome::Control => {}
            other => return Err(unexpected(other)),
        }
        frames::messages(&mut frames);
        // An empty frame is the end.
        loop {
            let frame = frames::receive(&mut frames).await.map_err(End::from)?;
            if frame.is_empty() {
                return Ok(());
            }
            line(&frame);
        }
    })
}
