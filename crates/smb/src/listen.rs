//! Listening, and the frames of the direct TCP transport (MS-SMB2 §2.1).

use crate::connection::Connection;
use crate::keeping::{end_after, give_up};
use crate::limits::{CONNECTIONS_MAX, EARLY_TIME, RESTORED_WITHIN, SIGN_EVERY, SILENCE};
use crate::outbox::Outbox;
use crate::records::restore;
use crate::server::Server;
use bytes::BufMut;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// The most threads. A connection stays on one.
const THREADS_MAX: usize = 8;
/// A frame of so many bytes comes with its length in one read.
const SHORT_BYTES: usize = 1 << 10;
/// The pause after a failed accept: descriptors may be used up.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that listens. Dropping it closes all connections.
pub struct Listening {
    address: SocketAddr,
    stops: Vec<oneshot::Sender<()>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Listening {
    /// Listens at an address, and serves from then on.
    pub fn start(server: Arc<Server>, address: SocketAddr) -> io::Result<Listening> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // Before any client can take what others had open.
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            if tokio::time::timeout(RESTORED_WITHIN, restore(&server)).await.is_err() {
                tracing::error!("persistent opens are lost: the cluster does not answer");
            }
        });
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let mut listening = Listening { address, stops: Vec::new(), threads: Vec::new() };
        for _ in 0..count {
            let (stop, stopped) = oneshot::channel::<()>();
            let (listener, server) = (listener.try_clone()?, server.clone());
            let thread = std::thread::Builder::new().name("smb".into()).spawn(move || {
                if let Err(error) = run(server, listener, stopped) {
                    tracing::error!(%error, "SMB is not served any more");
                }
            })?;
            listening.stops.push(stop);
            listening.threads.push(thread);
        }
        Ok(listening)
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stops.clear();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Accepts connections on one thread until the sender is dropped.
fn run(
    server: Arc<Server>,
    listener: std::net::TcpListener,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        tokio::pin!(stopped);
        if let Some(mut unheard_of) = server.unheard_of.lock().take() {
            // These were open before the restart. Their clients have their time from now on.
            let waiting = server.durables.lock().values().cloned().collect::<Vec<_>>();
            for handle in waiting {
                let timeout = handle.durable.lock().as_ref().map(|durable| durable.timeout);
                end_after(&server, handle, timeout.unwrap_or_default());
            }
            let server = server.clone();
            tokio::spawn(async move {
                while let Some(holder) = unheard_of.recv().await {
                    give_up(&server, holder).await;
                }
            });
        }
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut stopped => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    connections.spawn(serve(server.clone(), stream, address));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    tracing::warn!(%error, "no SMB client can connect for a moment");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        connections.shutdown().await;
        Ok(())
    })
}

/// Counts a connection for as long as it lasts.
struct Counted(Arc<Server>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// Serves a connection to its end.
async fn serve(server: Arc<Server>, stream: TcpStream, address: SocketAddr) {
    let counted = Counted(server.clone());
    let count = server.connections.fetch_add(1, Relaxed);
    if count >= CONNECTIONS_MAX {
        tracing::warn!(%address, "an SMB client is turned away: there are too many connections");
        return;
    }
    let _ = stream.set_nodelay(true);
    if let Err(error) = os::end_with_peer(&stream, SIGN_EVERY, SILENCE) {
        tracing::warn!(%address, %error, "a connection may outlive its SMB client");
    }
    let stranger = server.strangers.enter(address.ip());
    let leaving = stranger.leaving();
    let reached = stream.local_addr().ok();
    let (reads, writes) = stream.into_split();
    let (outbox, outgoing) = Outbox::new();
    let connection = Arc::new(Connection::new(server, address.to_string(), reached, outbox.clone()));
    connection.comes_from(stranger);
    let early = async {
        let why = tokio::select! {
            () = tokio::time::sleep(EARLY_TIME) => "it does not log on",
            () = leaving.has_to_leave() => "it made way for others: too many do not log on",
        };
        if connection.has_logged_on() {
            std::future::pending::<()>().await;
        }
        why
    };
    tokio::select! {
        read = read_frames(&connection, reads, &outbox) => {
            if let Err(error) = read {
                tracing::info!(%address, %error, "an SMB connection ends");
            }
        }
        sent = outgoing.send_on(writes) => drop(sent),
        () = connection.ended() => {}
        why = early => tracing::info!(%address, why, "an SMB client is turned away"),
    }
    connection.close().await;
    drop(counted);
}

async fn read_frames(connection: &Arc<Connection>, reads: OwnedReadHalf, outbox: &Outbox) -> io::Result<()> {
    let mut reads = BufReader::with_capacity(SHORT_BYTES, reads);
    loop {
        let mut header = [0; 4];
        match reads.read_exact(&mut header).await {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        };
        let length = u32::from_be_bytes(header) as usize;
        // The first byte is 0, so a length has 24 bits. 0x85 keeps a NetBIOS session alive.
        if header == [0x85, 0, 0, 0] {
            continue;
        }
        if length > connection.frame_bytes_max() {
            return Err(io::Error::new(ErrorKind::InvalidData, "a frame is too long"));
        }
        let mut frame = Vec::with_capacity(length);
        while frame.len() < length {
            let left = length - frame.len();
            if reads.read_buf(&mut (&mut frame).limit(left)).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        connection.receive(frame).map_err(|ends| io::Error::new(ErrorKind::InvalidData, ends))?;
        connection.speaks();
        // Others' connections have their turn.
        tokio::task::yield_now().await;
        outbox.has_room(connection.unsent_bytes_max()).await;
    }
}
