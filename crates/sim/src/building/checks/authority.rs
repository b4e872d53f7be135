//! Authority over each field is at exactly one place, and the server's rows say so (Farsite §6; `directory::Inspector`).

use crate::building::{Building, Violation};

impl Building {
    pub(in crate::building) fn check_authority(&self) -> Result<(), Violation> {
        let mut faults: Vec<directory::Violation> = Vec::new();
        self.server.directory.check(&self.server.store, &mut faults);
        match faults.first() {
            Some(fault) => Err(format!("{} faults in the server's state, the first: {fault}", faults.len())),
            None => Ok(()),
        }
    }
}
