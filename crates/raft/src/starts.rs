//! The starts of members, and what others know of them.
//!
//! A member whose disk is an older copy, was emptied or was cloned does not know its own promises.
//! The others do. They know which of its starts they heard of last, how far it said to have the
//! log, and for whom it voted. A start that is new to them takes a write of its own. The rest goes
//! with the next write of the log.

use super::types::{LogId, Vote};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many of its own starts a member remembers. Others may not have heard of the latest.
const REMEMBERED: usize = 64;

/// A member's knowledge of starts: its own, and those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Starts {
    /// How many times it has started.
    pub(super) count: u64,
    /// The numbers that its latest starts have drawn, oldest first.
    drawn: Vec<u64>,
    /// The knowledge of others, by their numbers.
    pub(super) known: BTreeMap<u64, KnownStart>,
}

/// The knowledge of another member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownStart {
    /// Its latest start.
    pub(super) start: Start,
    /// The end of its durable log, as it has said.
    pub(super) reached: Option<LogId>,
    /// The last term in which it voted for the member that notes this.
    pub(super) voted: u64,
}

/// A start of a member. Two starts of copies of one disk have the same count, and have drawn
/// different numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) count: u64,
    pub(super) drawn: u64,
}

/// A member's statement about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Introduction {
    pub(super) member: u64,
    pub(super) start: Start,
    /// The numbers that its latest starts have drawn; this start is the last.
    drawn: Vec<u64>,
    /// The last entry of its log, and its vote, as far as durable.
    last: Option<LogId>,
    vote: Option<Vote>,
}

/// The reason why a member has forgotten promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Forgotten {
    #[error(
        "another member of the group knows a start of this one that its disk does not: what is there is older than what it has promised, or a copy"
    )]
    Start,
    #[error(
        "another member of the group has been told that this one has more of the log than there is: what is on its disk is older than what it has promised"
    )]
    Entries,
    #[error(
        "another member of the group knows of a vote of this one that its disk does not: what is there is older than what it has promised"
    )]
    Vote,
}

impl Starts {
    /// Counts one more start, which has drawn `drawn`.
    pub(super) fn begin(&mut self, drawn: u64) {
        self.count += 1;
        self.drawn.push(drawn);
        let old = self.drawn.len().saturating_sub(REMEMBERED);
        self.drawn.drain(..old);
    }

    /// Returns its latest start.
    pub(super) fn own(&self) -> Start {
        Start { count: self.count, drawn: self.drawn.last().copied().unwrap_or_default() }
    }

    /// Returns whether one of its own starts has drawn that number, or one may have that is not
    /// remembered.
    pub(super) fn remembers(&self, drawn: u64) -> bool {
        self.count > REMEMBERED as u64 || self.drawn.contains(&drawn)
    }

    /// Returns the statement of the member of that number, whose log and vote are these.
    pub(super) fn introduce(&self, member: u64, last: Option<LogId>, vote: Option<Vote>) -> Introduction {
        Introduction { member, start: self.own(), drawn: self.drawn.clone(), last, vote }
    }

    /// Returns whether that is the known start of the member.
    pub(super) fn is_known(&self, member: u64, start: Start) -> bool {
        self.known.get(&member).is_some_and(|known| known.start == start)
    }

    /// Judges whether the introduced member remembers all its promises, as far as they are known
    /// here. If so, its start becomes the known one. The result is true if it was not known yet.
    pub(super) fn judge(&mut self, it: &Introduction) -> Result<bool, Forgotten> {
        let Some(known) = self.known.get_mut(&it.member) else {
            self.known.insert(it.member, KnownStart { start: it.start, ..KnownStart::default() });
            return Ok(true);
        };
        if known.start == it.start {
            // A process forgets nothing. An introduction may also come late, after newer promises
            // on another connection.
            return Ok(false);
        }
        if !it.follows(known.start) {
            return Err(Forgotten::Start);
        }
        let term = it.vote.as_ref().map_or(0, |vote| vote.leader_id().term);
        // A leader of a later term may have cut off uncommitted entries. A member that has heard of
        // that term had the rest before.
        let entries = known.reached.filter(|reached| term <= reached.leader_id.term);
        if entries > it.last {
            return Err(Forgotten::Entries);
        }
        if known.voted > term {
            return Err(Forgotten::Vote);
        }
        known.start = it.start;
        Ok(true)
    }

    /// Notes that the member said to have the log up to that entry.
    pub(super) fn reached(&mut self, member: u64, upto: Option<LogId>) {
        if let Some(known) = self.known.get_mut(&member) {
            known.reached = known.reached.max(upto);
        }
    }

    /// Notes that the member voted for this one in that term.
    pub(super) fn voted(&mut self, member: u64, term: u64) {
        if let Some(known) = self.known.get_mut(&member) {
            known.voted = known.voted.max(term);
        }
    }
}

impl Introduction {
    /// Returns whether its disk remembers that start of its own. A start too long ago to be
    /// remembered counts as remembered.
    fn follows(&self, earlier: Start) -> bool {
        let since = self.start.count.checked_sub(earlier.count).filter(|since| *since > 0);
        since.is_some_and(|since| {
            let at = (self.drawn.len() as u64).checked_sub(since + 1);
            at.map_or(self.drawn.len() >= REMEMBERED, |at| {
                self.drawn.get(at as usize) == Some(&earlier.drawn)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_id(term: u64, index: u64) -> LogId {
        LogId::new(openraft::vote::RaftLeaderId::to_committed(Vote::new(term, 1).leader_id()), index)
    }

    fn started(starts: &Starts, drawn: u64) -> Starts {
        let mut next = starts.clone();
        next.begin(drawn);
        next
    }

    #[test]
    fn a_start_follows_those_that_its_disk_remembers() {
        let (mut here, first) = (Starts::default(), started(&Starts::default(), 1));
        let judge = |here: &mut Starts, it: &Starts| here.judge(&it.introduce(2, None, None));
        assert_eq!(judge(&mut here, &first), Ok(true));
        assert_eq!(judge(&mut here, &first), Ok(false));
        let (second, other) = (started(&first, 2), started(&first, 3));
        assert_eq!(judge(&mut here, &second), Ok(true));
        // The disk as it was, a copy of it, a later start of that copy, and an empty disk.
        let of_other = started(&other, 4);
        for forgotten in [&first, &other, &of_other, &started(&Starts::default(), 5), &Starts::default()] {
            assert_eq!(judge(&mut here, forgotten), Err(Forgotten::Start));
        }
        // Starts that no one here has heard of.
        let later = (6..200).fold(second, |it, drawn| started(&it, drawn));
        assert_eq!(judge(&mut here, &later), Ok(true));
        assert!(here.is_known(2, later.own()));
    }

    #[test]
    fn promises_are_kept_or_forgotten() {
        let (mut here, mut it) = (Starts::default(), Starts::default());
        // Each introduction comes from the next start.
        let mut judge = |here: &mut Starts, last, term| {
            it = started(&it, it.count + 1);
            here.judge(&it.introduce(2, last, Some(Vote::new(term, 3))))
        };
        assert_eq!(judge(&mut here, None, 0), Ok(true));
        here.reached(2, Some(log_id(3, 7)));
        here.reached(2, Some(log_id(3, 5)));
        assert_eq!(judge(&mut here, Some(log_id(3, 6)), 3), Err(Forgotten::Entries));
        assert_eq!(judge(&mut here, Some(log_id(3, 7)), 3), Ok(true));
        // A later leader has cut off uncommitted entries.
        assert_eq!(judge(&mut here, Some(log_id(4, 6)), 4), Ok(true));
        assert_eq!(judge(&mut here, Some(log_id(3, 6)), 4), Ok(true));
        here.voted(2, 5);
        assert_eq!(judge(&mut here, Some(log_id(4, 6)), 4), Err(Forgotten::Vote));
        assert_eq!(judge(&mut here, Some(log_id(4, 6)), 5), Ok(true));
        // This introduction is older than the vote, and comes late.
        here.voted(2, 6);
        assert_eq!(here.judge(&it.introduce(2, Some(log_id(4, 6)), Some(Vote::new(5, 3)))), Ok(false));
    }
}
