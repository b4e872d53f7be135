//! A machine's part in its cluster: whether it is a server, and how its client reaches the leader.

use crate::cluster::reachable_at;
use crate::control::in_words;
use crate::data::{Cluster, DataError, Identity, MARK, has_shares, io, lacks_server, missing, remove_server};
use crate::engine::Engine;
use crate::hosts;
use crate::machine::{Listen, MachineError, MachineSettings, STOP_LOOK, thread};
use crate::net::{
    Authority, CertificateError, CredentialStore, Listener, MemberNet, NetThread, Places, ServeError,
    ServerLink, ServerLinkStatus, ask_to_serve, tell_ready,
};
use crate::peers::Peers;
use crate::placed::Placed;
use crate::quarantine;
use crate::receipts::Receipts;
use crate::references::ReferenceIndex;
use crate::round_trips::RoundTrips;
use crate::server::{Server, servers};
use crate::share_host::ShareHost;
use crate::shares_server::{SharesError, wall_clock};
use crate::upstream::Upstream;
use directory::Input;
use os::private;
use os::utc_secs;
use parking_lot::Mutex;
use raft::stop;
use raft::{FOUNDER, Host, Keeping, Place, Standing};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{MachineId, ServerAt};

/// The address at which a machine listens that is asked to serve and has no address set.
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
/// The number of addresses kept of an only server, which may move again and again.
const ADDRESSES_MAX: usize = 8;
/// The number of attempts of a machine that is to serve, and the time between them.
const ATTEMPTS: (u32, Duration) = (5, Duration::from_secs(1));

/// A machine's server, if it has one, and its client's connection to the leader.
pub(crate) struct Membership {
    me: Weak<Membership>,
    dir: PathBuf,
    machine: MachineId,
    settings: MachineSettings,
    /// Addresses where servers that have moved may be.
    places: Arc<Places>,
    engine: Arc<Engine>,
    peers: Arc<Peers>,
    /// Set once the machine has them.
    credentials: Mutex<Option<Arc<CredentialStore>>>,
    serving: Mutex<Option<Serving>>,
    link: Mutex<Option<(Arc<ServerLink>, NetThread)>>,
    mounted_on: OnceLock<PathBuf>,
    /// Held by a thread that changes the machine's part.
    changing: Mutex<()>,
    stopping: AtomicBool,
}

/// A running server, with its listener and its threads.
struct Serving {
    member: u64,
    server: Arc<Server>,
    listener: Option<Arc<Listener>>,
    threads: Vec<JoinHandle<()>>,
}

impl Membership {
    /// Makes the membership of the machine in `dir`, whose client is `engine`.
    pub(crate) fn new(
        dir: PathBuf,
        machine: MachineId,
        settings: MachineSettings,
        engine: Arc<Engine>,
        peers: Arc<Peers>,
    ) -> Arc<Membership> {
        Arc::new_cyclic(|me| Membership {
            me: me.clone(),
            dir,
            machine,
            places: Arc::new(Places::new(settings.at.clone())),
            settings,
            engine,
            peers,
            credentials: Mutex::default(),
            serving: Mutex::new(None),
            link: Mutex::new(None),
            mounted_on: OnceLock::new(),
            changing: Mutex::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Begins the part that the data directory names: a cluster of its own, a server among others,
    /// or a client only.
    pub(crate) fn begin(&self) -> Result<(), MachineError> {
        let _changing = self.changing.lock();
        match Cluster::of(&self.dir)? {
            None => {
                if Identity::of(&self.dir)?.serves.is_some()
                    && let Some(what) = lacks_server(&self.dir)
                {
                    return Err(missing(&self.dir, &what).into());
                }
                let serving = self.serve(FOUNDER, None).map_err(alone)?;
                let standing = serving.server.group().standing();
                if self.settings.accepts_older && standing.alone {
                    // This counts as a restored backup: machines that are still up know later
                    // states.
                    serving.server.group().propose(Input::Restored { at: utc_secs() });
                    Identity::change(&self.dir, |known| known.older = false)?;
                }
                if standing.alone {
                    self.engine.connect(Upstream::Here(Arc::downgrade(&serving.server)));
                }
                *self.serving.lock() = Some(serving);
                self.stands(&standing);
            }
            Some(Cluster { addresses, member, again, listens, .. }) => {
                let (mut again, mut member) = (again, member);
                let serves = Identity::of(&self.dir)?.serves;
                if let Some(what) = lacks_server(&self.dir).filter(|_| serves.is_some() && member == serves) {
                    // The other servers have that state. The promises that this member made are
                    // lost.
                    self.quarantine_server(&format!("{what} is missing, or empty"))?;
                    (again, member) = (true, None);
                }
                if again && member.is_none() && self.dir.join("server").exists() {
                    self.quarantine_server(
                        "it was found damaged, and the machine stopped before it was put aside",
                    )?;
                }
                if let (None, Some(content)) = (member, &self.settings.shares.content) {
                    // The server that this machine may become later keeps its content there,
                    // however it is started then.
                    shares::remember(&self.dir.join("shares"), content).map_err(SharesError::from)?;
                }
                match member.map(|member| self.serve(member, listens)).transpose() {
                    Err(error) if error.is_damage() => {
                        self.quarantine_server(&in_words(&error))?;
                        again = true;
                    }
                    serving => *self.serving.lock() = serving?,
                }
                self.connect(addresses)?;
                if again {
                    self.change(Membership::serve_again);
                }
            }
        }
        Ok(())
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
        Cluster::of(&self.dir).ok().flatten().and_then(|cluster| cluster.name).unwrap_or_default()
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

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// This machine's server, if it has one.
    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        self.serving.lock().as_ref().map(|serving| serving.server.clone())
    }

    /// The listener at which other machines call this one's server.
    pub(crate) fn listener(&self) -> Option<Arc<Listener>> {
        self.serving.lock().as_ref().and_then(|serving| serving.listener.clone())
    }

    /// Starts to listen for other machines if this server does not yet, and returns the listener. A
    /// server that is alone needs none until a machine is invited.
    pub(crate) fn begin_to_listen(&self) -> Result<Arc<Listener>, String> {
        let words = |error: &dyn std::error::Error| in_words(error);
        let credentials = self.credentials().map_err(|error| words(&error))?;
        let mut serving = self.serving.lock();
        let serving = serving.as_mut().ok_or("this machine has no server")?;
        if serving.listener.is_none() {
            let listener = self.listen(serving, None, credentials).map_err(|error| words(&error))?;
            if let Some(listener) = &listener {
                serving.server.group().listens_at(reachable_at(listener.address()));
            }
            serving.listener = listener;
        }
        let listens = serving.listener.clone();
        listens.ok_or_else(|| "this machine does not listen: start it with --listen ADDRESS:PORT".to_owned())
    }

    /// The addresses at which others can probably reach this machine's server.
    pub(crate) fn addresses(&self) -> Option<Vec<String>> {
        Some(reachable_at(self.listener()?.address()))
    }

    /// The state of the connection to another machine's server.
    pub(crate) fn link_status(&self) -> Option<ServerLinkStatus> {
        self.link.lock().as_ref().map(|(link, _)| link.status())
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

    /// Starts the server `member`, which listened at `listened` before.
    ///
    /// # Errors
    /// If any part of it does not start. Then nothing holds the shares' lock any more, so the next
    /// attempt fails for its own reason.
    fn serve(&self, member: u64, listened: Option<SocketAddr>) -> Result<Serving, MachineError> {
        self.start_server(member, listened).inspect_err(|_| self.engine.copies().set_here(None))
    }

    fn start_server(&self, member: u64, listened: Option<SocketAddr>) -> Result<Serving, MachineError> {
        let identity = Identity::of(&self.dir)?;
        if !identity.made {
            Authority::found(&self.dir)?.credentials(&self.dir, self.machine)?;
        }
        // Missing parts are found before any are made.
        let credentials = self.credentials()?;
        if identity.older && !self.settings.accepts_older {
            return Err(MachineError::Older(
                "this server was found to have forgotten what it had acknowledged".to_owned(),
            ));
        }
        let receipts = Receipts::new(self.settings.accepts_older);
        // People may accept an older state. Other hosts have copies, and this host makes its own
        // anew.
        if !self.settings.accepts_older {
            has_shares(&self.dir, identity)?;
        }
        let placed = self.placed()?;
        let wires =
            Arc::new(MemberNet::new(credentials.caller(), self.places.clone(), self.round_trips().clone()));
        self.peers.know(credentials.caller());
        if member == FOUNDER {
            // This holds unless the group lists other hosts.
            self.peers
                .hosts()
                .set(vec![hosts::Host { machine: self.machine, addresses: Vec::new(), weight: 1 }], 1);
        }
        let shares = self.dir.join("shares");
        let settings = self.settings.shares.clone();
        let (share_host, chores) = ShareHost::open(&shares, settings, wall_clock(), self.peers.clone())?;
        self.engine.copies().set_here(Some(share_host.clone()));
        let membership = self.me.clone();
        let standing = Box::new(move |standing: &Standing| {
            if let Some(membership) = membership.upgrade() {
                membership.stands(standing);
            }
        });
        let membership = self.me.clone();
        let damaged = Box::new(move |why: String| {
            if let Some(membership) = membership.upgrade() {
                membership.change(move |membership| membership.lose(&why));
            }
        });
        let (raises, with) = (self.settings.raises, (receipts, credentials.clone()));
        let server = Server::new(&self.dir, share_host.clone(), raises, with, standing, damaged);
        let (machine, name) = (self.machine.0, self.settings.name.clone());
        let host = Host { machine, name, keeping: Keeping::Keeps, addresses: Vec::new() };
        let moved = identity.serves == Some(member) && identity.placed != Some(placed);
        let place = Place {
            member,
            host,
            founds: member == FOUNDER,
            knows: self.settings.knows,
            mark: Some(self.dir.join(MARK)),
            moved: moved && !self.settings.accepts_older,
        };
        server.serve(&self.engine, self.settings.group, place, wires)?;
        let elsewhere = share_host.shares().server().disk().is_none();
        let known = Identity::change(&self.dir, |known| {
            (known.made, known.serves) = (true, Some(member));
            (known.shares, known.elsewhere) = (true, elsewhere);
        });
        if let Err(error) = known {
            server.group().shutdown();
            return Err(error.into());
        }
        server.tend_certificates();
        let references: Arc<dyn ReferenceIndex> = server.clone();
        let (ticker, surveyor, scrub) = (server.clone(), server.clone(), server.clone());
        let (dir, settling) = (self.dir.clone(), server.clone());
        let threads = vec![
            thread("place", move || settle(&dir, placed, &settling))?,
            thread("shares", move || share_host.run(&chores, &references))?,
            thread("server-tick", move || ticker.tick())?,
            thread("survey", move || surveyor.survey())?,
            thread("scrub", move || scrub.run_scrub())?,
        ];
        let mut serving = Serving { member, server, listener: None, threads };
        // No machine calls one that is alone and has no open invitation.
        let nobody = member == FOUNDER
            && !matches!(self.settings.listen, Listen::At(_))
            && serving.server.awaits_nobody();
        let listener = if nobody { Ok(None) } else { self.listen(&serving, listened, credentials) };
        match listener {
            Ok(listener) => {
                serving.listener = listener;
                if let Some(listener) = &serving.listener {
                    serving.server.group().listens_at(reachable_at(listener.address()));
                }
            }
            Err(error) if member == FOUNDER && !matches!(self.settings.listen, Listen::At(_)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "other machines cannot join or reach this one"
                )
            }
            Err(error) => {
                serving.end();
                return Err(error);
            }
        }
        Ok(serving)
    }

    /// The identity of the server's files. This makes their directory if there is none.
    fn placed(&self) -> Result<Placed, DataError> {
        let server = self.dir.join("server");
        private::make_dir(&server).map_err(io("make", &server))?;
        Placed::of(&self.dir)
    }

    /// Listens at the address set, or at the former one. One server among several must listen; the
    /// only server may do without.
    fn listen(
        &self,
        serving: &Serving,
        listened: Option<SocketAddr>,
        credentials: Arc<CredentialStore>,
    ) -> Result<Option<Arc<Listener>>, MachineError> {
        let only = serving.member == FOUNDER;
        let places = match self.settings.listen {
            Listen::Nowhere if only => return Ok(None),
            Listen::At(address) => vec![address],
            Listen::IfFree(address) if only => vec![address],
            Listen::IfFree(address) => listened.into_iter().chain([address, ANYWHERE]).collect(),
            Listen::Nowhere => listened.into_iter().chain([ANYWHERE]).collect(),
        };
        let mut last = Ok(None);
        for place in places {
            match Listener::start(self.me.clone(), serving.server.clone(), credentials.clone(), place) {
                Ok(listener) => return Ok(Some(Arc::new(listener))),
                Err(error) => last = Err(error.into()),
            }
        }
        last
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
        let called = self.link.lock().as_ref().map(|(link, _)| link.addresses()).unwrap_or_default();
        let host = |server: &ServerAt| hosts::Host {
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
            let founder =
                hosts::Host { machine: directory::FOUNDER, addresses: addresses.clone(), weight: 1 };
            self.peers.hosts().set(vec![founder], 1);
        }
        // The machine's own server may be the leader, at an address that no other machine knows
        // yet.
        let own = self.addresses().unwrap_or_default();
        let engine = Arc::downgrade(&self.engine);
        let membership = self.me.clone();
        let later = Box::new(move |incarnation| {
            membership.upgrade().is_some_and(|membership| membership.counts_from(incarnation))
        });
        let (link, thread) = ServerLink::start(
            addresses,
            (own, self.places.clone()),
            self.round_trips().clone(),
            caller,
            engine,
            (servers, later),
        )?;
        self.engine.connect(Upstream::There(link.clone()));
        link.begin();
        *connection = Some((link, thread));
        Ok(())
    }

    /// Takes in that the server knows the later start `incarnation` of this machine. Returns
    /// whether the machine counts its starts from there: its directory is an older copy.
    fn counts_from(&self, incarnation: u64) -> bool {
        let Some(starts) = self.engine.counts_from(incarnation) else { return false };
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
        self.place(&servers);
        let member = self.serving.lock().as_ref().map(|serving| serving.member);
        if let Err(error) = self.remember(&servers, member) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "where the servers are could not be kept"
            );
        }
        let own = servers.iter().find(|server| server.machine == self.machine);
        let moved =
            own.is_some_and(|own| self.addresses().is_some_and(|addresses| addresses != own.addresses));
        let change: fn(&Membership) = match member {
            None if serve => Membership::begin_to_serve,
            // This server is being added again.
            Some(_) if Cluster::of(&self.dir).is_ok_and(|of| of.is_some_and(|cluster| cluster.again)) => {
                return;
            }
            Some(_) if own.is_none() && !serve && !servers.is_empty() => Membership::retire,
            Some(_) if moved || (own.is_none() && serve) => Membership::announce,
            _ => return,
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

    /// Keeps the servers' addresses for the next start. The founder needs them only if there are
    /// other servers, in case it has lost its state.
    fn remember(&self, servers: &[ServerAt], member: Option<u64>) -> Result<(), DataError> {
        let before = match Cluster::of(&self.dir)? {
            Some(_) if member == Some(FOUNDER) && servers.len() == 1 => return Cluster::forget(&self.dir),
            None if servers.len() < 2 => return Ok(()),
            before => before.unwrap_or_default(),
        };
        let mut addresses: Vec<String> = servers.iter().flat_map(|server| server.addresses.clone()).collect();
        if addresses.is_empty() {
            // The only server names no address, and may have moved to the address by which it was
            // called.
            addresses.clone_from(&before.addresses);
            let called = self.leader();
            if !addresses.contains(&called) {
                addresses.insert(0, called);
                addresses.truncate(ADDRESSES_MAX);
            }
        }
        // A machine keeps its name when it joins. The founder may lose the rows that hold its own
        // name.
        let name = before.name.clone().or_else(|| self.server().map(|own| own.name_of(self.machine)));
        let now = Cluster { addresses, member, name, ..before.clone() };
        if now == before { Ok(()) } else { now.keep(&self.dir) }
    }

    /// Becomes a server.
    fn begin_to_serve(&self) {
        for attempt in 1..=ATTEMPTS.0 {
            match self.try_to_serve() {
                Ok(()) => return self.announce(),
                Err(error) if attempt < ATTEMPTS.0 && !self.stopping.load(SeqCst) => {
                    tracing::info!(error = &error as &dyn std::error::Error, "this machine cannot serve yet");
                    std::thread::sleep(ATTEMPTS.1);
                }
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "this machine cannot serve");
                    return;
                }
            }
        }
    }

    fn try_to_serve(&self) -> Result<(), ServeError> {
        if self.serving.lock().is_some() {
            return Ok(());
        }
        let credentials = self.credentials()?;
        let (member, (certificate, authority)) = ask_to_serve(&self.leader(), &credentials.caller())?;
        // The state of an earlier member on this machine does not belong to the new one.
        discard(&self.dir)?;
        credentials.take(certificate, authority)?;
        let before = Cluster::of(&self.dir)?.unwrap_or_default();
        let serving = self.serve(member, before.listens);
        let serving = serving.map_err(|error| ServeError::Machine(Box::new(error)))?;
        let listens = serving.listener.as_ref().map(|listener| listener.address());
        Cluster { member: Some(member), listens, ..before }.keep(&self.dir)?;
        *self.serving.lock() = Some(serving);
        Ok(())
    }

    /// Reports the addresses of this machine's server to the leader.
    fn announce(&self) {
        for _ in 0..ATTEMPTS.0 {
            match self.tell_leader() {
                Ok(()) => return,
                Err(error) => {
                    tracing::info!(error = &error as &dyn std::error::Error, "the leader cannot be told yet");
                    std::thread::sleep(ATTEMPTS.1);
                }
            }
            if self.stopping.load(SeqCst) {
                return;
            }
        }
    }

    fn tell_leader(&self) -> Result<(), ServeError> {
        let Some(member) = self.serving.lock().as_ref().map(|serving| serving.member) else { return Ok(()) };
        let Some(addresses) = self.addresses() else { return Ok(()) };
        tell_ready(&self.leader(), &self.credentials()?.caller(), member, addresses)
    }

    /// Stops being a server: the other servers have removed this one.
    fn retire(&self) {
        let Some(mut serving) = self.serving.lock().take() else { return };
        tracing::warn!("this machine is no server any more");
        self.engine.copies().set_here(None);
        serving.end();
        let addresses = self.link.lock().as_ref().map(|(link, _)| link.addresses()).unwrap_or_default();
        let kept = Cluster::of(&self.dir).and_then(|before| {
            let name = before.and_then(|before| before.name);
            Cluster { addresses, name, ..Cluster::default() }.keep(&self.dir)?;
            discard(&self.dir)
        });
        let kept = kept.map_err(CertificateError::from);
        let kept = kept.and_then(|()| self.credentials().and_then(|credentials| credentials.retire()));
        if let Err(error) = kept {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "what the server had could not be put away"
            );
        }
    }

    /// Handles the loss of this server's state. One server among several becomes a server anew,
    /// with another number.
    fn lose(&self, why: &str) {
        let Some(mut serving) = self.serving.lock().take() else { return };
        let members = serving.server.group().standing().members;
        if members.iter().filter(|member| member.votes).all(|member| member.id == serving.member) {
            stop(&MachineError::Alone(why.to_owned()));
        }
        self.engine.copies().set_here(None);
        serving.end();
        drop(serving);
        match self.quarantine_server(why) {
            Ok(()) => self.serve_again(),
            Err(error) => stop(&error),
        }
    }

    /// Stops the only server because its state is older than it once was; `why` is the proof. It
    /// neither continues nor starts again unless people accept that.
    pub(crate) fn is_older(&self, why: String) {
        self.change(move |membership| {
            if let Err(error) = Identity::change(&membership.dir, |known| known.older = true) {
                stop(&error);
            }
            stop(&MachineError::Older(why));
        });
    }

    /// Moves this server's state into quarantine, for people to look at, and notes that the machine
    /// is to become a server again.
    fn quarantine_server(&self, why: &str) -> Result<(), DataError> {
        let mut now = Cluster { member: None, again: true, ..Cluster::of(&self.dir)?.unwrap_or_default() };
        if let (true, Some((link, _))) = (now.addresses.is_empty(), &*self.link.lock()) {
            now.addresses = link.addresses();
        }
        // This comes first: without its state the machine must not act as the former member.
        now.keep(&self.dir)?;
        Identity::change(&self.dir, |known| known.serves = None)?;
        let quarantine = quarantine::put(&self.dir, why)?;
        tracing::error!(
            why,
            kept = %quarantine.display(),
            "this server has lost what it had and is added anew, as soon as the other servers can do that"
        );
        Ok(())
    }

    /// Becomes a server again, once the others can add one. The quarantine is not needed for that,
    /// and nothing of it is removed.
    fn serve_again(&self) {
        let mut said = String::new();
        while !self.stopping.load(SeqCst) {
            match self.try_to_serve_again() {
                Ok(()) => {
                    return tracing::warn!("this machine is a server again, and learns what the others have");
                }
                Err(error) => {
                    let why = in_words(&error);
                    if why != said {
                        tracing::warn!(
                            why,
                            "this machine cannot be a server again yet; it is tried until it can"
                        );
                        said = why;
                    }
                }
            }
            std::thread::sleep(ATTEMPTS.1);
        }
    }

    fn try_to_serve_again(&self) -> Result<(), ServeError> {
        self.try_to_serve()?;
        let told = self.tell_leader();
        match &told {
            Ok(()) => {
                let now = Cluster::of(&self.dir)?.unwrap_or_default();
                Cluster { again: false, ..now }.keep(&self.dir)?;
            }
            // The member's new number may be void already: another server leads now, and has not
            // heard of it.
            Err(_) => {
                let begun = self.serving.lock().take();
                self.engine.copies().set_here(None);
                begun.into_iter().for_each(|mut serving| serving.end());
                discard(&self.dir)?;
            }
        }
        told
    }

    /// The address of the link's server, which is the leader.
    fn leader(&self) -> String {
        self.link_status().map(|status| status.server).unwrap_or_default()
    }

    /// Stops answering calls, and begins nothing new.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.peers.stop();
        if let Some(serving) = &*self.serving.lock() {
            serving.server.stop();
        }
    }

    /// Ends everything in order.
    pub(crate) fn end(&self) {
        self.stop();
        if let Some(serving) = &mut *self.serving.lock() {
            serving.listener = None;
        }
        let connection = self.link.lock().take();
        drop(connection);
        let serving = self.serving.lock().take();
        if let Some(mut serving) = serving {
            serving.end();
        }
    }
}

impl Serving {
    fn end(&mut self) {
        self.server.stop();
        self.listener = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.server.group().shutdown();
    }
}

/// Keeps the identity of the server's files, once the other members recognise this one as the
/// member it was.
fn settle(dir: &Path, placed: Placed, server: &Server) {
    while !server.group().is_trusted() {
        if server.is_stopping() {
            return;
        }
        std::thread::sleep(STOP_LOOK);
    }
    if let Err(error) = Identity::change(dir, |known| known.placed = Some(placed)) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "which files the server has could not be noted"
        );
    }
}

/// Turns damage of the only server into an error that names the way out.
fn alone(error: MachineError) -> MachineError {
    if error.is_damage() { MachineError::Alone(in_words(&error)) } else { error }
}

/// Removes the state of a member of the group. The share server stays: its shares may be on no
/// other machine.
fn discard(dir: &Path) -> Result<(), DataError> {
    Identity::change(dir, |known| known.serves = None)?;
    remove_server(dir)
}
