//! A group of replicas, with the contract of Raft in the place of Raft: messages between them are as Raft's are for the log, and votes are counted at one instant ([`super::election`]). Followers
//! take what the leader of the latest term sends, tell how much of it is on disk, and apply what is committed.

use super::events::Event;
use super::log::{Entry, Log, Place};
use super::net::Way;
use super::replica::{Checkpoint, Replica};
use super::{Building, Violation};
use directory::{Directory, MemoryStore, Output};
use lease::Time;
use std::rc::Rc;
use wire::Versions;

/// What a disk takes for what it is asked for, ms at most.
const DISK_MS: u64 = 6;
/// A checkpoint is made after so many entries, and at most so many more.
const CHECKPOINT_EVERY: u64 = 60;
const CHECKPOINT_MORE: u64 = 300;
/// Entries that are kept though they are in a checkpoint, at most: who is not far behind needs no checkpoint.
const KEPT: u64 = 100;
/// Entries that were not made durable and may be on disk after a crash all the same, at most.
const LUCKY: u64 = 3;

/// See the module.
pub(super) struct Group {
    pub replicas: Vec<Replica>,
    wires: Vec<Wire>,
}

/// From one replica to another.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    /// How long everything takes at least, ms, and twice that at most.
    delay: u64,
    /// How many troubles lose everything that is sent here.
    pub cut: u64,
    /// When the last that was sent arrives: nothing overtakes anything.
    arrives_at: u64,
}

/// What replicas say to each other.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// The leader of `term` leads, and these entries come after that place; up to `commit` all is committed.
    Append { term: u64, round: u64, before: (u64, u64), entries: Vec<Rc<Entry>>, commit: u64 },
    /// The same, with all up to some place at once.
    Install { term: u64, round: u64, checkpoint: Checkpoint },
    /// What the leader sent is on disk up to this index; or it is needed from that index on.
    Appended { term: u64, round: u64, matched: Result<u64, u64> },
}

impl Message {
    fn term(&self) -> u64 {
        match self {
            Message::Append { term, .. } | Message::Install { term, .. } | Message::Appended { term, .. } => {
                *term
            }
        }
    }
}

impl Group {
    /// So many replicas, all with this state.
    pub fn new(
        replicas: usize,
        directory: &Directory,
        store: &MemoryStore,
        time: Time,
        knows: Versions,
    ) -> Group {
        let place = Place { index: 0, term: 0, time };
        let replica = |_| Replica::new(directory.clone(), store.clone(), place, knows);
        let wire = Wire { delay: 1, cut: 0, arrives_at: 0 };
        Group { replicas: (0..replicas).map(replica).collect(), wires: vec![wire; replicas * replicas] }
    }

    /// A lone voter: nobody votes, and nothing is sent ([`super::lone`]).
    pub fn is_lone(&self) -> bool {
        self.replicas.len() == 1
    }

    /// Somebody is there.
    pub fn is_up(&self) -> bool {
        self.replicas.iter().any(|replica| replica.up)
    }

    pub fn wire(&mut self, from: usize, to: usize) -> &mut Wire {
        let at = from * self.replicas.len() + to;
        &mut self.wires[at]
    }

    /// Both hear each other.
    pub fn are_joined(&mut self, one: usize, other: usize) -> bool {
        one == other || self.wire(one, other).cut == 0 && self.wire(other, one).cut == 0
    }

    pub fn heal(&mut self) {
        self.wires.iter_mut().for_each(|wire| wire.cut = 0);
        self.replicas.iter_mut().for_each(|replica| replica.disk_ms = 0);
    }

    /// The replica that leads in the latest term.
    pub fn leader(&self) -> Option<usize> {
        let leads = self.replicas.iter().enumerate().filter(|(_, replica)| replica.leads.is_some());
        leads.max_by_key(|(_, replica)| replica.term).map(|(at, _)| at)
    }

    /// Everything that was proposed is committed, and applied by all.
    pub fn is_idle(&self) -> bool {
        let Some(leader) = self.leader().and_then(|at| self.replicas.get(at)) else { return false };
        let last = leader.log.last().index;
        let idle = leader.leads.as_ref().is_some_and(|leads| leads.is_idle());
        idle && self.replicas.iter().all(|replica| replica.up && replica.applied == last)
    }
}

impl Building {
    /// Says something to another replica.
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
        self.events.add(time, Event::Replicates { from, to, message });
    }

    /// A replica hears another.
    pub(super) fn replicates(&mut self, from: usize, to: usize, message: Message) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[to];
        if !replica.up {
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
                // So it hears that there is a later term.
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
        entries: Vec<Rc<Entry>>,
        commit: u64,
    ) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[to];
        let term = replica.term;
        let known = before < replica.log.base() || replica.log.term_at(before) == Some(before_term);
        if !known {
            let last = replica.log.last().index.min(before.saturating_sub(1)).max(replica.commit);
            self.sends_message(to, from, Message::Appended { term, round, matched: Err(last) });
            return Ok(());
        }
        let (mut index, mut fresh) = (before, false);
        for entry in entries {
            index += 1;
            // What it had before its checkpoint is committed, so it is the same.
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

    /// A replica that is far behind gets the state as the leader had it at some place.
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
            replica.tail += 1;
            replica.log = Log::after(place);
            (replica.durable, replica.verified, replica.commit) = (place.index, place.index, place.index);
            replica.loads(checkpoint)?;
            self.check_replica(to, &[])?;
        }
        let matched = Ok(self.group.replicas[to].commit.min(self.group.replicas[to].durable));
        self.sends_message(to, from, Message::Appended { term, round, matched });
        Ok(())
    }

    /// The disk is made to keep what is in the log now.
    pub(super) fn writes(&mut self, at: usize) {
        let slow = self.group.replicas[at].disk_ms;
        let takes = self.below(DISK_MS) + if slow > 0 { self.below(slow) } else { 0 };
        let now = self.now;
        let replica = &mut self.group.replicas[at];
        replica.synced_at = replica.synced_at.max(now) + takes;
        let (through, tail, time) = (replica.log.last().index, replica.tail, replica.synced_at);
        self.events.add(time, Event::Synced { at, tail, through });
    }

    /// The disk has kept the log up to there.
    pub(super) fn synced(&mut self, at: usize, tail: u64, through: u64) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[at];
        if !replica.up || replica.tail != tail {
            return Ok(());
        }
        replica.durable = replica.durable.max(through);
        if replica.leads.is_some() {
            return self.commits(at);
        }
        let (term, matched) = (replica.term, Ok(replica.durable.min(replica.verified)));
        if let Some(leader) = replica.follows {
            self.sends_message(at, leader, Message::Appended { term, round: 0, matched });
        }
        Ok(())
    }

    /// All up to this index is committed, as far as this replica knows.
    pub(super) fn knows_committed(&mut self, at: usize, index: u64) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[at];
        let before = std::mem::replace(&mut replica.commit, index);
        for index in before + 1..=index {
            let of = replica.log.term_at(index);
            let Some(term) = of else { return Err(format!("replica {at} has no entry {index}")) };
            let by = replica.leads.is_some().then_some(replica.term);
            self.happened.survived += u64::from(self.ledger.commits(at, index, term, by)?);
        }
        Ok(())
    }

    /// Applies what is committed.
    pub(super) fn applies_committed(&mut self, at: usize) -> Result<(), Violation> {
        loop {
            let replica = &self.group.replicas[at];
            let entry = replica.log.get(replica.applied + 1).filter(|_| replica.applied < replica.commit);
            let Some(entry) = entry.cloned() else { return Ok(()) };
            self.applies_entry(at, &entry)?;
        }
    }

    fn applies_entry(&mut self, at: usize, entry: &Entry) -> Result<(), Violation> {
        let tells = self.may_tell(at, entry);
        let mut said: Vec<Vec<Output>> = Vec::with_capacity(entry.inputs.len());
        for input in &entry.inputs {
            said.push(self.applies_input(at, entry.time, input)?);
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
        told.into_iter().try_for_each(|output| self.server_puts_out(at, output))
    }

    /// A replica's process ends, and all connections with it. It starts again after `pause`.
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
        if self.group.replicas[at].up {
            return Ok(());
        }
        let now = self.now;
        let replica = &mut self.group.replicas[at];
        replica.starts()?;
        replica.heard = now;
        self.notes(|| format!("replica {at} starts"));
        self.check_replica(at, &[])
    }

    /// Until when the server that the event is for is stopped.
    pub(super) fn is_for_stopped(&self, event: &Event) -> Option<u64> {
        let server = match event {
            Event::Replicates { to: at, .. } | Event::Synced { at, .. } => *at,
            Event::Appends(at, _) | Event::Beats(at, _) | Event::Settles(at, ..) => *at,
            Event::Arrives { at, way: Way::Up, connection, .. } => self.links[*at].server_of(*connection)?,
            _ => return None,
        };
        Some(self.group.replicas[server].stopped_until).filter(|until| *until > self.now)
    }

    /// Each replica has a clock of its own, and each wire its length.
    pub(super) fn begins_group(&mut self) {
        let replicas = self.group.replicas.len();
        // Of two clocks neither may be wrong by more than half of what one may be beside a right one.
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
