//! Listens for callers, and greets them: whom a connection is from, and what it is for. The
//! starter of the listener serves the caller from there on.

use crate::authority::CertificateError;
use crate::credential_store::CredentialStore;
use crate::discovery::Announcement;
use crate::frames::{self, Frames};
pub use crate::movable::Movable;
use crate::thread::NetThread;
use crate::tls::ShownCertificate;
use os::{Stranger, StrangerBounds, Strangers};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::{GreetingError, Purpose, Version, Versions};

/// How long a caller may take to send its first bytes, and how long to state its purpose.
const FIRST_WORD_TIMEOUT: Duration = Duration::from_secs(3);
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections of strangers there may be.
const STRANGERS: StrangerBounds = StrangerBounds { all: 256, of_address: 64 };
/// How many connections the kernel queues until they are accepted.
const BACKLOG: i32 = 4096;

/// A stream from a caller.
pub type Stream = TlsStream<Movable>;

/// Listens for connections until dropped.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    _announcement: Option<Announcement>,
    _thread: NetThread,
    _listening: DropGuard,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The system's error.
    #[error(transparent)]
    Io(io::Error),
    /// The other side does not greet as one of ours.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// This machine's keys or certificates cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The other side sends what is no frame or no message.
    #[error("a misdeed: {0}")]
    Frame(#[from] wire::FrameError),
    /// The caller may not do what it wants.
    #[error("{0}")]
    Refused(String),
    /// Too many strangers call.
    #[error("it made way for others: too many strangers call")]
    Crowded,
    /// The caller has not spoken in time.
    #[error("no word in time")]
    Silence(#[from] tokio::time::error::Elapsed),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        frames::misdeed(&error).map_or(End::Io(error), End::Frame)
    }
}

/// A caller that has greeted.
pub struct Greeted {
    /// The address that it calls from.
    pub peer: SocketAddr,
    /// The connection.
    pub frames: Frames<Stream>,
    /// The certificate that it has shown, if it is a machine.
    pub shown: Option<ShownCertificate>,
    /// The version of the connection.
    pub version: Version,
    /// The service that it calls for.
    pub purpose: Purpose,
    /// Cancelled when the listener is dropped.
    pub listening: CancellationToken,
}

/// State that all connections share.
struct Lobby {
    credentials: Arc<CredentialStore>,
    knows: Versions,
    listening: CancellationToken,
}

impl Listener {
    /// Listens on `address` with these credentials. Each caller that has greeted is served by
    /// `serve`, on the listener's thread.
    ///
    /// # Errors
    /// If the address cannot be had, or the credentials cannot be used.
    pub fn start<S: Future<Output = Result<(), End>> + 'static>(
        credentials: Arc<CredentialStore>,
        address: SocketAddr,
        serve: impl Fn(Greeted) -> S + Send + 'static,
    ) -> Result<Listener, ListenError> {
        // Unusable credentials are reported here.
        credentials.reception()?;
        let socket =
            std::net::TcpListener::bind(address).map_err(|source| ListenError::Bind { address, source })?;
        let listening = |source| ListenError::Bind { address, source };
        // This second call lengthens the queue that std made.
        rustix::net::listen(&socket, BACKLOG).map_err(|errno| listening(errno.into()))?;
        socket.set_nonblocking(true).map_err(listening)?;
        let address = socket.local_addr().map_err(listening)?;
        let token = CancellationToken::new();
        let knows = credentials.caller().knows;
        let announcement =
            Announcement::begin(&credentials.certified_by(), &credentials.public_key(), address);
        let lobby = Lobby { credentials, knows, listening: token.clone() };
        let thread = NetThread::spawn("listen", move || accept(lobby, socket, serve)).map_err(listening)?;
        let _listening = token.drop_guard();
        Ok(Listener { address, _announcement: announcement, _thread: thread, _listening })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Why no machine can call this one.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use, or none of this machine's.
    #[error("cannot listen on {address} (choose another with --listen)")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The keys or certificates are unusable.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Takes a connection off the runtime of this thread, for another thread's.
///
/// # Errors
/// If the system refuses.
pub fn take_off(frames: &mut Frames<Stream>) -> io::Result<()> {
    frames.get_mut().get_mut().0.take_off()
}

/// Puts a connection that was taken off on the runtime of this thread.
///
/// # Errors
/// If the system refuses.
pub fn put_on(frames: &mut Frames<Stream>) -> io::Result<()> {
    frames.get_mut().get_mut().0.put_on()
}

async fn accept<S: Future<Output = Result<(), End>> + 'static>(
    lobby: Lobby,
    socket: std::net::TcpListener,
    serve: impl Fn(Greeted) -> S + 'static,
) {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen"),
    };
    let (strangers, shared) = (Strangers::new(STRANGERS), Rc::new((lobby, serve)));
    loop {
        let (tcp, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (shared, stranger) = (shared.clone(), strangers.enter(peer.ip()));
        tokio::task::spawn_local(async move {
            let (lobby, serve) = &*shared;
            let leaving = stranger.leaving();
            let greeting = timeout(GREETING_TIMEOUT, greet(lobby, (tcp, peer), &stranger));
            let greeted = tokio::select! {
                greeted = greeting => greeted,
                () = leaving.has_to_leave() => return say_why(peer, Err(End::Crowded)),
            };
            drop(stranger);
            let ended = match greeted.map_err(End::from) {
                Ok(Ok(greeted)) => serve(greeted).await,
                Ok(Err(end)) | Err(end) => Err(end),
            };
            say_why(peer, ended);
        });
    }
}

/// Says in the log why a connection ended, unless it ended in order.
pub fn say_why(peer: SocketAddr, ended: Result<(), End>) {
    if let Err(end) = ended {
        tracing::info!(%peer, %end, "a connection ended");
    }
}

async fn greet(
    lobby: &Lobby,
    (tcp, peer): (TcpStream, SocketAddr),
    stranger: &Stranger,
) -> Result<Greeted, End> {
    frames::prepare(&tcp)?;
    // The server sets nothing up for a caller that has sent nothing.
    timeout(FIRST_WORD_TIMEOUT, tcp.readable()).await??;
    stranger.speaks();
    let (reception, knows) = (lobby.credentials.reception()?, lobby.knows);
    let stream = TlsAcceptor::from(reception.tls.clone()).accept(Movable::Here(tcp)).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let shown = certificate.and_then(|certificate| reception.shown(certificate));
    if shown.is_some() {
        stranger.is_known();
    }
    let mut frames = frames::greetings(stream);
    let greeting = frames::receive(&mut frames).await?;
    match wire::read_greeting(knows, &greeting) {
        Ok((version, purpose)) => {
            Ok(Greeted { peer, frames, shown, version, purpose, listening: lobby.listening.clone() })
        }
        Err(error) => {
            if matches!(error, GreetingError::Version { .. }) {
                frames::send(&mut frames, wire::answer_other_version(knows)).await?;
            }
            Err(error.into())
        }
    }
}
