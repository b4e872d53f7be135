//! TCP connections whose other end may vanish without a word.

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Has the system end a connection whose other end is gone: about `silence` after the last sign of
/// it. While nothing is under way, the system asks for a sign `every` so often.
///
/// # Errors
/// If the system refuses.
pub fn end_with_peer(tcp: impl AsFd, every: Duration, silence: Duration) -> io::Result<()> {
    set_socket_keepalive(&tcp, true)?;
    set_tcp_keepidle(&tcp, every)?;
    set_tcp_keepintvl(&tcp, every)?;
    // With this the number of unanswered signs does not count.
    set_tcp_user_timeout(&tcp, silence.as_millis().try_into().unwrap_or(u32::MAX))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::{socket_keepalive, tcp_keepidle, tcp_keepintvl, tcp_user_timeout};

    #[test]
    fn the_system_knows_how_long_to_wait() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        end_with_peer(&tcp, Duration::from_secs(30), Duration::from_secs(120)).unwrap();
        assert!(socket_keepalive(&tcp).unwrap());
        let thirty = Duration::from_secs(30);
        assert_eq!((tcp_keepidle(&tcp).unwrap(), tcp_keepintvl(&tcp).unwrap()), (thirty, thirty));
        assert_eq!(tcp_user_timeout(&tcp).unwrap(), 120_000);
    }
}
