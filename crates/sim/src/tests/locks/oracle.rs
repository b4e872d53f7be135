//! The oracle: the locks that each owner was granted.

use crate::host::Violation;
use client::Ticket;
use namespace::{LockChange, LockKind, LockSpace, Locks};
use std::collections::BTreeMap;

/// Number of bytes that the oracle distinguishes. The last one stands for all that follow.
pub(super) const BYTES: usize = 6;
/// Both sorts of locks.
pub(super) const SPACES: [LockSpace; 2] = [LockSpace::Posix, LockSpace::Flock];

type Bytes = [Option<LockKind>; BYTES];

/// A call that has no answer yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub file: usize,
    pub change: LockChange,
    pub wait: bool,
    pub ticket: Option<Ticket>,
}

/// The locks that each owner was granted, and the calls without an answer. An owner is named by its
/// machine and its number there.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    held: BTreeMap<(usize, u64, usize, LockSpace), Bytes>,
    pending: BTreeMap<(usize, u64), Pending>,
}

impl Oracle {
    pub fn pending(&self, at: usize, owner: u64) -> Option<&Pending> {
        self.pending.get(&(at, owner))
    }

    pub fn owner_of(&self, at: usize, ticket: Ticket) -> Option<u64> {
        let its = self.pending.iter().find(|((machine, _), it)| *machine == at && it.ticket == Some(ticket));
        its.map(|((_, owner), _)| *owner)
    }

    /// Whether the owner waits to raise a lock of a whole file.
    pub fn is_raising(&self, at: usize, owner: u64) -> bool {
        self.pending(at, owner).is_some_and(|Pending { file, change, .. }| {
            change.space == LockSpace::Flock && self.held.contains_key(&(at, owner, *file, LockSpace::Flock))
        })
    }

    pub fn some_ticket(&self) -> Option<(usize, Ticket)> {
        self.pending.iter().find_map(|((at, _), it)| Some((*at, it.ticket?)))
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.pending.is_empty()
    }

    pub fn begins(&mut self, at: usize, pending: Pending) {
        self.pending.insert((at, pending.change.owner), pending);
    }

    pub fn waits(&mut self, at: usize, owner: u64, ticket: Ticket) {
        if let Some(pending) = self.pending.get_mut(&(at, owner)) {
            pending.ticket = Some(ticket);
        }
    }

    /// Forgets all locks of the machine: it stopped, or the server ended its session.
    pub fn forget(&mut self, at: usize) {
        self.held.retain(|(machine, ..), _| *machine != at);
        self.pending.retain(|(machine, _), _| *machine != at);
    }

    /// Ends a call. The locks it got must not conflict with the locks that other owners have for
    /// sure.
    pub fn ends(&mut self, at: usize, owner: u64, done: bool) -> Result<(), Violation> {
        let Some(Pending { file, change, wait, .. }) = self.pending.remove(&(at, owner)) else {
            return Ok(());
        };
        let key = (at, owner, file, change.space);
        if !done {
            // A call that waited to raise a lock of this kind has released the old lock.
            if wait && change.space == LockSpace::Flock {
                self.held.remove(&key);
            }
            return Ok(());
        }
        let bytes = self.held.entry(key).or_default();
        for byte in bytes_of(&change) {
            bytes[byte] = change.kind;
        }
        self.held.retain(|_, bytes| bytes.iter().any(Option::is_some));
        let Some(kind) = change.kind else { return Ok(()) };
        for (other, bytes) in self.others(at, &change, file) {
            let sure = self.for_sure(other, bytes);
            if let Some(byte) = bytes_of(&change).find(|byte| conflict(sure[*byte], kind)) {
                return Err(format!("{key:?} has {kind:?} on byte {byte}, and {other:?} {:?}", sure[byte]));
            }
        }
        Ok(())
    }

    /// Checks that every waiting call at rest has a conflicting lock in its way. Returns the number
    /// of waiting calls.
    pub fn check_waits(&self) -> Result<u64, Violation> {
        for ((at, _), Pending { file, change, .. }) in &self.pending {
            let Some(kind) = change.kind else { return Err(format!("{change:?} at {at} waits to unlock")) };
            let in_the_way = self.others(*at, change, *file).any(|(other, bytes)| {
                let exact = self.at_rest(other, bytes);
                bytes_of(change).any(|byte| conflict(exact[byte], kind))
            });
            if !in_the_way {
                return Err(format!("{change:?} of file {file} at {at} waits, and nobody is in the way"));
            }
        }
        Ok(self.pending.len() as u64)
    }

    /// Checks that a client's knowledge at rest matches the locks held.
    pub fn check_known(&self, at: usize, file: usize, known: &Locks) -> Result<(), Violation> {
        for space in SPACES {
            for byte in 0..BYTES {
                let of_file = self.held.iter().filter(|(key, _)| (key.2, key.3) == (file, space));
                let kinds: Vec<LockKind> =
                    of_file.filter_map(|(key, bytes)| self.at_rest(key, bytes)[byte]).collect();
                let range = namespace::LockRange { first: byte as u64, last: byte as u64 };
                let sees = |kind| known.conflict(space, u64::MAX, range, kind).is_some();
                let so = (!kinds.is_empty(), kinds.contains(&LockKind::Write));
                if (sees(LockKind::Write), sees(LockKind::Read)) != so {
                    return Err(format!("{at} knows {known:?} of file {file}, but byte {byte}: {kinds:?}"));
                }
            }
        }
        Ok(())
    }

    fn others<'a>(
        &'a self,
        at: usize,
        change: &LockChange,
        file: usize,
    ) -> impl Iterator<Item = (&'a (usize, u64, usize, LockSpace), &'a Bytes)> {
        let (owner, space) = (change.owner, change.space);
        self.held.iter().filter(move |((machine, other, of, sort), _)| {
            (*machine, *other) != (at, owner) && (*of, *sort) == (file, space)
        })
    }

    /// The locks that an owner has, whatever the outcome of its call under way.
    fn for_sure(&self, key: &(usize, u64, usize, LockSpace), bytes: &Bytes) -> Bytes {
        let mut sure = *bytes;
        if let Some(Pending { change, wait, .. }) =
            self.pending(key.0, key.1).filter(|it| (it.file, it.change.space) == (key.2, key.3))
        {
            let lets_go = *wait && change.space == LockSpace::Flock;
            for byte in bytes_of(change) {
                sure[byte] = match change.kind {
                    Some(kind) if !lets_go => sure[byte].map(|had| had.min(kind)),
                    _ => None,
                };
            }
        }
        sure
    }

    /// The locks that an owner has while its call certainly waits.
    fn at_rest(&self, key: &(usize, u64, usize, LockSpace), bytes: &Bytes) -> Bytes {
        let waits = self.pending(key.0, key.1).is_some_and(|it| (it.file, it.change.space) == (key.2, key.3));
        if waits && key.3 == LockSpace::Flock { Bytes::default() } else { *bytes }
    }
}

fn bytes_of(change: &LockChange) -> impl Iterator<Item = usize> + use<> {
    let (first, last) = (change.range.first, change.range.last.min(BYTES as u64 - 1));
    (first..=last).map(|byte| byte as usize)
}

fn conflict(had: Option<LockKind>, kind: LockKind) -> bool {
    had.is_some_and(|had| had == LockKind::Write || kind == LockKind::Write)
}
