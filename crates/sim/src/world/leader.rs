//! A replica as leader. It gives proposals a time and a place in its log, and sends that to the
//! others. It knows an entry of its own term for committed when a majority has it on disk (Raft
//! §5.3, §5.4.2). It answers a question once a majority has confirmed its leadership since the
//! question came (Raft §6.4, the read index).

use super::events::Event;
use super::log::RaftEntry;
use super::state::group::Message;
use super::state::leader::{Follower, Leader, Question};
use super::state::link::{Packet, Way};
use super::{Mutation, Violation, World};
use directory::Input;
use lease::SessionId;
use wire::{Space, ToServer};

/// Time between a leader's heartbeats, ms.
const BEAT_MS: u64 = 100;
/// Entries in one message at most.
const ENTRIES_MAX: usize = 64;
/// A checkpoint is sent again after so long at the earliest, ms.
const INSTALL_MS: u64 = 2_000;

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
        self.propose(
            leader,
            Input::Space(Space { total: 1 << 40, free: 1 << 40, files: 0, lends: 0, elsewhere: 0 }),
        );
        self.beats(leader, self.group.replicas[leader].start)
    }

    /// The leader has learnt of a later term. All pending events of its leadership come to nothing.
    pub(super) fn steps_down(&mut self, leader: usize) {
        let replica = &mut self.group.replicas[leader];
        if replica.leads.take().is_some() {
            replica.start += 1;
            self.turns_all_away(leader);
        }
    }

    /// Adds an input to the next entry.
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

    /// The proposals become an entry.
    pub(super) fn appends(&mut self, leader: usize, start: u64) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[leader];
        let Some(leads) = replica.leads.as_mut().filter(|_| replica.start == start) else { return Ok(()) };
        let inputs = std::mem::take(&mut leads.batch);
        self.adds_entry(leader, inputs, None);
        Ok(())
    }

    /// The leader sends its heartbeat.
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

    /// Sends the entries that the other is not known to have, or only the heartbeat.
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
            // To send a checkpoint is to read all of it.
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

    /// A follower reports how much of the log it has on disk, or from which index on it needs the
    /// log.
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

    /// The index up to which that member is known to have the log on disk.
    pub(super) fn matched(&self, leader: usize, member: u64) -> u64 {
        let replica = &self.group.replicas[leader];
        if replica.member == member {
            return replica.durable;
        }
        let follower = replica.leads.as_ref().and_then(|leads| leads.follower(member));
        follower.map_or(0, |follower| follower.matched)
    }

    /// Commits all that a majority has on disk, if the last entry of it is of this term.
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

    /// A machine asks a question that changes nothing.
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
            // The last answer may have found damage.
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

    /// Whether the replica sends an entry's outputs: only the leader that proposed the entry does.
    /// The names of connections in other entries mean nothing here, and [`Input::Lead`] gives the
    /// rest of those outputs again.
    pub(super) fn may_tell(&self, replica: usize, entry: &RaftEntry) -> bool {
        let replica = &self.group.replicas[replica];
        replica.leads.is_some() && replica.term == entry.term
    }
}
