//! Turns requests of the kernel into calls of the file API. Nothing here knows how requests arrive.
//!
//! Each request takes a closure that is given the result. The closure may run later, on another
//! thread. So no thread of the transport ever waits. A request that has to wait for a recalled
//! lease is answered when it can be, and the client bounds how long that takes.

mod appends;
mod attributes;
mod beside;
mod content;
mod handle;
mod left_entries;
mod listing;
mod listings;
mod lockers;
mod locks;
mod mapped;
mod names;
mod outcome;
mod permission;
mod removed;
mod request;
mod write_back;

pub(crate) use appends::Settled;
pub(crate) use handle::Handle;
pub(crate) use listings::{ListingLine, Page};
pub(crate) use mapped::{Drop, Kernel as Dirty, Written};
pub(crate) use outcome::{LookedUp, Opened, Outcome, Shown};
pub(crate) use request::{CreateRequest, LockRequest, ReadRequest, SetattrChange, Writes, XattrRequest};

use outcome::or_reply;

use client::{Call, call};
use file_service::{FileCall, FileService, Response};
use ident::FileId;
use namespace::{Cred, Error, Stat};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

use crate::flight::Flight;
use crate::groups::Asker;
use crate::intake::Intake;
use crate::interrupt::{Wait, Waiter, Waits};
use crate::nodes::Nodes;
use crate::syscall;
use crate::watches::Watches;
use crate::way::{Barrier, Gave, Locks};

/// One mount's front door.
pub(crate) struct Front {
    service: Arc<dyn FileService>,
    pub(crate) nodes: Nodes,
    pub(crate) flight: Flight,
    pub(crate) intake: Intake,
    beside: beside::Beside,
    pub(crate) waits: Waits,
    pub(crate) watches: Arc<Watches>,
    pub(crate) gave: Gave,
    pub(crate) barrier: Barrier,
    lockers: lockers::Lockers,
    pub(crate) mapped: mapped::Mapped,
    pub(crate) appends: appends::Appends,
    removed: left_entries::Removed,
    handles: handle::Handles,
    pub(crate) listings: listings::Listings,
    page_lines: listings::PageLines,
}

impl Front {
    pub(crate) fn new(service: Arc<dyn FileService>) -> Arc<Front> {
        Arc::new(Front {
            nodes: Nodes::new(service.root()),
            watches: Watches::new(Arc::clone(&service)),
            service,
            flight: Flight::new(),
            intake: Intake::default(),
            beside: beside::Beside::default(),
            waits: Waits::default(),
            gave: Gave::default(),
            barrier: Barrier::default(),
            lockers: lockers::Lockers::default(),
            mapped: mapped::Mapped::default(),
            appends: appends::Appends::default(),
            removed: left_entries::Removed::default(),
            handles: handle::Handles::default(),
            listings: listings::Listings::default(),
            page_lines: listings::PageLines::new(),
        })
    }

    pub(crate) fn file_service(&self) -> &dyn FileService {
        &*self.service
    }

    /// Makes a call that needs no permission, or for which it was checked when the file was opened.
    fn call<C: FileCall>(self: &Arc<Self>, node: u64, asker: Asker, call: C, then: impl Then<C::Reply>) {
        let call = call.into();
        self.call_as::<C>(Locks::of(&call), node, asker, &asker.cred(), call, then);
    }

    /// Makes a call for a listing of `dir`, which the kernel keeps locked meanwhile.
    fn call_listing<C: FileCall>(
        self: &Arc<Self>,
        dir: &FileId,
        node: u64,
        asker: Asker,
        call: C,
        then: impl Then<C::Reply>,
    ) {
        self.call_as::<C>(Locks::reading(dir), node, asker, &asker.cred(), call.into(), then);
    }

    /// Makes a call for `asker`, whose rights are not all known: see [`permission`].
    fn ask<C: FileCall>(self: &Arc<Self>, node: u64, asker: Asker, call: C, then: impl Then<C::Reply>) {
        if asker.uid == 0 {
            return self.call(node, asker, call, then);
        }
        let call = call.into();
        if permission::is_decided_in_silence(&call, self.nodes.may_have_setid(node)) {
            return self.ask_with_all::<C>(node, asker, call, then);
        }
        let again = call.clone();
        let then = move |front: &Arc<Front>, told: Result<C::Reply, Error>| match told {
            Err(error) if permission::may_be_for_want_of(error, &again) => {
                front.ask_with_all::<C>(node, asker, again, then);
            }
            told => then(front, told),
        };
        self.call_as::<C>(Locks::of(&call), node, asker, &asker.cred(), call, then);
    }

    /// Makes `call`, which was made of a `C`, with the rights of `cred`.
    fn call_as<C: FileCall>(
        self: &Arc<Self>,
        locks: Locks,
        node: u64,
        asker: Asker,
        cred: &Cred,
        call: Call,
        then: impl Then<C::Reply>,
    ) {
        let interruptible = matches!(call, Call::Lock { .. });
        // A close goes on whatever becomes of its thread. A call without a waiter is never
        // cancelled.
        let waiter = Waiter::of(asker).filter(|_| !matches!(call, Call::Close { .. }));
        let waiter = waiter.map(|waiter| (waiter, Arc::<AtomicBool>::default()));
        let resizes = changes_size(&call);
        let front = Arc::clone(self);
        let (changes, tid) = (locks.changes, asker.pid);
        let answered = waiter.as_ref().map(|(_, answered)| Arc::clone(answered));
        let answer = Box::new(move |told: Result<Response, Error>| {
            if let Some(answered) = answered {
                answered.store(true, SeqCst);
            }
            if resizes {
                front.nodes.resize(node);
            }
            if changes && !matches!(told, Err(Error::Interrupted)) {
                front.gave.ended(tid);
            }
            then(&front, told.map(C::reply));
        });
        let ticket = self.service.call(cred, call, answer);
        if let (Some(ticket), Some((waiter, answered))) = (ticket, waiter) {
            self.waits.add(Wait { locks, ..Wait::new(ticket, waiter, interruptible, answered) });
        }
    }

    /// Has waiting calls that keep `dir` locked in the kernel give way, as far as they can: see
    /// [`crate::way`].
    pub(crate) fn give_way(&self, dir: &FileId) {
        for (ticket, tid, changes) in self.waits.locking(dir) {
            let may = || syscall::retries(tid).is_some_and(|call| self.gave.may(tid, call, Instant::now()));
            if !changes || may() {
                tracing::debug!(%dir, tid, changes, "gives way to what is recalled");
                self.service.give_way(ticket);
            }
        }
    }

    fn show(&self, node: u64, stat: Stat) -> Shown {
        // Trap: the kernel's time-outs never exceed the session's remaining time.
        let ttl = self.service.valid_for();
        Shown { stat, node, ttl, entry_ttl: ttl }
    }
}

/// Whether the kernel may adopt another size with the answer. A page that is not full tells it
/// where a file ends.
fn changes_size(call: &Call) -> bool {
    match call {
        Call::Write { .. } | Call::Allocate { .. } | Call::SetAttributes { .. } => true,
        Call::Read(call::Read { kept, .. }) => *kept,
        _ => false,
    }
}

/// Handles the reply to a call.
trait Then<R>: FnOnce(&Arc<Front>, Result<R, Error>) + Send + 'static {}
impl<R, F: FnOnce(&Arc<Front>, Result<R, Error>) + Send + 'static> Then<R> for F {}
