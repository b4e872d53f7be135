//! The file API of this machine, as front doors see it.

use crate::activity::Activity;
use bytes::Bytes;
use client::{Call, Invalidation, Reply, Ticket};
use ident::FileId;
use namespace::{Cred, Error};
use std::sync::Arc;
use std::time::Duration;

/// What a front door is told once content has been gathered: a [`Reply`], or the bytes of a read.
#[derive(Clone, Debug)]
pub enum Told {
    /// Anything but content.
    Reply(Reply),
    /// The same, and nobody may keep it: see [`Reply::Passing`].
    Passing(Reply),
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
    /// A call that waits keeps something below locked that is to be taken back ([`client::Client::give_way`]).
    fn give_way(&self, ticket: Ticket);
    /// Takes in what there may be for calls that wait, on this thread, without waiting for it: for one that has a moment until it sleeps.
    fn look(&self) {}
    /// The directory that this machine has for its root. Known once a session has begun.
    fn root(&self) -> FileId;
    /// For how long from now the kernel (or an SMB client) may keep what it is told: what is left of the session.
    fn valid_for(&self) -> Duration;
    /// The kernel has forgotten these files, of which this front door was told that they linger ([`Reply::Lingers`]).
    fn forgotten(&self, files: Vec<FileId>);
    /// Where it is counted what this front door is asked, if anywhere.
    fn activity(&self) -> Option<&Arc<Activity>> {
        None
    }
    /// Registers who has handed out something below.
    fn hand_out(&self, below: Arc<dyn Below>);
}

/// To be called while leases are let go, when nobody is answered under them any more: sees what answers may have brought back by then, without blocking. What that returns is to be called
/// afterwards, and takes it back once more.
pub type Again<'a> = Box<dyn FnOnce() -> Box<dyn FnOnce() + 'a> + 'a>;

/// What a front door has handed out: to the kernel, or to clients of its own.
pub trait Below: Send + Sync {
    /// Whether it may have handed out any of it.
    fn has(&self, what: &Invalidation) -> bool;
    /// Takes it back, and returns when it is gone; after a bounded time in any case. Not called from a thread that serves a front door. What answers may bring back of
    /// it, or have brought back, is known when the leases are let go: see [`Again`].
    fn take_back(&self, what: &[Invalidation]) -> Again<'_>;
    /// Takes it back without waiting.
    fn take_back_soon(&self, what: Vec<Invalidation>);
}
