//! A machine that walks a tree which another machine has just made, as `du`, `grep -r` and `rm -r`
//! do.

use super::row::{OperationCosts, SharedRow};
use super::{Pair, SETTLED};
use crate::target::Target;
use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;
use std::time::Instant;

/// Files of the tree: as many as an npm tree that was measured has.
const FILES: usize = 5_861;
/// Files of a directory at most.
const OF_DIRECTORY: usize = 12;
/// Directories in a directory at most.
const DIRECTORIES: usize = 8;
/// Bytes of a file: they differ, and some are not kept in the metadata.
const BYTES: [usize; 5] = [0, 120, 900, 2_500, 9_000];
/// The walk may take so many times as long as where the tree was made.
const TIMES: f64 = 3.0;
/// The most that each file may cost.
const COSTS: OperationCosts = OperationCosts { messages: 0.05, recalls: 0.01, flushes: 0.01 };

/// The work that is done in a tree.
#[derive(Clone, Copy)]
enum TreeWork {
    Stat,
    Read,
    Remove,
}

impl TreeWork {
    const ALL: [TreeWork; 3] = [TreeWork::Stat, TreeWork::Read, TreeWork::Remove];

    fn name(self) -> &'static str {
        match self {
            TreeWork::Stat => "stat a tree of the other machine",
            TreeWork::Read => "read a tree of the other machine",
            TreeWork::Remove => "remove a tree of the other machine",
        }
    }

    /// Returns the number of files.
    fn run(self, dir: &Path) -> io::Result<u64> {
        let mut files = 0;
        for entry in fs::read_dir(dir)?.collect::<io::Result<Vec<DirEntry>>>()? {
            let path = entry.path();
            if entry.metadata()?.is_dir() {
                files += self.run(&path)?;
                continue;
            }
            files += 1;
            match self {
                TreeWork::Stat => {}
                TreeWork::Read => drop(fs::read(&path)?),
                TreeWork::Remove => fs::remove_file(&path)?,
            }
        }
        if let TreeWork::Remove = self {
            fs::remove_dir(dir)?;
        }
        Ok(files)
    }
}

impl Pair {
    /// Measures walks through trees that the first machine has made: by the second machine, and
    /// beside it by the first one itself.
    pub(super) fn trees(&self, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
        let [maker, walker] = [0, 1].map(|n| &self.testbed.machines()[n]);
        let mut rows = Vec::new();
        for walk in TreeWork::ALL {
            tell(walk.name());
            let made = |at: &str| -> io::Result<String> {
                let name = format!("{} {at}", walk.name());
                make(&maker.dir().join(&name), FILES)?;
                maker.sync()?;
                Ok(name)
            };
            let here = made("here")?;
            let began = Instant::now();
            let files = walk.run(&dir_of(maker, &here))?;
            let rate = files as f64 / began.elapsed().as_secs_f64();
            let there = made("there")?;
            std::thread::sleep(SETTLED);
            let measured = self.testbed.measure(|| walk.run(&dir_of(walker, &there)))?;
            let row = SharedRow::between(walk.name(), &measured).beside(rate);
            rows.push(row.ratio_bar(1.0 / TIMES).costs_bar(COSTS));
        }
        Ok(rows)
    }
}

fn dir_of(machine: &Target, name: &str) -> std::path::PathBuf {
    machine.dir().join(name)
}

/// Makes a tree of `files` files at `dir`: some in each directory, the rest in directories below.
fn make(dir: &Path, files: usize) -> io::Result<()> {
    fs::create_dir(dir)?;
    let here = files.min(OF_DIRECTORY);
    for n in 0..here {
        fs::write(dir.join(format!("File {n}.js")), vec![b'x'; BYTES[(files + n) % BYTES.len()]])?;
    }
    let below = files - here;
    for n in 0..DIRECTORIES {
        // Shares of the rest that add up to it.
        let share = (below * (n + 1)) / DIRECTORIES - (below * n) / DIRECTORIES;
        if share > 0 {
            make(&dir.join(format!("dir-{n}")), share)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_as_many_files_as_it_is_to_have() {
        let base = tempfile::tempdir().unwrap();
        for files in [0, 1, 12, 13, 100, 700] {
            let dir = base.path().join(files.to_string());
            make(&dir, files).unwrap();
            for walk in TreeWork::ALL {
                assert_eq!(walk.run(&dir).unwrap(), files as u64);
            }
            assert!(!dir.exists());
        }
    }
}
