//! Work on names and attributes: the same for every target.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The layout of the work.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Threads that work at once.
    pub threads: usize,
    /// Directories that the files are spread over.
    pub dirs: usize,
    /// Files in all.
    pub files: usize,
    /// Directories that [`NameWork::Mkdir`] makes.
    pub mkdirs: usize,
}

impl Layout {
    /// Makes the directories that the files will be in.
    pub fn prepare(self, root: &Path) -> io::Result<()> {
        (0..self.dirs).try_for_each(|n| fs::create_dir_all(root.join(format!("d{n}"))))
    }
}

/// One kind of work; each kind builds on the results of the kinds before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameWork {
    /// Make other directories, all in one.
    Mkdir,
    /// Create each file and close it.
    Create,
    /// `stat` of each file, by path.
    Stat,
    /// `stat` of as many missing names.
    Missing,
    /// Open each file for reading and close it.
    Open,
    /// List each directory, with the `stat` of each entry.
    List,
    /// Rename each file within its directory.
    Rename,
    /// Unlink each file.
    Unlink,
}

impl NameWork {
    /// All kinds, in the order in which they can be done.
    pub const ALL: [NameWork; 8] = [
        NameWork::Mkdir,
        NameWork::Create,
        NameWork::Stat,
        NameWork::Missing,
        NameWork::Open,
        NameWork::List,
        NameWork::Rename,
        NameWork::Unlink,
    ];

    /// The work's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            NameWork::Mkdir => "mkdir",
            NameWork::Create => "create+close",
            NameWork::Stat => "warm stat",
            NameWork::Missing => "missing name",
            NameWork::Open => "open+close",
            NameWork::List => "readdir+stat",
            NameWork::Rename => "rename",
            NameWork::Unlink => "unlink",
        }
    }

    /// Whether the work changes anything, so that a final sync counts.
    pub fn updates(self) -> bool {
        matches!(self, NameWork::Mkdir | NameWork::Create | NameWork::Rename | NameWork::Unlink)
    }

    /// Whether the work costs the same a second time. (After the first time the kernel knows that a
    /// name is missing.)
    pub fn is_repeatable(self) -> bool {
        matches!(self, NameWork::Stat | NameWork::Open | NameWork::List)
    }

    /// The number of operations.
    pub fn operations(self, layout: Layout) -> u64 {
        match self {
            NameWork::Mkdir => layout.mkdirs as u64,
            _ => layout.files as u64,
        }
    }

    /// Does the work under `root`, which is prepared.
    pub fn run(self, root: &Path, layout: Layout) -> io::Result<()> {
        if self == NameWork::Mkdir {
            return each(layout.threads, layout.mkdirs, |n| fs::create_dir(root.join(format!("m{n}"))));
        }
        if self == NameWork::List {
            return each(layout.threads, layout.dirs, |n| list(&root.join(format!("d{n}"))));
        }
        each(layout.threads, layout.files, |n| {
            let dir = root.join(format!("d{}", n % layout.dirs));
            let (name, renamed) = (dir.join(format!("file-{n}")), dir.join(format!("renamed-{n}")));
            self.on(&name, &renamed)
        })
    }

    fn on(self, name: &PathBuf, renamed: &PathBuf) -> io::Result<()> {
        match self {
            NameWork::Create => OpenOptions::new().write(true).create_new(true).open(name).map(drop),
            NameWork::Stat => fs::metadata(name).map(drop),
            NameWork::Missing => match fs::metadata(renamed) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Err(io::Error::other("a name that was never made is there")),
            },
            NameWork::Open => File::open(name).map(drop),
            NameWork::Rename => fs::rename(name, renamed),
            NameWork::Unlink => fs::remove_file(renamed),
            NameWork::Mkdir | NameWork::List => Ok(()),
        }
    }
}

/// `ls -l`: every entry and its stat.
pub fn list(dir: &Path) -> io::Result<()> {
    let mut inodes = 0u64;
    for entry in fs::read_dir(dir)? {
        inodes ^= entry?.metadata()?.ino();
    }
    std::hint::black_box(inodes);
    Ok(())
}

/// Calls `what` for each number less than `count`, on `threads` threads that divide the numbers in
/// turns.
fn each(threads: usize, count: usize, what: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    let what = &what;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|t| scope.spawn(move || (t..count).step_by(threads).try_for_each(what)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| io::Error::other("a thread failed"))?)
    })
}
