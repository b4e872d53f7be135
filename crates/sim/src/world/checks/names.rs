//! The name space is linearizable: every label, and every file's owner, mode and policy
//! (ARCHITECTURE, invariant 7).

use crate::world::Violation;
use crate::world::history::{History, Key};

impl History {
    pub(super) fn check_names(&self) -> Result<(), Violation> {
        self.check_registers(|key| !matches!(key, Key::Content(_)))
    }
}
