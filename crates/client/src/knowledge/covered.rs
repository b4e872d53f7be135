//! The files that clients of front doors may cache.

use ident::FileId;
use rustc_hash::FxHashSet;

/// The number of files from which on those are looked for that are not held any more.
const MAX: usize = 1024;

/// Files that clients of a front door may cache ([`crate::call::Cover`]). Some of them are not held
/// any more.
#[derive(Debug)]
pub(crate) struct CoveredFiles {
    files: FxHashSet<FileId>,
    /// The number of files at which the next look is due.
    max: usize,
}

impl Default for CoveredFiles {
    fn default() -> CoveredFiles {
        CoveredFiles { files: FxHashSet::default(), max: MAX }
    }
}

impl CoveredFiles {
    /// Adds a file. When there are many, those go that `is_held` does not name: they were recalled,
    /// and nobody caches them.
    pub fn insert(&mut self, file: &FileId, is_held: impl Fn(&FileId) -> bool) {
        if self.files.len() >= self.max {
            self.files.retain(is_held);
            self.max = MAX.max(2 * self.files.len());
        }
        self.files.insert(file.clone());
    }

    pub fn contains(&self, file: &FileId) -> bool {
        self.files.contains(file)
    }
}
