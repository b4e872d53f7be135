//! Extraction: one file of a backup, or a directory with its whole tree, is written as ordinary
//! files. It needs no cluster and no mount.
//!
//! The rows go into a store of their own beside the destination, since they are found by key and
//! may exceed the memory. Only the shares to which the files refer are read. The tree is made under
//! a temporary name, in a directory that no other user can enter. It gets its final name when it is
//! whole.

use crate::archive::{Archive, broken};
use crate::error::{BackupError, io};
use crate::made::FilePart;
use crate::progress::RestoreProgress;
use crate::tree::Tree;
use directory::{Corrupt, Directory};
use ident::FileId;
use os::private;
use raft::GroupError;
use raft::{RowStore, StoreSettings};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};
use wire::Versions;

/// Bounds the memory, whatever the size of the backup: pages of the file with the rows, and two
/// layers of rows on their way there. [`Tree`] needs its own memory in addition.
const ROWS: StoreSettings = StoreSettings { cache_bytes: 64 << 20, overlay_bytes: 32 << 20 };
/// The bytes of the destination's name in the name of the temporary directory. With the rest they
/// fit into a file name.
const NAME_BYTES: usize = 200;
/// The time between two reports of progress.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// An order to extract from a backup.
#[derive(Clone, Debug)]
pub struct Extracting {
    /// The directory of backups.
    pub dir: PathBuf,
    /// The backup; the latest if absent.
    pub name: Option<String>,
    /// The file or directory, from the root of the file system.
    pub file: PathBuf,
    /// The destination. It must not exist.
    pub to: PathBuf,
    /// Leaves out files whose content is missing or damaged.
    pub incomplete: bool,
}

/// The result of an extraction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractReport {
    /// The backup's name.
    pub name: String,
    /// The file or directory in it.
    pub file: String,
    /// The destination.
    pub to: String,
    /// The number of files, without directories.
    pub files: u64,
    /// Bytes of their content, without holes.
    pub bytes: u64,
    /// Files left out because their content is missing or damaged.
    pub lost: Vec<LostFile>,
    /// Attributes and special files that could not be made here.
    pub skipped: Vec<SkippedParts>,
}

/// A file that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFile {
    /// Its path in the backup.
    pub path: String,
    /// The fault.
    pub why: String,
}

/// Parts of files that could not be made here, for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedParts {
    /// The path of the first such file in the backup.
    pub path: String,
    /// The number of other such files.
    pub others: u64,
    /// The part.
    #[serde(flatten)]
    pub part: FilePart,
    /// The system's error.
    pub why: String,
}

/// Extracts a file, or a directory with its whole tree, from a backup.
pub fn extract(
    order: &Extracting,
    progress: &mut dyn FnMut(&RestoreProgress),
) -> Result<ExtractReport, BackupError> {
    let archive = Archive::open_to_read(&order.dir)?;
    let name = archive.choose(order.name.as_deref())?;
    let to = std::path::absolute(&order.to).map_err(io("find", &order.to))?;
    let staging = Staging::begin(&to)?;
    let state = ExtractState::load(&archive, &name, &staging.dir.join("rows"), progress)?;
    let found = state.find(&order.file)?;
    let shown = Path::new("/").join(&order.file);
    let report = ExtractReport {
        name,
        file: shown.display().to_string(),
        to: to.display().to_string(),
        ..ExtractReport::default()
    };
    let made = staging.dir.join("made");
    let mut tree = Tree::new(&archive, &state, order.incomplete, report, progress);
    if let Some(unfinished) = tree.make(&found, &made, &shown)? {
        staging.place(&made, &to)?;
        // Attributes come last: a user can move only directories in which he may write.
        tree.finish(unfinished, &to, &shown);
        staging.sync()?;
    }
    Ok(tree.report())
}

/// The state of the file system in a backup.
pub(crate) struct ExtractState {
    pub(crate) directory: Directory,
    pub(crate) store: RowStore,
    /// The backup's name, and its file.
    pub(crate) name: String,
    file: PathBuf,
}

impl ExtractState {
    fn load(
        archive: &Archive,
        name: &str,
        rows_at: &Path,
        progress: &mut dyn FnMut(&RestoreProgress),
    ) -> Result<ExtractState, BackupError> {
        let (mut reader, _) = archive.read(name)?;
        let file = archive.backup(name);
        let mut store = RowStore::open(rows_at, ROWS)?;
        let (mut read, mut told) = (0, Instant::now());
        while let Some(mut rows) = reader.rows().map_err(|error| broken(&file, error))? {
            read += rows.len();
            // The files' own rows name the shares.
            rows.retain(|(key, _)| directory::share_of_row(key).is_none());
            store.fill(rows)?;
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                progress(&RestoreProgress::RowsRead { rows: read });
            }
        }
        let directory = Directory::open(&store, Versions::KNOWN).map_err(GroupError::state)?;
        Ok(ExtractState { directory, store, name: name.to_owned(), file })
    }

    /// Converts the result of a read of the state. A failed read means a damaged backup.
    pub(crate) fn sound<T>(&self, read: Result<T, Corrupt>) -> Result<T, BackupError> {
        read.map_err(|corrupt| BackupError::damaged(&self.file, corrupt))
    }

    fn resolve(&self, path: &Path) -> Option<FileId> {
        self.directory.resolve(&self.store, path.as_os_str().as_bytes())
    }

    /// The file at the path from the root.
    fn find(&self, path: &Path) -> Result<FileId, BackupError> {
        match self.resolve(path) {
            Some(file) => Ok(file),
            None => Err(BackupError::NoFile {
                path: Path::new("/").join(path),
                name: self.name.clone(),
                why: self.where_it_ends(path)?,
            }),
        }
    }

    /// The reason why there is no file at that path.
    fn where_it_ends(&self, path: &Path) -> Result<String, BackupError> {
        let mut way = PathBuf::from("/");
        for part in path.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir)) {
            let next = way.join(part);
            if self.resolve(&next).is_some() {
                way = next;
                continue;
            }
            let target = match self.resolve(&way) {
                Some(last) => self.sound(self.directory.target(&self.store, &last))?,
                None => None,
            };
            return Ok(match target {
                Some(target) => format!(
                    "{} is a symbolic link to {}; name the file by where the link leads to",
                    way.display(),
                    Path::new(OsStr::from_bytes(&target)).display()
                ),
                None => format!("{} has no {}", way.display(), Path::new(part.as_os_str()).display()),
            });
        }
        Ok(format!("{} is not there", way.display()))
    }
}

/// The temporary directory beside the destination in which everything is made first. It is removed
/// with its contents at the end, whatever happens.
struct Staging {
    dir: PathBuf,
}

impl Staging {
    fn begin(to: &Path) -> Result<Staging, BackupError> {
        if fs::symlink_metadata(to).is_ok() {
            return Err(BackupError::Exists { to: to.to_path_buf() });
        }
        let (parent, name) = match (to.parent(), to.file_name()) {
            (Some(parent), Some(name)) if parent.is_dir() => (parent, name.as_bytes()),
            (parent, _) => return Err(BackupError::NoDirectory { dir: parent.unwrap_or(to).to_path_buf() }),
        };
        let name = name.get(..NAME_BYTES).unwrap_or(name);
        let dir = parent.join(OsStr::from_bytes(&[b".", name, b".leasehold-restore"].concat()));
        match private::make_one_dir(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(BackupError::Remains { dir, to: to.to_path_buf() });
            }
            Err(error) => return Err(io("make", &dir)(error)),
        }
        // Files made here get the access lists of the backup, and none from the surrounding
        // directory.
        let _ = rustix::fs::removexattr(&dir, "system.posix_acl_default");
        Ok(Staging { dir })
    }

    /// Moves the finished tree to its final name, if that is still unused. The name is taken first,
    /// as all file systems can, and then its holder is replaced.
    fn place(&self, made: &Path, to: &Path) -> Result<(), BackupError> {
        let is_dir = fs::symlink_metadata(made).map_err(io("look at", made))?.is_dir();
        let taken = if is_dir {
            private::make_one_dir(to)
        } else {
            private::options().write(true).create_new(true).open(to).map(drop)
        };
        match taken {
            Ok(()) => fs::rename(made, to).map_err(io("name", to)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(BackupError::Exists { to: to.to_path_buf() })
            }
            Err(error) => Err(io("make", to)(error)),
        }
    }

    /// Makes the finished tree durable.
    fn sync(&self) -> Result<(), BackupError> {
        let dir = File::open(&self.dir).map_err(io("open", &self.dir))?;
        rustix::fs::syncfs(dir).map_err(|error| io("sync", &self.dir)(error.into()))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        open_up(&self.dir);
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "what was made on the way cannot be removed");
        }
    }
}

/// Makes directories writable. A directory without write permission cannot be emptied.
fn open_up(dir: &Path) {
    let _ = fs::set_permissions(dir, Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}
