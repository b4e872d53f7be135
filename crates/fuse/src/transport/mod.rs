//! The way to the kernel: requests and answers, over its device or over rings. fuser mounts, and
//! agrees with the kernel on features. It reads requests of a device only, so requests and answers
//! are handled here.

pub(crate) mod call;
mod kernel;
mod reader;
mod reply;
mod requests;
mod rings;
mod serve;

pub use call::{Call, Forget, KernelLock, KernelRequest, SetAttr};
pub(crate) use kernel::Notifier;
pub use reply::{Attr, EntryReply, KernelReply, Lines, Pages, Totals};
pub use serve::Serve;

use fuser::{
    Config, Filesystem, InitFlags, KernelConfig, MountOption, Session, SessionACL, SessionUnmounter,
};
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::front::Front;
use crate::mountpoint;
use crate::options::Options;
use call::REQUEST_BYTES_MAX;
use requests::Requests;
use rings::Rings;
use serve::Job;

/// The most requests that the kernel may have under way without a waiter (reading ahead).
const BACKGROUND_MAX: u16 = 64;

/// A mount whose requests are not served yet.
pub(crate) struct Unserved {
    session: Session<Greeter>,
    rings: Option<Rings>,
    filesystem: Arc<dyn Serve>,
    dir: PathBuf,
    threads: usize,
}

/// Ends a mount.
pub(crate) struct Unmounter(Mutex<SessionUnmounter>);

/// Mounts the front door's file system on `dir`.
pub(crate) fn mount(front: Arc<Front>, dir: &Path, options: &Options) -> io::Result<Unserved> {
    mount_any(Arc::new(Requests(front)), dir, options)
}

/// Mounts on `dir`, which must exist. fuser calls mount(2), or fusermount3 where that needs
/// privilege.
pub(crate) fn mount_any(filesystem: Arc<dyn Serve>, dir: &Path, options: &Options) -> io::Result<Unserved> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("leasehold".into()),
        // fuser's own option does not reach mount(2).
        MountOption::CUSTOM("subtype=leasehold".into()),
        // The kernel checks permissions by the attributes and ACLs that it has; the client checks
        // them again.
        MountOption::DefaultPermissions,
        if options.trusted { MountOption::Dev } else { MountOption::NoDev },
        if options.trusted { MountOption::Suid } else { MountOption::NoSuid },
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    if options.rings {
        rings::have_offered();
    }
    let rings = Arc::new(Mutex::new(None));
    let greeter = Greeter { may_have_rings: options.rings, rings: Arc::clone(&rings) };
    let session = Session::new(greeter, dir, &config)?;
    let rings = rings.lock().take();
    Ok(Unserved { session, rings, filesystem, dir: dir.to_owned(), threads: options.threads.max(1) })
}

/// Answers the kernel's first request, and no other.
struct Greeter {
    may_have_rings: bool,
    rings: Arc<Mutex<Option<Rings>>>,
}

impl Filesystem for Greeter {
    fn init(&mut self, _req: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(config);
        *self.rings.lock() = if self.may_have_rings { rings(config) } else { None };
        Ok(())
    }
}

/// Rings, if the kernel has offered them. Trap: once the kernel is told that there will be rings,
/// it waits for them. So they are made before.
fn rings(config: &mut KernelConfig) -> Option<Rings> {
    if !config.capabilities().contains(InitFlags::FUSE_OVER_IO_URING) {
        return None;
    }
    match Rings::new() {
        Ok(rings) => config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok().then_some(rings),
        Err(error) => {
            tracing::info!(%error, "no io_uring: requests take longer");
            None
        }
    }
}

impl Unserved {
    pub(crate) fn unmounter(&mut self) -> Unmounter {
        Unmounter(Mutex::new(self.session.unmount_callable()))
    }

    pub(crate) fn notifier(&self) -> io::Result<Notifier> {
        Ok(Notifier::new(self.device()?))
    }

    fn device(&self) -> io::Result<OwnedFd> {
        self.session.as_fd().try_clone_to_owned()
    }

    /// Serves until the mount is gone.
    pub(crate) fn serve(mut self) -> io::Result<()> {
        let (filesystem, device) = (&*self.filesystem, self.device()?);
        let (mut jobs, readers) = match self.rings.take() {
            // All requests that have a waiter come over the rings, so one reader is enough.
            Some(rings) => (rings.jobs(&device, filesystem, &self.dir)?, 1),
            None => (Vec::new(), self.threads),
        };
        let others = (1..readers).map(|_| device::another(&device)).collect::<io::Result<Vec<OwnedFd>>>()?;
        for device in others.into_iter().chain([device]) {
            jobs.push(Box::new(move || reader::serve(device, filesystem)));
        }
        // No other thread serves the requests of one that fails, and their programs would wait for
        // ever. So a failure ends the mount.
        let run = |job: Job<'_>| {
            catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(failed).inspect_err(|error| self.abort(error))
        };
        std::thread::scope(|scope| {
            let start =
                |job| std::thread::Builder::new().name("fuse".into()).spawn_scoped(scope, || run(job));
            let started: io::Result<Vec<_>> =
                jobs.into_iter().map(start).collect::<io::Result<_>>().inspect_err(|error| self.abort(error));
            started?.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(failed))
        })
    }

    fn abort(&self, error: &io::Error) {
        tracing::error!(%error, dir = %self.dir.display(), "requests cannot be served any more");
        let connection = mountpoint::connection(&self.dir);
        if let Some(Err(error)) = connection.map(|connection| mountpoint::abort(connection, &self.dir)) {
            tracing::error!(%error, "and whoever made them is not told");
        }
    }
}

/// The error for a thread that has panicked. The panic itself is in the log.
fn failed(_: Box<dyn std::any::Any + Send>) -> io::Result<()> {
    Err(io::Error::other("a thread that served requests failed"))
}

impl Unmounter {
    pub(crate) fn unmount(&self) -> io::Result<()> {
        self.0.lock().unmount()
    }
}

/// Asks the kernel for its features at the beginning. Features that it lacks are left out.
pub(crate) fn negotiate(config: &mut KernelConfig) {
    for (flags, lacking) in wanted() {
        let known = config.add_capabilities(flags).is_ok();
        if flags == InitFlags::FUSE_SETXATTR_EXT {
            call::LONG_SETXATTR.store(known, Relaxed);
        }
        if !known {
            tracing::warn!(?flags, "not known to this kernel: {lacking}");
        }
    }
    let _ = config.set_max_write(REQUEST_BYTES_MAX);
    let _ = config.set_max_background(BACKGROUND_MAX);
    if let Err(most) = config.set_max_readahead(REQUEST_BYTES_MAX) {
        // The kernel offers what its device has now, 128 KiB; `mountpoint::set_readahead` raises
        // that.
        let _ = config.set_max_readahead(most);
    }
}

/// The features, and what is lost without each.
///
/// Not among them: WRITEBACK_CACHE (trap: it makes the kernel the authority on size and times),
/// NO_OPEN_SUPPORT (trap: it hides opens), ATOMIC_O_TRUNC (the kernel would drop a running
/// program's pages before it finds that the program may not be written, and forget O_TRUNC with
/// O_RDONLY), AUTO_INVAL_DATA (pages are dropped when a lease ends, not when a time stamp differs).
fn wanted() -> [(InitFlags, &'static str); 11] {
    [
        (InitFlags::FUSE_PARALLEL_DIROPS, "one lookup at a time in a directory"),
        (
            InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            "listings come without attributes",
        ),
        // The mode and the umask come separately, so that a default ACL can take the umask's place.
        (InitFlags::FUSE_DONT_MASK, "the umask applies in spite of default ACLs"),
        (InitFlags::FUSE_POSIX_ACL, "ACLs are not enforced"),
        // Otherwise the kernel asks for security.capability before each write.
        // `Front::after_clearing_setid` does the other half.
        (InitFlags::FUSE_HANDLE_KILLPRIV_V2, "each write costs two requests"),
        // The kernel then says for an access list whether its setter may keep a set-gid bit.
        (InitFlags::FUSE_SETXATTR_EXT, "setfacl by a member of another container costs a set-gid bit"),
        // The target of a link never changes.
        (InitFlags::FUSE_CACHE_SYMLINKS, "each use of a symbolic link is a request"),
        (InitFlags::FUSE_ASYNC_DIO, "direct IO is done in sequence"),
        // Files in ping-pong, and files opened to append, are opened for direct IO. Programs can
        // map them all the same.
        (
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            "what other machines change, and what is opened to append, cannot be mapped shared",
        ),
        // For a file handle the kernel has only a node's number: it looks up `.` and `..` of nodes
        // that it has forgotten.
        (InitFlags::FUSE_EXPORT_SUPPORT, "file handles are lost with the kernel's memory of their files"),
        // For directories the kernel keeps locks itself.
        (InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS, "locks hold on this machine only"),
    ]
}
