//! Members of the group: voters, and learners, which only follow. The wanted servers change while
//! machines work: another number of them, or a new one for a server whose disk has damage. As in
//! `raft`, a leader goes there in steps, one at a time. Newcomers learn, and an odd number of
//! servers votes once they have caught up. Between two sets of voters a majority of each is needed
//! (joint consensus, Raft §6).

use super::events::Event;
use super::log::RaftEntry;
use super::replica::Replica;
use super::state::members::Members;
use super::{Mutation, World};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A learner that is behind by so many entries at most has caught up.
const CAUGHT_UP: u64 = 20;
/// Numbers of servers that may be wanted.
const WANTED: [usize; 3] = [1, 3, 5];
/// Time that a server stays up after it is no longer a member, ms at most.
const LINGERS_MS: u64 = 20_000;

impl World {
    /// Wants another number of servers. While some server may have lost its state nothing changes:
    /// servers that have the state must not leave.
    pub(super) fn wants_servers(&mut self) {
        if self.group.replicas.iter().any(Replica::is_rotten)
            || self.weather.shipped && self.members_are_lost()
        {
            return;
        }
        let wanted = WANTED[self.below(WANTED.len() as u64) as usize];
        let servers = self.group.replicas.len();
        let first = self.below(servers as u64) as usize;
        let mut stay = self.group.replicas.iter().filter(|replica| replica.stays()).count();
        self.notes(|| format!("{wanted} servers are to be instead of {stay}"));
        for at in (0..servers).map(|next| (first + next) % servers) {
            let replica = &mut self.group.replicas[at];
            if stay > wanted && replica.stays() {
                replica.leaves = true;
                stay -= 1;
            } else if stay < wanted && !replica.serves {
                stay += 1;
                self.server_is_new(at);
            }
        }
    }

    /// A machine begins to serve, without state.
    fn server_is_new(&mut self, at: usize) {
        self.group.replicas[at].serves = true;
        if !self.weather.shipped {
            self.group.renews(at, self.weather.newest());
        }
        let pause = self.below(2_000);
        self.later(pause, Event::ReplicaStarts(at));
    }

    /// The server has found damage on its disk. Its state no longer counts, and it begins anew
    /// under another number.
    pub(super) fn server_is_lost(&mut self, at: usize) {
        self.notes(|| format!("server {at} has lost what it had"));
        self.happened.refused += 1;
        self.loses_server(at);
        self.group.renews(at, self.weather.newest());
        if self.group.replicas[at].leaves {
            return self.ends_service(at);
        }
        let pause = self.some_time(10_000);
        self.later(pause, Event::ReplicaStarts(at));
    }

    /// The leader does the next step towards the wanted servers.
    pub(super) fn tends_group(&mut self, leader: usize) {
        let replica = &self.group.replicas[leader];
        let Some(first) = replica.leads.as_ref().map(|leads| leads.first) else { return };
        // One change at a time, and none before an entry of its own is committed.
        if replica.commit < first.max(replica.log.changed_at()) {
            return;
        }
        let members = replica.log.members().clone();
        if let Some(next) = self.next_members(leader, &members) {
            let voters = next.voters.last().cloned().unwrap_or_default();
            let next = match self.weather.lie {
                Some(Mutation::ChangesAtOnce) => Members { voters: vec![voters], ..next },
                _ => next,
            };
            self.notes(|| format!("server {leader} changes {members:?} to {next:?}"));
            self.happened.changes += 1;
            self.adds_entry(leader, Vec::new(), Some(Rc::new(next)));
        }
        self.retires(&members);
    }

    /// The next step, if the members are not the wanted ones.
    fn next_members(&self, leader: usize, members: &Members) -> Option<Members> {
        let group = &self.group;
        let (voters, all) = (members.voters.last()?, members.all());
        if members.voters.len() > 1 {
            let learners = all.difference(voters).copied().collect();
            return Some(Members { voters: vec![voters.clone()], learners });
        }
        let mut serving = group.replicas.iter().filter(|replica| replica.up && replica.stays());
        if let Some(new) = serving.find(|replica| !all.contains(&replica.member)) {
            let learners = members.learners.iter().copied().chain([new.member]).collect();
            return Some(Members { learners, ..members.clone() });
        }
        let counts = |member: u64| {
            let up_to_date = || self.matched(leader, member) + CAUGHT_UP >= group.replicas[leader].commit;
            group.replica(member).is_some_and(Replica::stays) && (voters.contains(&member) || up_to_date())
        };
        // A member that lost its disk stays until its successor has caught up. So an entry needs as
        // many others as before.
        let is_lost = |member: u64| {
            let at = group.server_of(member).filter(|_| group.replica(member).is_none());
            at.is_some_and(|at| group.replicas[at].stays() && !counts(group.replicas[at].member))
        };
        let mut order: Vec<u64> =
            all.iter().copied().filter(|member| counts(*member) || is_lost(*member)).collect();
        // No other member leaves meanwhile: otherwise only members without state might be left.
        if order.iter().any(|member| is_lost(*member)) {
            order.extend(
                voters
                    .iter()
                    .filter(|member| !order.contains(member) && group.at(**member).is_some())
                    .collect::<Vec<_>>(),
            );
        }
        let it = group.replicas[leader].member;
        order.sort_by_key(|member| (!voters.contains(member), *member != it, *member));
        order.truncate((order.len().max(1) - 1) / 2 * 2 + 1);
        let should: BTreeSet<u64> = order.into_iter().collect();
        if should != *voters && !should.is_empty() {
            return Some(Members { voters: vec![voters.clone(), should], ..members.clone() });
        }
        let stays = |member: &u64| group.replica(*member).is_some_and(Replica::stays);
        let learners: BTreeSet<u64> = members.learners.iter().copied().filter(stays).collect();
        (learners != members.learners).then(|| Members { learners, ..members.clone() })
    }

    /// A server that is to leave and is no longer a member stays up for a while, whatever it
    /// believes.
    fn retires(&mut self, members: &Members) {
        let all = members.all();
        for at in 0..self.group.replicas.len() {
            let replica = &mut self.group.replicas[at];
            if replica.leaves && !replica.retired && !all.contains(&replica.member) {
                replica.retired = true;
                let wait = self.below(LINGERS_MS);
                self.later(wait, Event::Retires(at));
            }
        }
    }

    pub(super) fn retires_now(&mut self, at: usize) {
        if self.group.replicas[at].retired {
            self.ends_service(at);
        }
    }

    /// Ends a server that is no longer a member.
    pub(super) fn ends_service(&mut self, at: usize) {
        self.notes(|| format!("machine {} does not serve any more", at + 1));
        if self.weather.shipped {
            self.member_is_discarded(at);
        }
        let replica = &mut self.group.replicas[at];
        replica.crashes(0);
        (replica.serves, replica.leaves, replica.retired) = (false, false, false);
        self.loses_server(at);
    }

    /// Appends an entry to the leader's log.
    pub(super) fn adds_entry(
        &mut self,
        leader: usize,
        inputs: Vec<directory::Input>,
        members: Option<Rc<Members>>,
    ) {
        let now = self.now;
        let replica = &mut self.group.replicas[leader];
        let Some(leads) = &replica.leads else { return };
        let time = leads.time(now, replica.rate_ppm);
        replica.log.push(Rc::new(RaftEntry { term: replica.term, time, inputs, members }));
        replica.verified = replica.log.last().index;
        self.writes(leader);
        self.sends_to_all(leader);
    }

    /// Whether every wanted server votes, and none has damage.
    pub(super) fn is_whole(&self) -> bool {
        let Some(leader) = self.group.leader() else { return false };
        let replica = &self.group.replicas[leader];
        let members = replica.log.members();
        let settled = replica.commit >= replica.log.changed_at() && members.voters.len() == 1;
        let mut serving = self.group.replicas.iter().filter(|replica| replica.serves);
        settled && serving.all(|it| it.stays() && members.vote(it.member) && !it.is_rotten())
    }

    /// The disk changes by itself: rows, or an entry of the log. The last entry does not: it would
    /// look like one that was being written.
    pub(super) fn disk_rots(&mut self, at: usize) {
        let voters = self.group.replicas.iter().filter(|replica| replica.serves).count();
        if voters == 1 || !self.is_whole() || !self.group.replicas[at].serves {
            return;
        }
        self.happened.rotten += 1;
        self.notes(|| format!("the disk of server {at} rots"));
        let (rng, in_log) = (&mut self.rng, self.happened.rotten.is_multiple_of(2));
        let mut some = |bound: u64| rand_core::Rng::next_u64(rng) % bound.max(1);
        let replica = &mut self.group.replicas[at];
        if in_log {
            replica.log_rots(&mut some);
        } else {
            (0..=some(3)).for_each(|_| replica.rows_rot(&mut some));
        }
    }

    /// Reads the server's whole disk.
    pub(super) fn scrubs(&mut self, at: usize) {
        let replica = &self.group.replicas[at];
        if replica.up && replica.is_rotten() && self.weather.lie != Some(Mutation::BelievesRot) {
            self.server_is_lost(at);
        }
    }
}
