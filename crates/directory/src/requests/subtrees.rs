//! Whether a file is within the subtree that a machine's rights are of.

use crate::paths::DEPTH_MAX;
use crate::rows::files::Files;
use ident::FileId;
use namespace::Effect;
use rustc_hash::FxHashMap;

/// Directories of which it is remembered whether they are within a root.
const REMEMBERED_MAX: usize = 4096;
/// The depth of directories within machines' roots, for those within. This is only a cache for the
/// walk up: a replica that has forgotten it gets the same results. It is forgotten when a directory
/// moves, or may have moved elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subtrees(FxHashMap<(FileId, FileId), Option<usize>>);

impl Subtrees {
    /// Whether `file` is `root` or within it. None: only a path lease that is not held would tell.
    pub fn is_within(&mut self, files: &Files<'_>, root: &FileId, file: &FileId) -> Option<bool> {
        match files.record(file) {
            None => Some(false),
            Some(_) if file == root => Some(true),
            Some(record) if record.is_directory() => self.is_dir_within(files, root, file),
            Some(record) => {
                let mut within = Some(false);
                for link in &record.links {
                    match self.is_dir_within(files, root, &link.dir) {
                        Some(false) => {}
                        Some(true) => return Some(true),
                        None => within = None,
                    }
                }
                within
            }
        }
    }

    fn is_dir_within(&mut self, files: &Files<'_>, root: &FileId, dir: &FileId) -> Option<bool> {
        let (mut at, mut way) = (dir.clone(), Vec::new());
        let depth = loop {
            if at == *root {
                break Some(way.len());
            }
            if let Some(known) = self.0.get(&(root.clone(), at.clone())) {
                break known.map(|depth| depth + way.len());
            }
            if !files.regions.manage(&at) {
                let further = files.paths.above(&at)?.iter().position(|dir| dir == root);
                break further.map(|further| way.len() + 1 + further);
            }
            let above =
                files.record(&at).and_then(|record| record.links.first().map(|link| link.dir.clone()));
            way.push(at);
            match above {
                // Directories further up are not cached.
                Some(_) if way.len() > DEPTH_MAX => return Some(false),
                Some(above) => at = above,
                None => break None,
            }
        };
        if self.0.len() + way.len() > REMEMBERED_MAX {
            self.0.clear();
        }
        let depths = way.into_iter().enumerate().take(REMEMBERED_MAX);
        self.0.extend(depths.map(|(below, dir)| ((root.clone(), dir), depth.map(|depth| depth - below))));
        Some(depth.is_some_and(|depth| depth <= DEPTH_MAX))
    }

    /// Forgets all depths: a path lease has ended, or directories are here that were elsewhere.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// Forgets the depths if a directory may have moved.
    pub fn note(&mut self, files: &Files<'_>, effects: &[Effect]) {
        let moves = |effect: &Effect| match effect {
            Effect::DropLink { file, .. } => files.record(file).is_none_or(|record| record.is_directory()),
            _ => false,
        };
        if !self.0.is_empty() && effects.iter().any(moves) {
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use crate::Store;
    use crate::regions::Regions;
    use crate::rows::files::Surroundings;
    use crate::rows::keys;
    use crate::rows::record::Record;
    use lease::Label;
    use namespace::{Attributes, ContentHead, FileKind, Link, Times, Timestamp};

    /// A replica that was started anew remembers nothing, and must reach the same results as the
    /// others.
    #[test]
    fn what_is_remembered_decides_nothing_however_deep_a_directory_is() {
        let time = Timestamp::default();
        let (mode, uid, gid, links, ino, rdev) = (0o755, 0, 0, 1, 1, 0);
        let kind = FileKind::Directory;
        let attributes =
            Attributes { kind, mode, uid, gid, links, ino, rdev, ctime: time, btime: time, atime: time };
        let mut store = MemoryStore::default();
        let dirs: Vec<FileId> =
            (1..=DEPTH_MAX as u64 + 4).map(|number| FileId::root().child(number)).collect();
        let mut above: Option<FileId> = None;
        for dir in &dirs {
            let mut record = Record::born(attributes, ContentHead::default(), Times::default());
            let label = Label::new(b"down").unwrap();
            record.links.extend(above.take().map(|dir| Link { dir, label }));
            store.put(&keys::of(dir, keys::Tag::Record), record.to_bytes(dir));
            above = Some(dir.clone());
        }
        let regions = Regions::new(ident::ServerId::ROOT);
        let files = Files::new(&mut store, Surroundings { regions, ..Surroundings::default() });
        let mut remembering = Subtrees::default();
        let deep =
            [10, 3, DEPTH_MAX - 5, DEPTH_MAX, DEPTH_MAX + 1, DEPTH_MAX + 2, DEPTH_MAX - 1, DEPTH_MAX + 3];
        for depth in deep {
            let remembered = remembering.is_within(&files, &dirs[0], &dirs[depth]);
            assert_eq!(remembered, Subtrees::default().is_within(&files, &dirs[0], &dirs[depth]), "{depth}");
            assert_eq!(remembered, Some(depth <= DEPTH_MAX), "{depth}");
        }
    }
}
