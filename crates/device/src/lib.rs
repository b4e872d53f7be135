//! The part of the kernel's FUSE device that takes unsafe code: requests over io_uring, and further
//! descriptors of one connection.
//!
//! The crate cannot reach any other of ours.
//!
//! This crate has all unsafe code of the project: io_uring is given addresses of memory (`ring`),
//! an ioctl a pointer (`another`), and a system call a structure (`turn`). Its interface is safe.
//! The crate does not read what requests say.

mod cpus;
mod ring;
mod slot;
mod turn;

pub use cpus::{Cpus, stay_on};
pub use ring::{Returns, Ring, RingEvent, Sight, Unused};
pub use slot::{After, Slot};
pub use turn::in_turn;

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Opens another descriptor for the connection of `device`, with a queue of its own for reading.
/// Two threads that read by one descriptor contend for its lock.
///
/// `FUSE_DEV_IOC_CLONE` (linux/fuse.h).
///
/// # Errors
/// If `/dev/fuse` cannot be opened, or the kernel refuses.
pub fn another(device: impl AsFd) -> io::Result<OwnedFd> {
    /// `_IOR(229, 0, uint32_t)`.
    const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
    let new = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut old = u32::try_from(device.as_fd().as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: FUSE_DEV_IOC_CLONE takes a pointer to a descriptor's number, of 32 bits, and does not
    // write there.
    #[allow(unsafe_code)]
    let clone = unsafe { rustix::ioctl::Updater::<CLONE, u32>::new(&mut old) };
    // SAFETY: the same; `new` is a FUSE device.
    #[allow(unsafe_code)]
    unsafe { rustix::ioctl::ioctl(&new, clone) }?;
    Ok(new)
}
