//! Elections. A replica that has not heard from a leader for long asks all others for their votes,
//! which are counted at one instant. A replica gives no vote if it has heard from a leader lately,
//! or if it has more of the log (Raft §5.4.1, §9.6).

use super::events::Event;
use super::{Violation, World};

/// Time between looks for replicas that have waited too long, ms.
const WATCH_MS: u64 = 50;
/// Time that a replica waits for a leader's message at least, ms.
const PATIENCE_MS: u64 = 400;
/// How much longer a replica waits at most, ms.
const PATIENCE_MORE_MS: u64 = 400;

impl World {
    /// Every replica that has not heard from a leader for long stands for election.
    pub(super) fn watches(&mut self) -> Result<(), Violation> {
        self.later(WATCH_MS, Event::Watches);
        for at in 0..self.group.replicas.len() {
            let patience = PATIENCE_MS + self.below(PATIENCE_MORE_MS);
            let replica = &self.group.replicas[at];
            let runs = replica.up && replica.stopped_until <= self.now;
            let waits =
                runs && replica.may_stand() && replica.leads.is_none() && self.now > replica.heard + patience;
            if waits {
                self.stands(at, false)?;
            }
        }
        Ok(())
    }

    /// A replica asks for votes. If `rudely`, replicas that have a leader vote, too.
    pub(super) fn stands(&mut self, candidate: usize, rudely: bool) -> Result<(), Violation> {
        let now = self.now;
        let (term, last) = {
            let replica = &self.group.replicas[candidate];
            (replica.term, replica.log.last())
        };
        let mut voters = Vec::new();
        for at in 0..self.group.replicas.len() {
            let joined = self.group.are_joined(candidate, at);
            let replica = &self.group.replicas[at];
            let theirs = replica.log.last();
            let hears = at != candidate && (replica.leads.is_some() || now <= replica.heard + PATIENCE_MS);
            let complete = (theirs.term, theirs.index) <= (last.term, last.index);
            if replica.up && replica.stopped_until <= now && joined && complete && (rudely || !hears) {
                voters.push(at);
            }
        }
        let members = self.group.replicas[candidate].log.members();
        if !members.suffice(|member| self.group.at(member).is_some_and(|at| voters.contains(&at))) {
            return Ok(());
        }
        let term = voters.iter().map(|at| self.group.replicas[*at].term).fold(term, u64::max) + 1;
        for at in voters {
            self.steps_down(at);
            self.group.replicas[at].enters(term);
            self.group.replicas[at].heard = now;
        }
        self.takes_lead(candidate)
    }
}
