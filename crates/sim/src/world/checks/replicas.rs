//! Replicas that have applied the same entries are the same (Raft §5.4.3, state machine safety).
//! The entry at each place of the log is agreed once and for all. Replicas that have applied it had
//! the same outputs, and have the same digest and rows. A start from a checkpoint changes nothing
//! of that.

use crate::world::{Mutation, Violation, World};
use directory::Output;
use rustc_hash::FxHasher;
use std::hash::Hasher;

/// Rows are compared at every index that this divides.
const ROWS_EVERY: u64 = 64;
/// The outputs of so many entries are remembered.
const SAID_MAX: usize = 3_000;

impl World {
    /// A new leader has all committed entries (Raft §5.4, leader completeness).
    pub(in crate::world) fn check_complete(&self, leader: usize) -> Result<(), Violation> {
        let log = &self.group.replicas[leader].log;
        let committed = self.ledger.committed();
        let has = committed < log.base() || log.term_at(committed) == self.ledger.terms.last().copied();
        if has || committed == 0 {
            return Ok(());
        }
        Err(format!("replica {leader} leads, and does not have entry {committed}, which is committed"))
    }

    /// Checks that the replica is like others at the same entry. `said` is the outputs of that
    /// entry.
    pub(in crate::world) fn check_replica(
        &mut self,
        at: usize,
        said: &[Vec<Output>],
    ) -> Result<(), Violation> {
        let believes = self.weather.lie == Some(Mutation::BelievesRot);
        let replica = &mut self.group.replicas[at];
        let (index, digest) = (replica.applied, replica.directory.digest());
        if index == 0 {
            return Ok(());
        }
        let differs = |what: &str| Err(format!("replica {at} differs in {what} after entry {index}"));
        match self.ledger.digests.get(index as usize - 1) {
            None => self.ledger.digests.push(digest),
            Some(agreed) if *agreed != digest => return differs("its digest"),
            Some(_) => {}
        }
        if !said.is_empty() {
            match self.ledger.said.get(&index) {
                Some(agreed) if agreed != said => return differs("what it says"),
                Some(_) => {}
                None => _ = self.ledger.said.insert(index, said.to_vec()),
            }
            if self.ledger.said.len() > SAID_MAX {
                self.ledger.said.pop_first();
            }
        }
        // A replica cannot know of damage to rows that it has not read yet.
        if replica.store.are_rotten() && !believes {
            return Ok(());
        }
        if index % ROWS_EVERY == 0 || self.ledger.rows.contains_key(&index) || said.is_empty() {
            replica.directory.checkpoint(&mut replica.store);
            let mut hasher = FxHasher::default();
            for (key, row) in &replica.store.store.rows {
                hasher.write(key);
                hasher.write(row);
            }
            let hash = hasher.finish();
            if *self.ledger.rows.entry(index).or_insert(hash) != hash {
                return differs("its rows");
            }
        }
        Ok(())
    }

    /// Checks at the end that all replicas have the same rows.
    pub(in crate::world) fn check_replicas(&mut self) -> Result<(), Violation> {
        for at in 0..self.group.replicas.len() {
            let replica = &mut self.group.replicas[at];
            replica.directory.checkpoint(&mut replica.store);
        }
        let differs = |pair: &[super::super::replica::Replica]| matches!(pair, [one, other] if one.applied == other.applied && one.store.store != other.store.store);
        match self.group.replicas.windows(2).any(differs) {
            true => Err("replicas differ at the end".into()),
            false => Ok(()),
        }
    }
}
