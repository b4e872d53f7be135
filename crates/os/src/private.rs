//! What is in a data directory is for its owner's eyes: directories have the mode 0700 and files
//! 0600 from their first byte on, whatever the umask. What is there already with another mode is
//! mended at each start.

use std::fs::{self, DirBuilder, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
/// What others may do, and what runs as another.
const OTHERS: u32 = 0o7077;

/// Options by which a file that is made is its owner's alone.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE);
    options
}

/// Makes the directory, if there is none, and those above that are missing.
pub fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)
}

/// Makes the directory; an error if anything of that name is there.
pub fn make_one_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).create(path)
}

/// Takes from others what they may do with the directory and all that is in it. What belongs to
/// somebody else stays as it is, and is named in the log.
pub fn mend(dir: &Path) -> io::Result<()> {
    // First: from now on nobody else comes in.
    restrict(dir, &fs::metadata(dir)?)?;
    mend_below(dir)
}

fn mend_below(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        // Somebody else's, as lost+found is.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        // Links lead to where others may have the say.
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_symlink() || is_mended(&path, &metadata) {
            continue;
        }
        if metadata.is_dir() {
            mend_below(&path)?;
        }
        restrict(&path, &metadata)?;
    }
    Ok(())
}

/// Of millions of share files none need be looked at: a directory is mended after all that is in
/// it.
fn is_mended(path: &Path, metadata: &Metadata) -> bool {
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
        // Of this process, which nextest starts for this test alone; nothing else here depends on
        // it.
        rustix::process::umask(rustix::fs::Mode::empty());
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        make_dir(&deep).unwrap();
        let file = deep.join("file");
        options().write(true).create_new(true).open(&file).unwrap();
        assert_eq!([&deep, &dir.path().join("a"), &file].map(|path| mode(path)), [0o700, 0o700, 0o600]);
    }

    #[test]
    fn what_is_there_is_mended_and_what_links_lead_to_is_left_alone() {
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
        mend(dir.path()).unwrap();
        for (path, expected) in
            dirs.iter().map(|dir| (dir, 0o700)).chain(files.iter().map(|file| (file, 0o600)))
        {
            assert_eq!(mode(path), expected, "{}", path.display());
        }
        assert_eq!(mode(other.path()), 0o644);
        // What has been gone through is not gone through again, however much it is.
        open(&files[2], 0o644);
        mend(dir.path()).unwrap();
        assert_eq!(mode(&files[2]), 0o644);
        open(&dirs[4], 0o755);
        mend(dir.path()).unwrap();
        assert_eq!((mode(&files[2]), mode(&dirs[4])), (0o600, 0o700));
    }
}
