//! The listings that SMB clients may cache under a lease on the directory: which files they show.

use ident::FileId;
use lease::caching::ObjectId;
use rustc_hash::{FxHashMap, FxHashSet};

/// The children of a directory that can be leased, at most. The listing of a larger one is looked
/// up again.
pub(crate) const LISTED_MAX: usize = 1 << 14;

/// The directories that may be leased, with their children. The machine hears of each change to a
/// child by the child's number alone, so the way back to the directories is here.
#[derive(Default)]
pub(crate) struct Listed {
    dirs: FxHashMap<ObjectId, Children>,
    of: FxHashMap<FileId, Vec<ObjectId>>,
}

#[derive(Default)]
struct Children {
    files: FxHashSet<FileId>,
    /// All children are noted, and the machine holds leases on what a listing shows of them.
    is_whole: bool,
}

impl Listed {
    /// Begins to note the children of a directory. Returns whether they are all noted already.
    pub(crate) fn begin(&mut self, dir: ObjectId) -> bool {
        self.dirs.entry(dir).or_default().is_whole
    }

    /// Whether the children of the directory are being noted.
    pub(crate) fn has(&self, dir: ObjectId) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// Notes a child. Returns whether it is new, or nothing if it is one too many.
    pub(crate) fn add(&mut self, dir: ObjectId, child: &FileId) -> Option<bool> {
        let children = self.dirs.get_mut(&dir)?;
        if children.files.contains(child) {
            return Some(false);
        }
        if children.files.len() >= LISTED_MAX {
            return None;
        }
        children.files.insert(child.clone());
        self.of.entry(child.clone()).or_default().push(dir);
        Some(true)
    }

    /// Says whether all children of the directory are noted.
    pub(crate) fn set_whole(&mut self, dir: ObjectId, is_whole: bool) {
        if let Some(children) = self.dirs.get_mut(&dir) {
            children.is_whole = is_whole;
        }
    }

    /// The directories that show the file.
    pub(crate) fn dirs(&self, child: &FileId) -> &[ObjectId] {
        self.of.get(child).map_or(&[], Vec::as_slice)
    }

    /// Forgets a directory, which is leased to nobody.
    pub(crate) fn forget(&mut self, dir: ObjectId) {
        for child in self.dirs.remove(&dir).unwrap_or_default().files {
            if let Some(dirs) = self.of.get_mut(&child) {
                dirs.retain(|known| *known != dir);
                if dirs.is_empty() {
                    self.of.remove(&child);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shown_by_the_directories_that_have_it() {
        let (one, two) = (ObjectId(1), ObjectId(2));
        let file = |number: u64| FileId::root().child(number);
        let mut listed = Listed::default();
        assert_eq!(listed.add(one, &file(1)), None, "nobody asked for it");
        assert!(!listed.begin(one) && !listed.begin(two));
        assert_eq!((listed.add(one, &file(1)), listed.add(one, &file(1))), (Some(true), Some(false)));
        assert_eq!(listed.add(two, &file(1)), Some(true));
        listed.set_whole(one, true);
        assert!(listed.begin(one));
        assert_eq!(listed.dirs(&file(1)), [one, two]);
        listed.forget(one);
        assert_eq!((listed.dirs(&file(1)), listed.has(one)), (&[two][..], false));
        listed.forget(two);
        assert!(listed.of.is_empty() && listed.dirs.is_empty());
    }

    #[test]
    fn a_directory_with_too_many_children_is_not_leased() {
        let mut listed = Listed::default();
        listed.begin(ObjectId(1));
        for number in 0..LISTED_MAX as u64 {
            assert_eq!(listed.add(ObjectId(1), &FileId::root().child(number + 1)), Some(true));
        }
        assert_eq!(listed.add(ObjectId(1), &FileId::root().child(1)), Some(false));
        assert_eq!(listed.add(ObjectId(1), &FileId::root().child(1 << 20)), None);
    }
}
