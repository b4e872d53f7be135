//! An answer without a log entry comes from a state no older than its question: it includes all
//! that was committed when the question came (Raft §6.4).

use crate::world::{Violation, World};

impl World {
    /// Checks the replica's answer to a question that came when so much was committed.
    pub(in crate::world) fn check_read(&self, replica: usize, committed: u64) -> Result<(), Violation> {
        let applied = self.group.replicas[replica].applied;
        if applied >= committed {
            return Ok(());
        }
        Err(format!(
            "replica {replica} answers from what was there after entry {applied}, though {committed} were committed when it was asked"
        ))
    }
}
