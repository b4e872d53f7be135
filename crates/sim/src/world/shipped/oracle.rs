//! The oracle of the servers' agreement. When the first server has applied an entry of the log, a
//! directory of the simulation's own applies it, too.

use super::super::members::Members;
use super::super::{Violation, World};
use directory::{Directory, Input, MemoryStore, Output};
use lease::Time;
use raft::Logged;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The simulation's own directory, and the entries that the servers agreed on.
pub(in crate::world) struct Oracle {
    pub directory: Directory,
    pub store: MemoryStore,
    time: Time,
    /// By index: the entry's term, and the digest of the state after it.
    pub entries: Vec<(u64, u64)>,
}

impl Oracle {
    /// An oracle before the first entry.
    pub fn new(directory: Directory, store: MemoryStore) -> Oracle {
        Oracle { directory, store, time: Time(0), entries: Vec::new() }
    }

    /// Applies the next entry. Returns each input with its outputs.
    fn does(&mut self, entry: &Logged) -> Result<Vec<(Input, Vec<Output>)>, Violation> {
        let index = self.entries.len();
        if entry.digest.is_some_and(|digest| digest != self.directory.digest()) {
            return Err(format!("entry {index} was proposed upon another state than that before it"));
        }
        self.time = self.time.max(entry.time);
        let mut done = Vec::new();
        for input in entry.inputs.iter() {
            let mut out = Vec::new();
            let handled = self.directory.handle(self.time, input.clone(), &mut self.store, &mut out);
            handled.map_err(|e| e.to_string())?;
            if let Some((session, misdeed)) = self.directory.misdeeds().first() {
                return Err(format!("{session:?}: {misdeed}"));
            }
            done.push((input.clone(), out));
        }
        self.entries.push((entry.term, self.directory.digest()));
        Ok(done)
    }
}

impl World {
    /// Checks all that servers have applied since the last look: each entry is the agreed one, and
    /// each state is the oracle's.
    pub(in crate::world) fn looks_at_entries(&mut self) -> Result<(), Violation> {
        for at in 0..self.shipped.servers.len() {
            let server = &mut self.shipped.servers[at];
            let Some(group) = server.group.clone() else { continue };
            let reached = server
                .life
                .within(|| (group.agreed(), group.applied(), group.query(|directory, _| directory.digest())));
            let Some((Some(agreed), applied, digest)) = reached else { continue };
            let from = server.looked_at.map_or(0, |index| index + 1);
            server.looked_at = Some(agreed);
            for index in from..=agreed {
                let server = &self.shipped.servers[at];
                let entry = server.life.within(|| group.entry(index)).transpose().map_err(|e| e.to_string());
                let agreed = self.shipped.oracle.entries.get(index as usize).copied();
                match (entry, agreed) {
                    (Ok(Some(Some(entry))), Some((term, _))) if entry.term != term => {
                        return Err(format!(
                            "server {at} has applied entry {index} of term {}, which is of term {term}",
                            entry.term
                        ));
                    }
                    (Ok(Some(Some(entry))), None) => {
                        self.notes(|| {
                            format!("entry {index} of term {} by {at}: {:?}", entry.term, entry.inputs)
                        });
                        if let Some(voters) = entry.voters.clone() {
                            self.happened.changes += 1;
                            let members = Members { voters, learners: BTreeSet::new() };
                            self.ledger.decide(index, Rc::new(members))?;
                        }
                        for (input, out) in self.shipped.oracle.does(&entry)? {
                            self.note_applied(&input, &out)?;
                        }
                    }
                    // The server has its state from a snapshot, and others have shown the entry.
                    (_, Some(_)) => {}
                    (entry, None) => {
                        return Err(format!(
                            "nobody has entry {index}, which server {at} has applied: {entry:?}"
                        ));
                    }
                }
            }
            match self.shipped.oracle.entries.get(agreed as usize) {
                // A lone voter may have applied more. No other server will ever know of that if it
                // crashes.
                _ if applied != Some(agreed) => {}
                Some((_, right)) if *right == digest => {}
                right => {
                    return Err(format!(
                        "server {at} has come to {digest:x} after entry {agreed}, and not to {right:x?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
