//! A mount, from its beginning to its end.

use file_service::FileService;
use parking_lot::{Condvar, Mutex};
use std::ffi::OsString;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::front::Front;
use crate::mountpoint;
use crate::notices::{Notices, SENDERS};
use crate::transport::{self, Unmounter, Unserved};
use crate::watches::{Round, Watches};

/// How long an unmount waits for a session to end after a lazy unmount.
const BUSY_WAIT: Duration = Duration::from_secs(2);

/// How to mount.
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

/// The reasons for which there is no mount, or no unmount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory cannot be used.
    #[error("cannot use {} to mount on: it must be a directory that you may enter, or be made; choose another", dir.display())]
    Mountpoint {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Leasehold is already mounted there.
    #[error("{} is mounted already: leasehold down ends what is, or choose another directory to mount on", dir.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
    },
    /// The kernel, or fusermount3, refused.
    #[error("cannot mount on {}{}", dir.display(), advice(source))]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No file system of Leasehold is mounted there.
    #[error("no file system of leasehold is mounted on {}", dir.display())]
    NotOurs {
        /// The directory.
        dir: PathBuf,
    },
    /// The mount is in use.
    #[error("cannot unmount {}, which {} uses", dir.display(), users(dir))]
    Busy {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Only root may mount for other users, unless the machine's settings let everybody.
    #[error(
        "only root may mount for other users: have root put the line user_allow_other into {FUSE_CONF}, or mount without --allow-other"
    )]
    NotForOthers,
    /// No thread could be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// The machine's setting whether users may mount for others.
const FUSE_CONF: &str = "/etc/fuse.conf";

fn users(dir: &Path) -> String {
    let users = mountpoint::users(dir).join(", ");
    if users.is_empty() { "something".to_owned() } else { users }
}

/// Advice for a mount that was refused.
fn advice(error: &io::Error) -> &'static str {
    let device = Path::new("/dev/fuse");
    match error.kind() {
        _ if !device.exists() => {
            ": there is no /dev/fuse; root loads the kernel's module (modprobe fuse), a container is given the device"
        }
        io::ErrorKind::NotFound => {
            ": fusermount3 is not installed, by which users mount who are not root (Debian: fuse3)"
        }
        io::ErrorKind::PermissionDenied => {
            ": /dev/fuse may not be opened, or fusermount3 may not mount; root may, or whoever /dev/fuse and the directory let"
        }
        _ => "",
    }
}

/// Checks that this process may mount for other users. A user other than root may only with
/// `user_allow_other`.
pub fn may_mount_for_others() -> Result<(), MountError> {
    let allows = |text: String| text.lines().any(|line| line.trim() == "user_allow_other");
    let allowed =
        rustix::process::geteuid().is_root() || std::fs::read_to_string(FUSE_CONF).is_ok_and(allows);
    if allowed { Ok(()) } else { Err(MountError::NotForOthers) }
}

/// A mounted file system, served by threads of its own. Dropping it unmounts.
pub struct Mount {
    dir: PathBuf,
    unmounter: Unmounter,
    watches: Arc<Watches>,
    ended: Arc<Ended>,
}

/// The result of the session, once it has ended.
#[derive(Default)]
struct Ended {
    result: Mutex<Option<Result<(), String>>>,
    changed: Condvar,
}

impl Mount {
    /// Mounts the file system behind `door` on `dir`, which is made if it is missing. A mount that
    /// a dead process has left there is unmounted first.
    pub fn start(door: Arc<dyn FileService>, dir: &Path, options: &Options) -> Result<Mount, MountError> {
        let dir = mountpoint::prepare(dir)?;
        let refused = |source| MountError::Refused { dir: dir.clone(), source };
        let front = Front::new(door);
        let mut unserved = transport::mount(Arc::clone(&front), &dir, options).map_err(refused)?;
        let unmounter = unserved.unmounter();
        let notices = Notices::new(Arc::clone(&front), Box::new(unserved.notifier().map_err(refused)?));
        start_notices(&notices)?;
        start_interrupting(&front)?;
        let ended = Arc::new(Ended::default());
        let watches = Arc::clone(&front.watches);
        let mount = Mount { dir, unmounter, watches, ended: Arc::clone(&ended) };
        // The file service outlives the mount. Its registered cache holders end with the session.
        front.door().register_cache(notices.clone());
        let (watching, telling) = (Arc::clone(&front), Arc::clone(&notices));
        start_serving(unserved, front, notices, ended)?;
        if let Some(device) = mount.connection().filter(|_| !options.raiser.is_empty()) {
            let program = options.raiser.clone();
            start_watching(Round {
                front: watching,
                notices: telling,
                program,
                dir: mount.dir.clone(),
                device,
            })?;
        }
        mountpoint::set_readahead(&mount.dir, transport::REQUEST_BYTES_MAX);
        Ok(mount)
    }

    /// The directory that it is mounted on.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kernel's number for the mount's connection.
    pub fn connection(&self) -> Option<u32> {
        mountpoint::connection(&self.dir)
    }

    /// Waits until the mount is unmounted, by this process or another one.
    pub fn wait(&self) -> io::Result<()> {
        let mut result = self.ended.result.lock();
        loop {
            match &*result {
                None => self.ended.changed.wait(&mut result),
                Some(Ok(())) => return Ok(()),
                Some(Err(why)) => return Err(io::Error::other(why.clone())),
            }
        }
    }

    /// Unmounts, and waits until the last request is answered. A mount in use is taken out of the
    /// tree at once and goes on serving its users; then this waits for them only 2 s.
    pub fn unmount(&self) -> io::Result<()> {
        if self.ended.result.lock().is_some() {
            return Ok(());
        }
        // The thread that tells watchers of events uses the mount.
        self.watches.close();
        match self.unmounter.unmount() {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let users = mountpoint::users(&self.dir).join(", ");
                tracing::warn!(dir = %self.dir.display(), users, "in use: unmounted all the same, and what uses it fails from now on");
                mountpoint::detach(&self.dir)?;
            }
            Err(error) => return Err(error),
        }
        self.wait_until(Instant::now() + BUSY_WAIT);
        Ok(())
    }

    fn wait_until(&self, deadline: Instant) {
        let mut result = self.ended.result.lock();
        while result.is_none() && !self.ended.changed.wait_until(&mut result, deadline).timed_out() {}
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::warn!(dir = %self.dir.display(), %error, "not unmounted");
        }
    }
}

fn start_notices(notices: &Arc<Notices>) -> Result<(), MountError> {
    let short = Arc::clone(notices);
    spawn("fuse-short", move || short.run_short())?;
    (0..SENDERS).try_for_each(|_| {
        let notices = Arc::clone(notices);
        spawn("fuse-notices", move || notices.run())
    })
}

fn start_interrupting(front: &Arc<Front>) -> Result<(), MountError> {
    let front = Arc::clone(front);
    spawn("fuse-interrupts", move || front.waits.run(|ticket| front.door().cancel(ticket)))
}

fn start_watching(round: Round) -> Result<(), MountError> {
    let watches = Arc::clone(&round.front.watches);
    round.front.door().register_cache(watches.clone());
    watches.begin();
    spawn("fuse-watches", move || round.run())
}

fn start_serving(
    unserved: Unserved,
    front: Arc<Front>,
    notices: Arc<Notices>,
    ended: Arc<Ended>,
) -> Result<(), MountError> {
    spawn("fuse-session", move || {
        let result = unserved.serve().map_err(|error| error.to_string());
        front.watches.close();
        notices.close();
        front.waits.close();
        *ended.result.lock() = Some(result);
        ended.changed.notify_all();
    })
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), MountError> {
    std::thread::Builder::new().name(name.into()).spawn(body).map(drop).map_err(MountError::Thread)
}
