//! The snapshot of a department's file server (Farsite §8.2.1): one machine copies the metadata of
//! a directory tree, and the lengths of the identifiers are counted (§8.3.1).

mod fixed_size;
mod tree;

use crate::campus::program_context::ProgramContext;
use crate::campus::{Campus, CampusSettings};
use crate::host::Violation;
pub use fixed_size::FixedSize;
use ident::FileId;
use namespace::{FileKind, FileSpec};
use std::cell::RefCell;
use std::rc::Rc;
pub use tree::{DirectoryTree, TreeEntry};

/// The simulated time within which a copy ends, ms.
const COPIES_MS: u64 = 24 * 3_600 * 1_000;

/// How many files and directories have an identifier of so many bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lengths(Vec<u64>);

impl Lengths {
    /// Counts an identifier of `bits` bits.
    pub fn count(&mut self, bits: usize) {
        if self.0.len() <= bits {
            self.0.resize(bits + 1, 0);
        }
        self.0[bits] += 1;
    }

    /// The number of identifiers.
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The mean length, in bits.
    pub fn mean(&self) -> f64 {
        let bits: u64 = (0..).zip(&self.0).map(|(bits, count)| bits * count).sum();
        bits as f64 / self.all().max(1) as f64
    }

    /// The length, in bits, that this share of all identifiers does not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        let below = (self.all() as f64 * share).ceil() as u64;
        let mut counted = 0;
        let exceeds = |count: &u64| {
            counted += count;
            counted >= below
        };
        self.0.iter().position(exceeds).unwrap_or(0) as u64
    }

    /// The greatest length, in bits.
    pub fn max(&self) -> u64 {
        self.0.len().saturating_sub(1) as u64
    }

    /// The share of all identifiers with each length, in bits.
    pub fn shares(&self) -> impl Iterator<Item = (u64, f64)> {
        let all = self.all().max(1) as f64;
        (0..).zip(&self.0).map(move |(bits, count)| (bits, *count as f64 / all))
    }
}

/// Copies the metadata of `tree` by the shipped client to the shipped server, depth first and each
/// directory in order. Returns the lengths of the identifiers.
pub fn copy(seed: u64, tree: DirectoryTree) -> Result<Lengths, Violation> {
    let mut campus = Campus::new(seed, CampusSettings::at_ease(1, 1))?;
    let lengths = Rc::new(RefCell::new(Lengths::default()));
    let counted = lengths.clone();
    campus.begins(0, move |context| async move {
        let counted = |file: FileId| {
            counted.borrow_mut().count(file.bit_len());
            file
        };
        let mut path = vec![(0, 0, counted(FileId::root()))];
        while let Some((directory, at, dir)) = path.last_mut() {
            let Some(entry) = tree.entries(*directory).get(*at) else {
                path.pop();
                continue;
            };
            *at += 1;
            let name = format!("{at}");
            match entry {
                TreeEntry::File => _ = counted(make(&context, dir, &name).await?),
                TreeEntry::Directory(number) => {
                    let made = counted(context.mkdir(dir, &name).await?);
                    path.push((*number, 0, made));
                }
            }
        }
        context.sync_all().await
    });
    campus.run_to_end(COPIES_MS)?;
    let lengths = lengths.borrow().clone();
    Ok(lengths)
}

async fn make(context: &ProgramContext, dir: &FileId, name: &str) -> Result<FileId, Violation> {
    let made = context.make(dir, name, FileSpec::new(FileKind::Regular, 0o644, 0), None).await?;
    made.ok_or_else(|| format!("{name} is there already"))
}

/// The lengths of the same identifiers by the paper's own code: Elias' γ' (Farsite §4.1.3), each
/// entry with its number in its directory.
pub fn lengths_by_the_papers_code(tree: &DirectoryTree) -> Lengths {
    let mut lengths = Lengths::default();
    let mut above = vec![(0, 0)];
    lengths.count(0);
    while let Some((directory, bits)) = above.pop() {
        for (number, entry) in (1u64..).zip(tree.entries(directory)) {
            let bits = bits + 2 * number.ilog2() as usize + 1;
            lengths.count(bits);
            if let TreeEntry::Directory(below) = entry {
                above.push((*below, bits));
            }
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_tree_has_an_identifier_for_each_file() {
        let tree = DirectoryTree::department(1, 400, 5_000);
        let files = (tree.files() + tree.directories()) as u64;
        let lengths = copy(7, tree.clone()).unwrap();
        assert_eq!(lengths.all(), files);
        assert_eq!(lengths_by_the_papers_code(&tree).all(), files);
        let fixed = FixedSize::assign(&tree, 48);
        assert_eq!(fixed.within + fixed.spilled + fixed.without, files);
        assert!(lengths.mean() < lengths.quantile(0.99) as f64 && lengths.quantile(0.99) <= lengths.max());
    }

    #[test]
    fn lengths_are_counted_by_the_bit() {
        let mut lengths = Lengths::default();
        (0..98).for_each(|_| lengths.count(10));
        lengths.count(40);
        lengths.count(60);
        assert_eq!((lengths.all(), lengths.max(), lengths.quantile(0.99)), (100, 60, 40));
        assert_eq!((lengths.quantile(0.5), lengths.mean()), (10, 10.8));
        // The top, a directory 1 with a file 1, and a file 2: none, 1 bit, 2 bits, 3 bits.
        let mut tree = DirectoryTree::new();
        let below = tree.add_directory(0);
        tree.add_file(below);
        tree.add_file(0);
        let lengths = lengths_by_the_papers_code(&tree);
        let of: Vec<u64> = lengths.shares().filter(|(_, share)| *share > 0.0).map(|(bits, _)| bits).collect();
        assert_eq!(of, [0, 1, 2, 3]);
    }
}
