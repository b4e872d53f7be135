//! Black-box leases: a client sees what the others' values come to, and nothing else of them
//! (BlackBox §4).
//!
//! Each client has a value of its own on the field, which it may change while it holds `SelfWrite`,
//! and sees an [`Aggregate`] of all other clients' values while it holds `OtherRead`. Who holds
//! `SelfWrite` can have any value; who does not is *stuck* at the one that it last returned. All
//! that is granted rests on one question: is it the same whatever those who are not stuck choose?
//!
//! * [`conditions`](StateC): when a lease may be granted, for any aggregate. With [`Or`] they are
//!   those of the report.
//! * [`procedures`](Policy): what the server does about it: procedures E and F, and the end of a
//!   session.
//!
//! [`BlackBox`] is one field. It does not know the time, who waits, or what was recalled before:
//! its caller asks again when all that it was told to recall has been returned. Its caller's
//! duties:
//!
//! * Requests on a field are served in the order of arrival, each until it is granted, and nothing
//!   is granted past the first. (Then each recall brings the first request nearer to its grant, and
//!   nothing takes it away again: nobody starves.)
//! * The end of a session goes before all requests: a request that waits for the session's own
//!   answer would wait for ever. It is a return of all that the session held, so whoever waits is
//!   tried again, other sessions that are ending included.
//! * What is sent to a client arrives in the order it was sent in, and so does what it sends. A
//!   client lets go of what is recalled, whatever it waits for, and ignores recalls of what it does
//!   not hold.

mod aggregate;
mod conditions;
mod members;
mod procedures;
mod rows;

pub use aggregate::{Aggregate, BoundedMax, Or, SaturatingCount};
pub use conditions::{StateC, StateD, Violation};
pub use members::{Class, Own};
pub use procedures::{Answer, Departure, Policy, Recall, SelfWrites, SubLease, Unshielded};
pub use rows::{NotABlackBox, Row};

use crate::SessionId;
use members::Members;

/// One field under a black-box lease: what the server knows of each client's value, and who may
/// change or see what.
///
/// A client that is stuck at the identity and does not see the others is not listed: it costs
/// nothing, and joining is not an event.
pub struct BlackBox<A: Aggregate> {
    members: Members<A::Value>,
}

/// Why a client cannot have returned this. What the server knows stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReturn {
    /// It does not hold the lease. That is no misdeed of one that the server has given up.
    #[error("returned a lease that it does not hold")]
    NotHeld,
    /// There is no such value.
    #[error("returned a value that does not exist")]
    NoSuchValue,
}

impl<A: Aggregate> BlackBox<A> {
    /// Nobody is writing or reading, and everybody is stuck at the identity.
    pub fn new() -> BlackBox<A> {
        BlackBox { members: Members::new() }
    }

    /// Whether `x` holds `SelfWrite`.
    pub fn writes(&self, x: SessionId) -> bool {
        self.class(x).own == Own::Writing
    }

    /// What `x` sees of the others, if it holds `OtherRead`.
    pub fn other_value(&self, x: SessionId) -> Option<A::Value> {
        let class = self.class(x);
        class.reads.then(|| self.stuck_without([Some(class.own), None]))
    }

    /// What the values of all but `x` come to, if it is the same whatever those who write choose:
    /// what `x` would be told if it were granted `OtherRead` now.
    pub fn others(&self, x: SessionId) -> Option<A::Value> {
        let (state, value) = self.others_of(Some(self.class(x)));
        (state != StateC::C3).then_some(value)
    }

    /// What all clients' values come to, if it is the same whatever those who write choose. For the
    /// server itself, never for a client.
    pub fn everyone(&self) -> Option<A::Value> {
        let stuck = self.stuck_without([None, None]);
        (self.writers_but(None) == 0 || Some(stuck) == A::ABSORBING).then_some(stuck)
    }

    /// What the server knows of `x`.
    pub fn class(&self, x: SessionId) -> Class<A::Value> {
        self.members.class(x).unwrap_or(Self::UNLISTED)
    }

    /// The clients that something is known of, in the order of sessions.
    pub fn members(&self) -> Vec<Row<A::Value>> {
        let classes = self.members.classes();
        let rows = classes.flat_map(|(class, sessions)| {
            sessions.iter().map(move |&session| Row { session, own: class.own, reads: class.reads })
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable_by_key(|row| row.session);
        rows
    }

    /// How many clients something is known of.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether everybody is stuck at the identity, and nobody sees it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the field takes in memory, all told.
    pub fn bytes(&self) -> usize {
        self.members.bytes()
    }

    /// `x` has let go of `SelfWrite`, recalled or not, and tells its value.
    pub fn return_self_write(&mut self, x: SessionId, value: A::Value) -> Result<(), BadReturn> {
        let class = self.class(x);
        if class.own != Own::Writing {
            return Err(BadReturn::NotHeld);
        }
        if !A::admits(value) {
            return Err(BadReturn::NoSuchValue);
        }
        self.put(x, Class { own: Own::Stuck(value), ..class });
        Ok(())
    }

    /// `x` has let go of `OtherRead`, recalled or not.
    pub fn return_other_read(&mut self, x: SessionId) -> Result<(), BadReturn> {
        let class = self.class(x);
        if !class.reads {
            return Err(BadReturn::NotHeld);
        }
        self.put(x, Class { reads: false, ..class });
        Ok(())
    }

    const UNLISTED: Class<A::Value> = Class { own: Own::Stuck(A::IDENTITY), reads: false };

    fn put(&mut self, x: SessionId, class: Class<A::Value>) {
        self.members.put(x, (class != Self::UNLISTED).then_some(class));
    }
}

impl<A: Aggregate> Default for BlackBox<A> {
    fn default() -> BlackBox<A> {
        BlackBox::new()
    }
}

impl<A: Aggregate> Clone for BlackBox<A> {
    fn clone(&self) -> BlackBox<A> {
        BlackBox { members: self.members.clone() }
    }
}

impl<A: Aggregate> PartialEq for BlackBox<A> {
    /// Who holds what, not what happened before.
    fn eq(&self, other: &BlackBox<A>) -> bool {
        self.members.counts().eq(other.members.counts()) && self.members() == other.members()
    }
}

impl<A: Aggregate> Eq for BlackBox<A> {}

impl<A: Aggregate> std::fmt::Debug for BlackBox<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.members()).finish()
    }
}
