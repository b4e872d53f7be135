//! Frames on a TLS stream.

use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_thin_linear_timeouts,
    set_tcp_user_timeout,
};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec, LengthDelimitedCodecError};
use wire::{FRAME_BYTES_MAX, FrameError, GREETING_BYTES_MAX};

/// What was sent and not taken for so long ends a connection; so does silence for about as long:
/// both ends must know well before a session's term (30 s) is over.
pub(super) const SILENCE: Duration = Duration::from_secs(12);
const KEEPALIVE: Duration = Duration::from_secs(4);

/// Frames both ways over `S`.
pub(super) type Frames<S> = Framed<S, LengthDelimitedCodec>;

/// Frames that are greetings: small, whoever sends them.
pub(super) fn greetings<S: AsyncRead + AsyncWrite>(stream: S) -> Frames<S> {
    let codec = LengthDelimitedCodec::builder().max_frame_length(GREETING_BYTES_MAX).new_codec();
    Framed::new(stream, codec)
}

/// The other side is known now: frames may be long.
pub(super) fn messages<S>(frames: &mut Frames<S>) {
    frames.codec_mut().set_max_frame_length(FRAME_BYTES_MAX);
}

/// Bytes of a frame between members of the server group: an entry is at least one message of a
/// client's, with what goes around it.
const PEER_FRAME_BYTES_MAX: usize = 64 << 20;

/// The other side is a member of the server group.
pub(super) fn peers<S>(frames: &mut Frames<S>) {
    frames.codec_mut().set_max_frame_length(PEER_FRAME_BYTES_MAX);
}

/// How connections are set up: small messages at once, and nobody waits for a peer that is gone.
pub(super) fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    set_socket_keepalive(tcp, true)?;
    set_tcp_keepidle(tcp, KEEPALIVE)?;
    set_tcp_keepintvl(tcp, KEEPALIVE)?;
    // Few messages are under way at a time: one that is lost again and again is not waited for
    // twice as long each time.
    set_tcp_thin_linear_timeouts(tcp, true)?;
    set_tcp_user_timeout(tcp, SILENCE.as_millis().try_into().unwrap_or(u32::MAX))?;
    Ok(())
}

/// Sends one.
pub(super) async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    frames: &mut Frames<S>,
    bytes: Vec<u8>,
) -> io::Result<()> {
    send_bytes(frames, Bytes::from(bytes)).await
}

/// Sends one, which is copied only where it is encrypted: entries may be long.
pub(super) async fn send_bytes<S: AsyncRead + AsyncWrite + Unpin>(
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

/// What a peer has done, rather than what became of the connection: one that breaks within a frame
/// ends without TLS' closing word, which is another error.
pub(super) fn misdeed(error: &io::Error) -> Option<FrameError> {
    let too_long = error.get_ref().is_some_and(|inner| inner.is::<LengthDelimitedCodecError>());
    // Of `Decoder::decode_eof`, which has no type for it.
    let cut = error.kind() == io::ErrorKind::Other && error.to_string() == "bytes remaining on stream";
    if too_long { Some(FrameError::TooLong) } else { cut.then_some(FrameError::Cut) }
}

/// Receives one; an orderly end of the stream is an error here.
pub(super) async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    frames: &mut Frames<S>,
) -> io::Result<BytesMut> {
    frames.next().await.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
}
