//! A machine that walks a tree which another machine has just made, as `du`, `grep -r` and `rm -r`
//! do.

use super::repeat::again_and_again;
use super::row::{OperationCosts, SharedRow};
use super::{Pair, SETTLED};
use crate::target::Target;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

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
/// The part of its rate at which the maker goes on working while its tree is walked.
const GOES_ON: f64 = 0.5;
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
    /// beside it by the first one itself. Then the work of the first in a tree that is walked.
    pub(super) fn trees(&self, time: Duration, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
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
        rows.push(self.walked(time, tell)?);
        Ok(rows)
    }

    /// Measures how the first machine writes files of its tree while the second one walks the tree
    /// again and again; beside it, while nobody does.
    fn walked(&self, time: Duration, tell: &mut dyn FnMut(&str)) -> io::Result<SharedRow> {
        const NAME: &str = "write in a tree that the other walks";
        tell(NAME);
        let [maker, walker] = [0, 1].map(|n| &self.testbed.machines()[n]);
        let (made, walked) = (maker.dir().join(NAME), walker.dir().join(NAME));
        make(&made, FILES)?;
        maker.sync()?;
        let files = files_of(&made)?;
        let write = |turn: u64| {
            // Neighbours are written one after the other, and the whole tree in turns.
            let at = turn as usize % files.len();
            fs::write(&files[at], vec![b'y'; BYTES[at % BYTES.len()]])
        };
        let alone = again_and_again(time, write)? as f64 / time.as_secs_f64();
        std::thread::sleep(SETTLED);
        let is_over = AtomicBool::new(false);
        let walk = || -> io::Result<()> {
            while !is_over.load(Relaxed) {
                TreeWork::Stat.run(&walked)?;
            }
            Ok(())
        };
        let measured = std::thread::scope(|scope| {
            let walking = scope.spawn(walk);
            let measured = self.testbed.measure(|| again_and_again(time, write));
            is_over.store(true, Relaxed);
            walking.join().map_err(|_| io::Error::other("a thread failed"))??;
            measured
        })?;
        Ok(SharedRow::between(NAME, &measured).beside(alone).ratio_bar(GOES_ON))
    }
}

/// All files below `dir`.
fn files_of(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(files_of(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}

fn dir_of(machine: &Target, name: &str) -> PathBuf {
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
            assert_eq!(files_of(&dir).unwrap().len(), files);
            for walk in TreeWork::ALL {
                assert_eq!(walk.run(&dir).unwrap(), files as u64);
            }
            assert!(!dir.exists());
        }
    }
}
