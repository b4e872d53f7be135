//! What a disk has kept ill is found, by whoever reads it, and put right from the others: in the
//! end no server has anything that is not as it was written. That none was believed meanwhile the
//! checks of replicas say, and those of all that was told.

use crate::world::{Violation, World};

impl World {
    pub(in crate::world) fn check_rot(&self) -> Result<(), Violation> {
        let mut replicas = self.group.replicas.iter();
        match replicas.position(|replica| replica.serves && replica.is_rotten()) {
            Some(at) => Err(format!("the disk of server {at} is not as it was written in the end")),
            None => Ok(()),
        }
    }
}
