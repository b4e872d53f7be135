//! A file that replaces another by rename brings its content along (ARCHITECTURE, invariant 13).
//! The renaming machine's earlier writes to the file are at the server when the rename is. This
//! holds whether the client did the rename or shipped it. So a crash leaves the old content or the
//! new.

use crate::world::Violation;
use crate::world::history::{CallNumber, History};
use ident::FileId;

impl History {
    /// Checks the rename of call `by` when the server does it. `moved` replaces another file.
    pub(in crate::world) fn check_replaced(&self, by: CallNumber, moved: &FileId) -> Result<(), Violation> {
        let Some(rename) = self.calls.get(by) else { return Ok(()) };
        let is_late = |number: &&CallNumber| {
            self.calls.get(**number).is_some_and(|write| write.done < rename.begun && !write.refused)
        };
        match self.unpublished(moved, rename.life).iter().find(is_late) {
            Some(write) => {
                let (write, rename) = (self.calls.get(*write).map(|write| &write.call), &rename.call);
                Err(format!("{rename:?} replaced a file before {write:?} was at the server"))
            }
            None => Ok(()),
        }
    }
}
