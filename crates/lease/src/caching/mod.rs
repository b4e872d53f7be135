//! Caching leases: READ, WRITE and HANDLE towards SMB clients (MS-SMB2 §3.3.1.4).
//!
//! An [`Object`] is one open file, directory or stream of this machine. Every open of it is known
//! here, from whichever front door, with a lease, a legacy oplock or neither. An [`Act`] or an open
//! takes flags away from all holders but its own. The answer has the [`Break`]s to send, and says
//! whether the act waits. [`Clients`] knows which object the key of a client belongs to.
//!
//! The duties of the caller:
//!
//! * *An act that may go on is done before the next input.* An open that may go on is noted here
//!   already.
//! * *An act that waits is judged again* after each acknowledgment, close and expiry on the object,
//!   in the order of arrival. Nothing is sent twice by that. An act that is given up needs no
//!   notice: what it broke stays broken.
//! * *Time* comes with the inputs. [`Object::expire`] comes at [`Object::next_deadline`], whatever
//!   else happens.
//! * *Order on the wire.* A break goes out before the answer of the act that caused it, and before
//!   every answer whose state depends on it. The answer to an acknowledgment goes out before the
//!   next break. The break of the actor's own directory lease goes out after the answer.
//! * *A break that cannot be sent*, since the client has no connection, is acknowledged with none
//!   in the client's place, after the opens that cannot outlive their connection are closed.
//! * *The cover.* The machine's own leases are wide enough for what is granted here
//!   ([`Object::extend_cover`]). A recall of one of them is [`Object::recall`], and is answered
//!   when that may go on.

mod access;
mod act;
mod clients;
mod holder;
mod object;
mod opening;
mod record;
mod state;

pub use access::{AccessMask, Sharing};
pub use act::{Act, Actor};
pub use clients::{Clients, KeyInUse};
pub use holder::{ClientGuid, LeaseHolder, LeaseId, LeaseKey, ObjectId, OpenId};
pub use object::{Judgement, Object};
pub use opening::{Asks, Grant, Opening, SharingViolation};
pub use record::{ACKNOWLEDGE_WITHIN_MS, AcknowledgeError, Break, LeaseVersion};
pub use state::CachingState;
