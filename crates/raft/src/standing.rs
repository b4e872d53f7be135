//! How a member stands among the others.

use super::types::Host;
use std::time::Instant;

/// A member of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number in the group.
    pub id: u64,
    /// Where it is.
    pub host: Host,
    /// It votes; a learner follows only.
    pub votes: bool,
    /// The last entry that it is known to have, as far as the leader knows.
    pub reached: Option<u64>,
    /// When it was last heard of, as far as the leader knows.
    pub heard: Option<Instant>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// All members, this one among them, by number. None before a new member has heard of the
    /// others.
    pub members: Vec<Member>,
    /// Who leads, as far as this member knows.
    pub leader: Option<u64>,
    /// This member leads, and a majority has confirmed it lately.
    pub leads: bool,
    /// This is the only member.
    pub alone: bool,
}

impl Standing {
    /// Where the leader is.
    pub fn leader(&self) -> Option<&Host> {
        let leader = self.members.iter().find(|member| Some(member.id) == self.leader)?;
        Some(&leader.host)
    }

    /// The same but for how far members are.
    pub(super) fn tells_the_same(&self, other: &Standing) -> bool {
        let told = |member: &Member| (member.id, member.host.clone(), member.votes);
        (self.leader, self.leads, self.alone) == (other.leader, other.leads, other.alone)
            && self.members.iter().map(told).eq(other.members.iter().map(told))
    }
}
