//! Rot is found when it is read, and repaired from the other servers. In the end every server's
//! disk is as it was written. The checks of replicas and answers show that no server believed rot
//! meanwhile.

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
