//! One server of a group: its disk, its state in memory, and its beliefs about the group. A crash
//! loses all that the disk had not made durable, and the disk may rot.

use super::log::{Log, LogPlace, RaftEntry};
use super::rows::Rows;
use super::state::host::Host;
use super::state::leader::Leader;
use super::state::members::Members;
use crate::host::Violation;
use directory::Directory;
use lease::Time;
use std::rc::Rc;
use wire::Versions;

/// The state after some entry of the log, on disk.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub place: LogPlace,
    pub members: Rc<Members>,
    pub rows: Rc<Rows>,
}

/// A server of a group.
pub(super) struct Replica {
    pub directory: Directory,
    pub store: Rows,
    /// Its member number in the group.
    pub member: u64,
    /// Whether its machine is a server, or was one and is still up.
    pub serves: bool,
    /// Whether it is to leave the group.
    pub leaves: bool,
    /// Whether it leaves and is no longer a member.
    pub retired: bool,
    pub up: bool,
    /// The versions that its program knows.
    pub knows: Versions,
    /// The process is stopped until then.
    pub stopped_until: u64,
    /// Counts its starts and the ends of its leaderships. Events of earlier ones come to nothing.
    pub start: u64,
    /// Its connections and sessions with machines.
    pub host: Host,
    /// The latest term that it knows. The term is on disk before anything else of it.
    pub term: u64,
    pub log: Log,
    /// The index up to which the log is on disk.
    pub durable: u64,
    /// An entry of the log that is not as it was written.
    pub rotten: Option<u64>,
    /// The time at which the disk has done all that was asked, ms.
    pub synced_at: u64,
    /// Counts the replacements of the log's end.
    pub tail: u64,
    /// The disk's delay, ms at most.
    pub disk_ms: u64,
    /// The index up to which its log is known to be that of its term's leader.
    pub verified: u64,
    /// The index up to which it knows the log to be committed.
    pub commit: u64,
    pub applied: u64,
    pub checkpoint: Checkpoint,
    /// The index at which the next checkpoint is made.
    pub checkpoint_at: u64,
    /// The leader of its term, as far as it knows, and the time of the leader's last message.
    pub follows: Option<usize>,
    pub heard: u64,
    /// Its state as leader, if it leads as far as it knows.
    pub leads: Option<Leader>,
    /// The rate of its clock, in millionths.
    pub rate_ppm: u64,
}

impl Replica {
    /// A replica with this state and an empty log after it.
    pub fn new(directory: Directory, checkpoint: Checkpoint, member: u64, knows: Versions) -> Replica {
        let place = checkpoint.place;
        Replica {
            directory,
            store: Rows::clone(&checkpoint.rows),
            member,
            serves: true,
            leaves: false,
            retired: false,
            up: true,
            knows,
            stopped_until: 0,
            start: 0,
            host: Host::default(),
            term: 0,
            log: Log::after(place, checkpoint.members.clone()),
            checkpoint,
            durable: place.index,
            rotten: None,
            synced_at: 0,
            tail: 0,
            disk_ms: 0,
            verified: place.index,
            commit: place.index,
            applied: place.index,
            checkpoint_at: 0,
            follows: None,
            heard: 0,
            leads: None,
            rate_ppm: 1_000_000,
        }
    }

    /// The replica learns of a later term. Its beliefs about earlier ones no longer count.
    pub fn enters(&mut self, term: u64) {
        self.term = term;
        self.follows = None;
        self.verified = self.commit;
    }

    /// Removes the entries after this index, which were never committed. Returns their number.
    pub fn truncates(&mut self, index: u64) -> u64 {
        self.tail += 1;
        self.rotten = self.rotten.filter(|rotten| *rotten <= index);
        self.durable = self.durable.min(index);
        self.log.truncate(index)
    }

    /// Takes the state of the checkpoint, which may be the leader's.
    pub fn loads(&mut self, checkpoint: Checkpoint) -> Result<(), Violation> {
        let LogPlace { index, .. } = checkpoint.place;
        self.store = Rows::clone(&checkpoint.rows);
        let opened = Directory::open(&self.store, self.knows);
        if !self.store.is_noticed() {
            self.directory = opened.map_err(|e| e.to_string())?;
        }
        self.applied = index;
        self.checkpoint = checkpoint;
        Ok(())
    }

    /// Makes a checkpoint of the present state, and drops the log before the last `keep` entries.
    pub fn makes_checkpoint(&mut self, time: Time, term: u64, keep: u64) {
        self.directory.checkpoint(&mut self.store);
        let place = LogPlace { index: self.applied, term, time };
        let members = self.log.members_at(self.applied).clone();
        self.checkpoint = Checkpoint { place, members, rows: Rc::new(self.store.clone()) };
        self.durable = self.durable.max(self.applied);
        self.log.purge(self.applied.saturating_sub(keep));
        self.rotten = self.rotten.filter(|index| *index > self.log.base());
    }

    /// The process ends. Of the entries that were not durable the disk has the first `kept`.
    pub fn crashes(&mut self, kept: u64) {
        self.up = false;
        self.stopped_until = 0;
        self.start += 1;
        self.leads = None;
        self.host = Host::default();
        self.truncates((self.durable + kept).min(self.log.last().index));
        self.durable = self.log.last().index;
        self.enters(self.term);
    }

    /// The process begins anew from its disk.
    pub fn starts(&mut self) -> Result<(), Violation> {
        self.up = true;
        self.loads(self.checkpoint.clone())?;
        self.commit = self.applied;
        self.verified = self.applied;
        Ok(())
    }

    /// Whether it may stand for election. It votes, or it voted before the last change of members
    /// and does not know that change to be committed.
    ///
    /// All voters after the change may have lost its entry. Then they have too little of the log to
    /// lead. A replica that has the entry must lead, though it votes no more (Raft's thesis §4.2.2;
    /// openraft does so).
    pub fn may_stand(&self) -> bool {
        let changed_at = self.log.changed_at();
        let voted = || self.commit < changed_at && self.log.members_at(changed_at - 1).vote(self.member);
        self.log.members().vote(self.member) || voted()
    }

    /// Whether it is a server, and is to stay one.
    pub fn stays(&self) -> bool {
        self.serves && !self.leaves
    }

    /// A row flips a bit on the disk. The process has that row, too, unless it has changed the row
    /// since.
    pub fn rows_rot(&mut self, some: &mut impl FnMut(u64) -> u64) {
        let rows = Rc::make_mut(&mut self.checkpoint.rows);
        let Some((key, was, is)) = rows.rot(some) else { return };
        self.store.rots(&key, &was, is);
    }

    /// An entry of the log rots. No process reads the entry before the next start.
    pub fn log_rots(&mut self, some: &mut impl FnMut(u64) -> u64) {
        let (base, last) = (self.log.base(), self.durable.min(self.log.last().index));
        self.rotten = (last > base + 1).then(|| base + 1 + some(last - base - 1));
    }

    /// Whether its disk has anything that is not as it was written.
    pub fn is_rotten(&self) -> bool {
        self.rotten.is_some() || self.store.are_rotten() || self.checkpoint.rows.are_rotten()
    }

    /// Whether it has found such damage.
    pub fn is_damaged(&self) -> bool {
        self.store.is_noticed() || !self.up && self.rotten.is_some()
    }

    /// Believes the rotten entry: it has lost its last input.
    pub fn believes_log(&mut self) {
        let Some(index) = self.rotten.take() else { return };
        let of = |entry: &Rc<RaftEntry>| {
            let (RaftEntry { term, time, members, .. }, mut inputs) = (entry.as_ref(), entry.inputs.clone());
            inputs.pop();
            Rc::new(RaftEntry { term: *term, time: *time, inputs, members: members.clone() })
        };
        self.log.replaces(index, of);
    }
}
