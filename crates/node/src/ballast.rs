//! Room that a machine keeps for its start: on a disk that others have filled it comes up all the
//! same, so that its users can delete.
//!
//! What a start writes is little (its number, the lease database's shared memory and log), but
//! there is no mount to delete anything by if there is no room for it. So the file is given up
//! first, and set aside again once the machine is up, as much of it as there is room for by then.

use os::private;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Its name in the data directory.
const FILE: &str = "spare";
/// Bytes, if there is room; half as many until there is; fewer than the last are of no use.
const BYTES: (u64, u64) = (4 << 20, 64 << 10);

/// Gives it up.
pub(crate) fn release(dir: &Path) {
    match fs::remove_file(dir.join(FILE)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(%error, "the room kept for the start is not to be had");
        }
        Ok(()) | Err(_) => {}
    }
}

/// Sets it aside, as far as there is room.
pub(crate) fn keep(dir: &Path) {
    let Ok(file) = private::options().write(true).create(true).truncate(true).open(dir.join(FILE)) else {
        return;
    };
    let mut bytes = BYTES.0;
    while bytes >= BYTES.1
        && rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).is_err()
    {
        bytes /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn room_is_set_aside_and_given_up() {
        let dir = tempfile::tempdir().unwrap();
        release(dir.path());
        keep(dir.path());
        assert!(fs::metadata(dir.path().join(FILE)).unwrap().blocks() * 512 >= BYTES.0);
        release(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
