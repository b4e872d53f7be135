//! A mount, from its beginning to its end.

use file_service::FileService;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::front::Front;
use crate::mount_error::MountError;
use crate::mountpoint;
use crate::notices::{Notices, SENDERS};
use crate::options::Options;
use crate::transport::call::REQUEST_BYTES_MAX;
use crate::transport::{self, Unmounter, Unserved};
use crate::watches::Watches;
use crate::watches::round::Round;

/// How long an unmount waits for a session to end after a lazy unmount.
const BUSY_WAIT: Duration = Duration::from_secs(2);

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
    /// Mounts the file system behind `service` on `dir`, which is made if it is missing. A mount
    /// that a dead process has left there is unmounted first.
    pub fn start(service: Arc<dyn FileService>, dir: &Path, options: &Options) -> Result<Mount, MountError> {
        let dir = mountpoint::prepare(dir)?;
        let refused = |source| MountError::Refused { dir: dir.clone(), source };
        let front = Front::new(service);
        let mut unserved = transport::mount(Arc::clone(&front), &dir, options).map_err(refused)?;
        let unmounter = unserved.unmounter();
        let notices = Notices::new(Arc::clone(&front), Box::new(unserved.notifier().map_err(refused)?));
        start_notices(&notices)?;
        start_interrupting(&front)?;
        let ended = Arc::new(Ended::default());
        let watches = Arc::clone(&front.watches);
        let mount = Mount { dir, unmounter, watches, ended: Arc::clone(&ended) };
        // The file service outlives the mount. Its registered cache holders end with the session.
        front.file_service().register_cache(notices.clone());
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
        mountpoint::set_readahead(&mount.dir, REQUEST_BYTES_MAX);
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
        // Trap: a thread that gave way locks the directory again at once, and does not give way
        // twice. Nor do recalls wait for long: on a busy machine these threads go before others.
        spawn("fuse-notices", move || device::in_turn(|| notices.run()))
    })
}

fn start_interrupting(front: &Arc<Front>) -> Result<(), MountError> {
    let front = Arc::clone(front);
    spawn("fuse-interrupts", move || front.waits.run(|ticket| front.file_service().cancel(ticket)))
}

fn start_watching(round: Round) -> Result<(), MountError> {
    let watches = Arc::clone(&round.front.watches);
    round.front.file_service().register_cache(watches.clone());
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
