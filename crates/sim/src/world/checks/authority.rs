//! Authority over each field is at exactly one place, and the server's rows say so (Farsite §6;
//! `directory::Inspector`).

use crate::world::{Violation, World};

impl World {
    pub(in crate::world) fn check_authority(&self) -> Result<(), Violation> {
        let mut faults: Vec<directory::Violation> = Vec::new();
        let oracle = &self.shipped.oracle;
        if self.weather.shipped {
            oracle.directory.check(&oracle.store, &mut faults);
            return first(&faults);
        }
        // Replicas at one entry are the same, so the latest one is checked. A newcomer has no state
        // yet.
        let sound = self.group.replicas.iter().filter(|replica| !replica.is_rotten() && replica.applied > 0);
        let latest = sound.max_by_key(|replica| replica.applied);
        latest.iter().for_each(|replica| replica.directory.check(&replica.store.store, &mut faults));
        first(&faults)
    }
}

fn first(faults: &[directory::Violation]) -> Result<(), Violation> {
    match faults.first() {
        Some(fault) => Err(format!("{} faults in the server's state, the first: {fault}", faults.len())),
        None => Ok(()),
    }
}
