//! A directory tree whose metadata is copied: where its files stand, and in which order they are
//! made.

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeEntry {
    /// A file.
    File,
    /// The directory of this number.
    Directory(u32),
}

/// Directories by number; the first is the top. Entries stand in the order in which they are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryTree(Vec<Vec<TreeEntry>>);

/// The most files of a directory of a department.
const FILES_MAX: f64 = 20_000.0;
/// The offset in the distribution of files over directories.
const OFFSET: f64 = 2.36;

impl DirectoryTree {
    /// A tree with no entry.
    pub fn new() -> DirectoryTree {
        DirectoryTree(vec![Vec::new()])
    }

    /// Adds a file to `directory`.
    ///
    /// # Panics
    /// When there is no such directory.
    pub fn add_file(&mut self, directory: u32) {
        self.0[directory as usize].push(TreeEntry::File);
    }

    /// Adds a directory to `directory`. Returns its number.
    ///
    /// # Panics
    /// When there is no such directory, or are 2^32 others.
    pub fn add_directory(&mut self, directory: u32) -> u32 {
        let number = u32::try_from(self.0.len()).expect("fewer than 2^32 directories");
        self.0.push(Vec::new());
        self.0[directory as usize].push(TreeEntry::Directory(number));
        number
    }

    /// A department's file server with about these numbers of directories and files.
    ///
    /// The shape is that of Agrawal, Bolosky, Douceur and Lorch, *A Five-Year Study of File-System
    /// Metadata* (FAST 2007). A new directory goes into one that has C subdirectories with a
    /// probability in proportion to C + 2. The number of files in a directory is n with a
    /// probability in proportion to (n + 2.36)^-2. Each file is made at some time between the
    /// beginning of its directory and the end.
    pub fn department(seed: u64, directories: u32, files: u64) -> DirectoryTree {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let parents = parents(&mut rng, directories);
        let drawn: Vec<f64> = parents.iter().map(|_| files_of_one(&mut rng)).collect();
        let scale = files as f64 / drawn.iter().sum::<f64>().max(1.0);
        let mut tree = DirectoryTree(vec![Vec::new(); parents.len()]);
        // The entries of each directory, with the time of each.
        let mut made: Vec<Vec<(f64, TreeEntry)>> = vec![Vec::new(); parents.len()];
        for (number, parent) in (0..).zip(&parents).skip(1) {
            made[*parent as usize].push((f64::from(number), TreeEntry::Directory(number)));
        }
        let end = parents.len() as f64;
        for ((number, drawn), made) in (0..).zip(&drawn).zip(&mut made) {
            let (begin, count) = (f64::from(number), (drawn * scale + fraction(&mut rng)) as u64);
            made.extend((0..count).map(|_| (begin + (end - begin) * fraction(&mut rng), TreeEntry::File)));
            made.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            tree.0[number as usize] = made.iter().map(|(_, entry)| *entry).collect();
        }
        tree
    }

    /// The entries of a directory.
    pub(crate) fn entries(&self, directory: u32) -> &[TreeEntry] {
        &self.0[directory as usize]
    }

    /// Directories, the top among them.
    pub fn directories(&self) -> usize {
        self.0.len()
    }

    /// Files that are no directories.
    pub fn files(&self) -> usize {
        self.0.iter().flatten().filter(|entry| **entry == TreeEntry::File).count()
    }

    /// The most levels below the top.
    pub fn depth(&self) -> usize {
        let mut depths = vec![0; self.0.len()];
        // A directory's number is greater than that of the directory that it is in.
        for (number, entries) in self.0.iter().enumerate() {
            for entry in entries {
                if let TreeEntry::Directory(below) = entry {
                    depths[*below as usize] = depths[number] + 1;
                }
            }
        }
        depths.into_iter().max().unwrap_or(0)
    }
}

impl Default for DirectoryTree {
    fn default() -> DirectoryTree {
        DirectoryTree::new()
    }
}

/// The directory that each directory is in. The first is in itself.
fn parents(rng: &mut ChaCha12Rng, directories: u32) -> Vec<u32> {
    let mut parents = vec![0];
    // Each directory stands here C + 2 times.
    let mut drawn_from = vec![0, 0];
    for number in 1..directories {
        let parent = drawn_from[(rng.next_u64() % drawn_from.len() as u64) as usize];
        parents.push(parent);
        drawn_from.extend([parent, number, number]);
    }
    parents
}

/// The files of one directory, before they are scaled.
fn files_of_one(rng: &mut ChaCha12Rng) -> f64 {
    // The share of directories with n files or more is OFFSET / (n + OFFSET).
    let share = fraction(rng).max(OFFSET / (FILES_MAX + OFFSET));
    (OFFSET / share - OFFSET).floor()
}

/// A random number from 0 to 1.
fn fraction(rng: &mut ChaCha12Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_department_has_the_numbers_that_are_asked_for() {
        let tree = DirectoryTree::department(3, 2_000, 27_000);
        assert_eq!(tree.directories(), 2_000);
        assert!((26_000..28_000).contains(&tree.files()), "{}", tree.files());
        assert!((8..40).contains(&tree.depth()), "{}", tree.depth());
        let mut seen = vec![0; 2_000];
        for entry in tree.0.iter().flatten() {
            if let TreeEntry::Directory(number) = entry {
                seen[*number as usize] += 1;
            }
        }
        assert_eq!(seen[0], 0, "the top is in no directory");
        assert!(seen[1..].iter().all(|count| *count == 1), "each other is in one");
        assert_eq!(tree, DirectoryTree::department(3, 2_000, 27_000));
        assert_ne!(tree, DirectoryTree::department(4, 2_000, 27_000));
    }

    #[test]
    fn half_of_all_directories_have_few_files() {
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let mut drawn: Vec<f64> = (0..10_001).map(|_| files_of_one(&mut rng)).collect();
        drawn.sort_by(f64::total_cmp);
        assert_eq!(drawn[5_000], 2.0);
        assert!(drawn.iter().all(|files| (0.0..=FILES_MAX).contains(files)));
    }
}
