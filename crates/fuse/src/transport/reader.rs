//! The device: requests are read of it, and answers are written to it. Where there are rings, it
//! brings only requests without a waiter.

use rustix::io::Errno as Sys;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::call::REQUEST_BYTES_MAX;
use super::call::{HEADER_BYTES, Header, KernelRequest};
use super::reply::{KernelReply, To};
use super::serve::Serve;
use crate::errno::Errno;

/// Bytes of the longest request: a write.
const ROOM: usize = REQUEST_BYTES_MAX as usize + 4096;

/// Serves requests that are read of `device`, until the mount is gone.
pub(super) fn serve(device: OwnedFd, filesystem: &dyn Serve) -> io::Result<()> {
    let device = Arc::new(device);
    let mut room = vec![0; ROOM];
    loop {
        match rustix::io::read(&*device, &mut room[..]) {
            Ok(bytes) => request(&room[..bytes], &device, filesystem),
            // The asker does not wait any more.
            Err(Sys::NOENT | Sys::INTR | Sys::AGAIN) => {}
            Err(Sys::NODEV) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn request(bytes: &[u8], device: &Arc<OwnedFd>, filesystem: &dyn Serve) {
    let Some(header) = Header::read(bytes) else {
        return tracing::error!(bytes = bytes.len(), "a request of the kernel's that is cut short");
    };
    let to = if header.is_answered() { To::Device(Arc::clone(device)) } else { To::Nowhere };
    let reply = KernelReply::new(header.unique, to);
    let body = &bytes[HEADER_BYTES..];
    let (fixed, rest) = body.split_at(body.len().min(header.fixed_bytes()));
    match header.call(fixed, rest) {
        Some(call) => filesystem.serve(KernelRequest { asker: header.asker, node: header.node, call }, reply),
        None => reply.error(Errno::IO),
    }
}
