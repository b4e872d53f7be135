//! Requests for leases: what they wait for, what they are granted or told, and how long they keep
//! others waiting.

pub(crate) mod ahead;
pub(crate) mod ask;
pub(crate) mod authority;
pub(crate) mod contention;
pub(crate) mod flushes;
pub(crate) mod grant;
pub(crate) mod patience;
pub(crate) mod pending;
pub(crate) mod ping_pong;
pub(crate) mod recalling;
pub(crate) mod rights;
pub(crate) mod subtrees;
pub(crate) mod values;
pub(crate) mod walks;
pub(crate) mod write_through;
