//! How to mount.

use std::ffi::OsString;
use std::num::NonZero;

/// The settings of a mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether requests may come over io_uring where the kernel has that. Then each processor has a
    /// ring and a thread.
    pub rings: bool,
    /// Threads that serve requests where all come by the device. The kernel hands requests to them
    /// in turn, so each further thread costs wake-ups on other cores. On two cores, two threads
    /// instead of one made create, open and rename dearer by a third.
    pub threads: usize,
    /// Whether users other than the mounting one may use the mount. Needs root, or
    /// `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    /// Whether set-user-id programs and device files work on the mount as on a disk. Needs root,
    /// and trust in the root of each machine that may make them.
    pub trusted: bool,
    /// The command for a process that runs [`crate::raise_events`]: a program and its arguments, to
    /// which the mount's directory is added. Through it, programs that watch the mount (inotify)
    /// hear of changes by other machines. Without one they do not.
    pub raiser: Vec<OsString>,
}

impl Default for Options {
    fn default() -> Options {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let is_root = rustix::process::geteuid().is_root();
        let threads = (cores / 2).clamp(1, 4);
        Options { rings: true, threads, allow_other: is_root, trusted: is_root, raiser: Vec::new() }
    }
}
