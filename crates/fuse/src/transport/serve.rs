//! The file system that the transport serves.

use std::io;

use super::call::KernelRequest;
use super::reply::KernelReply;

/// A file system that can be mounted.
pub trait Serve: Send + Sync + 'static {
    /// Serves a request. Any thread may answer by `reply`, at any time. The calling thread must not
    /// wait.
    fn serve(&self, request: KernelRequest, reply: KernelReply);
    /// A serving thread looks out for answers to requests that it has served. This does anything
    /// that may bring one without waiting.
    fn look(&self) {}
}

/// The work of one thread until the mount is gone.
pub(super) type Job<'a> = Box<dyn FnOnce() -> io::Result<()> + Send + 'a>;
