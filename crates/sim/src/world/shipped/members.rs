//! Members that run the shipped code. The simulation asks the leader for the wanted servers as
//! `leasehold server add` and `remove` do, one server at a time. Meanwhile the leader settles who
//! votes. A removed server goes on for a while, then its disk is emptied; added again, it is
//! another member.

use super::servers::{Changing, ServerEvent, ShippedServer};
use crate::world::events::Event;
use crate::world::{Mutation, World};
use raft::{Host, Keeping, Standing};

/// The leader is asked for the wanted servers once in so many looks at most.
const ASKED: u64 = 4;
/// Once in so many looks a server's disk is copied.
const COPIED: u64 = 20;
/// Once in so many looks a server's weight changes.
const WEIGHED: u64 = 40;

/// A change of members.
#[derive(Debug)]
enum MembershipChange {
    Removes(u64),
    Tells(u64, Host),
    Settles,
}

impl World {
    /// The server starts without state, as a member with an unused number.
    pub(super) fn member_is_new(&mut self, at: usize) {
        let next = self.shipped.servers.iter().filter_map(|it| Some(it.group.as_ref()?.next_member())).max();
        self.shipped.numbered = next.unwrap_or_default().max(self.shipped.numbered + 1);
        let server = &mut self.shipped.servers[at];
        (server.member, server.disk, server.damaged) = (self.shipped.numbered, Default::default(), false);
        (server.was_member, server.forgot, server.moved) = (false, false, false);
        server.was_put_back = false;
        if self.weather.lie == Some(Mutation::DiskKeepsNothing) {
            server.disk.lies();
        }
        self.notes(|| format!("server {at} is to be member {}", self.shipped.servers[at].member));
        self.member_starts(at);
    }

    /// The server is a server no more: nothing of the member is left.
    pub(in crate::world) fn member_is_discarded(&mut self, at: usize) {
        let server = &mut self.shipped.servers[at];
        server.disk.loses_process();
        server.life.end();
        server.process += 1;
        self.shipped.net.0.lock().members.remove(&at);
        (server.member, server.disk, server.damaged) = (0, Default::default(), false);
        (server.forgot, server.moved, server.was_put_back) = (false, false, false);
        (server.group, server.led, server.looked_at) = (None, false, None);
    }

    pub(in crate::world) fn member_comes_back(&mut self, at: usize) {
        let replica = &self.group.replicas[at];
        if replica.up || !replica.serves {
            return;
        }
        let server = &self.shipped.servers[at];
        if server.damaged && replica.leaves {
            return self.ends_service(at);
        }
        if server.damaged || server.member == 0 {
            // The server has refused to start, or never had anything. It is added anew.
            return self.member_is_new(at);
        }
        if self.happens(self.weather.rots) && self.members_are_whole() {
            self.member_rots(at);
        } else if self.happens(self.weather.puts_back) && self.others_have_all(at) {
            self.member_is_put_back(at);
        }
        self.member_starts(at);
    }

    /// The leader makes the members those that are wanted.
    pub(in crate::world) fn tends_members(&mut self) {
        let Some(leader) = self.shipped.leader().filter(|at| self.shipped.servers[*at].led) else { return };
        let Some(group) = self.shipped.servers[leader].group.clone() else { return };
        let standing = group.standing();
        // A leader that was replaced without noticing may know old members. Its members count once
        // it has applied all that is committed.
        if group.applied().map_or(0, |index| index + 1) >= self.shipped.committed() {
            self.members_retire(&standing);
        }
        if self.weather.puts_back > 0 && self.one_in(COPIED) {
            let at = self.below(self.shipped.servers.len() as u64) as usize;
            if self.group.replicas[at].up {
                self.member_is_copied(at);
            }
        }
        if let Some(change) = self.wanted_change(&standing) {
            self.changes_members(leader, Changing::Wanted, change);
        }
        self.changes_members(leader, Changing::Voters, MembershipChange::Settles);
    }

    /// The next wanted change, or a server's report of itself, if there is one.
    fn wanted_change(&mut self, standing: &Standing) -> Option<MembershipChange> {
        if !self.healed && !self.one_in(ASKED) {
            return None;
        }
        let weighs = !self.healed && self.one_in(WEIGHED);
        let (servers, replicas) = (&self.shipped.servers, &self.group.replicas);
        // A server that is about to be added cannot be removed. A server whose membership only a
        // replaced leader knew is added once more.
        let is_new = |(at, server): &(usize, &ShippedServer)| {
            let is_member = standing.members.iter().any(|member| member.id == server.member);
            server.group.is_some() && !is_member && (!server.was_member || replicas[*at].stays())
        };
        if let Some((at, new)) = servers.iter().enumerate().find(is_new) {
            return Some(MembershipChange::Tells(new.member, new.host(at)));
        }
        let moved = |(at, server): (usize, &ShippedServer)| {
            let member = standing.members.iter().find(|member| member.id == server.member)?;
            let addresses = server.host(at).addresses;
            (member.host.addresses != addresses)
                .then(|| MembershipChange::Tells(member.id, Host { addresses, ..member.host.clone() }))
        };
        if let Some(tells) = servers.iter().enumerate().find_map(moved) {
            return Some(tells);
        }
        let of = |host: &Host| host.machine as usize - 1;
        let gone = standing.members.iter().find(|member| !replicas[of(&member.host)].stays());
        // The last member is not removed.
        if let Some(gone) = gone.filter(|_| !standing.alone) {
            return Some(MembershipChange::Removes(gone.id));
        }
        let some = self.below(standing.members.len() as u64) as usize;
        let member = standing.members.get(some).filter(|_| weighs)?;
        let keeping = Keeping::Weighs(1 + self.below(100) as u32);
        Some(MembershipChange::Tells(member.id, Host { keeping, ..member.host.clone() }))
    }

    /// Asks the leader for this change, unless one of its kind is under way.
    fn changes_members(&mut self, leader: usize, which: Changing, change: MembershipChange) {
        if self.shipped.changing[which as usize].as_ref().is_some_and(|life| !life.is_over()) {
            return;
        }
        if which == Changing::Wanted {
            self.notes(|| format!("server {leader} is asked for {change:?}"));
        }
        let server = &self.shipped.servers[leader];
        let (life, start) = (server.life.clone(), server.process);
        let Some(group) = server.group.clone() else { return };
        let told = self.shipped.told.clone();
        self.shipped.changing[which as usize] = Some(life.clone());
        let _in = self.shipped.time.enter();
        life.spawn(async move {
            // A change that fails is tried again.
            let _ = match change {
                MembershipChange::Removes(member) => group.remove_member(member).await,
                MembershipChange::Tells(member, host) => group.set_member(member, host).await,
                MembershipChange::Settles => group.settle_voters().await,
            };
            told.put(leader, start, ServerEvent::Changed(which));
        });
    }

    /// A server that is no longer a member stays up until it knows.
    fn members_retire(&mut self, standing: &Standing) {
        for at in 0..self.shipped.servers.len() {
            let (replica, member) = (&self.group.replicas[at], self.shipped.servers[at].member);
            let is_member = standing.members.iter().any(|it| it.id == member);
            self.shipped.servers[at].was_member |= is_member;
            let left = self.shipped.servers[at].was_member && !is_member;
            if replica.leaves && !replica.retired && left {
                self.group.replicas[at].retired = true;
                let wait = self.some_time(20_000);
                self.later(wait, Event::Retires(at));
            }
        }
    }

    /// Whether some server has lost its state, and no other member has its place yet.
    pub(in crate::world) fn members_are_lost(&self) -> bool {
        let servers = &self.shipped.servers;
        let Some(group) = self.shipped.leader().and_then(|at| servers[at].group.as_ref()) else {
            return true;
        };
        let is_lost = |id: u64| servers.iter().all(|server| server.member != id);
        servers.iter().any(|server| server.damaged)
            || group.standing().members.iter().any(|member| is_lost(member.id))
    }

    /// Whether the server may move to another address: it and the leader know where all members
    /// are. Of two servers that move at once neither might ever reach the other.
    pub(super) fn may_move(&self, at: usize) -> bool {
        let servers = &self.shipped.servers;
        let Some(group) = self.shipped.leader().and_then(|at| servers[at].group.as_ref()) else {
            return false;
        };
        let is_there = |member: &raft::Member| {
            let at = servers.iter().position(|server| server.member == member.id);
            at.is_some_and(|at| servers[at].host(at).addresses == member.host.addresses)
        };
        let members = group.standing().members;
        let knows = |member: &raft::Member| {
            servers[at]
                .knew
                .iter()
                .any(|it| (it.id, &it.host.addresses) == (member.id, &member.host.addresses))
        };
        members.iter().all(|member| is_there(member) && (knows(member) || !servers[at].was_member))
    }

    /// Whether all wanted servers vote, and none of them is in doubt.
    fn members_are_whole(&self) -> bool {
        let servers = &self.shipped.servers;
        let Some(group) = self.shipped.leader().and_then(|at| servers[at].group.as_ref()) else {
            return false;
        };
        let members = group.standing().members;
        let votes = |at: usize| members.iter().any(|it| it.id == servers[at].member && it.votes);
        let serve: Vec<usize> = (0..servers.len()).filter(|at| self.group.replicas[*at].serves).collect();
        members.len() > 1
            && members.len() == serve.len()
            && serve.iter().all(|at| self.group.replicas[*at].stays() && !servers[*at].damaged && votes(*at))
    }

    /// Whether the other servers are up, reach each other, and have all that was agreed on. Then
    /// one of them is enough for the group to survive a fault of this one.
    fn others_have_all(&mut self, at: usize) -> bool {
        let all = self.shipped.committed();
        let now = self.now;
        let whole = self.members_are_whole() && !self.shipped.is_in_doubt();
        let others: Vec<usize> = (0..self.shipped.servers.len()).filter(|other| *other != at).collect();
        let serving: Vec<usize> =
            others.into_iter().filter(|other| self.group.replicas[*other].serves).collect();
        whole
            && serving.iter().all(|other| {
                let (replica, server) = (&self.group.replicas[*other], &self.shipped.servers[*other]);
                let applied =
                    server.group.as_ref().and_then(|group| group.agreed()).map_or(0, |index| index + 1);
                replica.up && replica.stopped_until <= now && !server.disk.is_full() && applied >= all
            })
            && serving.iter().all(|one| serving.iter().all(|other| self.group.are_joined(*one, *other)))
    }

    /// Whether the members are the wanted ones, an odd number votes, and all have applied the same.
    pub(in crate::world) fn members_are_settled(&self) -> bool {
        let servers = &self.shipped.servers;
        let Some(leader) = self.shipped.leader().and_then(|at| servers[at].group.as_ref()) else {
            return false;
        };
        let members = leader.standing().members;
        let serve: Vec<usize> = (0..servers.len()).filter(|at| self.group.replicas[*at].serves).collect();
        let votes = members.iter().filter(|member| member.votes).count();
        let same = |at: usize| {
            let (server, group) = (&servers[at], &servers[at].group);
            members.iter().any(|member| member.id == server.member)
                && group.as_ref().is_some_and(|it| it.applied() == leader.applied())
        };
        leader.backlog_bytes() == 0
            && members.len() == serve.len()
            && votes == (serve.len().max(1) - 1) / 2 * 2 + 1
            && serve.iter().all(|at| self.group.replicas[*at].stays() && same(*at))
    }
}
