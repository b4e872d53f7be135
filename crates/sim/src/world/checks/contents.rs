//! Content is linearizable: every file's, read and written as a whole, and as long as anybody is
//! told (ARCHITECTURE, invariant 7).

use crate::world::Violation;
use crate::world::history::{History, Key};

impl History {
    pub(super) fn check_contents(&self) -> Result<(), Violation> {
        self.check_registers(|key| matches!(key, Key::Content(_)))
    }
}
