//! Limits of the memory and time that a client may make the server spend.

use os::StrangerBounds;
use std::time::Duration;

/// The longest READ, WRITE and other payload.
pub const IO_BYTES_MAX: u32 = 1 << 20;
/// The longest answer that a client may ask for, aside from READ: what is there beyond
/// [`IO_BYTES_MAX`] comes with the next question.
pub const TRANSACT_BYTES_MAX: u32 = 8 << 20;
/// The longest frame after a logon: a write with its headers.
pub const FRAME_BYTES_MAX: usize = IO_BYTES_MAX as usize + (64 << 10);
/// The longest frame before a logon.
pub const EARLY_FRAME_BYTES_MAX: usize = 64 << 10;
/// The most requests in a compound.
pub const COMPOUND_MAX: usize = 64;
/// The most credits that a client has. Each stands for 64 KiB.
pub const CREDITS_MAX: u64 = 8192;
/// The most credits before a logon.
pub const EARLY_CREDITS_MAX: u64 = 64;
/// The most sessions, tree connects and opens of a connection or session.
pub const SESSIONS_MAX: usize = 64;
/// The most logons under way on a connection without a session.
pub const EARLY_LOGONS_MAX: usize = 8;
/// The most connections of a session.
pub const CHANNELS_MAX: usize = 32;
/// See [`SESSIONS_MAX`].
pub const TREES_MAX: usize = 256;
/// See [`SESSIONS_MAX`].
pub const OPENS_MAX: usize = 16 << 10;
/// The most bytes of answers that wait for a client to read them. Then no more is read from it.
pub const UNSENT_BYTES_MAX: usize = 8 << 20;
/// The same before a logon.
pub const EARLY_UNSENT_BYTES_MAX: usize = 32 << 10;
/// The most connections.
pub const CONNECTIONS_MAX: usize = 16 << 10;
/// The most connections without a session. If there are more, others of them make way.
pub const EARLY_CONNECTIONS: StrangerBounds = StrangerBounds { all: 1024, of_address: 64 };
/// How often a client that is silent is asked for a sign.
pub const SIGN_EVERY: Duration = Duration::from_secs(30);
/// How long a client may give none. Then its connection is lost.
pub const SILENCE: Duration = Duration::from_secs(120);
/// How long a connection may be without a session.
pub const EARLY_TIME: Duration = Duration::from_secs(30);
/// How long the start takes at most to open again what was open persistently.
pub const RESTORED_WITHIN: Duration = Duration::from_secs(30);
/// The delay of the answer to a failed logon.
pub const FAILED_LOGON_DELAY: Duration = Duration::from_secs(1);
/// The failed logons after which a connection is closed that has no session.
pub const FAILED_LOGONS_MAX: u32 = 5;
/// How long an open that waits has until its client is told so.
pub const INTERIM_AFTER: Duration = Duration::from_millis(10);
/// The same of requests that seldom wait long.
pub const LATE_INTERIM_AFTER: Duration = Duration::from_secs(1);

/// Returns the credits that a payload of so many bytes costs (MS-SMB2 §3.1.5.2).
pub fn charge_of(bytes: u32) -> u16 {
    (bytes.saturating_sub(1) / (64 << 10) + 1) as u16
}
