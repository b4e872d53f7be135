//! The number of a server, which stands in every number that the server gives out.

use crate::{FileId, OVERFLOW};
use serde::{Deserialize, Serialize};

/// Binary digits of a server's count, below its own number: 63 in all, so that a number can be an
/// integer of an identifier.
const COUNT_BITS: u32 = 47;

/// A server: a replicated group that manages regions of identifiers (Farsite §2.3). The cluster's
/// root server gives out these numbers, and none twice.
///
/// Numbers of sessions and of inodes carry it. So they differ across all servers, although no
/// server asks another before it gives one out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(pub u16);

impl ServerId {
    /// The server that a cluster begins with. It manages the root of the name space, and the
    /// registry of machines.
    pub const ROOT: ServerId = ServerId(0);

    /// The greatest count in a number.
    pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

    /// The number that this server gives out at this count. A count beyond
    /// [`ServerId::COUNT_MAX`] gives the last number.
    pub const fn number(self, count: u64) -> u64 {
        let count = if count > Self::COUNT_MAX { Self::COUNT_MAX } else { count };
        ((self.0 as u64) << COUNT_BITS) | count
    }

    /// The server that gave `number` out, and its count. Of a number above
    /// [`crate::INTEGER_MAX`], which none has given out, the highest digit does not count.
    pub const fn of(number: u64) -> (ServerId, u64) {
        (ServerId((number >> COUNT_BITS) as u16), number & Self::COUNT_MAX)
    }

    /// The prefix of files whose directories' identifiers are too long, and whose inode numbers
    /// this server gave out. The server manages the prefix from its beginning.
    pub fn overflow(self) -> FileId {
        FileId::root().child(OVERFLOW).child(u64::from(self.0) + 1)
    }

    /// The server whose [`ServerId::overflow`] has `file`, if one does.
    pub fn of_overflow(file: &FileId) -> Option<ServerId> {
        // The code of [`OVERFLOW`] is 01. Each look at a record asks, and nearly no
        // file is there.
        if file.as_bytes().first().is_none_or(|first| first >> 6 != 0b01) {
            return None;
        }
        let mut parts = file.parts();
        let server = parts.next().filter(|first| *first == OVERFLOW).and_then(|_| parts.next())?;
        u16::try_from(server - 1).ok().map(ServerId)
    }
}
