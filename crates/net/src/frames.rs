//! Frames on a TLS stream.

use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use rustix::net::sockopt::set_tcp_thin_linear_timeouts;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec, LengthDelimitedCodecError};
use wire::{FRAME_BYTES_MAX, FrameError, GREETING_BYTES_MAX};

/// How long a peer may leave sent data untaken; the connection ends then. Silence ends it after
/// about as long. Both ends must know well before a session's term (30 s) is over.
pub(crate) const SILENCE: Duration = Duration::from_secs(12);
const KEEPALIVE: Duration = Duration::from_secs(4);

/// Frames in both directions over `S`.
pub type Frames<S> = Framed<S, LengthDelimitedCodec>;

/// Frames for greetings: small, whatever the peer is.
pub fn greetings<S: AsyncRead + AsyncWrite>(stream: S) -> Frames<S> {
    let codec = LengthDelimitedCodec::builder().max_frame_length(GREETING_BYTES_MAX).new_codec();
    Framed::new(stream, codec)
}

/// Allows long frames: the peer is known now.
pub fn messages<S>(frames: &mut Frames<S>) {
    frames.codec_mut().set_max_frame_length(FRAME_BYTES_MAX);
}

/// Bytes of a frame between members of the server group. An entry holds at least one message of a
/// client's, with what goes around it.
const PEER_FRAME_BYTES_MAX: usize = 64 << 20;

/// Allows a member's frames: the peer is a member of the server group.
pub fn peers<S>(frames: &mut Frames<S>) {
    frames.codec_mut().set_max_frame_length(PEER_FRAME_BYTES_MAX);
}

/// Sets up a connection: small messages go at once, and a peer that is gone is noticed soon.
pub fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    os::end_with_peer(tcp, KEEPALIVE, SILENCE)?;
    // Few messages are under way at a time. With linear timeouts the wait for a message that is
    // lost repeatedly does not double each time.
    set_tcp_thin_linear_timeouts(tcp, true)?;
    Ok(())
}

/// Sends one frame.
pub async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    frames: &mut Frames<S>,
    bytes: Vec<u8>,
) -> io::Result<()> {
    send_bytes(frames, Bytes::from(bytes)).await
}

/// Sends one frame. It is copied only where it is encrypted: entries may be long.
pub async fn send_bytes<S: AsyncRead + AsyncWrite + Unpin>(
    frames: &mut Frames<S>,
    bytes: Bytes,
) -> io::Result<()> {
    let most = frames.codec().max_frame_length();
    let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= most);
    let length = length.ok_or(io::ErrorKind::InvalidInput)?.to_be_bytes();
    let stream = frames.get_mut();
    stream.write_all_buf(&mut Buf::chain(&length[..], bytes)).await?;
    stream.flush().await
}

/// The peer's misdeed, if the error is one and not a failure of the connection. A connection that
/// breaks within a frame ends without TLS' closing word, which is another error.
pub(crate) fn misdeed(error: &io::Error) -> Option<FrameError> {
    let too_long = error.get_ref().is_some_and(|inner| inner.is::<LengthDelimitedCodecError>());
    // The error is of `Decoder::decode_eof`, which has no type for it.
    let cut = error.kind() == io::ErrorKind::Other && error.to_string() == "bytes remaining on stream";
    if too_long { Some(FrameError::TooLong) } else { cut.then_some(FrameError::Cut) }
}

/// Receives one frame; an orderly end of the stream is an error here.
pub async fn receive<S: AsyncRead + AsyncWrite + Unpin>(frames: &mut Frames<S>) -> io::Result<BytesMut> {
    frames.next().await.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
}
