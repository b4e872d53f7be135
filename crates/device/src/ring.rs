//! Requests over io_uring (Documentation/filesystems/fuse/fuse-io-uring.rst).
//!
//! The kernel has a queue for each processor, and puts a request into a slot of the queue of the
//! processor on which it was made. The answer goes into the same slot. One call hands the answer to
//! the kernel and waits for the next request. So a request wakes no thread on another processor.
//! Where processors sleep, that wake-up is most of what a request costs by reading and writing the
//! device.
//!
//! One thread has a ring, and serves one queue or several. The kernel touches the memory of slots
//! only while that thread is in `io_uring_enter` (`IORING_SETUP_DEFER_TASKRUN`). Then it touches
//! only the slots that are `parked`: it was not told of the others.

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::ThreadId;

use crate::cpus::stay_on;
use crate::{After, Slot};

/// `enum fuse_uring_cmd`, linux/fuse.h.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Commands that may be written before the kernel is told of them.
const SUBMISSIONS: u32 = 64;

/// Slots of a queue at its beginning. As many are added whenever fewer than half of that are left,
/// since a request may wait for long and keeps its slot.
const SLOTS: usize = 16;
/// The most slots of a queue. When so many requests wait, a further one waits for one of them.
const SLOTS_MAX: usize = 4096;

/// The ring's word for a wake-up, in the place of a slot's number.
const WOKEN: u64 = u64::MAX;

type Rings = IoUring<squeue::Entry128, cqueue::Entry>;

/// Some queues of a connection, and the slots in them. It stays on one thread from the first
/// [`Ring::wait`] on.
pub struct Ring {
    ring: Rings,
    device: OwnedFd,
    payload_bytes: usize,
    /// Slots that the kernel has at the moment, by the number that it knows them by.
    parked: Vec<Option<Slot>>,
    /// Numbers that are free.
    free: Vec<usize>,
    /// By queue: the number of slots, and how many of them the kernel has.
    queues: Vec<(u16, usize, usize)>,
    /// Called once the kernel has the answers that it is told of next.
    after: Vec<After>,
    /// Completions that the kernel has reported and that are not handled yet.
    said: VecDeque<(u64, i32)>,
    returns: Arc<Returns>,
}

/// Takes answered slots back, from any thread.
pub struct Returns {
    come_back: Mutex<ComeBack>,
    wake: OwnedFd,
    /// The ring's own thread, which need not be woken.
    thread: ThreadId,
}

#[derive(Default)]
struct ComeBack {
    slots: Vec<Slot>,
    /// The ring's thread is looking out, and need not be woken.
    looked_for: bool,
}

/// The result of [`Ring::wait`].
pub enum RingEvent {
    /// A request is in this slot. The slot comes back, answered, by [`Returns::put`].
    Request {
        /// The slot with the request.
        slot: Slot,
        /// Few slots were left in its queue, and further ones were added. Meanwhile the last slot
        /// may have been taken, and the kernel may have kept requests back. It does not put those
        /// into the further slots. It puts one of them into each slot from which it takes an
        /// answer.
        grown: bool,
    },
    /// The connection is over.
    Ended,
}

/// The state that a ring's thread finds when it looks out before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing yet.
    Nothing,
    /// An answer has come back.
    Answer,
    /// The kernel has something for this thread. That comes first.
    Kernel,
}

/// A ring that serves no connection yet. It is made before the kernel is told that there will be
/// rings, since from then on the kernel waits for them.
pub struct Unused(Rings, OwnedFd);

impl Unused {
    /// Asks the kernel for a ring.
    ///
    /// # Errors
    /// If it has no io_uring, or this process may not use it.
    pub fn new() -> io::Result<Unused> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // With this flag the thread sees without a call that the kernel has something to say.
            .setup_taskrun_flag()
            // The thread that enables the ring becomes its thread.
            .setup_r_disabled()
            .build(SUBMISSIONS)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Unused(ring, wake))
    }

    /// Serves `queues` of the connection of `device` on the calling thread, which stays on
    /// processor `cpu`. No content of a request is longer than `payload_bytes`.
    ///
    /// # Errors
    /// If the kernel takes no slots, or there is no memory for them. Requests of these processors
    /// then wait for ever: the mount has to end.
    pub fn serve(self, device: OwnedFd, cpu: u32, queues: &[u16], payload_bytes: usize) -> io::Result<Ring> {
        stay_on(cpu);
        let Unused(ring, wake) = self;
        ring.submitter().register_enable_rings()?;
        let thread = std::thread::current().id();
        let mut ring = Ring {
            ring,
            device,
            payload_bytes,
            parked: Vec::new(),
            free: Vec::new(),
            queues: queues.iter().map(|queue| (*queue, 0, 0)).collect(),
            after: Vec::new(),
            said: VecDeque::new(),
            returns: Arc::new(Returns { come_back: Mutex::default(), wake, thread }),
        };
        ring.listen()?;
        for queue in queues {
            // The other queues are of processors that sleep for good.
            ring.add(*queue, if u32::from(*queue) == cpu { SLOTS } else { 1 })?;
        }
        Ok(ring)
    }
}

impl Ring {
    /// Where answered slots come back to.
    pub fn returns(&self) -> &Arc<Returns> {
        &self.returns
    }

    /// Hands answers that have come back to the kernel, and waits for a request. While requests are
    /// unanswered, `look_out` is called before the thread sleeps. An answer that comes back before
    /// `look_out` returns wakes no thread.
    ///
    /// # Errors
    /// If the ring no longer works, or as for [`Unused::serve`]: the mount has to end.
    pub fn wait(&mut self, mut look_out: impl FnMut(&mut dyn FnMut() -> Sight)) -> io::Result<RingEvent> {
        loop {
            let answered = std::mem::take(&mut self.returns.come_back.lock().slots);
            for slot in answered {
                self.commit(slot)?;
            }
            self.hand_in()?;
            if self.said.is_empty() && self.look_out(&mut look_out) {
                continue;
            }
            // An answer goes out at once, and does not wait for the requests at hand to be served.
            self.enter(usize::from(self.said.is_empty()))?;
            let said = self.ring.completion();
            self.said.extend(said.map(|said| (said.user_data(), said.result())));
            match self.said.pop_front() {
                Some((WOKEN, result)) => self.woken(result)?,
                Some((number, result)) => {
                    if let Some(event) = self.take(number, result)? {
                        return Ok(event);
                    }
                }
                None => {}
            }
        }
    }

    /// Looks out for an answer while requests are unanswered. Whether one has come back.
    fn look_out(&mut self, look_out: &mut impl FnMut(&mut dyn FnMut() -> Sight)) -> bool {
        if self.queues.iter().all(|(_, all, idle)| all == idle) {
            return false;
        }
        self.returns.come_back.lock().looked_for = true;
        look_out(&mut || match self.returns.is_empty() {
            false => Sight::Answer,
            true if self.ring.submission().taskrun() => Sight::Kernel,
            true => Sight::Nothing,
        });
        let mut come_back = self.returns.come_back.lock();
        come_back.looked_for = false;
        !come_back.slots.is_empty()
    }

    /// Has the kernel take all answers before the thread waits for anything.
    fn hand_in(&mut self) -> io::Result<()> {
        if !self.after.is_empty() {
            while !self.ring.submission().is_empty() {
                self.enter(0)?;
            }
            self.after.drain(..).for_each(|after| after());
        }
        Ok(())
    }

    /// Submits all commands to the kernel, and waits for at least `least` completions.
    fn enter(&mut self, least: usize) -> io::Result<()> {
        if least == 0 && self.ring.submission().is_empty() {
            return Ok(());
        }
        match self.ring.submit_and_wait(least) {
            Ok(_) => Ok(()),
            // EBUSY: too many completions were not looked at yet.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Handles the completion of a command: of slot `number`, with the kernel's `result`.
    fn take(&mut self, number: u64, result: i32) -> io::Result<Option<RingEvent>> {
        let number = number as usize;
        let Some(slot) = self.parked.get_mut(number).and_then(Option::take) else {
            return Err(io::Error::other(format!(
                "the kernel speaks of slot {number}, which it does not have"
            )));
        };
        self.free.push(number);
        if result < 0 {
            let error = io::Error::from_raw_os_error(result.saturating_neg());
            let over = matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECANCELED));
            return if over { Ok(Some(RingEvent::Ended)) } else { Err(error) };
        }
        let queue = slot.queue;
        let (all, idle) = self.queue(queue).map_or((0, 0), |(_, all, idle)| {
            *idle = idle.saturating_sub(1);
            (*all, *idle)
        });
        let grown = idle < SLOTS / 2 && all < SLOTS_MAX;
        if grown {
            self.add(queue, SLOTS)?;
        }
        Ok(Some(RingEvent::Request { slot, grown }))
    }

    fn queue(&mut self, queue: u16) -> Option<&mut (u16, usize, usize)> {
        self.queues.iter_mut().find(|(number, ..)| *number == queue)
    }

    /// Adds further slots to `queue`.
    fn add(&mut self, queue: u16, slots: usize) -> io::Result<()> {
        for _ in 0..slots {
            let mut slot = Slot::new(queue, self.payload_bytes)?;
            let iovecs = slot.iovecs();
            if let Some((_, all, _)) = self.queue(queue) {
                *all += 1;
            }
            let mut command = self.command(REGISTER, queue, 0, Some(iovecs.as_ptr() as u64));
            set_length(&mut command, iovecs.len() as u32);
            self.park(slot, command)?;
            // The kernel reads `iovecs` when the command is submitted, and not later.
            while !self.ring.submission().is_empty() {
                self.enter(0)?;
            }
        }
        Ok(())
    }

    /// Has the kernel take the answer from `slot`, and put a request there when there is one.
    fn commit(&mut self, mut slot: Slot) -> io::Result<()> {
        self.after.extend(slot.after.take());
        let command = self.command(COMMIT_AND_FETCH, slot.queue, slot.commit_id(), None);
        self.park(slot, command)
    }

    /// A command with `struct fuse_uring_cmd_req`: flags u64, commit_id u64, qid u16.
    fn command(&self, what: u32, queue: u16, commit_id: u64, at: Option<u64>) -> squeue::Entry128 {
        let mut body = [0; 80];
        body[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        body[16..18].copy_from_slice(&queue.to_ne_bytes());
        opcode::UringCmd80::new(Fd(self.device.as_raw_fd()), what).cmd(body).addr(at).build()
    }

    /// Gives `slot` to the kernel until `command` completes.
    fn park(&mut self, slot: Slot, command: squeue::Entry128) -> io::Result<()> {
        if let Some((.., idle)) = self.queue(slot.queue) {
            *idle += 1;
        }
        let number = self.free.pop().unwrap_or(self.parked.len());
        if number == self.parked.len() {
            self.parked.push(None);
        }
        self.parked[number] = Some(slot);
        self.submit(&command.user_data(number as u64))
    }

    /// Has the ring wake the thread when an answer comes back.
    fn listen(&mut self) -> io::Result<()> {
        let wake = Fd(self.returns.wake.as_raw_fd());
        let poll = opcode::PollAdd::new(wake, libc::POLLIN as u32).build().user_data(WOKEN);
        self.submit(&poll.into())
    }

    fn woken(&mut self, result: i32) -> io::Result<()> {
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        match rustix::io::read(&self.returns.wake, &mut [0u8; 8]) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => self.listen(),
            Err(errno) => Err(errno.into()),
        }
    }

    fn submit(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        while self.ring.submission().is_full() {
            self.enter(0)?;
        }
        let mut submission = self.ring.submission();
        // SAFETY: a command names our descriptors, which live as long as the ring, and memory of a
        // slot. That memory stays in its place as long as the slot lives, and the slot stays in
        // `parked` as long as the kernel may use it. The kernel uses it only in this thread's
        // `io_uring_enter` on this ring, so no longer than the ring lives.
        #[allow(unsafe_code)]
        let pushed = unsafe { submission.push(command) };
        pushed.map_err(io::Error::other)
    }
}

/// Sets `len`, the number of vectors at `addr`. It is at byte 24 of `struct io_uring_sqe`, and the
/// crate has no name for it.
fn set_length(command: &mut squeue::Entry128, length: u32) {
    let at = std::ptr::from_mut(command).cast::<u32>();
    // SAFETY: `Entry128` has the kernel's layout (`repr(C)`, 128 bytes aligned to 8, all of them
    // initialized). So its seventh word of 32 bits is inside, aligned, and ours by `&mut`.
    #[allow(unsafe_code)]
    let length_at = unsafe { at.add(6) };
    // SAFETY: the same.
    #[allow(unsafe_code)]
    unsafe {
        length_at.write(length);
    }
}

impl Returns {
    fn is_empty(&self) -> bool {
        self.come_back.lock().slots.is_empty()
    }

    /// Returns `slot`, answered.
    pub fn put(&self, slot: Slot) {
        let mut come_back = self.come_back.lock();
        come_back.slots.push(slot);
        let is_awake = come_back.looked_for;
        drop(come_back);
        if !is_awake && self.thread != std::thread::current().id() {
            // The write fails only if the counter is full of wake-ups.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}
