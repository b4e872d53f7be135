//! One server of a group: its disk, what it has in memory, and what it takes for true of the group.
//! A crash loses what its disk was not made to keep, and the disk may rot.

use super::Violation;
use super::leader::Leader;
use super::log::{Entry, Log, Place};
use super::members::Members;
use super::rows::Rows;
use super::server::Host;
use directory::Directory;
use lease::Time;
use std::rc::Rc;
use wire::Versions;

/// The state after some entry of the log, on disk.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub place: Place,
    pub members: Rc<Members>,
    pub rows: Rc<Rows>,
}

/// See the module.
pub(super) struct Replica {
    pub directory: Directory,
    pub store: Rows,
    /// Its number in the group.
    pub member: u64,
    /// Its machine is a server, or was and is there yet.
    pub serves: bool,
    /// It is to be one no more.
    pub leaves: bool,
    /// And is no member any more.
    pub retired: bool,
    pub up: bool,
    /// What its program knows.
    pub knows: Versions,
    /// It does nothing until then.
    pub stopped_until: u64,
    /// Counts its starts and the ends of its leaderships; events of earlier ones come to nothing.
    pub start: u64,
    /// What its process is to machines.
    pub host: Host,
    /// The latest that it has heard of. It is on disk before anything else of that term.
    pub term: u64,
    pub log: Log,
    /// Up to which index the log is on disk.
    pub durable: u64,
    /// An entry of it that is not as it was written.
    pub rotten: Option<u64>,
    /// When the disk has done all that it was asked to, ms.
    pub synced_at: u64,
    /// Counts how often the end of its log was replaced.
    pub tail: u64,
    /// How slow its disk is at most, ms.
    pub disk_ms: u64,
    /// Up to which index its log is known to be that of its term's leader.
    pub verified: u64,
    /// Up to which index it knows the log to be committed.
    pub commit: u64,
    pub applied: u64,
    pub checkpoint: Checkpoint,
    /// The index at which the next checkpoint is made.
    pub checkpoint_at: u64,
    /// Who it takes for the leader of its term, and when it last heard of that.
    pub follows: Option<usize>,
    pub heard: u64,
    /// It leads, as far as it knows.
    pub leads: Option<Leader>,
    /// How fast its clock runs, in millionths.
    pub rate_ppm: u64,
}

impl Replica {
    /// One that has this state and nothing after it.
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

    /// It hears of a later term: whatever it took for true of an earlier one counts no more.
    pub fn enters(&mut self, term: u64) {
        self.term = term;
        self.follows = None;
        self.verified = self.commit;
    }

    /// What comes after this index was never committed.
    pub fn truncates(&mut self, index: u64) -> u64 {
        self.tail += 1;
        self.rotten = self.rotten.filter(|rotten| *rotten <= index);
        self.durable = self.durable.min(index);
        self.log.truncate(index)
    }

    /// Its state becomes that of the checkpoint, which may be the leader's.
    pub fn loads(&mut self, checkpoint: Checkpoint) -> Result<(), Violation> {
        let Place { index, .. } = checkpoint.place;
        self.store = Rows::clone(&checkpoint.rows);
        let opened = Directory::open(&self.store, self.knows);
        if !self.store.is_noticed() {
            self.directory = opened.map_err(|e| e.to_string())?;
        }
        self.applied = index;
        self.checkpoint = checkpoint;
        Ok(())
    }

    /// The state as it is now is put down, and the log before `keep` entries goes.
    pub fn makes_checkpoint(&mut self, time: Time, term: u64, keep: u64) {
        self.directory.checkpoint(&mut self.store);
        let place = Place { index: self.applied, term, time };
        let members = self.log.members_at(self.applied).clone();
        self.checkpoint = Checkpoint { place, members, rows: Rc::new(self.store.clone()) };
        self.durable = self.durable.max(self.applied);
        self.log.purge(self.applied.saturating_sub(keep));
        self.rotten = self.rotten.filter(|index| *index > self.log.base());
    }

    /// The process ends. Of what the disk had not been made to keep it has so many entries.
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

    /// It begins anew from its disk.
    pub fn starts(&mut self) -> Result<(), Violation> {
        self.up = true;
        self.loads(self.checkpoint.clone())?;
        self.commit = self.applied;
        self.verified = self.applied;
        Ok(())
    }

    /// It votes, or did before the last change of the members and does not know that to be
    /// committed. Those that vote after the change may all have lost it, and have too little of the
    /// log to lead then: who has it must, though it votes no more (Raft's thesis §4.2.2; openraft
    /// does so).
    pub fn may_stand(&self) -> bool {
        let changed_at = self.log.changed_at();
        let voted = || self.commit < changed_at && self.log.members_at(changed_at - 1).vote(self.member);
        self.log.members().vote(self.member) || voted()
    }

    /// It is a server, and is to be one.
    pub fn stays(&self) -> bool {
        self.serves && !self.leaves
    }

    /// A row flips a bit on the disk, from which the process has it unless it has changed it since.
    pub fn rows_rot(&mut self, some: &mut impl FnMut(u64) -> u64) {
        let rows = Rc::make_mut(&mut self.checkpoint.rows);
        let Some((key, was, is)) = rows.rot(some) else { return };
        self.store.rots(&key, &was, is);
    }

    /// So does an entry of the log: nobody reads it before it starts again.
    pub fn log_rots(&mut self, some: &mut impl FnMut(u64) -> u64) {
        let (base, last) = (self.log.base(), self.durable.min(self.log.last().index));
        self.rotten = (last > base + 1).then(|| base + 1 + some(last - base - 1));
    }

    /// Whether its disk has anything that is not as it was written.
    pub fn is_rotten(&self) -> bool {
        self.rotten.is_some() || self.store.are_rotten() || self.checkpoint.rows.are_rotten()
    }

    /// Whether it has come upon that.
    pub fn is_damaged(&self) -> bool {
        self.store.is_noticed() || !self.up && self.rotten.is_some()
    }

    /// It takes the entry for what it has become: one without what stood last in it.
    pub fn believes_log(&mut self) {
        let Some(index) = self.rotten.take() else { return };
        let of = |entry: &Rc<Entry>| {
            let (Entry { term, time, members, .. }, mut inputs) = (entry.as_ref(), entry.inputs.clone());
            inputs.pop();
            Rc::new(Entry { term: *term, time: *time, inputs, members: members.clone() })
        };
        self.log.replaces(index, of);
    }
}
