//! Rings: each processor has a thread that serves the requests made there.

use device::{Cpus, RingEvent, Sight, Unused, stay_on};
use os::Patience;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use super::call::{Call, Header, KernelRequest, REQUEST_BYTES_MAX};
use super::reply::{KernelReply, To};
use super::serve::{Job, Serve};
use crate::errno::Errno;

/// The kernel's setting, for root to write, whether it may offer rings.
const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";

/// How long a thread looks out for an answer. A nearby server that need not ask others answers in
/// that time, with the wait for its disk.
const LOOK_OUT: Duration = Duration::from_micros(400);

/// The rings of a mount that is not served yet.
pub(super) struct Rings {
    rings: Vec<(u32, Unused)>,
    queues: Cpus,
}

/// Lets the kernel offer rings, if this process may. By default the kernel does not offer them,
/// though only a process that asks for rings gets any.
pub(super) fn have_offered() {
    if std::fs::read_to_string(OFFERED).is_ok_and(|offered| offered.trim() == "N") {
        match std::fs::write(OFFERED, "Y") {
            Ok(()) => tracing::info!("FUSE over io_uring is enabled in this kernel now ({OFFERED})"),
            Err(error) => {
                tracing::info!(%error, "requests take longer than they have to: root could write Y to {OFFERED}");
            }
        }
    }
}

impl Rings {
    /// Makes a ring for each processor.
    pub(super) fn new() -> io::Result<Rings> {
        let ring = |cpu| Ok((cpu, Unused::new()?));
        Ok(Rings {
            rings: Cpus::online()?.iter().map(ring).collect::<io::Result<_>>()?,
            queues: Cpus::possible()?,
        })
    }

    /// The work of their threads. Each ring has the queue of its processor. The queues of
    /// processors that sleep are spread over all rings.
    pub(super) fn jobs<'a>(
        self,
        device: impl AsFd,
        filesystem: &'a dyn Serve,
        dir: &'a Path,
    ) -> io::Result<Vec<Job<'a>>> {
        let (short, stalls) = mpsc::channel();
        let Rings { rings, queues } = self;
        let asleep: Vec<u32> =
            queues.iter().filter(|queue| rings.iter().all(|(cpu, _)| cpu != queue)).collect();
        let count = rings.len();
        let job = |(at, (cpu, ring)): (usize, (u32, Unused))| {
            let others = asleep.iter().copied().skip(at).step_by(count);
            let queues: Vec<u16> =
                std::iter::once(cpu).chain(others).map_while(|queue| u16::try_from(queue).ok()).collect();
            let device = device.as_fd().try_clone_to_owned()?;
            let short = short.clone();
            Ok(Box::new(move || serve(ring, device, cpu, &queues, filesystem, &short)) as Job<'a>)
        };
        let mut jobs = rings.into_iter().enumerate().map(job).collect::<io::Result<Vec<_>>>()?;
        jobs.push(Box::new(move || {
            stalls.iter().for_each(|stall| bring_on(&stall, dir));
            Ok(())
        }));
        Ok(jobs)
    }
}

/// A processor whose requests the kernel may have kept back for want of slots. There are further
/// slots now.
struct Stall {
    cpu: u32,
    /// The number of requests that its ring has had.
    taken: Arc<AtomicU64>,
}

/// An attribute that no file has. It is answered at once, without a call to the client.
const TURN: &str = "security.leasehold.turn";

/// Makes the kernel hand out requests that it has kept back. It hands out one with each answer that
/// it takes. So this makes requests that are answered at once, until they bring no other.
fn bring_on(stall: &Stall, dir: &Path) {
    stay_on(stall.cpu);
    let mut quiet = 0;
    // A request that one turn brings may be counted only with the next.
    while quiet < 2 {
        let before = stall.taken.load(SeqCst);
        match rustix::fs::getxattr(dir, TURN, &mut [0; 0]) {
            Err(rustix::io::Errno::NODATA) => {}
            // The mount is gone, or another lies on top of it.
            _ => return,
        }
        quiet = if stall.taken.load(SeqCst) - before > 1 { 0 } else { quiet + 1 };
    }
}

fn serve(
    ring: Unused,
    device: OwnedFd,
    cpu: u32,
    queues: &[u16],
    filesystem: &dyn Serve,
    short: &Sender<Stall>,
) -> io::Result<()> {
    let mut ring = ring.serve(device, cpu, queues, REQUEST_BYTES_MAX as usize)?;
    let taken = Arc::<AtomicU64>::default();
    let mut patience = Patience::default();
    let mut look_out = |see: &mut dyn FnMut() -> Sight| look_out(&mut patience, filesystem, see);
    while let RingEvent::Request { slot, grown } = ring.wait(&mut look_out)? {
        taken.fetch_add(1, SeqCst);
        if grown {
            // This fails only when the mount ends.
            let _ = short.send(Stall { cpu: slot.queue(), taken: Arc::clone(&taken) });
        }
        let header = Header::read(slot.header()).ok_or_else(|| io::Error::other("a request cut short"))?;
        let call = header.call(slot.fixed(), slot.payload());
        let reply = KernelReply::new(header.unique, To::Ring(slot, ring.returns().clone()));
        match call {
            Some(Call::GetXattr { name, .. }) if name == TURN.as_bytes() => reply.error(Errno(libc::ENODATA)),
            Some(call) => {
                filesystem.serve(KernelRequest { asker: header.asker, node: header.node, call }, reply)
            }
            None => reply.error(Errno::IO),
        }
    }
    Ok(())
}

/// Looks out for an answer, and takes in messages of a server meanwhile: no other thread has to
/// wake up for them. Other threads on this processor go first.
fn look_out(patience: &mut Patience, filesystem: &dyn Serve, see: &mut dyn FnMut() -> Sight) {
    if !patience.begins() {
        return;
    }
    let until = Instant::now() + LOOK_OUT;
    let mut sight = see();
    while sight == Sight::Nothing && Instant::now() < until {
        filesystem.look();
        std::thread::yield_now();
        sight = see();
    }
    patience.ends(sight == Sight::Answer);
}
