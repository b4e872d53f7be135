//! Handles of open files.

use lease::{Mode, OpenModes};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `FMODE_EXEC`, which the kernel leaves in the flags of an open for execve.
const FOR_EXEC: i32 = 0x20;

/// The handle that the kernel brings back with each use of an open file. It has all that we need,
/// so there is no table of handles. The lowest byte is how the file was opened. The next bit is
/// whether reads are kept in pages. The rest tells handles apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) u64);

/// The bit of a [`Handle`] for reads that are kept in pages.
const PAGED: u64 = 1 << 8;

/// Tells handles apart.
#[derive(Default)]
pub(crate) struct Handles(AtomicU64);

impl Handles {
    /// A new handle for a file opened with `flags`. A file that `passes`, which is in ping-pong, is
    /// read and written past the kernel's pages, since they would be dropped before each use. So is
    /// a file opened to append. Trap: the kernel writes through pages that it has not read one at a
    /// time, and between the two requests of one append another machine appends.
    pub(crate) fn next(&self, flags: i32, passes: bool) -> Handle {
        let open = opening(flags).0;
        let appends = flags & libc::O_APPEND != 0 && open.has_mode(Mode::AccessWrite);
        let paged = if passes || appends { 0 } else { PAGED };
        Handle(self.0.fetch_add(1, Relaxed) << 9 | paged | u64::from(open.bits()))
    }
}

impl Handle {
    /// How the file was opened. An unknown handle counts as one without modes.
    pub(super) fn open(self) -> OpenModes {
        OpenModes::try_from(self.0 as u8).unwrap_or(OpenModes::with([]))
    }

    /// Whether the file is read and written through the kernel's pages. Mappings are in any case.
    pub(crate) fn is_paged(self) -> bool {
        self.0 & PAGED != 0
    }
}

/// How a file is opened, and the permissions that takes. Access mode 3 is Linux' "neither, but
/// ioctl".
pub(crate) fn opening(flags: i32) -> (OpenModes, u8) {
    let read = matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR);
    let write = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
    // Executing reads the file and needs no read permission; the kernel has checked the one to
    // execute.
    let mask = 4 * u8::from(read && flags & FOR_EXEC == 0) + 2 * u8::from(write);
    (OpenModes::posix(read, write), mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes() {
        let rows = [
            (libc::O_RDONLY, (true, false), 4),
            (libc::O_WRONLY | libc::O_APPEND, (false, true), 2),
            (libc::O_RDWR, (true, true), 6),
            (libc::O_RDONLY | FOR_EXEC, (true, false), 0),
            (libc::O_ACCMODE, (false, false), 0),
        ];
        for (flags, (read, write), mask) in rows {
            assert_eq!(opening(flags), (OpenModes::posix(read, write), mask), "{flags:o}");
            let handles = Handles::default();
            let (first, second) = (handles.next(flags, false), handles.next(flags, true));
            assert_ne!(first, second);
            assert_eq!((first.is_paged(), second.is_paged()), (flags & libc::O_APPEND == 0, false));
            assert_eq!(
                (first.open(), second.open()),
                (OpenModes::posix(read, write), OpenModes::posix(read, write))
            );
        }
        assert_eq!(Handle(u64::MAX).open(), OpenModes::with([]));
    }
}
