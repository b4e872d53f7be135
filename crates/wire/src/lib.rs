//! Messages between clients and servers, their versions and their bytes.
//!
//! The crate cannot reach connections: it has what is said, and not how.

#![allow(missing_docs, reason = "fields of messages are documented on the messages")]

mod account;
mod addresses;
mod allowance;
mod frame;
mod greeting;
mod hand_over;
mod joint;
mod message;
mod path_lease;
mod rights;
mod version;

pub use account::{AccountAnswer, AccountCall, AccountRefusal, AccountRequest};
pub use addresses::{latest_addresses, told_to_others};
pub use allowance::{EXTENT_BYTES, FILE_BYTES, GRACE_BYTES, cost, cost_of_write};
pub use frame::{
    FRAME_BYTES_MAX, FrameError, GREETING_BYTES_MAX, ShareCall, ShareReply, ShareRequest, ShareStanding,
    ShareWork, decode, decode_with_body, encode,
};
pub use greeting::{
    Certificates, GreetingError, GreetingNumber, Purpose, Receipt, ServerAt, Start, Welcome, answer,
    answer_other_version, greeting, read_answer, read_greeting,
};
pub use hand_over::{HandOver, HandOverStep, RegionRows};
pub use joint::{Joint, JointAge, JointId, JointStep};
pub use message::{
    AskMode, FOUNDER, FOUNDER_MEMBER, FileGrant, LogEntry, MachineId, Space, ToClient, ToServer, Values,
};
pub use path_lease::{PathLease, PathStep};
pub use rights::{EnrolError, ExpelError, InviteError, MACHINE_NAME_BYTES_MAX, Refusal, RevokeError, Rights};
pub use version::{Version, Versions};

/// Log entries that one message may have. Each is decided again, so a message must not hold up the
/// others for long.
pub const LOG_ENTRIES_MAX: usize = 16_384;

/// Shipped operations that a client may have under way at a time. A server remembers as many of the
/// latest results.
pub const SHIPS_MAX: usize = 64;

/// A directory's creator starts with the integers `1..=BIRTH_RESERVATION` of it, without asking.
pub const BIRTH_RESERVATION: u64 = 1024;
