//! Content is linearizable (ARCHITECTURE, invariant 7): each file's, read and written as a whole,
//! and its length in answers.

use crate::world::Violation;
use crate::world::history::{History, Key};

impl History {
    pub(super) fn check_contents(&self) -> Result<(), Violation> {
        self.check_registers(|key| matches!(key, Key::Content(_)))
    }
}
