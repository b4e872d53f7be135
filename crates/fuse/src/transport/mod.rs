//! The way to the kernel: the one place that knows fuser.

mod convert;
mod kernel;
mod requests;
mod sort;

pub(crate) use kernel::Notifier;

use fuser::{
    Config, Filesystem, InitFlags, KernelConfig, MountOption, Session, SessionACL, SessionUnmounter,
};
use parking_lot::Mutex;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use crate::front::Front;
use crate::mount::Options;
use requests::Requests;

/// One request carries so much: 256 pages, the kernel's own limit.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel may have under way without anyone waiting (reading ahead).
const BACKGROUND_MAX: u16 = 64;

/// A mount whose requests are not served yet.
pub(crate) struct Unserved<F: Filesystem>(Session<F>);

/// Ends a mount.
pub(crate) struct Unmounter(Mutex<SessionUnmounter>);

/// Mounts the front door on `dir`.
pub(crate) fn mount(
    front: Arc<Front>,
    dir: &Path,
    options: &Options,
) -> io::Result<Unserved<impl Filesystem + use<>>> {
    mount_any(Requests(front), dir, options)
}

/// Mounts on `dir`, which must exist. fuser calls mount(2), or fusermount3 where that needs privilege.
pub(crate) fn mount_any<F: Filesystem>(
    filesystem: F,
    dir: &Path,
    options: &Options,
) -> io::Result<Unserved<F>> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("leasehold".into()),
        // fuser's own option does not reach mount(2).
        MountOption::CUSTOM("subtype=leasehold".into()),
        // The kernel checks permissions by the attributes and ACLs that it has; the door checks them again.
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    // Each thread has a queue of its own for what it has taken, so that they do not contend for one lock.
    config.clone_fd = options.threads > 1;
    Session::new(filesystem, dir, &config).map(Unserved)
}

impl<F: Filesystem> Unserved<F> {
    pub(crate) fn unmounter(&mut self) -> Unmounter {
        Unmounter(Mutex::new(self.0.unmount_callable()))
    }

    pub(crate) fn notifier(&self) -> io::Result<Notifier> {
        Ok(Notifier::new(self.0.as_fd().try_clone_to_owned()?))
    }

    /// Serves until the mount is gone.
    pub(crate) fn serve(self) -> io::Result<()> {
        self.0.run()
    }
}

impl Unmounter {
    pub(crate) fn unmount(&self) -> io::Result<()> {
        self.0.lock().unmount()
    }
}

/// What is asked of the kernel at the beginning; what it lacks is left out.
pub(crate) fn negotiate(config: &mut KernelConfig) {
    for (flags, lacking) in wanted() {
        if config.add_capabilities(flags).is_err() {
            tracing::warn!(?flags, "not known to this kernel: {lacking}");
        }
    }
    let _ = config.set_max_write(REQUEST_BYTES_MAX);
    let _ = config.set_max_background(BACKGROUND_MAX);
    if let Err(most) = config.set_max_readahead(REQUEST_BYTES_MAX) {
        // The kernel offers what its device has now, 128 KiB; `mountpoint::set_readahead` raises that.
        let _ = config.set_max_readahead(most);
    }
}

/// Flags, and what goes without them.
///
/// Not among them: WRITEBACK_CACHE (trap: it makes the kernel the authority on size and times), NO_OPEN_SUPPORT (trap: it hides opens), ATOMIC_O_TRUNC (the kernel would drop a running program's pages before it finds that it may not be written, and forget O_TRUNC with O_RDONLY),
/// EXPORT_SUPPORT (it wants files found by node id
/// after they were forgotten), AUTO_INVAL_DATA (pages are dropped when a lease ends, not when a time stamp differs).
fn wanted() -> [(InitFlags, &'static str); 9] {
    [
        (InitFlags::FUSE_PARALLEL_DIROPS, "one lookup at a time in a directory"),
        (
            InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            "listings come without attributes",
        ),
        // The mode and the umask come apart, so that a default ACL can take the umask's place.
        (InitFlags::FUSE_DONT_MASK, "the umask applies in spite of default ACLs"),
        (InitFlags::FUSE_POSIX_ACL, "ACLs are not enforced"),
        // Else each write is preceded by a request for security.capability. `Front::after_clearing_setid` does the other half.
        (InitFlags::FUSE_HANDLE_KILLPRIV_V2, "each write costs two requests"),
        // The target of a link never changes.
        (InitFlags::FUSE_CACHE_SYMLINKS, "each use of a symbolic link is a request"),
        (InitFlags::FUSE_ASYNC_DIO, "direct IO is done in sequence"),
        // What passes to and fro between machines, and what is opened to append, is opened for direct IO; programs map it all the same.
        (
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            "what other machines change, and what is opened to append, cannot be mapped shared",
        ),
        // Of directories the kernel keeps locks itself.
        (InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS, "locks hold on this machine only"),
    ]
}
