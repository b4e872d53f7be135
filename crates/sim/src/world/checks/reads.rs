//! An answer that no log entry stands for tells of a state that was there at some time after the
//! question came: of nothing less than was committed then (Raft §6.4).

use crate::world::{Violation, World};

impl World {
    /// The replica answers a question that came when so much was committed.
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
