//! The clients of one field in one array, class by class.
//!
//! The decisions of BlackBox §4.6 and §4.7 depend on the number of clients in each class, and
//! recalls go to all clients of one class. So the sessions of a class stand together. A client that
//! changes its class trades places with one client of each class between. The cost of a change is
//! the number of distinct classes, whatever the number of clients.

use crate::SessionId;
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// The server's knowledge of a client's own value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Own<V> {
    /// The client holds `SelfWrite`: its value can be anything.
    Writing,
    /// The client cannot change this value (BlackBox §4.6).
    Stuck(V),
}

/// Everything in which clients differ for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Class<V> {
    /// Its own value, as far as known.
    pub own: Own<V>,
    /// Whether it holds `OtherRead`. The value granted with it is not stored: while the client
    /// holds the lease, that value is the aggregate of the others' stuck values.
    pub reads: bool,
}

/// Up to so many sessions are searched one by one. More have an index.
const SEARCHED_MAX: usize = 16;

/// The place in the index of the client that is changing places.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct MemberGroup<V> {
    class: Class<V>,
    count: u32,
}

/// The clients of one field. One or two need no allocation; 100,000 need less than 32 bytes each,
/// see [`Members::bytes`].
#[derive(Clone, Debug)]
pub(super) struct Members<V> {
    /// Sessions, group by group. The order within a group means nothing: two replicas may differ in
    /// it, so no result may depend on it.
    sessions: SmallVec<[SessionId; 2]>,
    /// By class, ascending; none is empty.
    groups: SmallVec<[MemberGroup<V>; 2]>,
    /// The place of each session in `sessions`, if there are many.
    index: Option<Box<HashTable<u32>>>,
}

impl<V: Copy + Ord> Members<V> {
    pub fn new() -> Members<V> {
        Members { sessions: SmallVec::new(), groups: SmallVec::new(), index: None }
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn class(&self, session: SessionId) -> Option<Class<V>> {
        let at = self.position(session)?;
        self.groups.get(self.group_at(at)).map(|group| group.class)
    }

    /// Returns the classes with clients, ascending, and the number of clients in each.
    pub fn counts(&self) -> impl Iterator<Item = (Class<V>, u32)> + '_ {
        self.groups.iter().map(|group| (group.class, group.count))
    }

    /// Returns the classes and their clients, the latter in an order that means nothing.
    pub fn classes(&self) -> impl Iterator<Item = (Class<V>, &[SessionId])> + '_ {
        let mut rest = &self.sessions[..];
        self.groups.iter().map(move |group| {
            let (sessions, others) = rest.split_at(group.count as usize);
            rest = others;
            (group.class, sessions)
        })
    }

    /// Puts `session` in `class`. Without a class, it is unlisted.
    pub fn put(&mut self, session: SessionId, class: Option<Class<V>>) {
        let at = match self.position(session) {
            Some(at) => at,
            None if class.is_none() => return,
            None => self.append(session),
        };
        let to = class.map_or(self.groups.len(), |class| self.group(class));
        let from = self.group_at(at);
        if from == to {
            return;
        }
        let at = self.carry(at, from, to);
        if let Some(group) = self.groups.get_mut(to) {
            group.count += 1;
        } else {
            self.remove_last(at);
        }
        if let Some(group) = self.groups.get_mut(from) {
            group.count -= 1;
            if group.count == 0 {
                self.groups.remove(from);
            }
        }
    }

    /// Returns the bytes of memory that all this takes.
    pub fn bytes(&self) -> usize {
        let sessions =
            if self.sessions.spilled() { self.sessions.capacity() * size_of::<SessionId>() } else { 0 };
        let groups =
            if self.groups.spilled() { self.groups.capacity() * size_of::<MemberGroup<V>>() } else { 0 };
        let index =
            self.index.as_ref().map_or(0, |index| size_of::<HashTable<u32>>() + index.allocation_size());
        size_of::<Self>() + sessions + groups + index
    }

    /// Returns whether the array, the groups and the index agree.
    pub fn is_consistent(&self) -> bool {
        let total: usize = self.groups.iter().map(|group| group.count as usize).sum();
        total == self.sessions.len()
            && self.groups.iter().all(|group| group.count > 0)
            && self.groups.is_sorted_by(|a, b| a.class < b.class)
            && self.index.as_ref().is_none_or(|index| index.len() == total)
            && self.sessions.iter().enumerate().all(|(at, session)| self.position(*session) == Some(at))
    }

    fn position(&self, session: SessionId) -> Option<usize> {
        match &self.index {
            None => self.sessions.iter().position(|it| *it == session),
            Some(index) => {
                let is_it = |at: &u32| self.sessions.get(*at as usize) == Some(&session);
                index.find(hash(session), is_it).map(|at| *at as usize)
            }
        }
    }

    /// Returns the index in `groups` for the session at `at`. For a session in no group yet, it is
    /// the index after the last.
    fn group_at(&self, at: usize) -> usize {
        let mut end = 0;
        let ends_after = |group: &MemberGroup<V>| {
            end += group.count as usize;
            at < end
        };
        self.groups.iter().position(ends_after).unwrap_or(self.groups.len())
    }

    /// Returns the index in `groups` of `class`, which is added if need be.
    fn group(&mut self, class: Class<V>) -> usize {
        self.groups.binary_search_by_key(&class, |group| group.class).unwrap_or_else(|to| {
            self.groups.insert(to, MemberGroup { class, count: 0 });
            to
        })
    }

    /// Moves the session at `at` from one group to the other, and returns its new place. Each group
    /// between shifts by one place. The group number after the last one means "unlisted".
    fn carry(&mut self, at: usize, from: usize, to: usize) -> usize {
        let session = self.sessions[at];
        let mut hole = at;
        if from < to {
            let mut end = self.start(from);
            for group in from..to {
                end += self.groups[group].count as usize;
                self.shift(end - 1, &mut hole, (session, at));
            }
        } else {
            let mut start = self.start(from);
            for group in (to + 1..=from).rev() {
                self.shift(start, &mut hole, (session, at));
                start -= self.groups[group - 1].count as usize;
            }
        }
        if hole != at {
            self.sessions[hole] = session;
            self.relabel(session, NOWHERE as usize, hole as u32);
        }
        hole
    }

    fn start(&self, group: usize) -> usize {
        self.groups.iter().take(group).map(|group| group.count as usize).sum()
    }

    /// Moves the session at `at` into the hole, and leaves a hole there. The session that is
    /// `carried` left the first hole.
    fn shift(&mut self, at: usize, hole: &mut usize, carried: (SessionId, usize)) {
        if at != *hole {
            if *hole == carried.1 {
                // No other session may be found at its old place.
                self.relabel(carried.0, carried.1, NOWHERE);
            }
            let session = self.sessions[at];
            self.sessions[*hole] = session;
            self.relabel(session, at, *hole as u32);
            *hole = at;
        }
    }

    fn relabel(&mut self, session: SessionId, before: usize, now: u32) {
        if let Some(index) = &mut self.index
            && let Some(at) = index.find_mut(hash(session), |at| *at as usize == before)
        {
            *at = now;
        }
    }

    fn append(&mut self, session: SessionId) -> usize {
        let at = self.sessions.len();
        assert!(at < NOWHERE as usize, "more sessions than can be numbered");
        self.sessions.push(session);
        let sessions = &self.sessions;
        let rehash = |at: &u32| sessions.get(*at as usize).map_or(0, |session| hash(*session));
        if let Some(index) = &mut self.index {
            index.insert_unique(hash(session), at as u32, rehash);
        } else if sessions.len() > SEARCHED_MAX {
            let mut index = HashTable::with_capacity(2 * SEARCHED_MAX);
            for at in 0..sessions.len() as u32 {
                index.insert_unique(rehash(&at), at, rehash);
            }
            self.index = Some(Box::new(index));
        }
        at
    }

    fn remove_last(&mut self, last: usize) {
        let Some(session) = self.sessions.pop() else { return };
        if let Some(index) = &mut self.index
            && let Ok(entry) = index.find_entry(hash(session), |at| *at as usize == last)
        {
            entry.remove();
        }
        if self.sessions.len() <= SEARCHED_MAX / 2 {
            self.index = None;
        }
        self.give_back();
    }

    /// Shrinks memory with the number of clients: most fields that were busy once are not busy now.
    fn give_back(&mut self) {
        let half = self.sessions.capacity() / 2;
        if self.sessions.spilled() && self.sessions.len() <= half / 2 {
            self.sessions.grow(half);
            let sessions = &self.sessions;
            if let Some(index) = &mut self.index {
                index.shrink_to(half, |at| sessions.get(*at as usize).map_or(0, |session| hash(*session)));
            }
        }
    }
}

fn hash(session: SessionId) -> u64 {
    FxBuildHasher.hash_one(session)
}
