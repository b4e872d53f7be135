//! Inode numbers are stable for ever (ARCHITECTURE, invariant 18): a file has the same number in
//! every answer, and no other file ever has it.

use crate::host::Violation;
use ident::FileId;
use std::collections::BTreeMap;

/// The numbers in all answers so far.
#[derive(Debug, Default)]
pub(crate) struct Inodes {
    of: BTreeMap<FileId, u64>,
    files: BTreeMap<u64, FileId>,
}

impl Inodes {
    /// An answer says that the file has this number.
    pub fn told(&mut self, file: &FileId, ino: u64) -> Result<(), Violation> {
        let before = *self.of.entry(file.clone()).or_insert(ino);
        let other = self.files.entry(ino).or_insert_with(|| file.clone());
        if before != ino || other != file {
            return Err(format!("{file} has inode number {ino}; it had {before}, and {other} has {ino}"));
        }
        Ok(())
    }
}
