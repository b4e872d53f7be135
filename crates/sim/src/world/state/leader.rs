//! A replica's state as leader.

use crate::world::log::LogPlace;
use directory::Input;
use lease::{SessionId, Time};
use wire::ToServer;

/// A replica's state as leader.
#[derive(Debug)]
pub(crate) struct Leader {
    /// The time of its election, and the time of its last entry then. Its clock goes on from there.
    pub since: u64,
    pub from: Time,
    /// The index of the first entry of its own term.
    pub first: u64,
    /// Proposals for the next entry.
    pub batch: Vec<Input>,
    /// By replica.
    pub followers: Vec<Follower>,
    /// Counts the rounds of messages to all followers.
    pub round: u64,
    pub questions: Vec<Question>,
}

/// A leader's knowledge of another replica.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    /// The replica's member number.
    pub member: u64,
    /// The next index to send.
    pub next: u64,
    /// The index up to which the replica is known to have the log on disk.
    pub matched: u64,
    /// The latest round that it has answered.
    pub round: u64,
    /// The time at which a checkpoint was sent.
    pub installed: Option<u64>,
}

/// A machine's question, which changes nothing.
#[derive(Debug)]
pub(crate) struct Question {
    /// The question may be answered once a majority has answered this round.
    pub round: u64,
    /// And once the entries up to this index are applied.
    pub index: u64,
    /// The committed part of the log when the question came, of all replicas together. Only the
    /// simulation knows it.
    pub committed: u64,
    pub at: usize,
    pub connection: u64,
    pub session: SessionId,
    pub message: ToServer,
}

impl Leader {
    /// A leader elected now, among these members, with this log.
    pub fn new(now: u64, last: LogPlace, members: impl Iterator<Item = u64>) -> Leader {
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

    /// The time on the leader's clock.
    pub fn time(&self, now: u64, rate_ppm: u64) -> Time {
        Time(self.from.0 + (now - self.since) * rate_ppm / 1_000_000)
    }

    pub fn follower(&self, member: u64) -> Option<&Follower> {
        self.followers.iter().find(|follower| follower.member == member)
    }
}
