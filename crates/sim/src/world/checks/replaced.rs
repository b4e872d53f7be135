//! What replaces a file by rename brings its content along (ARCHITECTURE, invariant 13): whatever
//! the machine that renames had written of it before is at the server when the rename is, whether
//! it did that itself or had the server do it. So a crash leaves the old content or the new.

use crate::world::Violation;
use crate::world::history::{CallNumber, History};
use ident::FileId;

impl History {
    /// The server has come to the rename that `by` is, of `moved` to where another file was.
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
