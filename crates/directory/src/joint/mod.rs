//! Operations over files of several servers (Farsite §4.2, docs/internals/server.md, "Joint
//! operations").
//!
//! The server that manages the directory whose entry changes leads. Each server concerned, the
//! leader too, lends the operation the fields that it needs: a lease in the table of holdings, of a
//! session that stands for the operation. So a lent field is leased to nobody. When all is lent,
//! the leader decides once, and its entry commits the operation or gives it up.
//!
//! * `leader`: gathering, the decision, and telling it.
//! * `lender`: lending fields, and taking them back.
//! * `gathered`: the knowledge that a leader decides on.
//! * `messages`: what servers say to each other.
//! * `fields`: the fields that operations need, and those that effects change.

mod fields;
mod gathered;
mod leader;
mod lender;
mod messages;

use ident::{FileId, ServerId};
use lease::{Field, Kind, SessionId, Time};
use namespace::{Effect, Operation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use wire::{FileGrant, JointAge, JointId};

/// The highest digit of a session's number says that the session stands for a joint operation. No
/// server gives such a number to a client.
const JOINT: u64 = 1 << 63;

/// Files of which a server remembers where they are.
const WHEREABOUTS_MAX: usize = 1024;

/// The session that stands for a try of a joint operation.
pub(crate) fn session_of(op: JointId) -> SessionId {
    SessionId(op.0 | JOINT)
}

/// The try that a session stands for; none if the session is a client's.
pub(crate) fn joint_of(session: SessionId) -> Option<JointId> {
    (session.0 & JOINT != 0).then_some(JointId(session.0 & !JOINT))
}

/// The joint operations that this server takes part in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JointOperations {
    /// The next try that this server leads.
    next: JointId,
    /// The operations that this server leads, until all servers concerned know the result.
    leading: BTreeMap<JointId, Leading>,
    /// The operations that fields of this server are lent to, or that wait for some.
    lending: BTreeMap<JointId, Lending>,
    /// The tries that are over, by leader.
    settled: BTreeMap<ServerId, SettledTries>,
    /// Where other servers said that files are. Only a hint: their servers know.
    whereabouts: BTreeMap<FileId, ServerId>,
    /// When messages were last said again.
    said: Time,
}

/// An operation that this server leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Leading {
    /// The session that asked, and its number for the request.
    asker: SessionId,
    number: u64,
    operation: Operation,
    age: JointAge,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// Nothing is decided.
    Gathering {
        files: BTreeMap<FileId, Borrowed>,
        /// The other servers that were ever asked for anything.
        asked: BTreeSet<ServerId>,
    },
    /// It is decided. These servers have yet to confirm the effects on their files.
    Settling { left: BTreeMap<ServerId, Vec<Effect>> },
}

/// A file of which an operation needs fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Borrowed {
    /// The server that is asked for them.
    server: ServerId,
    wants: BTreeMap<Field, Kind>,
    standing: Standing,
}

/// How far a file is borrowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Standing {
    /// Not all wants are lent.
    Waits,
    /// This server manages the file, and has lent them.
    LentHere,
    /// Another server has lent them, with these values.
    Lent(Box<FileGrant>),
    /// The file is gone for ever.
    Gone,
}

/// An operation that fields of this server are lent to, or that waits for some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lending {
    age: JointAge,
    /// The files with lent fields.
    files: BTreeSet<FileId>,
}

/// The tries of a leader that are over here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SettledTries {
    /// All below this one.
    below: JointId,
    /// Others, beyond that one.
    others: BTreeSet<JointId>,
}

impl JointOperations {
    /// None, at a new server.
    pub fn new(server: ServerId) -> JointOperations {
        JointOperations { next: JointId(server.number(1)), ..JointOperations::default() }
    }

    /// Whether any is under way.
    pub fn are_open(&self) -> bool {
        !self.leading.is_empty() || !self.lending.is_empty()
    }

    /// The sessions that stand for operations.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.lending.keys().map(|op| session_of(*op))
    }

    /// The fields that are lent: the operation, and the files.
    pub fn lent(&self) -> impl Iterator<Item = (JointId, &FileId)> {
        self.lending.iter().flat_map(|(op, lending)| lending.files.iter().map(move |file| (*op, file)))
    }

    /// Whether an operation is under way that `session` asked for by this number.
    pub fn is_asked(&self, session: SessionId, number: u64) -> bool {
        self.asked_by(session).any(|leading| leading.number == number)
    }

    /// The number of undecided operations that `session` asked for.
    pub fn count_of(&self, session: SessionId) -> usize {
        self.asked_by(session).count()
    }

    /// Whether `session` has asked for an operation on `file`.
    pub fn is_asked_about(&self, session: SessionId, file: &FileId) -> bool {
        self.asked_by(session).any(|leading| leading.operation.leading_file() == file)
    }

    fn asked_by(&self, session: SessionId) -> impl Iterator<Item = &Leading> {
        let is_open = |leading: &&Leading| matches!(leading.stage, Stage::Gathering { .. });
        self.leading.values().filter(is_open).filter(move |leading| leading.asker == session)
    }

    /// The first try that is not settled everywhere.
    fn open_from(&self) -> JointId {
        self.leading.keys().next().copied().unwrap_or(self.next)
    }

    fn gathering(&mut self, op: JointId) -> Option<&mut BTreeMap<FileId, Borrowed>> {
        match &mut self.leading.get_mut(&op)?.stage {
            Stage::Gathering { files, .. } => Some(files),
            Stage::Settling { .. } => None,
        }
    }

    /// The file that an undecided operation has asked `from` for, and waits for.
    fn waiting_for(&mut self, from: ServerId, op: JointId, file: &FileId) -> Option<&mut Borrowed> {
        let borrowed = self.gathering(op)?.get_mut(file)?;
        (borrowed.server == from && borrowed.standing == Standing::Waits).then_some(borrowed)
    }

    fn is_settled(&self, op: JointId) -> bool {
        self.settled.get(&op.leader()).is_some_and(|settled| settled.has(op))
    }

    fn settled_of(&mut self, leader: ServerId) -> &mut SettledTries {
        self.settled.entry(leader).or_default()
    }

    /// The server of another server's file, as far as this one was told.
    pub fn whereabouts(&self, file: &FileId) -> Option<ServerId> {
        self.whereabouts.get(file).copied()
    }

    /// Remembers where another server said that a file is.
    pub fn is_at(&mut self, file: &FileId, server: ServerId) {
        if self.whereabouts.len() >= WHEREABOUTS_MAX {
            self.whereabouts.clear();
        }
        self.whereabouts.insert(file.clone(), server);
    }

    /// The age of an operation that fields of this server are lent to, or that waits for some.
    pub fn age_of(&self, op: JointId) -> Option<JointAge> {
        self.lending.get(&op).map(|lending| lending.age)
    }

    /// The directories from which older undecided operations of this server may need the way up.
    pub fn ways_of_older(&self, age: JointAge) -> impl Iterator<Item = &FileId> {
        let is_older =
            move |leading: &&Leading| leading.age < age && matches!(leading.stage, Stage::Gathering { .. });
        self.leading.values().filter(is_older).flat_map(|leading| fields::ways(&leading.operation))
    }

    /// Whether `op` is older than `other`, which has borrowed what is in its way.
    fn is_older(&self, op: JointId, other: JointId) -> bool {
        match (self.lending.get(&op), self.lending.get(&other)) {
            (Some(one), Some(other)) => one.age < other.age,
            _ => false,
        }
    }
}

impl Borrowed {
    /// Adds a want; whether it is new.
    fn wants(&mut self, field: Field, kind: Kind) -> bool {
        let known = self.wants.get(&field).copied();
        let both = known.map_or(kind, |known| known.and(kind));
        self.wants.insert(field, both);
        known != Some(both)
    }
}

impl SettledTries {
    fn has(&self, op: JointId) -> bool {
        op < self.below || self.others.contains(&op)
    }

    fn all_below(&mut self, below: JointId) {
        if below > self.below {
            self.below = below;
            self.others = self.others.split_off(&below);
        }
    }
}
