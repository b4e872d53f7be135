//! What tests of several modules begin with.

use crate::Now;
use lease::Time;
use namespace::{Rules, Timestamp};
use wire::{Rights, Space, ToClient};

pub(crate) fn at(ms: u64) -> Now {
    Now { time: Time(ms), wall: Timestamp::default() }
}

/// A session begins, with all rights and nothing set aside.
pub(crate) fn opened() -> ToClient {
    ToClient::Opened {
        inodes: (2, 9),
        allowance: (0, 0),
        space: Space::default(),
        term_ms: 30_000,
        rules: Rules::NEWEST.number(),
        rights: Rights::FULL,
    }
}
