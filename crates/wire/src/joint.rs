//! The messages between servers about an operation over files of several of them (Farsite §4.2).

use crate::FileGrant;
use ident::{FileId, ServerId};
use lease::{Field, Kind, Time};
use namespace::{Effect, Operation};
use serde::{Deserialize, Serialize};

/// One try of a joint operation: the server that leads it, and that server's count
/// ([`ServerId::of`]). No try has the number of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JointId(pub u64);

impl JointId {
    /// The server that leads the operation.
    pub const fn leader(self) -> ServerId {
        ServerId::of(self.0).0
    }
}

/// The age of an operation, the same for all its tries. The oldest is the least. Clocks of servers
/// may differ: all that counts is that every server orders two operations in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JointAge {
    /// When the operation was asked for, on the leader's clock.
    pub since: Time,
    /// Its first try.
    pub first: JointId,
}

/// About a joint operation, between its leader and a server that has files of it.
///
/// The leader says `Borrow` and `Settle` again until the answer has come. Any message may come
/// twice, late, or in another order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joint {
    /// The operation's try.
    pub op: JointId,
    /// The message.
    pub step: JointStep,
}

/// A step of a joint operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "the long ones are the most frequent")]
pub enum JointStep {
    /// From the leader: lend the operation these fields of a file, until `Settle`.
    Borrow {
        /// The operation's age, for the order between operations that are in each other's way.
        age: JointAge,
        /// The whole operation, for people who ask what a machine waits for.
        operation: Operation,
        /// The file.
        file: FileId,
        /// All fields of it that the leader needs so far.
        wants: Vec<(Field, Kind)>,
        /// The leader's first try that is not settled everywhere: all earlier ones are over.
        open_from: JointId,
    },
    /// Answers `Borrow`: the fields are lent, with these values.
    Lent {
        /// The file, its lent fields and their values.
        grant: FileGrant,
    },
    /// Answers `Borrow`: the file existed, and is gone for ever.
    Gone {
        /// The file.
        file: FileId,
    },
    /// Answers `Borrow`: another server manages the file, as far as this one knows.
    NotHere {
        /// The file.
        file: FileId,
        /// The other server.
        server: ServerId,
    },
    /// To the leader: an older operation waits for what this one has borrowed. If this one is not
    /// decided yet, it gives everything back and begins anew.
    Wounded,
    /// From the leader: the operation is decided. These effects are to be applied to lent fields,
    /// and then nothing is lent any more.
    Settle {
        /// The effects on this server's files, in order; none if the operation changes nothing.
        effects: Vec<Effect>,
        /// As in `Borrow`.
        open_from: JointId,
    },
    /// Answers `Settle`.
    Settled,
}
