//! Black-box leases: a client sees the aggregate of the others' values, and nothing else of them
//! (BlackBox §4).
//!
//! Each client has a value of its own on the field, which it may change while it holds `SelfWrite`.
//! It sees an [`Aggregate`] of all other clients' values while it holds `OtherRead`. A client with
//! `SelfWrite` can have any value. A client without it is *stuck* at the value that it last
//! returned. Every grant rests on one question: is the aggregate the same, whatever the clients
//! that are not stuck choose?
//!
//! * [`conditions`](StateC): when a lease may be granted, for any aggregate. With [`Or`] they are
//!   those of the report.
//! * [`procedures`](GrantPolicy): what the server does for a grant: procedures E and F, and the end
//!   of a session.
//!
//! [`BlackBox`] is one field. It knows neither the time, nor the waiting requests, nor earlier
//! recalls. Its caller asks again when all leases that it had to recall are returned. The duties of
//! its caller:
//!
//! * Requests on a field are served in the order of arrival, each until it is granted, and nothing
//!   is granted past the first. Then each recall brings the first request nearer to its grant, and
//!   nothing undoes that. So no client starves.
//! * The end of a session goes before all requests. Otherwise a request that waits for the
//!   session's own answer would wait for ever. The end is a return of all that the session held. So
//!   every waiting request is tried again, and every other session that is ending.
//! * Messages to a client arrive in the order of sending, and so do its own. A client returns what
//!   is recalled, even while it waits for something itself. It ignores recalls of leases that it
//!   does not hold.

mod aggregate;
mod conditions;
mod members;
mod procedures;
mod rows;

pub use aggregate::{Aggregate, BoundedMax, Or, SaturatingCount};
pub use conditions::{ConditionViolation, StateC, StateD};
pub use members::{Class, Own};
pub use procedures::{BlackBoxAnswer, Departure, GrantPolicy, Recall, SelfWrites, SubLease, Unshielded};
pub use rows::{NotABlackBox, TableRow};

use crate::SessionId;
use members::Members;

/// One field under a black-box lease: the clients' values as far as the server knows them, and the
/// clients' leases.
///
/// A client that is stuck at the identity and does not see the others is not listed. It costs
/// nothing, and joining is not an event.
pub struct BlackBox<A: Aggregate> {
    members: Members<A::Value>,
}

/// The reason why a return is refused. The field does not change by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReturn {
    /// The client does not hold the lease. This is no misdeed if the server has given the client
    /// up.
    #[error("returned a lease that it does not hold")]
    NotHeld,
    /// The value does not exist.
    #[error("returned a value that does not exist")]
    NoSuchValue,
}

impl<A: Aggregate> BlackBox<A> {
    /// Makes a field on which no client writes or reads, and all are stuck at the identity.
    pub fn new() -> BlackBox<A> {
        BlackBox { members: Members::new() }
    }

    /// Returns whether `x` holds `SelfWrite`.
    pub fn writes(&self, x: SessionId) -> bool {
        self.class(x).own == Own::Writing
    }

    /// Returns the aggregate of the others that `x` sees, if `x` holds `OtherRead`.
    pub fn other_value(&self, x: SessionId) -> Option<A::Value> {
        let class = self.class(x);
        class.reads.then(|| self.stuck_without([Some(class.own), None]))
    }

    /// Returns the aggregate of the values of all but `x`, if it is the same whatever the writers
    /// choose. A grant of `OtherRead` to `x` would carry this value.
    pub fn others(&self, x: SessionId) -> Option<A::Value> {
        let (state, value) = self.others_of(Some(self.class(x)));
        (state != StateC::C3).then_some(value)
    }

    /// Returns the aggregate of all clients' values, if it is the same whatever the writers choose.
    /// It is for the server itself, never for a client.
    pub fn everyone(&self) -> Option<A::Value> {
        let stuck = self.stuck_without([None, None]);
        (self.writers_but(None) == 0 || Some(stuck) == A::ABSORBING).then_some(stuck)
    }

    /// Returns the server's knowledge of `x`.
    pub fn class(&self, x: SessionId) -> Class<A::Value> {
        self.members.class(x).unwrap_or(Self::UNLISTED)
    }

    /// Returns the listed clients, in the order of sessions.
    pub fn members(&self) -> Vec<TableRow<A::Value>> {
        let classes = self.members.classes();
        let rows = classes.flat_map(|(class, sessions)| {
            sessions.iter().map(move |&session| TableRow { session, own: class.own, reads: class.reads })
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable_by_key(|row| row.session);
        rows
    }

    /// Returns the number of listed clients.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether all clients are stuck at the identity, and none sees it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory that the field takes in all.
    pub fn bytes(&self) -> usize {
        self.members.bytes()
    }

    /// Notes that `x` returned `SelfWrite`, recalled or not, with its value.
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

    /// Notes that `x` returned `OtherRead`, recalled or not.
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
    /// Compares the clients' leases and values, not their history.
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
