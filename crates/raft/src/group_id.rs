//! The number of a group.

use serde::{Deserialize, Serialize};

/// The number of a group in the cluster. It is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u64);

impl GroupId {
    /// The group that the founder makes.
    pub const FIRST: GroupId = GroupId(0);
}
