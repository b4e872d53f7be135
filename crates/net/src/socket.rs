//! A TCP stream of tokio's that another thread may also read for a moment. That thread takes what
//! is there; it neither waits nor wakes a task.

use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A TCP stream that another thread may read beside tokio.
#[derive(Debug)]
pub struct Socket {
    tcp: TcpStream,
    beside: bool,
}

impl Socket {
    pub fn new(tcp: TcpStream) -> Socket {
        Socket { tcp, beside: false }
    }

    /// Sets whether the reader is a thread that looks again by itself. Such reads bypass tokio.
    /// tokio notices arrivals only on a thread of its own, and still wakes the waiting task.
    pub(crate) fn read_beside(&mut self, beside: bool) {
        self.beside = beside;
    }

    #[cfg(test)]
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.beside {
            return Pin::new(&mut self.tcp).poll_read(cx, buf);
        }
        match rustix::net::recv(&self.tcp, buf.initialize_unfilled(), RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => {
                buf.advance(bytes);
                Poll::Ready(Ok(()))
            }
            Err(Errno::AGAIN | Errno::INTR) => Poll::Pending,
            Err(errno) => Poll::Ready(Err(errno.into())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
