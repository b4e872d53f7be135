//! Files that only their owner may read, as all are in a data directory. Directories have the mode
//! 0700 and files 0600 from their first byte on, whatever the umask. A file with another mode is
//! repaired at each start.

use std::fs::{self, DirBuilder, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
/// The bits for others' access, and for running as another user.
const OTHERS: u32 = 0o7077;

/// Options by which a new file is its owner's alone.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE);
    options
}

/// Makes the directory, and those above it that are missing. It may exist already.
pub fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)
}

/// Makes the directory.
///
/// # Errors
/// If anything of that name exists.
pub fn make_one_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).create(path)
}

/// Takes all rights of others from the directory and from everything in it. A file of another owner
/// stays as it is, and the log names it.
pub fn make_private(dir: &Path) -> io::Result<()> {
    // First, so that from now on no other user comes in.
    restrict(dir, &fs::metadata(dir)?)?;
    make_private_below(dir)
}

fn make_private_below(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        // A directory of another owner, such as lost+found.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        // A link may lead to files that others control.
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_symlink() || is_private(&path, &metadata) {
            continue;
        }
        if metadata.is_dir() {
            make_private_below(&path)?;
        }
        restrict(&path, &metadata)?;
    }
    Ok(())
}

/// Whether a directory of shares is private already. [`make_private`] sets the mode of a directory
/// after all files in it: if that is private, none of millions of share files need be looked at.
fn is_private(path: &Path, metadata: &Metadata) -> bool {
    let is_prefix = |path: &Path| {
        let shares = path.parent().and_then(Path::file_name).is_some_and(|name| name == "shares");
        shares && path.file_name().is_some_and(|name| name.len() == 2)
    };
    metadata.is_dir() && is_prefix(path) && metadata.permissions().mode() & OTHERS == 0
}

fn restrict(path: &Path, metadata: &Metadata) -> io::Result<()> {
    if metadata.permissions().mode() & OTHERS == 0 {
        return Ok(());
    }
    let mode = if metadata.is_dir() { DIRECTORY } else { FILE };
    match fs::set_permissions(path, Permissions::from_mode(mode)) {
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => {
            tracing::warn!(file = %path.display(), %error, "others may read this, and its mode cannot be changed");
            Ok(())
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn nothing_is_made_that_others_can_read() {
        // The umask of this process, which nextest starts for this test alone. Nothing else here
        // depends on it.
        rustix::process::umask(rustix::fs::Mode::empty());
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        make_dir(&deep).unwrap();
        let file = deep.join("file");
        options().write(true).create_new(true).open(&file).unwrap();
        assert_eq!([&deep, &dir.path().join("a"), &file].map(|path| mode(path)), [0o700, 0o700, 0o600]);
    }

    #[test]
    fn what_is_there_is_made_private_and_what_links_lead_to_is_left_alone() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for sub in ["server", "shares/shares/00", "shares/shares/01", "shares/tmp"] {
            fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        let files = ["rows", "server/log", "shares/shares/00/aa", "shares/shares/01/bb", "shares/tmp/cc"]
            .map(|name| dir.path().join(name));
        for file in &files {
            fs::write(file, b"content").unwrap();
            open(file, 0o644);
        }
        std::os::unix::fs::symlink(other.path(), dir.path().join("link")).unwrap();
        open(other.path(), 0o644);
        let dirs =
            ["", "server", "shares", "shares/shares", "shares/shares/00", "shares/shares/01", "shares/tmp"]
                .map(|name| dir.path().join(name));
        dirs.iter().for_each(|dir| open(dir, 0o2755));
        make_private(dir.path()).unwrap();
        for (path, expected) in
            dirs.iter().map(|dir| (dir, 0o700)).chain(files.iter().map(|file| (file, 0o600)))
        {
            assert_eq!(mode(path), expected, "{}", path.display());
        }
        assert_eq!(mode(other.path()), 0o644);
        // A directory that was repaired is not walked again, however large it is.
        open(&files[2], 0o644);
        make_private(dir.path()).unwrap();
        assert_eq!(mode(&files[2]), 0o644);
        open(&dirs[4], 0o755);
        make_private(dir.path()).unwrap();
        assert_eq!((mode(&files[2]), mode(&dirs[4])), (0o600, 0o700));
    }
}
