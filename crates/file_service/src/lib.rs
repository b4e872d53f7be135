//! The machine's file API. Front doors (FUSE, SMB) ask the machine's client through a
//! [`FileService`], and give back what their own clients cache through a [`CacheHolder`]. A front
//! door depends on this crate and not on the machine.

mod activity;
mod busiest;

pub use activity::{Activity, ActivityReport, Kind, OperationReport, Underway};

use bytes::Bytes;
use client::{Call, Invalidation, Reply, Ticket};
use ident::FileId;
use namespace::{Cred, Error};
use std::sync::Arc;
use std::time::Duration;

/// What a call comes to.
#[derive(Clone, Debug)]
pub enum Response {
    /// Anything but content.
    Reply(Reply),
    /// The same, and nobody may cache the answer: see [`Reply::Passing`].
    Uncached(Reply),
    /// Content, in parts that together are what was read.
    Data(Vec<Bytes>),
}

/// Takes the response to one call.
pub type Responder = Box<dyn FnOnce(Result<Response, Error>) + Send>;

/// A front door's way to the machine's client.
pub trait FileService: Send + Sync + 'static {
    /// Does `call` for `cred`. `respond` is called on this thread if leases cover the call, and
    /// later on another thread otherwise; never while a lock is held. In the latter case the call
    /// has a name until then.
    fn call(&self, cred: &Cred, call: Call, respond: Responder) -> Option<Ticket>;
    /// Nobody waits for this call any longer: the response is `Error::Interrupted`, unless there
    /// was one.
    fn cancel(&self, ticket: Ticket);
    /// A call that waits holds a lock of the front door that a revocation needs
    /// ([`client::Client::give_way`]).
    fn give_way(&self, ticket: Ticket);
    /// Takes in what has arrived for calls that wait, on this thread and without blocking: for a
    /// thread that has a moment until it sleeps.
    fn look(&self) {}
    /// The directory that this machine has for its root. Known once a session has begun.
    fn root(&self) -> FileId;
    /// For how long from now the front door's clients may cache a response: what is left of the
    /// session.
    fn valid_for(&self) -> Duration;
    /// The kernel has forgotten these files, of which a response said that they linger
    /// ([`Reply::Lingers`]).
    fn forgotten(&self, files: Vec<FileId>);
    /// Counts what this front door asks for, if anybody wants to know.
    fn activity(&self) -> Option<&Arc<Activity>> {
        None
    }
    /// Registers a front door whose clients cache responses.
    fn register_cache(&self, holder: Arc<dyn CacheHolder>);
}

/// Third phase of a revocation, after the leases are released: revokes once more what responses may
/// have brought back until the second phase.
pub type Recheck<'a> = Box<dyn FnOnce() + 'a>;

/// Second phase of a revocation. The client calls this under its lock at the moment at which the
/// leases are released, when no response is given under them any more. Sees which responses may
/// have been cached by then, and does not block.
pub type Seal<'a> = Box<dyn FnOnce() -> Recheck<'a> + 'a>;

/// A front door whose clients (the kernel, or those of an SMB server) cache what they were told.
pub trait CacheHolder: Send + Sync {
    /// Whether any of it may be cached.
    fn has(&self, what: &Invalidation) -> bool;
    /// First phase of a revocation: invalidates the caches, and returns when nothing of it is
    /// there, or after a bounded time. Never called on a thread that serves a front door.
    fn revoke(&self, what: &[Invalidation]) -> Seal<'_>;
    /// Revokes without waiting.
    fn revoke_soon(&self, what: Vec<Invalidation>);
}
