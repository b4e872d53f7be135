//! The log that a group of replicas agrees on, as one replica has it. A leader's proposals of one
//! time are one entry.

use super::state::members::Members;
use directory::Input;
use lease::Time;
use std::collections::VecDeque;
use std::rc::Rc;

/// A leader's proposals, with one time; or the members that decide from here on.
#[derive(Debug)]
pub(super) struct RaftEntry {
    pub term: u64,
    pub time: Time,
    pub inputs: Vec<Input>,
    pub members: Option<Rc<Members>>,
}

/// An entry's place in the log. No two entries have the same index and term (Raft §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogPlace {
    pub index: u64,
    pub term: u64,
    pub time: Time,
}

/// The entries after some place; earlier ones are in a checkpoint.
#[derive(Debug)]
pub(super) struct Log {
    base: LogPlace,
    /// The members that decide after the base, and later ones with their first index.
    members: Rc<Members>,
    changes: Vec<(u64, Rc<Members>)>,
    entries: VecDeque<Rc<RaftEntry>>,
}

impl Log {
    /// A log without entries after `base`, where these members decide.
    pub fn after(base: LogPlace, members: Rc<Members>) -> Log {
        Log { base, members, changes: Vec::new(), entries: VecDeque::new() }
    }

    /// The index before the first entry.
    pub fn base(&self) -> u64 {
        self.base.index
    }

    pub fn last(&self) -> LogPlace {
        let index = self.base.index + self.entries.len() as u64;
        self.entries.back().map_or(self.base, |entry| LogPlace { index, term: entry.term, time: entry.time })
    }

    pub fn get(&self, index: u64) -> Option<&Rc<RaftEntry>> {
        let at = index.checked_sub(self.base.index + 1)?;
        self.entries.get(at as usize)
    }

    /// The term of the entry at this index, if the log has it.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        self.get(index).map(|entry| entry.term)
    }

    /// At most `limit` entries after this index.
    pub fn entries_after(&self, index: u64, limit: usize) -> Vec<Rc<RaftEntry>> {
        let skip = index.saturating_sub(self.base.index) as usize;
        self.entries.iter().skip(skip).take(limit).cloned().collect()
    }

    /// The deciding members: the last ones in the log, committed or not (Raft §6).
    pub fn members(&self) -> &Rc<Members> {
        self.members_at(u64::MAX)
    }

    /// The deciding members at this index, which is not before the base.
    pub fn members_at(&self, index: u64) -> &Rc<Members> {
        let before = self.changes.iter().rfind(|(at, _)| *at <= index);
        before.map_or(&self.members, |(_, members)| members)
    }

    /// The index of the last change of members.
    pub fn changed_at(&self) -> u64 {
        self.changes.last().map_or(self.base.index, |(at, _)| *at)
    }

    pub fn push(&mut self, entry: Rc<RaftEntry>) {
        if let Some(members) = &entry.members {
            self.changes.push((self.last().index + 1, members.clone()));
        }
        self.entries.push_back(entry);
    }

    /// Replaces the entry at this index.
    pub fn replaces(&mut self, index: u64, by: impl Fn(&Rc<RaftEntry>) -> Rc<RaftEntry>) {
        let at = index.checked_sub(self.base.index + 1);
        if let Some(entry) = at.and_then(|at| self.entries.get_mut(at as usize)) {
            *entry = by(entry);
        }
    }

    /// Removes the entries after this index; returns their number.
    pub fn truncate(&mut self, index: u64) -> u64 {
        let before = self.entries.len();
        self.changes.retain(|(at, _)| *at <= index);
        self.entries.truncate(index.saturating_sub(self.base.index) as usize);
        (before - self.entries.len()) as u64
    }

    /// Removes the entries up to this index, which are in a checkpoint.
    pub fn purge(&mut self, index: u64) {
        self.members = self.members_at(index).clone();
        self.changes.retain(|(at, _)| *at > index);
        while self.base.index < index
            && let Some(entry) = self.entries.pop_front()
        {
            self.base = LogPlace { index: self.base.index + 1, term: entry.term, time: entry.time };
        }
    }
}
