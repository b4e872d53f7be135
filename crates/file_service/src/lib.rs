//! The machine's file API. A front door (FUSE, SMB) asks the machine's client through a
//! [`FileService`]. The client revokes through a [`CacheHolder`] what the front door's own clients
//! cache. A front door depends on this crate and not on the machine.

mod activity;
mod busiest;
mod typed;

pub use activity::{Activity, ActivityReport, Kind, OperationReport, Underway};
pub use typed::{Covered, FileCall, FreeSpace, Listing, LookupReply, Observed, OpenedHandle};

use bytes::Bytes;
use client::{Call, Invalidation, Reply, Ticket};
use ident::FileId;
use namespace::{Cred, Error};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The result of a call.
#[derive(Clone, Debug)]
pub enum Response {
    /// Anything but content.
    Reply(Reply),
    /// The same, but the front door's clients may not cache it: see [`Reply::Uncached`].
    Uncached(Reply),
    /// Content, in parts that together are the bytes read.
    Data(Vec<Bytes>),
}

/// Takes the response to one call.
pub type Responder = Box<dyn FnOnce(Result<Response, Error>) + Send>;

/// A front door's way to the machine's client.
pub trait FileService: Send + Sync + 'static {
    /// Does `call` for `cred`. If leases cover the call, `respond` is called on this thread.
    /// Otherwise it is called later on another thread, and the call has the returned ticket until
    /// then. No lock is held when `respond` is called.
    fn call(&self, cred: &Cred, call: Call, respond: Responder) -> Option<Ticket>;
    /// Ends a call that its program no longer waits for. The response is `Error::Interrupted`,
    /// unless there was one already.
    fn cancel(&self, ticket: Ticket);
    /// Has a waiting call give up a lock of the front door that a revocation needs
    /// ([`client::Client::give_way`]).
    fn give_way(&self, ticket: Ticket);
    /// Takes in messages that have arrived for waiting calls, on this thread and without blocking.
    /// A thread calls it that has a moment until it sleeps.
    fn look(&self) {}
    /// The directory that is this machine's root. It is known once a session has begun.
    fn root(&self) -> FileId;
    /// How long from now the front door's clients may cache a response: the rest of the session's
    /// term.
    fn valid_for(&self) -> Duration;
    /// The kernel has forgotten these files, which a response had reported as lingering
    /// ([`Reply::Lingers`]).
    fn forgotten(&self, files: Vec<FileId>);
    /// The counts of this front door's operations, if they are wanted.
    fn activity(&self) -> Option<&Arc<Activity>> {
        None
    }
    /// Registers a front door whose clients cache responses.
    fn register_cache(&self, holder: Arc<dyn CacheHolder>);
}

/// Third phase of a revocation, after the leases are released. It revokes once more what responses
/// may have brought back before the second phase.
pub type Recheck<'a> = Box<dyn FnOnce() + 'a>;

/// Second phase of a revocation. The client calls it under its lock at the moment at which it
/// releases the leases; from then on no response is given under them. It notes which responses may
/// have been cached by then, and does not block.
pub type Seal<'a> = Box<dyn FnOnce() -> Recheck<'a> + 'a>;

/// A revocation whose first phase is done.
pub struct Revocation<'a> {
    /// The second phase.
    pub seal: Seal<'a>,
    /// The files of offered items that stay cached.
    pub kept: BTreeSet<FileId>,
}

/// A front door whose clients (the kernel, or those of an SMB server) cache the responses they were
/// given.
pub trait CacheHolder: Send + Sync {
    /// First phase of a revocation. It invalidates the caches, and returns when nothing of `what`
    /// is cached, or after a bounded time. It is never called on a thread that serves a front door.
    ///
    /// Items that are `offered` may stay cached: nobody waits for them, so no call in progress is
    /// disturbed for them.
    fn revoke(&self, what: &[Invalidation], offered: &[Invalidation]) -> Revocation<'_>;
    /// First phase of the revocation of what is not cached: it waits for nothing. Nothing is
    /// returned if any of `what` is cached. Trap: responses may be under way, and more may come
    /// before the second phase. So that phase is needed whatever is cached now.
    fn revoke_uncached(&self, what: &[Invalidation]) -> Option<Seal<'_>>;
    /// Revokes `what`, which no lease covers any more, without waiting.
    fn revoke_soon(&self, what: Vec<Invalidation>);
}
