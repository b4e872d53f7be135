//! The standing of a member in its group: the members, and the leader.

use super::types::Host;
use std::time::Instant;

/// A member of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number in the group.
    pub id: u64,
    /// Its machine.
    pub host: Host,
    /// Whether it votes. A learner only follows.
    pub votes: bool,
    /// The last entry that it is known to have. Only the leader knows.
    pub reached: Option<u64>,
    /// When it was last heard from. Only the leader knows.
    pub heard: Option<Instant>,
}

/// The group as one member knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// All members by number, including this one. The list is empty before a new member has heard
    /// of the others.
    pub members: Vec<Member>,
    /// The leader, as far as this member knows.
    pub leader: Option<u64>,
    /// Whether this member leads, and a majority has confirmed it lately.
    pub leads: bool,
    /// Whether this is the only member.
    pub alone: bool,
}

impl Standing {
    /// Returns the machine of the leader.
    pub fn leader(&self) -> Option<&Host> {
        let leader = self.members.iter().find(|member| Some(member.id) == self.leader)?;
        Some(&leader.host)
    }

    /// Returns the voter that a leader hands over to: of those that it has heard after `since`, the
    /// one that lacks the fewest entries. None if this member, `own`, does not lead.
    pub(super) fn successor(&self, own: u64, since: Instant) -> Option<u64> {
        let heard = |member: &Member| member.heard.is_some_and(|at| at >= since);
        let others = self.members.iter().filter(|it| it.votes && it.id != own && heard(it));
        others.max_by_key(|it| it.reached).filter(|_| self.leads).map(|it| it.id)
    }

    /// Returns whether the two are the same, except for the progress of members.
    pub(super) fn tells_the_same(&self, other: &Standing) -> bool {
        let told = |member: &Member| (member.id, member.host.clone(), member.votes);
        (self.leader, self.leads, self.alone) == (other.leader, other.leads, other.alone)
            && self.members.iter().map(told).eq(other.members.iter().map(told))
    }
}
