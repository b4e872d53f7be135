//! A longer way: a TCP relay that forwards all bytes after a delay, either way.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;

/// Relays connections until dropped. A connection ends when one of its ends does.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

/// The time at which bytes are due, and the bytes.
type Late = (Instant, Vec<u8>);

impl Relay {
    /// Starts a relay to `server`.
    pub fn start(server: SocketAddr, delay: Duration) -> io::Result<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, ended) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let ends = ended.clone();
        Builder::new().name("relay".into()).spawn(move || {
            for caller in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                // A caller that cannot be connected is hung up on, and calls again.
                let _ = caller.and_then(|caller| connect(caller, server, delay));
            }
        })?;
        Ok(Relay { address, ended })
    }

    /// The address to call instead of the server's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread.
        drop(TcpStream::connect(self.address));
    }
}

fn connect(caller: TcpStream, server: SocketAddr, delay: Duration) -> io::Result<()> {
    let called = TcpStream::connect(server)?;
    for (from, to) in [(&caller, &called), (&called, &caller)] {
        to.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let (late, due) = channel();
        Builder::new().name("relay-in".into()).spawn(move || take(from, &late, delay))?;
        Builder::new().name("relay-out".into()).spawn(move || pass_on(to, &due))?;
    }
    Ok(())
}

/// Reads `from` until its end, or until the other thread has ended.
fn take(mut from: TcpStream, late: &Sender<Late>, delay: Duration) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        if late.send((Instant::now() + delay, chunk[..read].to_vec())).is_err() {
            return;
        }
    }
}

fn pass_on(mut to: TcpStream, late: &Receiver<Late>) {
    for (due, bytes) in late {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // Both ways: one end is gone, so the other is of no use. Both readers see the end.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_arrives_in_order_and_no_sooner() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let delay = Duration::from_millis(20);
        let relay = Relay::start(server.local_addr().unwrap(), delay).unwrap();
        let mut caller = TcpStream::connect(relay.address()).unwrap();
        let (mut called, _) = server.accept().unwrap();
        let said = Instant::now();
        caller.write_all(b"first ").unwrap();
        caller.write_all(b"second").unwrap();
        let mut heard = [0; 12];
        called.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"first second");
        // Never sooner, however slow the machine is.
        assert!(said.elapsed() >= delay);
        called.write_all(b"back").unwrap();
        drop(called);
        let mut back = Vec::new();
        caller.read_to_end(&mut back).unwrap();
        assert_eq!(back, b"back");
    }
}
