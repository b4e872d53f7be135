//! Ballast: space that a machine keeps free for its start. So it starts even on a disk that other
//! data has filled, and its users can delete.
//!
//! A start writes little (the machine's number, the lease database's shared memory and log). But
//! without room for that there is no mount, and so no way to delete anything. A start therefore
//! gives up the file first. Once the machine is up, it reserves the file again, as far as there is
//! room by then.

use os::private;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The name of the ballast file in the data directory.
const FILE: &str = "ballast";
/// The size of the ballast, bytes. The size is halved until there is room.
const BYTES: u64 = 4 << 20;
/// Less ballast than this is of no use, bytes.
const BYTES_MIN: u64 = 64 << 10;

/// Gives up the ballast.
pub fn release(dir: &Path) {
    match fs::remove_file(dir.join(FILE)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(%error, "the room kept for the start is not to be had");
        }
        Ok(()) | Err(_) => {}
    }
}

/// Reserves the ballast, as far as there is room.
pub fn keep(dir: &Path) {
    let Ok(file) = private::options().write(true).create(true).truncate(true).open(dir.join(FILE)) else {
        return;
    };
    let mut bytes = BYTES;
    while bytes >= BYTES_MIN
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
        assert!(fs::metadata(dir.path().join(FILE)).unwrap().blocks() * 512 >= BYTES);
        release(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
