//! The file API of this machine, as front doors see it.

use bytes::Bytes;
use client::{Call, Invalidation, Reply, Ticket};
use namespace::{Cred, Error};
use std::sync::Arc;
use std::time::Duration;

/// What a front door is told once content has been gathered: a [`Reply`], or the bytes of a read.
#[derive(Clone, Debug)]
pub enum Told {
    /// Anything but content.
    Reply(Reply),
    /// Content, in parts that together are what was read.
    Data(Vec<Bytes>),
}

/// What the machine hands to one user's call when it is done.
pub type Answer = Box<dyn FnOnce(Result<Told, Error>) + Send>;

/// A front door's way to the machine's client.
pub trait Door: Send + Sync + 'static {
    /// Does `call` for `cred`. `answer` is called on this thread when leases cover it, later and on another thread otherwise; never while a lock is held.
    /// In the latter case the call has a name until then.
    fn call(&self, cred: &Cred, call: Call, answer: Answer) -> Option<Ticket>;
    /// Nobody waits for this call any longer: it is answered with `Error::Interrupted`, unless it has been answered.
    fn cancel(&self, ticket: Ticket);
    /// For how long from now the kernel (or an SMB client) may keep what it is told: what is left of the session.
    fn valid_for(&self) -> Duration;
    /// Registers whom to tell what to invalidate. Called from a thread that serves no front door.
    fn on_invalidate(&self, tell: Arc<dyn Fn(&Invalidation) + Send + Sync>);
}
