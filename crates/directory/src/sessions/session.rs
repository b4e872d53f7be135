//! Sessions: one for each client incarnation, with its allowance and how far its log has come.

use ident::ServerId;
use lease::{SessionId, Time};
use namespace::{Answer, Effect, Error};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{GRACE_BYTES, GreetingNumber, MachineId, Rights, SHIPS_MAX, Space, ToClient, Version};

/// Inode numbers given to a session at a time.
pub const INODE_BLOCK: u64 = 4096;
/// Blocks of inode numbers that a session may have in use; older ones count as used up.
const INODE_BLOCKS_MAX: usize = 8;
/// Refusals remembered for a log that is sent again. The client of one that is forgotten counts all
/// updates up to there as lost, unless it has been told.
const REFUSALS_MAX: usize = 4096;
/// The divisor that bounds one grant of allowance: one session gets at most this fraction of the
/// bytes left. Allowances shrink near the end, until calls are synchronous.
const SHARE_OF_LEFT: u64 = 4;
/// Bytes that a session begins with, if there is room.
const FIRST_BYTES: u64 = 256 << 20;
/// Files that a session begins with.
const FIRST_FILES: u64 = 65_536;
/// Files are bounded by the bytes that they take. So this allowance only keeps one client from
/// counting for ever.
const FILES_ALLOWANCE_MAX: u64 = 1 << 20;

/// A misdeed: a message that no honest client sends. It ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misdeed {
    /// The bytes are no message.
    #[error("what it sent is no message")]
    NoMessage,
    /// Entries of the log are missing.
    #[error("log entries are missing: {first} came where {expected} was due")]
    LogGap {
        /// The number due.
        expected: u64,
        /// The number that came.
        first: u64,
    },
    /// A message has more log entries than one may.
    #[error("too many log entries in one message")]
    TooManyEntries,
    /// A request wants more leases than any operation needs.
    #[error("too many leases wanted at once")]
    TooManyWants,
    /// More requests wait than a client may have.
    #[error("too many requests at once")]
    TooManyRequests,
    /// An update was decided by a version that the session does not speak.
    #[error("decided by version {0}, which the session does not speak")]
    OtherVersion(Version),
    /// The log contains a question.
    #[error("a question was logged as an update")]
    QuestionLogged,
    /// An update rests on leases that the session does not hold. An honest client believes that it
    /// holds the leases granted to it, which is never more than it does.
    #[error("an update rests on leases that the session does not hold")]
    NoLease,
    /// An update is of a file that another server manages, and no lease on it is given here.
    #[error("an update is of a file that another server manages")]
    NotHere,
    /// A black box was released without a value, or a shared value with one.
    #[error("a lease was released as one of the other kind")]
    OtherKindOfField,
    /// The release names a lease that no client can hold.
    #[error("a lease was released of which there is none")]
    NoSuchLease,
    /// The session releases a lease that it does not hold, and no recall of that lease waits for an
    /// answer.
    #[error("a lease was released that the session does not hold")]
    NotHeld,
    /// A recall or a flush was not answered, though the session was renewed all along.
    #[error("what others wait for was not answered in time")]
    RecallIgnored,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub machine: MachineId,
    pub incarnation: u64,
    /// The latest greeting for this session.
    pub greeted: GreetingNumber,
    /// When the session was last heard of.
    pub renewed: Time,
    /// When the session's log last grew, or the session began to be heard.
    pub worked: Time,
    /// Sequence number of the next log entry.
    pub next_entry: u64,
    /// The latest entries that were refused.
    pub refused: VecDeque<(u64, Error)>,
    /// The latest entry whose refusal is forgotten; 0 if there is none.
    pub forgotten: u64,
    /// The results of the latest shipped operations, by the client's numbers for them. Such an
    /// operation must not be done twice, so its result stays as long as the answer may have been
    /// lost.
    shipped: VecDeque<(u64, Shipped)>,
    inodes: VecDeque<Inodes>,
    /// Bytes and files set aside and not yet used up.
    allowance: (u64, u64),
    /// The rights of the session's machine. They do not change, so a copy here saves a lookup.
    pub rights: Rights,
}

/// The result of a shipped operation.
pub(crate) type Shipped = Result<(Answer, Vec<Effect>), Error>;

/// A block of inode numbers, and which of them were used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Inodes {
    first: u64,
    used: Vec<u64>,
}

impl Session {
    pub fn lapsed(&self, now: Time, term_ms: u64) -> bool {
        now.ms_since(self.renewed) > term_ms
    }

    /// Takes a number from the session's blocks; false if no block has it, or it is used already.
    pub fn take_inode(&mut self, ino: u64) -> bool {
        let Some(block) =
            self.inodes.iter_mut().find(|block| (block.first..block.first + INODE_BLOCK).contains(&ino))
        else {
            return false;
        };
        let index = (ino - block.first) as usize;
        let Some(word) = block.used.get_mut(index / 64) else { return false };
        let bit = 1 << (index % 64);
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    /// Remembers the result of a shipped operation. A client has at most [`SHIPS_MAX`] under way,
    /// and receives results in the order in which they are done. So it has received every result
    /// that is not among the latest.
    pub fn remember(&mut self, number: u64, result: Shipped) {
        if self.shipped.len() == SHIPS_MAX {
            self.shipped.pop_front();
        }
        self.shipped.push_back((number, result));
    }

    /// The results that are remembered, oldest first.
    pub fn shipped(&self) -> impl Iterator<Item = ToClient> {
        let message =
            |(number, result): &(u64, Shipped)| ToClient::Shipped { number: *number, result: result.clone() };
        self.shipped.iter().map(message)
    }

    /// The result of the operation that has this number, if it was done.
    pub fn shipped_as(&self, number: u64) -> Option<&Shipped> {
        self.shipped.iter().find(|(of, _)| *of == number).map(|(_, result)| result)
    }

    /// Refusals from this entry on, oldest first.
    pub fn refused_from(&self, first: u64) -> Vec<(u64, Error)> {
        let from = self.refused.partition_point(|(entry, _)| *entry < first);
        self.refused.range(from..).copied().collect()
    }

    pub fn refuse(&mut self, entry: u64, error: Error) {
        if self.refused.len() == REFUSALS_MAX {
            self.forgotten = self.refused.pop_front().map_or(self.forgotten, |(entry, _)| entry);
        }
        self.refused.push_back((entry, error));
    }
}

/// All sessions that are not over, and the counters and room that they share.
///
/// An update, a tick or a greeting costs the same however many sessions there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sessions {
    /// Each has a row of its own. Sessions come by [`Sessions::open`] and go by [`Sessions::end`].
    #[serde(skip)]
    pub all: BTreeMap<SessionId, Session>,
    /// The same, by their machines.
    #[serde(skip)]
    by_machine: BTreeSet<(MachineId, SessionId)>,
    /// The bytes of all allowances.
    #[serde(skip)]
    set_aside: u64,
    /// Sessions whose clients have yet to hear how far their logs have come.
    pub owed: BTreeSet<SessionId>,
    pub next: u64,
    pub next_inode: u64,
    /// The space as last measured.
    pub space: Space,
    /// Bytes used up since then: they are in no allowance and not yet in the measurement.
    spent: u64,
    /// Bytes of the hosts' reserve that were lent since then.
    lent: u64,
}

impl Sessions {
    /// The sessions of `server`. Inodes are numbered from `next_inode` on, by its own count.
    pub fn new(server: ServerId, next_inode: u64) -> Sessions {
        let (next, next_inode) = (server.number(1), server.number(next_inode));
        Sessions {
            all: BTreeMap::new(),
            by_machine: BTreeSet::new(),
            set_aside: 0,
            owed: BTreeSet::new(),
            next,
            next_inode,
            space: Space::default(),
            spent: 0,
            lent: 0,
        }
    }

    /// The same with these sessions, which were read from their rows.
    pub fn with(self, all: BTreeMap<SessionId, Session>) -> Sessions {
        let by_machine = all.iter().map(|(id, session)| (session.machine, *id)).collect();
        let set_aside = all.values().map(|session| session.allowance.0).fold(0, u64::saturating_add);
        Sessions { all, by_machine, set_aside, ..self }
    }

    /// Whether what is kept of all sessions together agrees with each of them.
    pub fn agree(&self) -> bool {
        *self == self.clone().with(self.all.clone()) && self.owed.iter().all(|id| self.all.contains_key(id))
    }

    /// The sessions of `machine`.
    pub fn of_machine(&self, machine: MachineId) -> impl Iterator<Item = (SessionId, &Session)> {
        let its = (machine, SessionId(0))..=(machine, SessionId(u64::MAX));
        self.by_machine.range(its).filter_map(|(_, id)| Some((*id, self.all.get(id)?)))
    }

    /// Ends a session. False if there is none of this number.
    pub fn end(&mut self, session: SessionId) -> bool {
        let Some(ended) = self.all.remove(&session) else { return false };
        self.by_machine.remove(&(ended.machine, session));
        self.set_aside = self.set_aside.saturating_sub(ended.allowance.0);
        self.owed.remove(&session);
        true
    }

    fn set_allowance(&mut self, session: SessionId, allowance: (u64, u64)) {
        if let Some(of) = self.all.get_mut(&session) {
            self.set_aside = self.set_aside.saturating_sub(of.allowance.0).saturating_add(allowance.0);
            of.allowance = allowance;
        }
    }

    /// Whether `session` was begun, and does not belong to the machine now.
    pub fn is_over(&self, machine: MachineId, session: SessionId) -> bool {
        self.has_begun(session) && self.all.get(&session).is_none_or(|known| known.machine != machine)
    }

    /// Whether `session` was ever begun here. Those of other servers were not.
    pub fn has_begun(&self, session: SessionId) -> bool {
        session.0 < self.next && ServerId::of(session.0).0 == ServerId::of(self.next).0
    }

    /// Begins a session; its identifier is never used again.
    pub fn open(
        &mut self,
        now: Time,
        machine: MachineId,
        (incarnation, greeted): (u64, GreetingNumber),
        rights: Rights,
    ) -> SessionId {
        let id = SessionId(self.next);
        self.next += 1;
        let session = Session {
            machine,
            incarnation,
            greeted,
            renewed: now,
            worked: now,
            next_entry: 1,
            refused: VecDeque::new(),
            forgotten: 0,
            shipped: VecDeque::new(),
            inodes: VecDeque::new(),
            allowance: (0, 0),
            rights,
        };
        self.by_machine.insert((machine, id));
        self.all.insert(id, session);
        id
    }

    /// The next block of inode numbers for a client that knows of all its blocks below `known`: one
    /// that the client was given and has not heard of, or a new one. If the server always gave a
    /// new block, those lost on breaking connections would push out the one in use.
    pub fn reserve_inodes(&mut self, session: SessionId, known: u64) -> (u64, u64) {
        let blocks = self.all.get(&session).into_iter().flat_map(|session| &session.inodes);
        if let Some(lost) = blocks.map(|block| block.first).find(|first| *first >= known) {
            return (lost, lost + INODE_BLOCK);
        }
        let first = self.next_inode;
        if let Some(session) = self.all.get_mut(&session) {
            self.next_inode += INODE_BLOCK;
            if session.inodes.len() == INODE_BLOCKS_MAX {
                session.inodes.pop_front();
            }
            session.inodes.push_back(Inodes { first, used: vec![0; INODE_BLOCK as usize / 64] });
        }
        (first, self.next_inode)
    }

    /// Takes in the host's measurement.
    pub fn measured(&mut self, space: Space) {
        self.space = space;
        (self.spent, self.lent) = (0, 0);
    }

    /// Bytes used up since the last measurement.
    pub fn used_up(&self) -> u64 {
        self.spent
    }

    /// Bytes that can still be set aside.
    pub fn left(&self) -> u64 {
        self.space.free.saturating_sub(self.set_aside).saturating_sub(self.spent)
    }

    /// The space as clients see it; `files` is the number of files.
    pub fn space(&self, files: u64) -> Space {
        Space { free: self.left(), files, ..self.space }
    }

    /// The allowance that a session begins with.
    pub fn first_allowance(&mut self, session: SessionId) -> (u64, u64) {
        self.allow(session, (0, 0), (FIRST_BYTES, FIRST_FILES), 0)
    }

    /// Fills the allowance of `session`, which reports that it still holds `held`, up to `want`, as
    /// far as there is room. For replacing existing content, the host's reserve lends the rest.
    /// Returns the amount added.
    pub fn allow(
        &mut self,
        session: SessionId,
        held: (u64, u64),
        want: (u64, u64),
        replaces: u64,
    ) -> (u64, u64) {
        let Some(current) = self.all.get(&session) else { return (0, 0) };
        // An allowance that the client no longer claims is free again. A claim beyond what the
        // client was given does not count.
        let (bytes, files) = (held.0.min(current.allowance.0), held.1.min(current.allowance.1));
        self.set_allowance(session, (bytes, files));
        let given = want.0.saturating_sub(held.0.max(bytes)).min(self.left() / SHARE_OF_LEFT);
        let more_bytes = given.max(replaces.min(self.space.lends.saturating_sub(self.lent)));
        self.lent = self.lent.saturating_add(more_bytes - given);
        let more_files = want.1.min(FILES_ALLOWANCE_MAX).saturating_sub(held.1.max(files));
        self.set_allowance(session, (bytes + more_bytes, files + more_files));
        (more_bytes, more_files)
    }

    /// Charges an update to the session's allowance. Beyond the allowance it takes only space that
    /// is not set aside for others.
    pub fn spend(&mut self, session: SessionId, cost: (u64, u64)) -> Result<(), Error> {
        let Some(allowance) = self.all.get(&session).map(|session| session.allowance) else {
            return Err(Error::CutOff);
        };
        // An update that an honest client has accepted fits: the grace is part of what the host
        // keeps back.
        if cost.0.saturating_sub(allowance.0) > self.left().saturating_add(GRACE_BYTES) {
            return Err(Error::NoSpace);
        }
        self.set_allowance(session, (allowance.0.saturating_sub(cost.0), allowance.1.saturating_sub(cost.1)));
        self.spent = self.spent.saturating_add(cost.0);
        Ok(())
    }

    /// Uses up space that is in no allowance: for work that the server does on a client's behalf,
    /// which that client has not charged itself.
    pub fn spend_unclaimed(&mut self, bytes: u64) -> Result<(), Error> {
        if bytes > self.left() {
            return Err(Error::NoSpace);
        }
        self.spent = self.spent.saturating_add(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_accepted_fits_and_no_more() {
        let mut sessions = Sessions::new(ServerId::ROOT, 2);
        let session = sessions.open(Time(0), MachineId(1), (1, GreetingNumber::default()), Rights::FULL);
        sessions.measured(Space { total: 1 << 30, free: 1000, files: 0, lends: 0, elsewhere: 0 });
        assert_eq!(sessions.spend(session, (1001 + GRACE_BYTES, 0)), Err(Error::NoSpace));
        assert_eq!(sessions.spend(session, (1000 + GRACE_BYTES, 0)), Ok(()));
        // Spent space is gone until the host has measured again.
        assert_eq!(sessions.left(), 0);
        assert_eq!(sessions.spend(session, (1 + GRACE_BYTES, 0)), Err(Error::NoSpace));
    }

    /// The reserve's loans are bounded until the host has measured again. They are for clients that
    /// replace content alone.
    #[test]
    fn who_replaces_content_is_lent_what_a_full_disk_has_in_reserve() {
        let mut sessions = Sessions::new(ServerId::ROOT, 2);
        let [one, two] = [1, 2]
            .map(|id| sessions.open(Time(0), MachineId(id), (1, GreetingNumber::default()), Rights::FULL));
        let full = Space { total: 1 << 30, free: 0, files: 0, lends: 10_000, elsewhere: 0 };
        sessions.measured(full);
        let want = (1 << 28, 0);
        assert_eq!(sessions.allow(one, (0, 0), want, 0), (0, 0), "it replaces nothing");
        assert_eq!(sessions.allow(one, (0, 0), want, 1000), (1000, 0));
        assert_eq!(sessions.allow(two, (0, 0), want, u64::MAX), (9000, 0));
        assert_eq!(sessions.allow(two, (9000, 0), want, 1), (0, 0));
        assert_eq!(sessions.spend(two, (9000, 0)), Ok(()));
        assert_eq!(sessions.allow(two, (0, 0), want, 1), (0, 0), "nothing was freed that was measured");
        sessions.measured(Space { lends: 500, ..full });
        assert_eq!(sessions.allow(two, (0, 0), want, u64::MAX), (500, 0));
        // Room that all sessions have is no loan.
        sessions.measured(Space { free: 1 << 20, ..full });
        let (given, _) = sessions.allow(one, (0, 0), want, 1000);
        assert!(given > 1000, "{given}");
        sessions.measured(full);
        assert_eq!(sessions.allow(two, (0, 0), want, u64::MAX), (10_000, 0));
    }
}
