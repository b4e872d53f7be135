//! A machine: its client, and its server if it has one, in one process, from start to end.

use crate::backup_source;
use crate::client_host::ending::Ended;
use crate::client_host::{ClientHost, Queues};
use crate::control::{Control, answer_server};
use crate::error::{MachineError, thread};
use crate::membership::Membership;
use crate::salvage::SalvageStore;
use crate::server::Server;
use crate::settings::MachineSettings;
use crate::status;
use crate::upstream::Upstream;
use admin::StatusReport;
use backup::BackupSchedule;
use data_dir::{ClusterFile, DataDir, ballast};
use file_service::FileService;
use ident::ServerId;
use net::LinkDown;
use objects::Store;
use parking_lot::Mutex;
use share_hosts::{Copies, Peers};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::{EnrolError, MachineId, ToClient};

/// Threads that seal and store uploads: one seals while the other waits for the disk.
const UPLOAD_THREADS: usize = 2;
/// Threads that revoke recalled content from front doors. Each waits for the kernel, which may be
/// slow to invalidate.
const REVOKE_THREADS: usize = 4;
/// Threads for reads over the network: so many can wait at once.
const REMOTE_READ_THREADS: usize = 4;
/// How long an orderly end may take before the remaining changes are kept for the next start.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
/// How long the end may take after that to write salvage to disk.
const SALVAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The machine of a data directory. Dropping it ends the process's hold as a crash would;
/// [`Machine::stop`] ends it in order.
pub struct Machine {
    client_host: Arc<ClientHost>,
    membership: Arc<Membership>,
    threads: Vec<JoinHandle<()>>,
    control: Option<Control>,
    store: OnceLock<Arc<Store>>,
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
        let (client_host, queues) = ClientHost::new(seed, (machine, start), SalvageStore::open(dir)?);
        let client_host = Arc::new(client_host);
        let peers = Peers::new(machine);
        client_host.introduce(Copies::new(peers.clone()));
        if let Some((number, unsent)) = client_host.salvage().unsent()? {
            client_host.go_on_with(number, unsent);
        }
        let membership = Membership::new(
            (dir.to_path_buf(), ClusterFile::open(&data)?),
            machine,
            (settings, answer_server),
            client_host.clone(),
            peers,
        );
        let mut up = Machine {
            client_host,
            membership,
            threads: Vec::new(),
            control: None,
            store: OnceLock::new(),
            data,
        };
        up.membership.begin()?;
        up.start_threads(queues)?;
        if let Upstream::Here(_) = up.client_host.upstream() {
            up.client_host.open_again(ServerId::ROOT);
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
        let Queues { uploads, chores, revocations } = queues;
        let revocations = Arc::new(Mutex::new(revocations));
        for _ in 0..REVOKE_THREADS {
            let (client_host, revocations) = (self.client_host.clone(), revocations.clone());
            self.threads.push(thread("revoke", move || client_host.revoke(&revocations))?);
        }
        let uploads = Arc::new(Mutex::new(uploads));
        for _ in 0..UPLOAD_THREADS {
            let (client_host, uploads) = (self.client_host.clone(), uploads.clone());
            self.threads.push(thread("upload", move || client_host.store_uploads(&uploads))?);
        }
        let chores = Arc::new(Mutex::new(chores));
        for _ in 0..REMOTE_READ_THREADS {
            let (client_host, chores) = (self.client_host.clone(), chores.clone());
            self.threads.push(thread("chores", move || client_host.do_chores(&chores))?);
        }
        let ticker = self.client_host.clone();
        self.threads.push(thread("tick", move || ticker.tick())?);
        Ok(())
    }

    fn wait_until_open(&self) -> Result<(), MachineError> {
        let why =
            |down: Option<LinkDown>| down.map_or("it does not answer".to_owned(), |why| why.to_string());
        let mut waits = || {
            let Some(status) = self.membership.link_status() else { return };
            tracing::warn!(
                server = status.server,
                why = why(status.down),
                "the server cannot be reached; this machine is mounted when it can"
            );
        };
        self.client_host.wait_until_open(&mut waits).map_err(|error| match self.membership.link_status() {
            Some(status) => MachineError::Unreachable { server: status.server, why: why(status.down) },
            None => error,
        })
    }

    /// The file service that front doors call. Once there is an object store, their calls go
    /// through it.
    pub fn file_service(&self) -> Arc<dyn FileService> {
        match self.store.get() {
            Some(store) => store.file_service(),
            None => self.client_host.clone(),
        }
    }

    /// The machine's object store, for SMB clients. A machine that serves any asks for it before it
    /// mounts the file system.
    pub fn store(&self) -> &Arc<Store> {
        self.store.get_or_init(|| Store::new(self.client_host.clone()))
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
        self.client_host.tap(Box::new(tap));
    }

    /// Makes backups from now on, as long as the machine is up.
    pub fn back_up(&mut self, schedule: BackupSchedule) -> Result<(), MachineError> {
        let membership = self.membership.clone();
        self.threads.push(thread("backup", move || {
            let is_stopping = || membership.client_host().is_stopping();
            schedule.run(is_stopping, |order, tell| backup_source::back_up(&membership, order, tell));
        })?);
        Ok(())
    }

    /// Reports the machine's state and activity.
    pub fn status(&self) -> StatusReport {
        status::status(&self.membership)
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
    pub(crate) fn client_host(&self) -> &ClientHost {
        &self.client_host
    }

    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        self.membership.server()
    }

    /// Begins the end: the mount is about to go. From now on the client accepts the kernel's last
    /// writes even when the server cannot be reached.
    pub fn begin_ending(&self) {
        self.client_host.begin_ending();
    }

    /// Ends in order: everything durable, the session closed, the store checkpointed. Front doors
    /// must be closed before. Changes that the server cannot be given are kept here.
    pub fn stop(mut self) -> Result<(), MachineError> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        let before = self.client_host.salvage().tried();
        let clean = self.client_host.close_client(deadline);
        self.client_host.finish_salvaging(Instant::now() + SALVAGE_TIMEOUT);
        let ended = if clean { Ended::Clean } else { self.client_host.keep_what_is_left() };
        let (tried, failed) = self.client_host.salvage().tried();
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
        self.client_host.stop();
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
        self.client_host.stop();
        self.membership.stop();
    }
}

fn seed() -> Result<[u8; 32], std::io::Error> {
    let mut seed = [0; 32];
    os::fill_random(&mut seed)?;
    Ok(seed)
}
