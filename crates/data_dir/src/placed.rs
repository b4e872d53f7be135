//! Detects whether the files of this machine's server are those of its last start. Copied or
//! restored files have other inode numbers, and other creation and change times, which cannot be
//! set. Such files may be older than the server's later acknowledgements.
//!
//! ```text
//! server/place    empty; machine.json says which file this was
//! ```

use crate::error::{DataError, io};
use crate::small::sync_dir;
use os::private;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The identity of the file: its inode number, and its creation and last change, in nanoseconds
/// since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    inode: u64,
    made: Option<i64>,
    changed: i64,
}

impl Placed {
    /// Returns the identity of the file of the server in `dir`. Makes the file if there is none.
    pub fn of(dir: &Path) -> Result<Placed, DataError> {
        let file = dir.join("server").join("place");
        let made = private::options().write(true).create(true).truncate(false).open(&file);
        // Synced before machine.json names it: else a power cut could make it another file.
        made.and_then(|made| made.sync_all()).map_err(io("make", &file))?;
        sync_dir(&dir.join("server"))?;
        let wanted = StatxFlags::INO | StatxFlags::CTIME | StatxFlags::BTIME;
        let found = statx(CWD, &file, AtFlags::empty(), wanted)
            .map_err(|error| io("look at", &file)(error.into()))?;
        let nanoseconds =
            |at: rustix::fs::StatxTimestamp| at.tv_sec.wrapping_mul(1_000_000_000) + i64::from(at.tv_nsec);
        let has = |flag: StatxFlags| found.stx_mask & flag.bits() != 0;
        Ok(Placed {
            inode: found.stx_ino,
            made: has(StatxFlags::BTIME).then(|| nanoseconds(found.stx_btime)),
            changed: nanoseconds(found.stx_ctime),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};

    #[test]
    fn what_was_copied_or_put_back_is_known() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("server")).unwrap();
        let first = Placed::of(dir.path()).unwrap();
        assert_eq!(Placed::of(dir.path()).unwrap(), first);
        let place = dir.path().join("server/place");
        // In its own place, with its own times, as `cp -a` and `rsync -a` copy it.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let times = fs::metadata(&place).unwrap().modified().unwrap();
        let file = OpenOptions::new().write(true).truncate(true).open(&place).unwrap();
        file.set_modified(times).unwrap();
        let back = Placed::of(dir.path()).unwrap();
        assert_ne!(back, first);
        // Elsewhere, or moved away and put back.
        fs::copy(&place, dir.path().join("server/other")).unwrap();
        fs::rename(dir.path().join("server/other"), &place).unwrap();
        assert!(![first, back].contains(&Placed::of(dir.path()).unwrap()));
    }
}
