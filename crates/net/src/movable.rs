//! A TCP stream that can move from one thread's runtime to another's, with the TLS connection and
//! the frames around it.
//!
//! Only the greeting shows the purpose of a connection. Those of sessions and members then move to
//! the thread that has the group. Otherwise each message would wait for two threads to wake up one
//! after the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A TCP stream, on a runtime or between two.
#[derive(Debug)]
pub enum Movable {
    /// On the runtime of the thread that made it or put it on.
    Here(TcpStream),
    /// On no runtime: nothing can be read or written.
    Between(Option<std::net::TcpStream>),
}

impl Movable {
    /// Takes the stream off its runtime.
    pub fn take_off(&mut self) -> io::Result<()> {
        if let Movable::Here(stream) = std::mem::replace(self, Movable::Between(None)) {
            *self = Movable::Between(Some(stream.into_std()?));
        }
        Ok(())
    }

    /// Puts the stream on the runtime of this thread.
    pub fn put_on(&mut self) -> io::Result<()> {
        if let Movable::Between(stream) = self {
            let stream = stream.take().ok_or(io::ErrorKind::NotConnected)?;
            *self = Movable::Here(TcpStream::from_std(stream)?);
        }
        Ok(())
    }

    fn here(self: Pin<&mut Self>) -> io::Result<Pin<&mut TcpStream>> {
        match self.get_mut() {
            Movable::Here(stream) => Ok(Pin::new(stream)),
            Movable::Between(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl AsyncRead for Movable {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Movable {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.here()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.here()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self, Movable::Here(stream) if stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_shutdown(cx)
    }
}
