//! Checks the servers' agreement by the [oracle](super::oracle).

use crate::host::Violation;
use crate::world::World;
use crate::world::state::members::Members;
use std::collections::BTreeSet;
use std::rc::Rc;

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
