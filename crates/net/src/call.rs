//! Calls to a server: the connection, who is at its other end, and the greeting.

use crate::authority::{CertificateError, machine_of};
use crate::credential_store::Caller;
use crate::frames::{self, Frames};
use crate::socket::Socket;
use crate::tls;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::{GreetingError, MachineId, Purpose, Version, Welcome};

/// How long a server may take to accept a call. The exchange after that may take longer: a network
/// link may lose packets.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first try to connect takes at most; each further one takes twice as long.
const DIAL_WITHIN_MIN: Duration = Duration::from_millis(400);

/// A stream to a server.
pub type Stream = TlsStream<Socket>;

/// Why a call failed, or a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The other side does not greet as one of ours.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// The server sends what is no message.
    #[error("the server sends what is no message: {0}")]
    Frame(#[from] wire::FrameError),
    /// The server refuses this machine, and says why.
    #[error("the server refuses this machine: {0}")]
    Refused(String),
    /// This machine's clock is before all certificates.
    #[error(
        "this machine's clock shows a time before 1975, when no certificate holds yet: set the clock, and try again"
    )]
    Clock,
    /// Another authority has certified the server.
    #[error(
        "the server's certificate is of an authority that this machine does not know: either another cluster's server is there now, or the authority was renewed, and this machine was expelled before it had heard of that (leasehold machines, on a server, says so; then leasehold leave, and join anew)"
    )]
    Stranger,
    /// No answer in time.
    #[error("no answer in time")]
    Silence(#[from] tokio::time::error::Elapsed),
    /// The session is over.
    #[error("the session is over")]
    Over,
    /// Another server leads, at one of these addresses.
    #[error("another server leads")]
    Elsewhere(Vec<String>),
    /// The server has gone silent.
    #[error("the server has gone silent")]
    Gone,
    /// The server has given this machine other certificates.
    #[error("the server has given this machine other certificates: it calls again with those")]
    Certified,
    /// This machine's keys or certificates cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The machine has stopped.
    #[error("the machine has stopped")]
    Stopped,
}

impl End {
    /// Whether the next call is likely to take as long as this failure did.
    pub(crate) fn is_silence(&self) -> bool {
        match self {
            End::Silence(_) | End::Gone => true,
            End::Io(error) => {
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable)
            }
            _ => false,
        }
    }
}

/// Connects to `address`. TCP repeats a lost first packet after a second, takes that second for
/// the round trip, and then waits for three seconds and more whenever it loses another packet. A
/// new try is quicker, and knows nothing of that second. Tries go on until the caller gives up.
pub(crate) async fn dial(address: &str) -> io::Result<TcpStream> {
    let mut within = DIAL_WITHIN_MIN;
    loop {
        if let Ok(tcp) = timeout(within, TcpStream::connect(address)).await {
            let tcp = tcp?;
            frames::prepare(&tcp)?;
            return Ok(tcp);
        }
        within *= 2;
    }
}

/// Calls `address`.
pub async fn call(address: &str, config: &Caller) -> Result<Stream, End> {
    let tcp = timeout(CALL_TIMEOUT, dial(address)).await??;
    let connecting = TlsConnector::from(config.tls()).connect(tls::server_name(), Socket::new(tcp));
    let connected = timeout(frames::SILENCE, connecting).await?;
    connected.map_err(|error| match error {
        error if tls::is_before_all(&error) => End::Clock,
        error if tls::is_of_another_authority(&error) => End::Stranger,
        error => End::Io(error),
    })
}

/// Checks that `machine` is at the other end, by its certificate.
pub fn is_at(stream: &Stream, machine: MachineId) -> Result<(), End> {
    if machine_at(stream) == Some(machine) {
        return Ok(());
    }
    Err(End::Refused("another machine answers at this address".to_owned()))
}

/// The machine at the other end, by its certificate.
pub(crate) fn machine_at(stream: &Stream) -> Option<MachineId> {
    machine_of(stream.get_ref().1.peer_certificates()?.first()?)
}

/// Calls `address` and greets with `purpose`. If the server hands out other certificates, it calls
/// once more.
pub async fn ask(
    address: &str,
    caller: &Caller,
    purpose: &Purpose,
) -> Result<(Frames<Stream>, Version, Welcome), End> {
    let mut again = true;
    loop {
        let mut frames = frames::greetings(call(address, caller).await?);
        match agree(&mut frames, caller, purpose).await {
            Err(End::Certified) if std::mem::take(&mut again) => {}
            agreed => return agreed.map(|(version, welcome)| (frames, version, welcome)),
        }
    }
}

/// Greets with `purpose` and returns the server's answer.
pub async fn greet(frames: &mut Frames<Stream>, caller: &Caller, purpose: &Purpose) -> Result<Welcome, End> {
    Ok(agree(frames, caller, purpose).await?.1)
}

/// Greets with `purpose` and returns the version of this connection along with the answer.
pub async fn agree(
    frames: &mut Frames<Stream>,
    caller: &Caller,
    purpose: &Purpose,
) -> Result<(Version, Welcome), End> {
    frames::send(frames, wire::greeting(caller.knows, purpose)).await?;
    match wire::read_answer(caller.knows, &frames::receive(frames).await?)? {
        (_, Welcome::Refused { why }) => Err(End::Refused(why)),
        (_, Welcome::Certified { certificates }) => {
            let is_machine = caller.take(certificates)?;
            // The caller tries again anyway.
            Err(if is_machine { End::Certified } else { GreetingError::Foreign.into() })
        }
        agreed => Ok(agreed),
    }
}
