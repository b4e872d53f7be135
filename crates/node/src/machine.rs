//! A machine: its client, its server, its share server, in one process, from start to end.

use crate::clock;
use crate::control::Control;
use crate::data::{DataDir, DataError};
use crate::door::Door;
use crate::engine::{Engine, Queues};
use crate::group::{Group, GroupError, GroupSettings};
use crate::shares_server::{Shares, SharesError};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::MachineId;

/// Uploads are sealed and stored by so many threads: one seals while the other waits for the disk.
const UPLOAD_THREADS: usize = 2;
/// How long an orderly end may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The purpose of a machine that is up only to be checked.
pub(crate) const STOPPED: &str = "leasehold fsck";

/// Why a machine does not start or stop.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The data directory.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The server.
    #[error("the directory server in {dir} does not start")]
    Group {
        /// Its directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: GroupError,
    },
    /// The share server.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// Something else of the system.
    #[error("cannot {verb}")]
    Io {
        /// What was tried.
        verb: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// No session within the time.
    #[error("the directory server does not answer; its log says why (RUST_LOG=info)")]
    NoSession,
    /// Not everything could be made durable in time.
    #[error("not everything could be made durable; what is missing was not acknowledged to anybody")]
    NotDurable,
}

/// The machine of a data directory. Dropping it ends the process's hold as a crash would; [`Machine::stop`] does it in order.
pub struct Machine {
    engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
    control: Option<Control>,
    data: DataDir,
}

impl Machine {
    /// Takes `dir` and brings everything up to an open session. A first start makes a new cluster. `settings` are the server's.
    pub fn start(dir: &Path, purpose: &str, settings: GroupSettings) -> Result<Machine, MachineError> {
        let data = DataDir::take(dir, purpose)?;
        let shares = Shares::open(&dir.join("shares"))?;
        let identity = (MachineId(data.identity().machine), data.identity().starts);
        let seed = seed().map_err(|source| MachineError::Io { verb: "draw random numbers", source })?;
        let (engine, Queues { uploads, chores }) = Engine::new(dir, seed, identity, shares);
        let engine = Arc::new(engine);
        let deliver = Arc::downgrade(&engine);
        let server = dir.join("server");
        std::fs::create_dir_all(&server)
            .map_err(|source| MachineError::Io { verb: "make the server's directory", source })?;
        let group = Group::open(
            &server,
            settings,
            root(),
            Box::new(move |outputs| {
                if let Some(engine) = deliver.upgrade() {
                    engine.deliver(outputs);
                }
            }),
        )
        .map_err(|source| MachineError::Group { dir: server, source })?;
        engine.serve_from(group);
        let mut threads = Vec::new();
        let uploads = Arc::new(Mutex::new(uploads));
        for _ in 0..UPLOAD_THREADS {
            let (engine, uploads) = (engine.clone(), uploads.clone());
            threads.push(thread("upload", move || engine.store_uploads(&uploads))?);
        }
        let worker = engine.clone();
        threads.push(thread("shares", move || worker.do_chores(&chores))?);
        let ticker = engine.clone();
        threads.push(thread("tick", move || ticker.tick())?);
        engine.open_session()?;
        let control = Control::serve(&engine)
            .map_err(|source| MachineError::Io { verb: "listen on the control socket", source })?;
        Ok(Machine { engine, threads, control: Some(control), data })
    }

    /// The way in for front doors.
    pub fn door(&self) -> Arc<dyn Door> {
        self.engine.clone()
    }

    /// The data directory.
    pub fn data(&self) -> &DataDir {
        &self.data
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Ends in order: everything durable, the session closed, the store checkpointed. Front doors must be closed before.
    pub fn stop(mut self) -> Result<(), MachineError> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        let clean = self.engine.close_client(deadline);
        self.engine.stop();
        drop(self.control.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.engine.group().shutdown();
        if clean { Ok(()) } else { Err(MachineError::NotDurable) }
    }
}

/// The root of a new cluster: anybody may enter, and who made the cluster may write.
fn root() -> namespace::Attributes {
    let wall = clock::now().wall;
    namespace::Attributes {
        kind: namespace::FileKind::Directory,
        mode: 0o755,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        links: 1,
        ino: 1,
        rdev: 0,
        ctime: wall,
        btime: wall,
        atime: wall,
    }
}

fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, MachineError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|source| MachineError::Io { verb: "start a thread", source })
}

fn seed() -> Result<[u8; 32], std::io::Error> {
    let mut seed = [0; 32];
    let mut filled = 0;
    while filled < seed.len() {
        filled += rustix::rand::getrandom(&mut seed[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(seed)
}
