//! A machine: its client, and its server if it has one, in one process, from start to end.

use crate::backup::BackupSchedule;
use crate::ballast;
use crate::control::Control;
use crate::copies::Copies;
use crate::data::{DataDir, DataError};
use crate::engine::{Ended, Engine, Queues};
use crate::membership::Membership;
use crate::net::{CertificateError, ListenError};
use crate::peers::Peers;
use crate::salvage::SalvageStore;
use crate::server::Server;
use crate::shares_server::{ShareSettings, SharesError};
use crate::status::StatusReport;
use crate::upstream::Upstream;
use file_service::FileService;
use parking_lot::Mutex;
use raft::{GroupError, GroupSettings};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::{EnrolError, MachineId, ToClient, Versions};

/// Threads that seal and store uploads: one seals while the other waits for the disk.
const UPLOAD_THREADS: usize = 2;
/// Threads that revoke recalled content from front doors. Each waits for the kernel, which may be
/// slow to invalidate.
const YIELD_THREADS: usize = 4;
/// Threads for reads over the network: so many can wait at once.
const REMOTE_READ_THREADS: usize = 4;
/// How long an orderly end may take before the remaining changes are kept for the next start.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
/// How long the end may take after that to write salvage to disk.
const SALVAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often threads that wait for work check whether the machine stops.
pub(crate) const STOP_LOOK: Duration = Duration::from_millis(100);

/// The purpose of a machine that is up only to be checked.
pub(crate) const STOPPED: &str = "leasehold fsck";

/// Why a machine does not start or stop.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The directory server does not start.
    #[error("the directory server in {dir} does not start")]
    Group {
        /// Its directory.
        dir: PathBuf,
        /// The group's error.
        #[source]
        source: GroupError,
    },
    /// The share server does not start.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// Keys or certificates cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The name is not valid for a machine.
    #[error(transparent)]
    Name(#[from] EnrolError),
    /// This machine cannot listen for other machines.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The only server has lost its state.
    #[error(
        "{0}. There is no other server to have it from: keep this data directory as it is, and restore the latest backup into another (leasehold restore)"
    )]
    Alone(String),
    /// The only server has an older state than it once had.
    #[error(
        "{0}: this server's disk is an older copy. Put back the latest state; or go on with this one, which ends all sessions and does without what was acknowledged since (leasehold up --accept-older-state)"
    )]
    Older(String),
    /// Another error of the operating system.
    #[error("cannot {verb}")]
    Io {
        /// The operation.
        verb: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// No session opened in time.
    #[error("the directory server does not answer; its log says why (RUST_LOG=info)")]
    NoSession,
    /// No session opened in time, for a known reason.
    #[error("the server at {server} cannot be reached: {why}")]
    Unreachable {
        /// Its address.
        server: String,
        /// The latest failure.
        why: String,
    },
    /// The machine has ended before all changes were applied. The rest is on its disk.
    #[error(
        "{count} changes could not be applied at the server; they are kept in {dir} with their content, and the next start goes on with them, unless the machine's session is over by then (leasehold salvage list)"
    )]
    LeftForNextStart {
        /// The number of changes.
        count: usize,
        /// The directory of the salvage.
        dir: PathBuf,
    },
    /// The machine has ended, and some changes made on it will not be applied.
    #[error(
        "not everything could be applied at the server; what is missing is kept in {dir} (leasehold salvage list)"
    )]
    Salvaged {
        /// The directory of the salvage.
        dir: PathBuf,
    },
    /// The machine has ended, and the changes that were not applied are lost.
    #[error(
        "{count} changes could not be applied at the server, and could not be kept either: they are lost"
    )]
    Lost {
        /// The number of changes.
        count: usize,
        /// The reason why they could not be kept, if it is known here.
        #[source]
        why: Option<DataError>,
    },
}

impl MachineError {
    /// Whether this machine's server has lost its state, so that it cannot be the member it was.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, MachineError::Group { source, .. } if source.is_damage())
    }
}

/// Whether and where a machine that serves listens for other machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listen {
    /// The machine does not listen.
    #[default]
    Nowhere,
    /// At this address; if that is not possible the machine does not start.
    At(SocketAddr),
    /// At this address, if it is free.
    IfFree(SocketAddr),
}

/// The settings of a machine.
#[derive(Clone, Debug)]
pub struct MachineSettings {
    /// Its name, if it founds a cluster.
    pub name: String,
    /// The settings of its server, if it has one.
    pub group: GroupSettings,
    /// The address at which it listens.
    pub listen: Listen,
    /// Further addresses where servers may be, `host:port`, for the case that all servers have
    /// moved.
    pub at: Vec<String>,
    /// The settings of its share server, if it has one.
    pub shares: ShareSettings,
    /// The versions that its program uses. Older ones leave the way back to an older program open.
    pub knows: Versions,
    /// Continue with a server state known to be older than its acknowledgements. All sessions end.
    pub accepts_older: bool,
    /// Whether its server, as the leader, raises the cluster's version once it can. Off while the
    /// server is up only to be checked.
    pub raises: bool,
}

impl Default for MachineSettings {
    fn default() -> MachineSettings {
        let (group, listen, at, shares) = Default::default();
        let (knows, accepts_older) = (Versions::KNOWN, false);
        let name = "machine".to_owned();
        MachineSettings { name, group, listen, at, shares, knows, accepts_older, raises: true }
    }
}

/// The machine of a data directory. Dropping it ends the process's hold as a crash would;
/// [`Machine::stop`] ends it in order.
pub struct Machine {
    engine: Arc<Engine>,
    membership: Arc<Membership>,
    threads: Vec<JoinHandle<()>>,
    control: Option<Control>,
    data: DataDir,
}

impl Machine {
    /// Takes `dir` and starts everything up to an open session. A first start makes a new cluster,
    /// unless the machine has joined one.
    pub fn start(dir: &Path, purpose: &str, settings: MachineSettings) -> Result<Machine, MachineError> {
        if !directory::is_machine_name(&settings.name) {
            return Err(EnrolError::BadName.into());
        }
        let data = DataDir::take(dir, purpose)?;
        let machine = MachineId(data.identity().machine);
        let seed = seed().map_err(|source| MachineError::Io { verb: "draw random numbers", source })?;
        let start = data.identity().start();
        let (engine, queues) = Engine::new(seed, (machine, start), SalvageStore::open(dir)?);
        let engine = Arc::new(engine);
        let peers = Peers::new(machine);
        engine.introduce(Copies::new(peers.clone()));
        if let Some((number, unsent)) = engine.salvage().unsent()? {
            engine.go_on_with(number, unsent);
        }
        let membership = Membership::new(dir.to_path_buf(), machine, settings, engine.clone(), peers);
        let mut up = Machine { engine, membership, threads: Vec::new(), control: None, data };
        up.membership.begin()?;
        up.start_threads(queues)?;
        if let Upstream::Here(_) = up.engine.upstream() {
            up.engine.upstream().open_again(&up.engine);
        }
        up.wait_until_open()?;
        ballast::keep(dir);
        let control = Control::serve(dir, &up.membership);
        up.control = Some(
            control.map_err(|source| MachineError::Io { verb: "listen on the control socket", source })?,
        );
        Ok(up)
    }

    fn start_threads(&mut self, queues: Queues) -> Result<(), MachineError> {
        let Queues { uploads, chores, yields } = queues;
        let yields = Arc::new(Mutex::new(yields));
        for _ in 0..YIELD_THREADS {
            let (engine, yields) = (self.engine.clone(), yields.clone());
            self.threads.push(thread("yield", move || engine.revoke(&yields))?);
        }
        let uploads = Arc::new(Mutex::new(uploads));
        for _ in 0..UPLOAD_THREADS {
            let (engine, uploads) = (self.engine.clone(), uploads.clone());
            self.threads.push(thread("upload", move || engine.store_uploads(&uploads))?);
        }
        let chores = Arc::new(Mutex::new(chores));
        for _ in 0..REMOTE_READ_THREADS {
            let (engine, chores) = (self.engine.clone(), chores.clone());
            self.threads.push(thread("chores", move || engine.do_chores(&chores))?);
        }
        let ticker = self.engine.clone();
        self.threads.push(thread("tick", move || ticker.tick())?);
        Ok(())
    }

    fn wait_until_open(&self) -> Result<(), MachineError> {
        let mut waits = || {
            let Some(status) = self.membership.link_status() else { return };
            let why = status.down.unwrap_or_else(|| "it does not answer".to_owned());
            tracing::warn!(
                server = status.server,
                why,
                "the server cannot be reached; this machine is mounted when it can"
            );
        };
        self.engine.wait_until_open(&mut waits).map_err(|error| match self.membership.link_status() {
            Some(status) => {
                MachineError::Unreachable { server: status.server, why: status.down.unwrap_or_default() }
            }
            None => error,
        })
    }

    /// The file service that front doors call.
    pub fn door(&self) -> Arc<dyn FileService> {
        self.engine.clone()
    }

    /// Notes that the file system is mounted at `dir`, for reports to people.
    pub fn is_mounted_on(&self, dir: &Path) {
        // A machine is mounted once.
        let _ = self.membership.mounted_on().set(dir.to_path_buf());
    }

    /// Shows every message of the server to `tap` from now on, in the order of arrival and before
    /// the client handles it. This is for programs that count leases. `tap` must not block. Only
    /// the first `tap` counts.
    pub fn tap(&self, tap: impl Fn(&ToClient) + Send + Sync + 'static) {
        self.engine.tap(Box::new(tap));
    }

    /// Makes backups from now on, as long as the machine is up.
    pub fn back_up(&mut self, schedule: BackupSchedule) -> Result<(), MachineError> {
        let membership = self.membership.clone();
        self.threads.push(thread("backup", move || schedule.run(&membership))?);
        Ok(())
    }

    /// Reports the machine's state and activity.
    pub fn status(&self) -> StatusReport {
        StatusReport::of(&self.membership)
    }

    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The data directory.
    pub fn data(&self) -> &DataDir {
        &self.data
    }

    /// The machine's name.
    pub fn name(&self) -> String {
        self.membership.name()
    }

    /// The address at which other machines can call this one.
    pub fn listens(&self) -> Option<SocketAddr> {
        self.membership.listener().map(|listener| listener.address())
    }

    /// The leader's address, on a machine whose own server does not lead or that has none.
    pub fn served_by(&self) -> Option<String> {
        self.membership.link_status().map(|status| status.server)
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        self.membership.server()
    }

    /// Begins the end: the mount is about to go. From now on the client accepts the kernel's last
    /// writes even when the server cannot be reached.
    pub fn begin_ending(&self) {
        self.engine.begin_ending();
    }

    /// Ends in order: everything durable, the session closed, the store checkpointed. Front doors
    /// must be closed before. Changes that the server cannot be given are kept here.
    pub fn stop(mut self) -> Result<(), MachineError> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        let before = self.engine.salvage().tried();
        let clean = self.engine.close_client(deadline);
        self.engine.finish_salvaging(Instant::now() + SALVAGE_TIMEOUT);
        let ended = if clean { Ended::Clean } else { self.engine.keep_what_is_left() };
        let (tried, failed) = self.engine.salvage().tried();
        let dir = self.data.path().join("salvage");
        self.end();
        match ended {
            Ended::Lost { count, why } => Err(MachineError::Lost { count, why: Some(why) }),
            Ended::Kept { count, goes_on: true, number } => {
                Err(MachineError::LeftForNextStart { count, dir: dir.join(number.to_string()) })
            }
            Ended::Kept { number, .. } => Err(MachineError::Salvaged { dir: dir.join(number.to_string()) }),
            Ended::Clean if failed > before.1 => {
                let count = usize::try_from(failed - before.1).unwrap_or(usize::MAX);
                Err(MachineError::Lost { count, why: None })
            }
            Ended::Clean if tried > before.0 => Err(MachineError::Salvaged { dir }),
            Ended::Clean => Ok(()),
        }
    }

    fn end(&mut self) {
        self.engine.stop();
        drop(self.control.take());
        self.membership.end();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.engine.stop();
        self.membership.stop();
    }
}

pub(crate) fn thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, MachineError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|source| MachineError::Io { verb: "start a thread", source })
}

fn seed() -> Result<[u8; 32], std::io::Error> {
    let mut seed = [0; 32];
    os::fill_random(&mut seed)?;
    Ok(seed)
}
