//! The control: identifiers of a fixed size, assigned greedily without knowledge of what will come
//! (Farsite §8.3.1).
//!
//! Each directory has a region of the flat space. A new subdirectory gets the upper half of what is
//! left of it. Files get the numbers from its beginning on. Where nothing is left, a file gets a
//! number of the nearest directory above that has one.

use super::tree::{DirectoryTree, TreeEntry};

/// The outcome of an assignment, in files and directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedSize {
    /// Those that got a number of the region in which they belong.
    pub within: u64,
    /// Those that got a number of a directory above.
    pub spilled: u64,
    /// Those that got none.
    pub without: u64,
}

/// The rest of a directory's region.
#[derive(Clone, Copy, Debug)]
struct Region {
    next: u128,
    end: u128,
}

impl Region {
    fn take(&mut self) -> bool {
        let is_left = self.next < self.end;
        self.next += u128::from(is_left);
        is_left
    }

    fn halve(&mut self) -> Region {
        let middle = self.end - (self.end - self.next) / 2;
        let upper = Region { next: middle, end: self.end };
        self.end = middle;
        upper
    }
}

impl FixedSize {
    /// Assigns identifiers of `bits` bits, at most 127, in the order in which a copy makes the
    /// files.
    pub fn assign(tree: &DirectoryTree, bits: u32) -> FixedSize {
        let mut assigned = FixedSize::default();
        let whole = Region { next: 0, end: 1 << bits.min(127) };
        // The directories above the one that is being copied, and how far each has come.
        let mut path = vec![(0, 0, whole)];
        assigned.one(&mut path);
        while let Some((directory, at, region)) = path.last_mut() {
            let Some(entry) = tree.entries(*directory).get(*at) else {
                path.pop();
                continue;
            };
            *at += 1;
            if let TreeEntry::Directory(number) = entry {
                let half = region.halve();
                path.push((*number, 0, half));
            }
            assigned.one(&mut path);
        }
        assigned
    }

    /// Assigns the next identifier in the last directory of the path.
    fn one(&mut self, path: &mut [(u32, usize, Region)]) {
        match path.iter_mut().rev().position(|(_, _, region)| region.take()) {
            Some(0) => self.within += 1,
            Some(_) => self.spilled += 1,
            None => self.without += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The top, two files, and a directory with three: of eight numbers the directory has three.
    #[test]
    fn a_directory_has_half_of_what_is_left() {
        let mut tree = DirectoryTree::new();
        tree.add_file(0);
        tree.add_file(0);
        let below = tree.add_directory(0);
        let assigned = |tree: &DirectoryTree, bits| FixedSize::assign(tree, bits);
        (0..1).for_each(|_| tree.add_file(below));
        assert_eq!(assigned(&tree, 3), FixedSize { within: 5, spilled: 0, without: 0 });
        (0..3).for_each(|_| tree.add_file(below));
        assert_eq!(assigned(&tree, 3), FixedSize { within: 5, spilled: 3, without: 0 });
        tree.add_file(below);
        assert_eq!(assigned(&tree, 3), FixedSize { within: 5, spilled: 3, without: 1 });
        assert_eq!(assigned(&tree, 107), FixedSize { within: 9, spilled: 0, without: 0 });
    }
}
