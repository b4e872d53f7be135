//! A machine's part in its cluster: whether it is a server, and how its client reaches the leader.

mod beginning;
mod changes;
mod role;
mod serving;

use crate::client_host::ClientHost;
use crate::cluster::{own_addresses, reachable_at};
use crate::error::MachineError;
use crate::links::ServerLinks;
use crate::server::{Server, servers};
use crate::settings::MachineSettings;
use crate::upstream::Upstream;
use data_dir::{ClusterFile, DataError, Identity, ServerNews};
use ident::ServerId;
use net::{
    CertificateError, CredentialStore, Listener, NetThread, Places, RoundTrips, ServerLink, ServerLinkStatus,
    SessionClient,
};
use parking_lot::Mutex;
use raft::Standing;
use role::{RoleChange, RoleKnowledge};
use serving::Serving;
use share_hosts::Peers;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::oneshot::error::TryRecvError;
use wire::{MachineId, ServerAt};

/// How long an end waits at most for another server to lead.
const HAND_OVER: Duration = Duration::from_secs(3);
/// How often it looks.
const HAND_OVER_LOOK: Duration = Duration::from_millis(5);

/// Answers a request of people that another server passes on; the answer goes to the last argument
/// in lines.
pub(crate) type Answers = fn(&Membership, &str, &mut dyn FnMut(Vec<u8>));

/// A machine's server, if it has one, and its client's connection to the leader.
pub(crate) struct Membership {
    me: Weak<Membership>,
    dir: PathBuf,
    cluster: ClusterFile,
    machine: MachineId,
    settings: MachineSettings,
    answers: Answers,
    /// Addresses where servers that have moved may be.
    places: Arc<Places>,
    client_host: Arc<ClientHost>,
    peers: Arc<Peers>,
    /// Set once the machine has them.
    credentials: Mutex<Option<Arc<CredentialStore>>>,
    serving: Mutex<Option<Serving>>,
    /// The links to all servers, and the thread of the one to the root server.
    link: Mutex<Option<(Arc<ServerLinks>, NetThread)>>,
    mounted_on: OnceLock<PathBuf>,
    /// Held by a thread that changes the machine's part.
    changing: Mutex<()>,
    /// The servers last listed this machine as one of them.
    listed: AtomicBool,
    stopping: AtomicBool,
}

impl Membership {
    /// Makes the membership of the machine that `cluster` is of, whose client is `client_host`.
    pub(crate) fn new(
        (dir, cluster): (PathBuf, ClusterFile),
        machine: MachineId,
        (settings, answers): (MachineSettings, Answers),
        client_host: Arc<ClientHost>,
        peers: Arc<Peers>,
    ) -> Arc<Membership> {
        Arc::new_cyclic(|me| Membership {
            me: me.clone(),
            dir,
            cluster,
            machine,
            places: Arc::new(Places::new(settings.at.clone())),
            settings,
            answers,
            client_host,
            peers,
            credentials: Mutex::default(),
            serving: Mutex::new(None),
            link: Mutex::new(None),
            mounted_on: OnceLock::new(),
            changing: Mutex::default(),
            listed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        })
    }

    /// Answers a request of people that another server passes on. Blocks.
    pub(crate) fn answer(&self, request: &str, tell: &mut dyn FnMut(Vec<u8>)) {
        (self.answers)(self, request, tell);
    }

    /// The machine's number.
    pub(crate) fn machine(&self) -> MachineId {
        self.machine
    }

    /// The machine's name; empty if only a server knows it.
    pub(crate) fn name(&self) -> String {
        if let Some(server) = self.server() {
            return server.name_of(self.machine);
        }
        self.cluster.known().and_then(|cluster| cluster.name).unwrap_or_default()
    }

    /// The path at which the file system is mounted.
    pub(crate) fn mounted_on(&self) -> &OnceLock<PathBuf> {
        &self.mounted_on
    }

    /// The machine's data directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The round trips to other machines.
    pub(crate) fn round_trips(&self) -> &Arc<RoundTrips> {
        self.peers.round_trips()
    }

    pub(crate) fn client_host(&self) -> &Arc<ClientHost> {
        &self.client_host
    }

    /// This machine's server, if it has one.
    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        self.serving.lock().as_ref().map(|serving| serving.server.clone())
    }

    /// The listener at which other machines call this one's server.
    pub(crate) fn listener(&self) -> Option<Arc<Listener>> {
        self.serving.lock().as_ref().and_then(|serving| serving.listener.clone())
    }

    /// The addresses at which others can probably reach this machine's server.
    pub(crate) fn addresses(&self) -> Option<Vec<String>> {
        Some(reachable_at(self.listener()?.address()))
    }

    /// The state of the connection to another machine's server.
    pub(crate) fn link_status(&self) -> Option<ServerLinkStatus> {
        self.link.lock().as_ref().map(|(links, _)| links.root().status())
    }

    /// The machine's credentials, for calls to others and from others.
    pub(crate) fn credentials(&self) -> Result<Arc<CredentialStore>, CertificateError> {
        let mut credentials = self.credentials.lock();
        if let Some(credentials) = &*credentials {
            return Ok(credentials.clone());
        }
        let opened = CredentialStore::open(&self.dir, self.settings.knows)?;
        *credentials = Some(opened.clone());
        Ok(opened)
    }

    /// Takes in the state of the group to which this machine's member belongs. Once there are
    /// several members, the client calls the leader as any other client does. Runs on the group's
    /// thread.
    fn stands(&self, standing: &Standing) {
        if standing.alone || self.stopping.load(SeqCst) {
            return;
        }
        self.place(&servers(standing));
        let addresses: Vec<String> =
            standing.members.iter().flat_map(|member| member.host.addresses.clone()).collect();
        if addresses.is_empty() {
            return;
        }
        if let Err(error) = self.connect(addresses) {
            tracing::error!(error = &error as &dyn std::error::Error, "the other servers cannot be called");
        }
    }

    /// Sets the hosts of shares: they are the servers.
    fn place(&self, servers: &[ServerAt]) {
        let voters = servers.iter().filter(|server| server.votes).count();
        // The only server names no address. It is reached at the address by which this machine
        // called it.
        let called = self.link.lock().as_ref().map(|(links, _)| links.root().addresses()).unwrap_or_default();
        let host = |server: &ServerAt| share_hosts::ListedHost {
            machine: server.machine,
            addresses: if server.addresses.is_empty() { called.clone() } else { server.addresses.clone() },
            weight: server.weight,
        };
        if !servers.is_empty() {
            // A share needs as many copies as an entry of the log needs. So a failure that loses a
            // share loses the server group too.
            self.peers.hosts().set(servers.iter().map(host).collect(), voters / 2 + 1);
        }
    }

    /// Starts the connection to the servers, unless there is one already.
    fn connect(&self, addresses: Vec<String>) -> Result<(), MachineError> {
        let mut connection = self.link.lock();
        if connection.is_some() {
            return Ok(());
        }
        let membership = self.me.clone();
        let servers = Box::new(move |servers: Vec<ServerAt>, serve| {
            if let Some(membership) = membership.upgrade() {
                membership.hear(servers, serve);
            }
        });
        let caller = self.credentials()?.caller();
        self.peers.know(caller.clone());
        if self.peers.hosts().now().all().is_empty() {
            // This holds until the leader lists the other servers.
            let founder = share_hosts::ListedHost {
                machine: directory::FOUNDER,
                addresses: addresses.clone(),
                weight: 1,
            };
            self.peers.hosts().set(vec![founder], 1);
        }
        // The machine's own server may be the leader, at an address that no other machine knows
        // yet.
        let own = self.listener().map(|listener| own_addresses(listener.address())).unwrap_or_default();
        let client_host: Arc<dyn SessionClient> = self.client_host.clone();
        let membership = self.me.clone();
        let later = Box::new(move |incarnation| {
            membership.upgrade().is_some_and(|membership| membership.counts_from(incarnation))
        });
        let client = Arc::downgrade(&client_host);
        let (link, thread) = ServerLink::start(
            (ServerId::ROOT, addresses),
            (own, self.places.clone()),
            self.round_trips().clone(),
            caller.clone(),
            client.clone(),
            (servers, later),
        )?;
        let ways = (self.places.clone(), self.round_trips().clone());
        let links = Arc::new(ServerLinks::new(link.clone(), ways, caller, client));
        self.client_host.connect(Upstream::There(links.clone()));
        link.begin();
        self.client_host.open_beside();
        *connection = Some((links, thread));
        Ok(())
    }

    /// Takes in that the server knows the later start `incarnation` of this machine. Returns
    /// whether the machine counts its starts from there: its directory is an older copy.
    fn counts_from(&self, incarnation: u64) -> bool {
        let Some(starts) = self.client_host.counts_from(incarnation) else { return false };
        let kept = Identity::change(&self.dir, |known| {
            if known.starts < starts {
                tracing::warn!(
                    starts = incarnation,
                    "this machine's data directory is an older copy of what it was: its starts are counted from what the server knows"
                );
                known.starts = starts;
            }
        });
        if let Err(error) = kept {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the machine's starts could not be noted"
            );
        }
        true
    }

    /// Takes in the leader's list of servers, and whether this machine is to become one. Runs on
    /// the link's thread.
    fn hear(&self, servers: Vec<ServerAt>, serve: bool) {
        if self.stopping.load(SeqCst) {
            return;
        }
        self.place(&servers);
        if let Err(error) = self.remember(&servers) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "where the servers are could not be kept"
            );
        }
        let own = servers.iter().find(|server| server.machine == self.machine);
        self.listed.store(own.is_some(), SeqCst);
        // Trap: a lock taken within the expression below would last until its end, and `addresses`
        // takes the same one.
        let serves = self.server().is_some();
        let known = RoleKnowledge {
            serves,
            again: self.cluster.serves_again(),
            chosen: serve,
            servers: !servers.is_empty(),
            listed: own.is_some(),
            moved: own
                .is_some_and(|own| self.addresses().is_some_and(|addresses| addresses != own.addresses)),
        };
        let change: fn(&Membership) = match known.demands() {
            None => return,
            Some(RoleChange::BeginToServe) => Membership::begin_to_serve,
            Some(RoleChange::ServeAnew) => Membership::serve_anew,
            Some(RoleChange::Retire) => Membership::retire,
            Some(RoleChange::Announce) => Membership::announce,
        };
        // A change skipped now follows the next greeting.
        if self.changing.try_lock().is_some() {
            self.change(change);
        }
    }

    /// Changes this machine's part on a separate thread, after all changes begun before.
    fn change(&self, change: impl FnOnce(&Membership) + Send + 'static) {
        let membership = self.me.clone();
        let changing = std::thread::Builder::new().name("part".to_owned()).spawn(move || {
            if let Some(membership) = membership.upgrade() {
                let _changing = membership.changing.lock();
                change(&membership);
            }
        });
        if let Err(error) = changing {
            tracing::error!(%error, "no thread can be started");
        }
    }

    /// Keeps the servers' addresses for the next start. The news are found before the file's
    /// owner takes them in, so that no lock is held for another one.
    fn remember(&self, servers: &[ServerAt]) -> Result<(), DataError> {
        let name = self.server().map(|own| own.name_of(self.machine));
        self.cluster.heard(ServerNews {
            servers: servers.iter().map(|server| server.addresses.clone()).collect(),
            only_here: matches!(servers, [only] if only.machine == self.machine),
            called: self.leader(),
            name,
        })
    }

    /// Whether the servers list this machine as one of them, and its server does not run.
    pub(crate) fn lacks_its_server(&self) -> bool {
        self.listed.load(SeqCst) && self.serving.lock().is_none()
    }

    /// The address of the link's server, which is the leader.
    fn leader(&self) -> String {
        self.link_status().map(|status| status.server).unwrap_or_default()
    }

    /// Stops answering calls, and begins nothing new.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.cluster.close();
        self.peers.stop();
        if let Some(serving) = &*self.serving.lock() {
            serving.server.stop();
        }
    }

    /// Makes other members lead the servers that members here lead. Everything still works: the
    /// next leader calls this machine, and clients ask here for that leader.
    fn hand_over(&self) {
        let server = self.serving.lock().as_ref().map(|serving| serving.server.clone());
        let Some(server) = server else { return };
        let several = server.all_hosted().into_iter().filter(|hosted| !hosted.group().standing().alone);
        let mut handed_over: Vec<_> = several.map(|hosted| hosted.group().hand_over()).collect();
        let until = Instant::now() + HAND_OVER;
        // The end goes on without a successor, too. The thread may be one of a runtime, which must
        // not wait for a channel.
        while !handed_over.is_empty() && Instant::now() < until {
            handed_over.retain_mut(|one| one.try_recv() == Err(TryRecvError::Empty));
            std::thread::sleep(HAND_OVER_LOOK);
        }
    }

    /// Ends everything in order. From the beginning of the end on, nothing changes what the machine
    /// is at its next start.
    pub(crate) fn end(&self) {
        self.stopping.store(true, SeqCst);
        self.cluster.close();
        self.hand_over();
        self.stop();
        // Each of these ends threads, which may want the lock.
        let listener = self.serving.lock().as_mut().and_then(|serving| serving.listener.take());
        drop(listener);
        let connection = self.link.lock().take();
        if let Some((links, thread)) = connection {
            links.end();
            drop(thread);
        }
        let serving = self.serving.lock().take();
        if let Some(mut serving) = serving {
            serving.end();
        }
    }
}
