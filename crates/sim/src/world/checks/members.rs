//! Changes of members are safe. Every majority of some members has a member in common with every
//! majority of the next (Raft §6). An entry that a leader takes for committed is on the disks of a
//! majority of the voters. In the end the wanted servers are the members, and an odd number of them
//! votes.

use crate::world::state::agreed_log::AgreedLog;
use crate::world::state::members::Members;
use crate::world::{Violation, World};
use std::collections::BTreeSet;
use std::rc::Rc;

impl AgreedLog {
    /// These members decide from that entry on, which is committed.
    pub fn decide(&mut self, index: u64, members: Rc<Members>) -> Result<(), Violation> {
        let (last, before) = self.members.last().ok_or("nobody decides")?;
        if *last >= index {
            return Ok(());
        }
        if !meet(before, &members) {
            return Err(format!("a majority of {members:?} knows nothing of what {before:?} decided"));
        }
        self.members.push((index, members));
        Ok(())
    }
}

/// Whether each majority of `one` has a member in common with each of `other`.
fn meet(one: &Members, other: &Members) -> bool {
    let majority = |voters: &BTreeSet<u64>| voters.len() / 2 + 1;
    let of_sets = |a: &BTreeSet<u64>, b: &BTreeSet<u64>| majority(a) + majority(b) > a.union(b).count();
    one.voters.iter().any(|a| other.voters.iter().any(|b| of_sets(a, b)))
}

impl World {
    /// Checks an entry up to which the server takes the log for committed. If the server leads, a
    /// majority has the entry on disk, or had it until its disk was lost.
    pub(in crate::world) fn check_held(&self, leader: usize, index: u64) -> Result<(), Violation> {
        let replica = &self.group.replicas[leader];
        let term = replica.log.term_at(index);
        let has = |member: u64| match self.group.replica(member) {
            Some(other) => {
                other.durable >= index && (other.log.base() >= index || other.log.term_at(index) == term)
            }
            None => self.group.lost.get(&member).is_some_and(|(_, durable)| *durable >= index),
        };
        let members = replica.log.members();
        if replica.leads.is_none() || members.suffice(has) {
            return Ok(());
        }
        Err(format!(
            "server {leader} takes entry {index} for committed, which no majority of {members:?} has"
        ))
    }

    /// Checks the members at the end of a run.
    pub(in crate::world) fn check_members_settled(&self) -> Result<(), Violation> {
        let Some(leader) = self.group.leader().filter(|_| !self.group.is_lone()) else { return Ok(()) };
        let serving = self.group.replicas.iter().filter(|replica| replica.serves);
        let serving: BTreeSet<u64> = serving.map(|replica| replica.member).collect();
        let replica = &self.group.replicas[leader];
        let members = replica.log.members();
        let leaves = self.group.replicas.iter().any(|replica| replica.leaves);
        let odd = (serving.len().max(1) - 1) / 2 * 2 + 1;
        match members.voters.as_slice() {
            [voters]
                if !leaves
                    && members.all() == serving
                    && voters.len() == odd
                    && replica.commit >= replica.log.changed_at() =>
            {
                Ok(())
            }
            _ => Err(format!("{serving:?} serve in the end, and the members are {members:?}")),
        }
    }
}
