//! What a replica does as long as it takes itself for the leader: it gives proposals a time and a
//! place in its log, sends that to the others, and knows an entry of its own term for committed
//! when a majority has it on disk (Raft §5.3, §5.4.2). A question it answers once a majority has
//! taken it for the leader since the question came (Raft §6.4, the read index).

use super::events::Event;
use super::group::Message;
use super::log::{Entry, Place};
use super::net::{Packet, Way};
use super::{Mutation, Violation, World};
use directory::Input;
use lease::{SessionId, Time};
use wire::{Space, ToServer};

/// How often a leader says that it is there, ms.
const BEAT_MS: u64 = 100;
/// Entries in one message at most.
const ENTRIES_MAX: usize = 64;
/// A checkpoint that was sent is not sent again before so long, ms.
const INSTALL_MS: u64 = 2_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Leader {
    /// When it was elected, and the time of the last entry that it had then: its clock goes on from
    /// there.
    since: u64,
    from: Time,
    /// The index of the first entry of its own.
    pub first: u64,
    /// Proposals of which the next entry is made.
    batch: Vec<Input>,
    /// By replica.
    followers: Vec<Follower>,
    /// Counts what it said to all of them at once.
    round: u64,
    questions: Vec<Question>,
}

/// What a leader knows of another replica.
#[derive(Clone, Debug)]
struct Follower {
    /// Which member it is.
    member: u64,
    /// The index to be sent next.
    next: u64,
    /// Up to which index it is known to have the log on disk.
    matched: u64,
    /// The latest round that it has answered.
    round: u64,
    /// When it was sent a checkpoint.
    installed: Option<u64>,
}

/// A question of a machine that changes nothing.
#[derive(Debug)]
struct Question {
    /// Good when a majority has answered this.
    round: u64,
    /// And what was committed up to here is applied.
    index: u64,
    /// How much of the log all replicas together had committed when it was asked: what only the
    /// simulation knows.
    committed: u64,
    at: usize,
    connection: u64,
    session: SessionId,
    message: ToServer,
}

impl Leader {
    /// One that is elected now, among these, with this log.
    pub fn new(now: u64, last: Place, members: impl Iterator<Item = u64>) -> Leader {
        let follower =
            |member| Follower { member, next: last.index + 1, matched: 0, round: 0, installed: None };
        Leader {
            since: now,
            from: last.time,
            first: last.index + 1,
            batch: Vec::new(),
            followers: members.map(follower).collect(),
            round: 0,
            questions: Vec::new(),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.batch.is_empty() && self.questions.is_empty()
    }

    /// What its clock shows.
    pub fn time(&self, now: u64, rate_ppm: u64) -> Time {
        Time(self.from.0 + (now - self.since) * rate_ppm / 1_000_000)
    }

    fn follower(&self, member: u64) -> Option<&Follower> {
        self.followers.iter().find(|follower| follower.member == member)
    }
}

impl World {
    /// A replica begins to lead.
    pub(super) fn takes_lead(&mut self, leader: usize) -> Result<(), Violation> {
        self.notes(|| format!("replica {leader} leads {:?}", self.group.replicas[leader].log.members()));
        self.check_complete(leader)?;
        let members: Vec<u64> = self.group.replicas.iter().map(|replica| replica.member).collect();
        let now = self.now;
        let replica = &mut self.group.replicas[leader];
        replica.leads = Some(Leader::new(now, replica.log.last(), members.into_iter()));
        replica.follows = Some(leader);
        self.happened.elections += 1;
        self.propose(leader, Input::Lead);
        self.propose(leader, Input::Space(Space { total: 1 << 40, free: 1 << 40, files: 0, lends: 0 }));
        self.beats(leader, self.group.replicas[leader].start)
    }

    /// It has heard of a later term: all that was to come of its leadership does not.
    pub(super) fn steps_down(&mut self, leader: usize) {
        let replica = &mut self.group.replicas[leader];
        if replica.leads.take().is_some() {
            replica.start += 1;
            self.turns_all_away(leader);
        }
    }

    /// Puts an input among those of the next entry.
    pub(super) fn adds_to_batch(&mut self, leader: usize, input: Input) {
        let replica = &mut self.group.replicas[leader];
        let Some(leads) = &mut replica.leads else { return };
        leads.batch.push(input);
        if leads.batch.len() == 1 {
            let start = replica.start;
            let wait = self.below(3);
            self.later(wait, Event::Appends(leader, start));
        }
    }

    /// What was proposed becomes an entry.
    pub(super) fn appends(&mut self, leader: usize, start: u64) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[leader];
        let Some(leads) = replica.leads.as_mut().filter(|_| replica.start == start) else { return Ok(()) };
        let inputs = std::mem::take(&mut leads.batch);
        self.adds_entry(leader, inputs, None);
        Ok(())
    }

    /// It says that it is there.
    pub(super) fn beats(&mut self, leader: usize, start: u64) -> Result<(), Violation> {
        let replica = &self.group.replicas[leader];
        if replica.leads.is_some() && replica.start == start {
            self.later(BEAT_MS, Event::Beats(leader, start));
            self.sends_to_all(leader);
        }
        Ok(())
    }

    pub(super) fn sends_to_all(&mut self, leader: usize) {
        let replica = &mut self.group.replicas[leader];
        let members = replica.log.members().all();
        if let Some(leads) = &mut replica.leads {
            leads.round += 1;
        }
        for to in (0..self.group.replicas.len()).filter(|to| *to != leader) {
            if members.contains(&self.group.replicas[to].member) {
                self.sends_log(leader, to);
            }
        }
    }

    /// Sends what the other is not known to have, or only that it leads.
    fn sends_log(&mut self, leader: usize, to: usize) {
        let (now, member) = (self.now, self.group.replicas[to].member);
        let replica = &mut self.group.replicas[leader];
        let Some(leads) = &mut replica.leads else { return };
        let (term, round, commit) = (replica.term, leads.round, replica.commit);
        let Some(follower) = leads.followers.get_mut(to) else { return };
        if follower.member != member {
            let next = replica.log.last().index + 1;
            *follower = Follower { member, next, matched: 0, round: 0, installed: None };
        }
        let before = follower.next - 1;
        let message = match replica.log.term_at(before) {
            Some(before_term) => {
                let entries = replica.log.entries_after(before, ENTRIES_MAX);
                follower.next += entries.len() as u64;
                Message::Append { term, round, before: (before, before_term), entries, commit }
            }
            None if follower.installed.is_some_and(|then| now < then + INSTALL_MS) => return,
            // Who sends it reads all of it.
            None if replica.checkpoint.rows.are_rotten()
                && self.weather.lie != Some(Mutation::BelievesRot) =>
            {
                return self.server_is_lost(leader);
            }
            None => {
                follower.installed = Some(now);
                Message::Install { term, round, checkpoint: replica.checkpoint.clone() }
            }
        };
        self.sends_message(leader, to, message);
    }

    /// A follower says how much of the log it has on disk, or from where on it needs it.
    pub(super) fn hears_follower(
        &mut self,
        leader: usize,
        from: usize,
        round: u64,
        matched: Result<u64, u64>,
    ) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[leader];
        let Some(follower) = replica.leads.as_mut().and_then(|leads| leads.followers.get_mut(from)) else {
            return Ok(());
        };
        follower.round = follower.round.max(round);
        match matched {
            Ok(matched) => {
                follower.matched = follower.matched.max(matched);
                follower.next = follower.next.max(follower.matched + 1);
            }
            Err(last) => follower.next = (last + 1).clamp(follower.matched + 1, follower.next),
        }
        if follower.next <= replica.log.last().index {
            self.sends_log(leader, from);
        }
        self.commits(leader)?;
        self.answers_questions(leader)
    }

    /// Up to where that member is known to have the log on disk.
    pub(super) fn matched(&self, leader: usize, member: u64) -> u64 {
        let replica = &self.group.replicas[leader];
        if replica.member == member {
            return replica.durable;
        }
        let follower = replica.leads.as_ref().and_then(|leads| leads.follower(member));
        follower.map_or(0, |follower| follower.matched)
    }

    /// What a majority has on disk is committed, if it is of this term or before such.
    pub(super) fn commits(&mut self, leader: usize) -> Result<(), Violation> {
        let replica = &self.group.replicas[leader];
        if replica.leads.is_none() {
            return Ok(());
        }
        let index = match self.weather.lie {
            Some(Mutation::AcknowledgesEarly) => replica.durable,
            _ => replica.log.members().reach(|member| self.matched(leader, member)),
        };
        if index <= replica.commit || replica.log.term_at(index) != Some(replica.term) {
            return Ok(());
        }
        self.knows_committed(leader, index)?;
        self.applies_committed(leader)?;
        self.answers_questions(leader)
    }

    /// A machine asks what changes nothing.
    pub(super) fn is_asked(
        &mut self,
        leader: usize,
        at: usize,
        connection: u64,
        session: SessionId,
        message: ToServer,
    ) -> Result<(), Violation> {
        let committed = self.ledger.committed();
        let replica = &mut self.group.replicas[leader];
        let Some(leads) = &mut replica.leads else { return Ok(()) };
        let (round, index) = (leads.round + 1, replica.commit.max(leads.first));
        let question = Question { round, index, committed, at, connection, session, message };
        if self.weather.lie == Some(Mutation::StaleReads) {
            return self.answers(leader, question);
        }
        leads.questions.push(question);
        self.sends_to_all(leader);
        Ok(())
    }

    pub(super) fn answers_questions(&mut self, leader: usize) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[leader];
        let (Some(leads), applied) = (&mut replica.leads, replica.applied) else { return Ok(()) };
        if leads.questions.is_empty() {
            return Ok(());
        }
        let (round, it) = (leads.round, replica.member);
        let answered = |member| match leads.follower(member) {
            Some(_) if member == it => round,
            follower => follower.map_or(0, |follower| follower.round),
        };
        let confirmed = replica.log.members().reach(answered);
        let ready = |question: &mut Question| question.round <= confirmed && question.index <= applied;
        let questions: Vec<Question> = leads.questions.extract_if(.., ready).collect();
        for question in questions {
            // Over the last it may have come upon damage.
            if self.group.replicas[leader].leads.is_some() {
                self.answers(leader, question)?;
            }
        }
        Ok(())
    }

    fn answers(&mut self, leader: usize, question: Question) -> Result<(), Violation> {
        let Question { committed, at, connection, session, message, .. } = question;
        self.check_read(leader, committed)?;
        let replica = &self.group.replicas[leader];
        let answer = replica.directory.query(session, &message, &replica.store);
        if replica.store.is_noticed() && self.weather.lie != Some(Mutation::BelievesRot) {
            self.server_is_lost(leader);
        } else if let Some(answer) = answer {
            self.send(at, Way::Down, connection, Packet::Tells(answer));
        }
        Ok(())
    }

    /// What came of an input of the log is put out by the leader that proposed it. Names of
    /// connections in entries of others mean nothing here; what else came of those [`Input::Lead`]
    /// says again.
    pub(super) fn may_tell(&self, replica: usize, entry: &Entry) -> bool {
        let replica = &self.group.replicas[replica];
        replica.leads.is_some() && replica.term == entry.term
    }
}
