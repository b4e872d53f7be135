//! A group of replicas, with the contract of Raft in the place of Raft. Messages for the log are
//! Raft's; votes are counted at one instant ([`super::election`]). Followers take the entries of
//! the latest term's leader, report how much is on disk, and apply committed entries.

use super::events::Event;
use super::log::{Log, RaftEntry};
use super::replica::Checkpoint;
use super::state::group::Message;
use super::state::link::Way;
use super::{Mutation, Violation, World};
use directory::Output;
use std::rc::Rc;

/// Time of a disk operation, ms at most.
const DISK_MS: u64 = 6;
/// A checkpoint is made after so many entries, and up to so many more.
const CHECKPOINT_EVERY: u64 = 60;
const CHECKPOINT_MORE: u64 = 300;
/// Entries that are kept though they are in a checkpoint, at most. A follower that is not far
/// behind needs no checkpoint.
const KEPT: u64 = 100;
/// Entries that may be on disk after a crash though they were not made durable, at most.
const LUCKY: u64 = 3;

impl World {
    /// Sends a message to another replica.
    pub(super) fn sends_message(&mut self, from: usize, to: usize, message: Message) {
        if self.group.wire(from, to).cut > 0 || self.happens(self.weather.loses) {
            return;
        }
        let delay = self.group.wire(from, to).delay;
        let slow = matches!(message, Message::Install { .. });
        let more = self.below(if slow { 500 } else { delay + 1 });
        let now = self.now;
        let wire = self.group.wire(from, to);
        wire.arrives_at = wire.arrives_at.max(now + delay + more);
        let time = wire.arrives_at;
        let members = [from, to].map(|at| self.group.replicas[at].member);
        self.events.add(time, Event::Replicates { from, to, members, message });
    }

    /// A message from another replica arrives.
    pub(super) fn replicates(
        &mut self,
        from: usize,
        to: usize,
        members: [u64; 2],
        message: Message,
    ) -> Result<(), Violation> {
        // Messages from or to a member that lost its disk have no receiver any more.
        let same = members == [from, to].map(|at| self.group.replicas[at].member);
        let replica = &mut self.group.replicas[to];
        if !replica.up || !same {
            return Ok(());
        }
        if message.term() > replica.term {
            self.steps_down(to);
            self.group.replicas[to].enters(message.term());
        }
        let replica = &mut self.group.replicas[to];
        let (term, now) = (replica.term, self.now);
        match message {
            Message::Appended { term: then, round, matched } if then == term => {
                self.hears_follower(to, from, round, matched)
            }
            Message::Appended { .. } => Ok(()),
            earlier if earlier.term() < term => {
                // The answer tells the sender of the later term.
                self.sends_message(to, from, Message::Appended { term, round: 0, matched: Ok(0) });
                Ok(())
            }
            Message::Append { round, before, entries, commit, .. } => {
                (replica.follows, replica.heard) = (Some(from), now);
                self.takes_entries(to, from, round, before, entries, commit)
            }
            Message::Install { round, checkpoint, .. } => {
                (replica.follows, replica.heard) = (Some(from), now);
                self.takes_checkpoint(to, from, round, checkpoint)
            }
        }
    }

    fn takes_entries(
        &mut self,
        to: usize,
        from: usize,
        round: u64,
        (before, before_term): (u64, u64),
        entries: Vec<Rc<RaftEntry>>,
        commit: u64,
    ) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[to];
        let term = replica.term;
        let known = before < replica.log.base() || replica.log.term_at(before) == Some(before_term);
        if !known {
            // The follower asks for the log from its committed index on, which is the same for
            // both. So one answer is enough on a wire that loses much.
            let matched = Err(replica.commit);
            self.sends_message(to, from, Message::Appended { term, round, matched });
            return Ok(());
        }
        let (mut index, mut fresh) = (before, false);
        for entry in entries {
            index += 1;
            // Entries before the replica's checkpoint are committed, so they are the same.
            if index <= replica.log.base() || replica.log.term_at(index) == Some(entry.term) {
                continue;
            }
            if index <= replica.commit {
                return Err(format!("replica {to} is to replace entry {index}, which is committed"));
            }
            self.happened.vanished += replica.truncates(index - 1);
            replica.log.push(entry);
            fresh = true;
        }
        replica.verified = replica.verified.max(index);
        let (known, matched) = (commit.min(replica.verified), replica.durable.min(replica.verified));
        if fresh {
            self.writes(to);
        }
        self.sends_message(to, from, Message::Appended { term, round, matched: Ok(matched) });
        if known > self.group.replicas[to].commit {
            self.knows_committed(to, known)?;
        }
        self.applies_committed(to)
    }

    /// A replica that is far behind gets the leader's state at some place.
    fn takes_checkpoint(
        &mut self,
        to: usize,
        from: usize,
        round: u64,
        checkpoint: Checkpoint,
    ) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[to];
        let (term, place) = (replica.term, checkpoint.place);
        if place.index > replica.commit {
            self.happened.snapshots += 1;
            // The replica may have acknowledged entries after the checkpoint (Raft §7).
            if replica.log.term_at(place.index) == Some(place.term) {
                replica.log.purge(place.index);
                replica.durable = replica.durable.max(place.index);
            } else {
                replica.tail += 1;
                replica.rotten = None;
                replica.log = Log::after(place, checkpoint.members.clone());
                replica.durable = place.index;
            }
            (replica.verified, replica.commit) = (replica.verified.max(place.index), place.index);
            replica.loads(checkpoint)?;
            self.check_replica(to, &[])?;
        }
        let matched = Ok(self.group.replicas[to].commit.min(self.group.replicas[to].durable));
        self.sends_message(to, from, Message::Appended { term, round, matched });
        Ok(())
    }

    /// Starts to make the present log durable.
    pub(super) fn writes(&mut self, at: usize) {
        let slow = self.group.replicas[at].disk_ms;
        let takes = self.below(DISK_MS) + if slow > 0 { self.below(slow) } else { 0 };
        let now = self.now;
        let replica = &mut self.group.replicas[at];
        replica.synced_at = replica.synced_at.max(now) + takes;
        let (up_to, tail, time) = (replica.log.last().index, replica.tail, replica.synced_at);
        self.events.add(time, Event::Synced { at, tail, up_to });
    }

    /// The disk has made the log durable up to there.
    pub(super) fn synced(&mut self, at: usize, tail: u64, up_to: u64) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[at];
        if !replica.up || replica.tail != tail {
            return Ok(());
        }
        replica.durable = replica.durable.max(up_to);
        if replica.leads.is_some() {
            return self.commits(at);
        }
        let (term, matched) = (replica.term, Ok(replica.durable.min(replica.verified)));
        if let Some(leader) = replica.follows {
            self.sends_message(at, leader, Message::Appended { term, round: 0, matched });
        }
        Ok(())
    }

    /// The replica knows that all entries up to this index are committed.
    pub(super) fn knows_committed(&mut self, at: usize, index: u64) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[at];
        let before = std::mem::replace(&mut replica.commit, index);
        for index in before + 1..=index {
            let of = replica.log.term_at(index);
            let Some(term) = of else { return Err(format!("replica {at} has no entry {index}")) };
            let by = replica.leads.is_some().then_some(replica.term);
            self.happened.survived += u64::from(self.ledger.commits(at, index, term, by)?);
            let members = replica.log.get(index).and_then(|entry| entry.members.clone());
            members.map_or(Ok(()), |members| self.ledger.decide(index, members))?;
        }
        self.check_held(at, index)
    }

    /// Applies committed entries.
    pub(super) fn applies_committed(&mut self, at: usize) -> Result<(), Violation> {
        loop {
            let replica = &self.group.replicas[at];
            let entry = replica.log.get(replica.applied + 1).filter(|_| replica.applied < replica.commit);
            let Some(entry) = entry.cloned() else { return Ok(()) };
            self.applies_entry(at, &entry)?;
        }
    }

    fn applies_entry(&mut self, at: usize, entry: &RaftEntry) -> Result<(), Violation> {
        let tells = self.may_tell(at, entry);
        let mut said: Vec<Vec<Output>> = Vec::with_capacity(entry.inputs.len());
        for input in &entry.inputs {
            let Some(out) = self.applies_input(at, entry.time, input)? else { return Ok(()) };
            said.push(out);
        }
        let replica = &mut self.group.replicas[at];
        replica.applied += 1;
        let first = self.ledger.is_first(replica.applied);
        if replica.applied >= replica.checkpoint_at {
            let (keep, more) = (self.below(KEPT), self.below(CHECKPOINT_MORE));
            let replica = &mut self.group.replicas[at];
            replica.makes_checkpoint(entry.time, entry.term, keep);
            replica.checkpoint_at = replica.applied + CHECKPOINT_EVERY + more;
        }
        self.check_replica(at, &said)?;
        for (input, out) in entry.inputs.iter().zip(&said).filter(|_| first) {
            self.note_applied(input, out)?;
        }
        let told = said.into_iter().flatten().filter(|_| tells);
        told.into_iter().try_for_each(|output| self.server_puts_out(at, output))?;
        // The leader has led the group to where it is no longer a member (Raft §6).
        let replica = &self.group.replicas[at];
        if entry.members.as_ref().is_some_and(|members| !members.all().contains(&replica.member)) {
            self.steps_down(at);
        }
        Ok(())
    }

    /// A replica's process ends, with all its connections. It starts again after `pause`.
    pub(super) fn replica_crashes(&mut self, at: usize, pause: u64) {
        if !self.group.replicas[at].up {
            return;
        }
        self.happened.restarts += 1;
        let lucky = self.below(LUCKY + 1);
        self.notes(|| format!("replica {at} crashes"));
        self.group.replicas[at].crashes(lucky);
        self.loses_server(at);
        self.later(pause, Event::ReplicaStarts(at));
    }

    pub(super) fn replica_starts(&mut self, at: usize) -> Result<(), Violation> {
        let (now, believes) = (self.now, self.weather.lie == Some(Mutation::BelievesRot));
        let replica = &mut self.group.replicas[at];
        if replica.up || !replica.serves {
            return Ok(());
        }
        if believes {
            replica.believes_log();
        }
        let damaged = replica.is_damaged();
        replica.starts()?;
        if !believes && (damaged || replica.is_damaged()) {
            self.server_is_lost(at);
            return Ok(());
        }
        replica.heard = now;
        self.notes(|| {
            let log = &self.group.replicas[at].log;
            format!("replica {at} starts with {:?}, where {:?} decide", log.last(), log.members())
        });
        self.check_replica(at, &[])
    }

    /// The time until which the event's server is stopped, if it is.
    pub(super) fn is_for_stopped(&self, event: &Event) -> Option<u64> {
        let server = match event {
            Event::Replicates { to: at, .. } | Event::Synced { at, .. } => *at,
            Event::Appends(at, _) | Event::Beats(at, _) | Event::Settles(at, ..) => *at,
            Event::Arrives { at, way: Way::Up, connection, .. } => self.links[*at].server_of(*connection)?,
            _ => return None,
        };
        Some(self.group.replicas[server].stopped_until).filter(|until| *until > self.now)
    }

    /// Gives each replica a clock of its own, and each wire its delay.
    pub(super) fn begins_group(&mut self) {
        let replicas = self.group.replicas.len();
        // Neither of two clocks may be wrong by more than half of the bound for one.
        let drift = self.weather.drift_ppm / 2;
        for at in 0..replicas {
            let rate = match self.below(3) {
                0 => 1_000_000 - drift,
                1 => 1_000_000 + drift,
                _ => 1_000_000 - drift + self.below(2 * drift + 1),
            };
            let checkpoint = 20 + self.below(CHECKPOINT_MORE);
            let replica = &mut self.group.replicas[at];
            (replica.rate_ppm, replica.checkpoint_at) = (rate, checkpoint);
            for to in 0..replicas {
                let far = [1, 2, 5][self.below(3) as usize];
                self.group.wire(at, to).delay = far;
            }
        }
    }
}
