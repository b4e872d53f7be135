//! Changes of the group's members: one change at a time, each by a log entry.

use super::Group;
use crate::Member;
use crate::types::{Host, Keeping, Types};
use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::{Duration, Instant};

/// The most voters of a group. More would make each entry dearer, and a failure of three at once is
/// no likelier to matter.
const VOTERS_MAX: usize = 5;

/// Entries that a newcomer may be behind while it counts as having caught up.
const CAUGHT_UP: u64 = 64;
/// A member that has been silent for this long may be dead.
const SILENT: Duration = Duration::from_secs(3);
/// How long a removal waits for the members that are to vote afterwards.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a change may take to be committed.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The time between two attempts at a change while another one is under way.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// The reason why the members cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum MembersError {
    /// Another member leads, and only the leader can change members.
    #[error("another server leads now; try again")]
    NotLeading,
    /// The group would be left without a majority, perhaps for good.
    #[error("the servers that would be left do not answer, or have not caught up: try again when they do")]
    NotReady,
    /// Too few members answer. The change that was begun goes on when there is a majority again.
    #[error("not enough servers answer to change the servers")]
    NoMajority,
    /// openraft takes one change at a time.
    #[error("the servers are just being changed otherwise; try again")]
    UnderWay,
    /// The group's thread has ended: the machine ends, or the group's state was damaged.
    #[error("this server has ended")]
    Ended,
    /// openraft refuses.
    #[error("the servers cannot be changed: {0}")]
    Raft(Box<RaftError<Types, ClientWriteError<Types>>>),
}

impl From<RaftError<Types, ClientWriteError<Types>>> for MembersError {
    fn from(error: RaftError<Types, ClientWriteError<Types>>) -> MembersError {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => MembersError::NotLeading,
            RaftError::APIError(ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::InProgress(_),
            )) => MembersError::UnderWay,
            error => MembersError::Raft(Box::new(error)),
        }
    }
}

/// Returns the members that should vote. Present voters come first: of these the leader, which
/// asks, then those heard from since `since`. With silent ones there might never be a majority. The
/// number is odd: of two voters neither can go on without the other, and four survive no more
/// failures than three.
fn voters(members: &[Member], leader: u64, since: Instant) -> BTreeSet<u64> {
    let mut order: Vec<&Member> =
        members.iter().filter(|member| member.votes || member.host.keeping != Keeping::Drains).collect();
    order.sort_by_key(|member| (!member.votes, member.id != leader, member.heard < Some(since), member.id));
    let odd = order.len().saturating_sub(1) / 2 * 2 + 1;
    order.iter().take(odd.min(VOTERS_MAX)).map(|member| member.id).collect()
}

impl Member {
    fn has_caught_up(&self, applied: u64) -> bool {
        self.reached.is_some_and(|reached| reached + CAUGHT_UP >= applied)
    }
}

/// Returns the time, simulated or not.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Waits for a change of the members, on a thread that may block.
pub fn wait(change: impl Future<Output = Result<(), MembersError>>) -> Result<(), MembersError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.map_err(|_| MembersError::NoMajority)?.block_on(change)
}

/// A change of the members that is due.
struct Due {
    /// The members that should vote, if others do now.
    vote: Option<BTreeSet<u64>>,
    /// Members whose machines have a newer one.
    gone: BTreeSet<u64>,
}

impl Group {
    /// Returns a number that no member ever had.
    pub fn next_member(&self) -> u64 {
        // Each member that is added takes an entry.
        self.applied().unwrap_or(0) + 1
    }

    /// Adds `host` as a member that follows, or changes the entry of an existing one. Returns when
    /// that is committed. A newcomer still has to learn everything.
    pub async fn set_member(&self, id: u64, host: Host) -> Result<(), MembersError> {
        let is_there = self.standing().members.iter().any(|member| member.id == id);
        if !is_there {
            self.leave_nothing_to_replay().await?;
        }
        let nodes = BTreeMap::from([(id, host)]);
        let add = ChangeMembers::AddNodes;
        self.change_in_turn(if is_there { ChangeMembers::SetNodes(nodes) } else { add(nodes) }).await
    }

    /// Returns whether all members vote that should.
    pub fn is_settled(&self) -> bool {
        self.due().vote.is_none()
    }

    fn due(&self) -> Due {
        let all = self.standing().members;
        let applied = self.status().applied;
        let counts = |member: &&Member| member.votes || member.has_caught_up(applied);
        let lost = |member: &Member| {
            all.iter()
                .filter(counts)
                .any(|other| other.host.machine == member.host.machine && other.id > member.id)
        };
        let members: Vec<Member> =
            all.iter().filter(counts).filter(|member| !lost(member)).cloned().collect();
        let are: BTreeSet<u64> = all.iter().filter(|member| member.votes).map(|member| member.id).collect();
        let now = now();
        let should = voters(&members, self.member, now.checked_sub(SILENT).unwrap_or(now));
        let gone = all.iter().filter(|member| lost(member)).map(|member| member.id).collect();
        Due { vote: (are != should).then_some(should), gone }
    }

    /// Makes as many members vote as should, of those that have caught up. A machine that has lost
    /// its member has a new one, which takes the place of the lost one once it has caught up. Until
    /// then every entry needs as many members as before. Returns when that is committed.
    pub async fn settle_voters(&self) -> Result<(), MembersError> {
        let Due { vote, gone } = self.due();
        if let Some(vote) = vote {
            self.change(ChangeMembers::ReplaceAllVoters(vote)).await?;
        }
        if gone.is_empty() { Ok(()) } else { self.change(ChangeMembers::RemoveNodes(gone)).await }
    }

    /// Removes a member. Returns when that is committed. First a majority of the future voters must
    /// answer. If they never did, no member could be changed any more.
    pub async fn remove_member(&self, id: u64) -> Result<(), MembersError> {
        let began = now();
        loop {
            let mut left = self.standing().members;
            left.retain(|member| member.id != id);
            let (vote, applied) = (voters(&left, self.member, began), self.status().applied);
            let is_ready = |member: &&Member| {
                let answers = member.heard >= Some(began) && member.has_caught_up(applied);
                vote.contains(&member.id) && (answers || member.id == self.member)
            };
            if left.iter().filter(is_ready).count() > vote.len() / 2 {
                // The voters are chosen anew after a change that was under way.
                match self.change(ChangeMembers::ReplaceAllVoters(vote)).await {
                    Err(MembersError::UnderWay) => {}
                    changed => break changed?,
                }
            }
            if now() > began + ANSWER {
                return Err(MembersError::NotReady);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.change_in_turn(ChangeMembers::RemoveNodes(BTreeSet::from([id]))).await
    }

    /// Makes a change that means the same after any other one, once that is done.
    async fn change_in_turn(&self, change: ChangeMembers<u64, Host>) -> Result<(), MembersError> {
        let begun = now();
        loop {
            match self.change(change.clone()).await {
                Err(MembersError::UnderWay) if now() < begun + TIMEOUT => {
                    tokio::time::sleep(UNDER_WAY).await;
                }
                changed => return changed,
            }
        }
    }

    /// Purges the whole log, so that a newcomer gets a snapshot and not the log from its beginning.
    /// No entry contains the founder's state before its first entry.
    async fn leave_nothing_to_replay(&self) -> Result<(), MembersError> {
        while self.log.purged().is_none() {
            if self.queue.is_abandoned() {
                return Err(MembersError::Ended);
            }
            // A checkpoint that found no room is asked for again.
            let _ = self.ask_checkpoint().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn change(&self, change: ChangeMembers<u64, Host>) -> Result<(), MembersError> {
        // In openraft a removed leader leads on for a moment. In that time it must change nothing
        // more.
        let is_member = {
            let metrics = self.ear.raft.metrics();
            let metrics = metrics.borrow_watched();
            metrics.membership_config.membership().get_node(&self.member).is_some()
        };
        if !is_member {
            return Err(MembersError::NotLeading);
        }
        let changed = tokio::time::timeout(TIMEOUT, self.ear.raft.change_membership(change, true)).await;
        changed.map_err(|_| MembersError::NoMajority)?.map(drop)?;
        Ok(())
    }

    /// Returns this member's number.
    pub fn member(&self) -> u64 {
        self.member
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(votes: &[bool]) -> Vec<Member> {
        let host = Host::default();
        let member = |(id, votes): (usize, &bool)| Member {
            id: id as u64,
            host: host.clone(),
            votes: *votes,
            reached: None,
            heard: None,
        };
        votes.iter().enumerate().map(member).collect()
    }

    #[test]
    fn an_odd_number_votes_and_who_does_stays() {
        let count = |votes: &[bool]| voters(&members(votes), 0, now()).len();
        let alone = [true];
        assert_eq!(count(&alone), 1);
        assert_eq!(voters(&members(&[true, false]), 0, now()), BTreeSet::from([0]));
        assert_eq!(voters(&members(&[true, true]), 1, now()), BTreeSet::from([1]));
        assert_eq!(count(&[true, false, false]), 3);
        assert_eq!(voters(&members(&[false, true, true, true]), 1, now()), BTreeSet::from([1, 2, 3]));
        assert_eq!((count(&[true; 5]), count(&[true; 9])), (5, 5));
    }

    /// Of three members one is dead, and the leader is removed. The sole voter must be the live
    /// one.
    #[test]
    fn who_is_silent_is_the_first_not_to_vote() {
        let mut left = members(&[true, true, true]);
        left.remove(1);
        let since = now();
        left[1].heard = Some(since);
        assert_eq!(voters(&left, 1, since), BTreeSet::from([2]));
        left[0].heard = left[1].heard;
        assert_eq!(voters(&left, 1, since), BTreeSet::from([0]));
    }
}
