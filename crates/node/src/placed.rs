//! Whether the files of this machine's server are those of its last start. What was copied, or put
//! back from elsewhere, has other inode numbers, and other times at which they were made and
//! changed, which nobody can set. It may be older than what was promised since.
//!
//! ```text
//! server/place    empty; machine.json says which file this was
//! ```

use crate::data::{DataError, io, sync_dir};
use os::private;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Which file that is: its number, and when it was made and changed last, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    inode: u64,
    made: Option<i64>,
    changed: i64,
}

impl Placed {
    /// That of the server in `dir`; a new one, if there is none.
    pub(crate) fn of(dir: &Path) -> Result<Placed, DataError> {
        let file = dir.join("server").join("place");
        let made = private::options().write(true).create(true).truncate(false).open(&file);
        // Before machine.json says which it is: else a power cut could make it another.
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
        // In its own place, with its own times, as `cp -a` and `rsync -a` do it.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let times = fs::metadata(&place).unwrap().modified().unwrap();
        let file = OpenOptions::new().write(true).truncate(true).open(&place).unwrap();
        file.set_modified(times).unwrap();
        let back = Placed::of(dir.path()).unwrap();
        assert_ne!(back, first);
        // Elsewhere, or taken away and put back.
        fs::copy(&place, dir.path().join("server/other")).unwrap();
        fs::rename(dir.path().join("server/other"), &place).unwrap();
        assert!(![first, back].contains(&Placed::of(dir.path()).unwrap()));
    }
}
