//! Who the members are that run the shipped code: what people want is asked of the leader as
//! `leasehold server add` and `remove` ask it, one server at a time, while it lets vote who can. A
//! server that is removed goes on for a while, then its disk is emptied; added again it is another
//! member.

use super::{Server, Told};
use crate::world::events::Event;
use crate::world::{Mutation, World};
use raft::{Host, Keeping, Standing};

/// What people want is asked so often at most: once in so many looks.
const ASKED: u64 = 4;
/// Once in so many looks a server's disk is copied.
const COPIED: u64 = 20;
/// Once in so many looks a server's weight changes.
const WEIGHED: u64 = 40;

/// What is changed about the members: one of each at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changing {
    /// What people want, or a server says of itself.
    Wanted,
    /// Who votes.
    Voters,
}

/// See [`Changing`].
#[derive(Debug)]
enum Change {
    Removes(u64),
    Tells(u64, Host),
    Settles,
}

impl World {
    /// The server has nothing, and starts as a member with a number that nobody had.
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

    /// It is no server any more: nothing of the member is left.
    pub(in crate::world) fn member_is_discarded(&mut self, at: usize) {
        let server = &mut self.shipped.servers[at];
        server.disk.loses_process();
        server.life.end();
        server.process += 1;
        self.shipped.net.0.lock().members.remove(&server.member);
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
            // It has refused to start, or never had anything: somebody adds it anew.
            return self.member_is_new(at);
        }
        if self.happens(self.weather.rots) && self.members_are_whole() {
            self.member_rots(at);
        } else if self.happens(self.weather.puts_back) && self.others_have_all(at) {
            self.member_is_put_back(at);
        }
        self.member_starts(at);
    }

    /// Those that lead see to it that the members are those that people want.
    pub(in crate::world) fn tends_members(&mut self) {
        let Some(leader) = self.shipped.leader().filter(|at| self.shipped.servers[*at].led) else { return };
        let Some(group) = self.shipped.servers[leader].group.clone() else { return };
        let standing = group.standing();
        // One that others have replaced without its noticing tells nobody who the members are: it
        // has to commit something before.
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
        self.changes_members(leader, Changing::Voters, Change::Settles);
    }

    /// The next thing that people want, or that a server says of itself, if anything.
    fn wanted_change(&mut self, standing: &Standing) -> Option<Change> {
        if !self.healed && !self.one_in(ASKED) {
            return None;
        }
        let weighs = !self.healed && self.one_in(WEIGHED);
        let (servers, replicas) = (&self.shipped.servers, &self.group.replicas);
        // Nobody can remove who is about to be added. Who was one only for a leader that others
        // have replaced since is added once more.
        let is_new = |(at, server): &(usize, &Server)| {
            let is_member = standing.members.iter().any(|member| member.id == server.member);
            server.group.is_some() && !is_member && (!server.was_member || replicas[*at].stays())
        };
        if let Some((at, new)) = servers.iter().enumerate().find(is_new) {
            return Some(Change::Tells(new.member, new.host(at)));
        }
        let moved = |(at, server): (usize, &Server)| {
            let member = standing.members.iter().find(|member| member.id == server.member)?;
            let addresses = server.host(at).addresses;
            (member.host.addresses != addresses)
                .then(|| Change::Tells(member.id, Host { addresses, ..member.host.clone() }))
        };
        if let Some(tells) = servers.iter().enumerate().find_map(moved) {
            return Some(tells);
        }
        let of = |host: &Host| host.machine as usize - 1;
        let gone = standing.members.iter().find(|member| !replicas[of(&member.host)].stays());
        // Who is to be removed last is not removed.
        if let Some(gone) = gone.filter(|_| !standing.alone) {
            return Some(Change::Removes(gone.id));
        }
        let some = self.below(standing.members.len() as u64) as usize;
        let member = standing.members.get(some).filter(|_| weighs)?;
        let keeping = Keeping::Weighs(1 + self.below(100) as u32);
        Some(Change::Tells(member.id, Host { keeping, ..member.host.clone() }))
    }

    /// The leader is asked for that, unless it is at something of the kind.
    fn changes_members(&mut self, leader: usize, which: Changing, change: Change) {
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
            // What does not come to be is tried again.
            let _ = match change {
                Change::Removes(member) => group.remove_member(member).await,
                Change::Tells(member, host) => group.set_member(member, host).await,
                Change::Settles => group.settle_voters().await,
            };
            told.put(leader, start, Told::Changed(which));
        });
    }

    /// Who was a member and is none any more is a server until it hears that.
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

    /// Some server has lost what it had, and no other member has its place yet.
    pub(in crate::world) fn members_are_lost(&self) -> bool {
        let servers = &self.shipped.servers;
        let Some(group) = self.shipped.leader().and_then(|at| servers[at].group.as_ref()) else {
            return true;
        };
        let is_lost = |id: u64| servers.iter().all(|server| server.member != id);
        servers.iter().any(|server| server.damaged)
            || group.standing().members.iter().any(|member| is_lost(member.id))
    }

    /// The server knows where all members are, and the leader does: of two that move at once
    /// neither might ever reach the other.
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

    /// All that are to be servers vote, and none of them is suspected of anything.
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

    /// The other servers are up, hear each other, and have all that was agreed on: one of them is
    /// enough for the group to survive what happens to this one.
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

    /// Those are members that people want, an odd number votes, and all have applied the same.
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
