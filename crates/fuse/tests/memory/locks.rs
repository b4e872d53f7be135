//! Locks of files, by this machine and by others.

use client::Ticket;
use file_service::Responder;
use ident::FileId;
use namespace::{Conflict, Error, LockChange, LockKind, LockRange, LockSpace, LockTable};
use std::collections::BTreeMap;

/// The sessions of this machine, and of all others.
const HERE: u64 = 1;
const ELSEWHERE: u64 = 2;
/// Tickets of waiting locks are above all others.
const FIRST_TICKET: u64 = 1 << 32;

#[derive(Default)]
pub struct Locking {
    tables: BTreeMap<FileId, LockTable<(u64, u64)>>,
    waiting: BTreeMap<Ticket, (FileId, LockChange, Responder)>,
    tickets: u64,
}

impl Locking {
    pub fn lock(&mut self, file: &FileId, change: LockChange) -> Result<(), Error> {
        self.change(HERE, file, change)
    }

    /// Locks or unlocks as another machine.
    pub fn elsewhere(&mut self, file: &FileId, space: LockSpace, kind: Option<LockKind>) {
        let change = LockChange { owner: 1, pid: 1, space, range: LockRange::WHOLE, kind };
        self.change(ELSEWHERE, file, change).expect("nobody is in the way");
    }

    /// The locks of this machine.
    pub fn here(&self) -> Vec<(LockSpace, LockRange, LockKind)> {
        let locks = self.tables.values().flat_map(LockTable::iter);
        locks.filter(|lock| lock.holder.0 == HERE).map(|lock| (lock.space, lock.range, lock.kind)).collect()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn conflict(
        &self,
        file: &FileId,
        owner: u64,
        space: LockSpace,
        range: LockRange,
        kind: LockKind,
    ) -> Option<Conflict> {
        self.tables.get(file)?.seen_by(&HERE).conflict(space, owner, range, kind)
    }

    pub fn wait(&mut self, file: FileId, change: LockChange, answer: Responder) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(FIRST_TICKET + self.tickets);
        self.waiting.insert(ticket, (file, change, answer));
        ticket
    }

    pub fn give_up(&mut self, ticket: Ticket) -> Option<Responder> {
        self.waiting.remove(&ticket).map(|(_, _, answer)| answer)
    }

    /// Retries waiting locks. Returns the responders of those granted.
    pub fn settle(&mut self) -> Vec<Responder> {
        let mut granted = Vec::new();
        for (ticket, (file, change, answer)) in std::mem::take(&mut self.waiting) {
            match self.lock(&file, change) {
                Ok(()) => granted.push(answer),
                Err(_) => _ = self.waiting.insert(ticket, (file, change, answer)),
            }
        }
        granted
    }

    fn change(&mut self, session: u64, file: &FileId, change: LockChange) -> Result<(), Error> {
        let table = self.tables.entry(file.clone()).or_default();
        let holder = (session, change.owner);
        let free = change
            .kind
            .is_none_or(|kind| table.conflict(change.space, &holder, change.range, kind).is_none());
        if !free {
            return Err(Error::WouldBlock);
        }
        table.change(&session, &change);
        Ok(())
    }
}
