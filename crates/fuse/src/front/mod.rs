//! What requests of the kernel mean in calls of the file API. Nothing here knows how requests arrive.
//!
//! Each request takes a closure that is given the result; it may run on another thread, later. So no thread of the transport ever
//! waits: a request that has to (for a lease that is recalled elsewhere) is answered when it can be, and the door bounds how long that takes.

mod attributes;
mod content;
mod listing;
mod locks;
mod names;

pub(crate) use attributes::{Change, Space};
pub(crate) use content::{Handle, Opened};
pub(crate) use listing::{Line, Page};
pub(crate) use locks::LockRequest;
pub(crate) use names::{Found, NewNode};

use client::{Call, Reply};
use namespace::{Error, Stat};
use node::{Door, Told};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::errno::Errno;
use crate::flight::Flight;
use crate::groups::Asker;
use crate::interrupt::{Wait, Waits};
use crate::nodes::Nodes;

/// One mount's front door.
pub(crate) struct Front {
    door: Arc<dyn Door>,
    pub(crate) nodes: Nodes,
    pub(crate) flight: Flight,
    pub(crate) waits: Waits,
    lockers: locks::Lockers,
    handles: content::Handles,
    page_lines: listing::PageLines,
}

/// Attributes, and how long the kernel may believe them, and that they are of what it asked for by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) stat: Stat,
    pub(crate) ttl: Duration,
    pub(crate) entry_ttl: Duration,
}

impl Shown {
    /// The attributes were so, and nobody says that they still are.
    fn passing(self) -> Shown {
        Shown { ttl: Duration::ZERO, ..self }
    }
}

/// What a request comes to.
pub(crate) type Outcome<T> = Result<T, Errno>;

impl Front {
    pub(crate) fn new(door: Arc<dyn Door>) -> Arc<Front> {
        Arc::new(Front {
            nodes: Nodes::new(door.root()),
            door,
            flight: Flight::new(),
            waits: Waits::default(),
            lockers: locks::Lockers::default(),
            handles: content::Handles::default(),
            page_lines: listing::PageLines::new(),
        })
    }

    pub(crate) fn door(&self) -> &dyn Door {
        &*self.door
    }

    /// Calls for what permissions have no say in, or had it when the file was opened.
    fn call(self: &Arc<Self>, node: u64, asker: Asker, call: Call, then: impl Then) {
        self.call_as(node, asker.pid, &asker.cred(), call, then);
    }

    /// Calls for `asker`; again with supplementary groups when the first refusal may be for want of them.
    fn ask(self: &Arc<Self>, node: u64, asker: Asker, call: Call, then: impl Then) {
        if asker.uid == 0 {
            return self.call(node, asker, call, then);
        }
        let again = call.clone();
        self.call(node, asker, call, move |front, told| {
            let refused = matches!(told, Err(Error::AccessDenied | Error::NotPermitted));
            match refused.then(|| asker.cred_with_groups()).flatten() {
                Some(cred) => front.call_as(node, asker.pid, &cred, again, then),
                None => then(front, told),
            }
        });
    }

    fn call_as(self: &Arc<Self>, node: u64, tid: u32, cred: &namespace::Cred, call: Call, then: impl Then) {
        let interruptible = matches!(call, Call::Lock { .. });
        // Closing goes on whatever becomes of who closes; and whom nobody waits for nobody stops waiting for.
        let may_end = tid != 0 && !matches!(call, Call::Close { .. });
        let answered = may_end.then(Arc::<AtomicBool>::default);
        let resizes = changes_size(&call);
        let front = Arc::clone(self);
        let is_answered = answered.clone();
        let answer = Box::new(move |told| {
            if let Some(answered) = is_answered {
                answered.store(true, SeqCst);
            }
            if resizes {
                front.nodes.resize(node);
            }
            then(&front, told);
        });
        let ticket = self.door.call(cred, call, answer);
        if let (Some(ticket), Some(answered)) = (ticket, answered) {
            self.waits.add(Wait::new(ticket, tid, interruptible, answered));
        }
    }

    fn show(&self, stat: Stat) -> Shown {
        // Trap: the kernel's time-outs never exceed the session's remaining time.
        let ttl = self.door.valid_for();
        Shown { stat, ttl, entry_ttl: ttl }
    }
}

/// Whether the kernel takes another size from the answer. A page that is not full tells it where a file ends.
fn changes_size(call: &Call) -> bool {
    match call {
        Call::Write { .. } | Call::Allocate { .. } | Call::SetAttributes { .. } => true,
        Call::Read { kept, .. } => *kept,
        _ => false,
    }
}

/// What is done with an answer.
trait Then: FnOnce(&Arc<Front>, Result<Told, Error>) + Send + 'static {}
impl<F: FnOnce(&Arc<Front>, Result<Told, Error>) + Send + 'static> Then for F {}

/// Nothing but success was asked for.
fn done(told: Result<Told, Error>) -> Outcome<()> {
    match told? {
        Told::Reply(Reply::Nothing) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// A bug of the machine: logged, and an IO error for the user.
fn unexpected(told: &Told) -> Errno {
    tracing::error!(?told, "an answer that is none to this call");
    Errno::IO
}
