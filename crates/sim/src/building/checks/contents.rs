//! Content is linearizable: every file's, read and written as a whole, and as long as anybody is told (ARCHITECTURE, invariant 7).

use crate::building::Violation;
use crate::building::history::{History, Key};

impl History {
    pub(super) fn check_contents(&self) -> Result<(), Violation> {
        self.check_registers(|key| matches!(key, Key::Content(_)))
    }
}
