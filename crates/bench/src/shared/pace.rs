//! The least cost of durable work on another machine: a flush of the disk, and messages.

use super::repeat::again_and_again;
use crate::bulk::{PAGE, disk_syncs};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of an answer, and of a small message.
const SMALL: usize = 64;

/// The bytes to be made durable, and the disks.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// Bytes to be made durable. A message carries them, and a flush covers them.
    pub(super) bytes: usize,
    /// Number of disks that make them durable at the same time. On this machine they are one disk.
    pub(super) disks: usize,
}

impl Load {
    /// A small message, and one machine's disk: bars are of this load.
    pub(super) const LEAST: Load = Load { bytes: SMALL, disks: 1 };
}

/// The time of both steps, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// The time of an append, of a page at least, and fdatasync.
    pub(super) flush: f64,
    /// The time of a message from one thread to another: half of a message with the bytes and an
    /// answer.
    pub(super) hop: f64,
}

impl Pace {
    /// Measures each for `time`, on the disk of `base`.
    pub(super) fn measure(base: &Path, load: Load, time: Duration) -> io::Result<Pace> {
        let bytes = load.bytes.max(PAGE);
        let flushes = std::thread::scope(|scope| {
            let flushes = |n: usize| move || disk_syncs(&base.join(format!("flushes-{n}")), bytes, time);
            let disks: Vec<_> = (0..load.disks).map(|n| scope.spawn(flushes(n))).collect();
            let failed = |_| Err(io::Error::other("a thread failed"));
            disks.into_iter().map(|disk| disk.join().unwrap_or_else(failed)).sum::<io::Result<u64>>()
        })?;
        let flush = time.as_secs_f64() * load.disks as f64 / flushes as f64;
        Ok(Pace { flush, hop: round_trip(load.bytes, time)? / 2.0 })
    }

    /// The mean of both.
    pub(super) fn and(self, other: Pace) -> Pace {
        Pace { flush: (self.flush + other.flush) / 2.0, hop: (self.hop + other.hop) / 2.0 }
    }
}

/// The time of a message over TCP and its answer, in seconds.
fn round_trip(bytes: usize, time: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut caller = TcpStream::connect(listener.local_addr()?)?;
    let (mut called, _) = listener.accept()?;
    caller.set_nodelay(true)?;
    called.set_nodelay(true)?;
    let answering = std::thread::spawn(move || {
        let mut message = vec![0; bytes];
        while called.read_exact(&mut message).and_then(|()| called.write_all(&[0; SMALL])).is_ok() {}
    });
    let began = Instant::now();
    let (message, mut answer) = (vec![0; bytes], [0; SMALL]);
    let rounds = again_and_again(time, |_| {
        caller.write_all(&message)?;
        caller.read_exact(&mut answer)
    })?;
    let took = began.elapsed().as_secs_f64() / rounds as f64;
    drop(caller);
    answering.join().map_err(|_| io::Error::other("a thread failed"))?;
    Ok(took)
}
