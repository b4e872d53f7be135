//! The types with which this group uses openraft.

use super::batch::Batch;
use super::runtime::Runtime;
use crate::store::RowView;
use openraft::type_config::alias;
use serde::{Deserialize, Serialize};
use std::fmt;

openraft::declare_raft_types!(
    /// The types of the group's log.
    pub Types:
        D = Batch,
        R = Applied,
        Node = Host,
        AsyncRuntime = Runtime,
);

pub(super) type GroupEntry = alias::EntryOf<Types>;
pub(super) type LogId = alias::LogIdOf<Types>;
pub(super) type Vote = alias::VoteOf<Types>;
pub(super) type StoredMembership = alias::StoredMembershipOf<Types>;
pub(super) type SnapshotMeta = alias::SnapshotMetaOf<Types>;
pub(super) type Snapshot = alias::SnapshotOf<Types, RowView>;

/// The answer to a proposal: it is applied. Its outputs go to `deliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied;

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("applied")
    }
}

/// The machine of a member, as the membership has it. So all members know it, and so do the clients
/// of a leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The machine's number in the cluster. A member's own number is another: it is never given
    /// twice, and a machine may be a member again.
    pub machine: u64,
    /// Its name, for people.
    pub name: String,
    /// The addresses where it listens, `host:port`.
    pub addresses: Vec<String>,
    /// Whether it keeps shares.
    pub keeping: Keeping,
}

/// Whether a server keeps shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeping {
    /// It keeps shares, and its weight is not known yet: the average counts.
    #[default]
    Keeps,
    /// It has not been heard from for long. Others keep its shares until it is back.
    Away,
    /// Its shares are moved away, for good.
    Drains,
    /// It does, and how much: its weight among others.
    Weighs(u32),
}

impl Keeping {
    /// Returns whether it keeps any shares.
    pub fn keeps(self) -> bool {
        matches!(self, Keeping::Keeps | Keeping::Weighs(_))
    }
}
