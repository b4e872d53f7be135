//! A machine's part in its cluster: whether it is a server, and how its client reaches the one that leads.

use crate::cluster::reachable_at;
use crate::data::{Cluster, DataError};
use crate::engine::Engine;
use crate::group::{FOUNDER, Host, Keeping, Place, Standing};
use crate::hosts;
use crate::keeper::Keeper;
use crate::ledger::Ledger;
use crate::machine::{Listen, MachineError, MachineSettings, thread};
use crate::net::{
    Authority, Credentials, Link, LinkStatus, Listener, MemberNet, NetThread, ServeError, ask_to_serve,
    tell_ready,
};
use crate::peers::Peers;
use crate::server::{Server, servers};
use crate::shares_server::Shares;
use crate::upstream::Upstream;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{MachineId, ServerAt};

/// Where a machine listens that is asked to serve and was not told where.
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
/// How often a machine that is to serve tries, and how long it waits between.
const ATTEMPTS: (u32, Duration) = (5, Duration::from_secs(1));

/// See the module.
pub(crate) struct Part {
    me: Weak<Part>,
    dir: PathBuf,
    machine: MachineId,
    settings: MachineSettings,
    engine: Arc<Engine>,
    peers: Arc<Peers>,
    serving: Mutex<Option<Serving>>,
    link: Mutex<Option<(Arc<Link>, NetThread)>>,
    /// A thread changes what the machine is.
    changing: AtomicBool,
    stopping: AtomicBool,
}

/// What a server has.
struct Serving {
    member: u64,
    server: Arc<Server>,
    listener: Option<Arc<Listener>>,
    threads: Vec<JoinHandle<()>>,
}

impl Part {
    /// Of the machine in `dir`, whose client is `engine`.
    pub(crate) fn new(
        dir: PathBuf,
        machine: MachineId,
        settings: MachineSettings,
        engine: Arc<Engine>,
        peers: Arc<Peers>,
    ) -> Arc<Part> {
        Arc::new_cyclic(|me| Part {
            me: me.clone(),
            dir,
            machine,
            settings,
            engine,
            peers,
            serving: Mutex::new(None),
            link: Mutex::new(None),
            changing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        })
    }

    /// Begins as what the data directory says: a cluster of its own, a server among others, or a client only.
    pub(crate) fn begin(&self) -> Result<(), MachineError> {
        match Cluster::of(&self.dir)? {
            None => {
                let serving = self.serve(FOUNDER, None)?;
                let standing = serving.server.group().standing();
                if standing.alone {
                    self.engine.connect(Upstream::Here(serving.server.clone()));
                }
                *self.serving.lock() = Some(serving);
                self.stands(&standing);
            }
            Some(Cluster { addresses, member, listens }) => {
                if let Some(member) = member {
                    *self.serving.lock() = Some(self.serve(member, listens)?);
                }
                self.connect(addresses)?;
            }
        }
        Ok(())
    }

    /// The machine's data directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// This machine's server, if it has one.
    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        self.serving.lock().as_ref().map(|serving| serving.server.clone())
    }

    /// Where other machines call this one's server.
    pub(crate) fn listener(&self) -> Option<Arc<Listener>> {
        self.serving.lock().as_ref().and_then(|serving| serving.listener.clone())
    }

    /// Where others are likely to reach this machine's server.
    pub(crate) fn addresses(&self) -> Option<Vec<String>> {
        Some(reachable_at(self.listener()?.address()))
    }

    /// How the connection to another machine stands.
    pub(crate) fn link_status(&self) -> Option<LinkStatus> {
        self.link.lock().as_ref().map(|(link, _)| link.status())
    }

    /// Its own certificate and keys.
    pub(crate) fn credentials(&self) -> Result<Credentials, MachineError> {
        Ok(Credentials::open(&self.dir)?)
    }

    /// Starts the server `member`, which listened there before.
    fn serve(&self, member: u64, listened: Option<SocketAddr>) -> Result<Serving, MachineError> {
        let authority = Authority::open(&self.dir)?;
        let credentials = authority.credentials(&self.dir, self.machine)?;
        let wires = Arc::new(MemberNet::new(&credentials)?);
        self.peers.know(&credentials)?;
        if member == FOUNDER {
            // Unless the group says otherwise.
            self.peers
                .hosts()
                .set(vec![hosts::Host { machine: self.machine, addresses: Vec::new(), keeps: true }], 1);
        }
        let (keeper, chores) = Keeper::new(Shares::open(&self.dir.join("shares"))?, self.peers.clone());
        self.engine.copies().set_here(Some(keeper.clone()));
        let part = self.me.clone();
        let standing = Box::new(move |standing: &Standing| {
            if let Some(part) = part.upgrade() {
                part.stands(standing);
            }
        });
        let server = Server::new(&self.dir, keeper.clone(), standing);
        let host = Host { machine: self.machine.0, keeping: Keeping::Keeps, ..Host::default() };
        let place = Place { member, host, founds: member == FOUNDER };
        server.serve(&self.engine, self.settings.group, place, wires)?;
        let ledger: Arc<dyn Ledger> = server.clone();
        let ticker = server.clone();
        let threads = vec![
            thread("shares", move || keeper.run(&chores, &ledger))?,
            thread("server-tick", move || ticker.tick())?,
        ];
        let mut serving = Serving { member, server, listener: None, threads };
        match self.listen(&serving, listened, &credentials) {
            Ok(listener) => serving.listener = listener,
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

    /// Listens where it is told to, or where it did before. One server among several has to; the only one may do without.
    fn listen(
        &self,
        serving: &Serving,
        listened: Option<SocketAddr>,
        credentials: &Credentials,
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
            let authority = Authority::open(&self.dir)?;
            match Listener::start(self.me.clone(), serving.server.clone(), authority, credentials, place) {
                Ok(listener) => return Ok(Some(Arc::new(listener))),
                Err(error) => last = Err(error.into()),
            }
        }
        last
    }

    /// How the group stands, of which this machine has a member. Once there are several its client calls the leader like any other. On the group's thread.
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

    /// Calls servers from now on, if it does not yet.
    /// These are the servers: where shares are kept.
    fn place(&self, servers: &[ServerAt]) {
        let voters = servers.iter().filter(|server| server.votes).count();
        // The only server does not say where it is: where it was called, whoever asks.
        let called = self.link.lock().as_ref().map(|(link, _)| link.addresses()).unwrap_or_default();
        let host = |server: &ServerAt| hosts::Host {
            machine: server.machine,
            addresses: if server.addresses.is_empty() { called.clone() } else { server.addresses.clone() },
            keeps: server.keeps,
        };
        if !servers.is_empty() {
            // As many as entries of the log need: whatever loses a share loses the server group, too.
            self.peers.hosts().set(servers.iter().map(host).collect(), voters / 2 + 1);
        }
    }

    fn connect(&self, addresses: Vec<String>) -> Result<(), MachineError> {
        let mut connection = self.link.lock();
        if connection.is_some() {
            return Ok(());
        }
        let part = self.me.clone();
        let servers = Box::new(move |servers: Vec<ServerAt>, serve| {
            if let Some(part) = part.upgrade() {
                part.hear(servers, serve);
            }
        });
        let credentials = Credentials::open(&self.dir)?;
        self.peers.know(&credentials)?;
        if self.peers.hosts().now().all().is_empty() {
            // Until it is told who else there is.
            let founder =
                hosts::Host { machine: directory::FOUNDER, addresses: addresses.clone(), keeps: true };
            self.peers.hosts().set(vec![founder], 1);
        }
        let (link, thread) = Link::start(addresses, &credentials, Arc::downgrade(&self.engine), servers)?;
        self.engine.connect(Upstream::There(link.clone()));
        *connection = Some((link, thread));
        Ok(())
    }

    /// The leader says which servers there are, and whether this machine is to become one. On the link's thread.
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
        let change: fn(&Part) = match member {
            None if serve => Part::begin_to_serve,
            Some(_) if own.is_none() && !serve && !servers.is_empty() => Part::retire,
            Some(_) if moved || (own.is_none() && serve) => Part::announce,
            _ => return,
        };
        if self.changing.swap(true, SeqCst) {
            return;
        }
        let part = self.me.clone();
        let changing = std::thread::Builder::new().name("part".to_owned()).spawn(move || {
            if let Some(part) = part.upgrade() {
                change(&part);
                part.changing.store(false, SeqCst);
            }
        });
        if let Err(error) = changing {
            tracing::error!(%error, "no thread can be started");
            self.changing.store(false, SeqCst);
        }
    }

    /// Keeps where the servers are, for the next start. Of a founder that its group knows.
    fn remember(&self, servers: &[ServerAt], member: Option<u64>) -> Result<(), DataError> {
        let Some(before) = Cluster::of(&self.dir)? else { return Ok(()) };
        let addresses: Vec<String> = servers.iter().flat_map(|server| server.addresses.clone()).collect();
        let now = Cluster { addresses, member, listens: before.listens };
        if now.addresses.is_empty() || now == before { Ok(()) } else { now.keep(&self.dir) }
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
        let credentials = Credentials::open(&self.dir)?;
        let (member, certificate, authority_key) = ask_to_serve(&self.leader(), &credentials)?;
        // What an earlier member on this machine knew is not this one's.
        discard(&self.dir)?;
        Credentials::keep_server(&self.dir, &certificate, &authority_key)?;
        let serving = self.serve(member, None).map_err(|error| ServeError::Machine(Box::new(error)))?;
        let addresses = Cluster::of(&self.dir)?.map(|cluster| cluster.addresses).unwrap_or_default();
        let listens = serving.listener.as_ref().map(|listener| listener.address());
        Cluster { addresses, member: Some(member), listens }.keep(&self.dir)?;
        *self.serving.lock() = Some(serving);
        Ok(())
    }

    /// Tells the leader where this machine's server is.
    fn announce(&self) {
        let Some(member) = self.serving.lock().as_ref().map(|serving| serving.member) else { return };
        for _ in 0..ATTEMPTS.0 {
            let (Some(addresses), Ok(credentials)) = (self.addresses(), Credentials::open(&self.dir)) else {
                return;
            };
            match tell_ready(&self.leader(), &credentials, member, addresses) {
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

    /// Is no server any more: the others have removed it.
    fn retire(&self) {
        let Some(mut serving) = self.serving.lock().take() else { return };
        tracing::warn!("this machine is no server any more");
        self.engine.copies().set_here(None);
        serving.end();
        let addresses = self.link.lock().as_ref().map(|(link, _)| link.addresses()).unwrap_or_default();
        let kept = Cluster { addresses, member: None, listens: None }
            .keep(&self.dir)
            .and_then(|()| discard(&self.dir));
        if let Err(error) = kept {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "what the server had could not be put away"
            );
        }
    }

    /// Where the link's server is, which leads.
    fn leader(&self) -> String {
        self.link_status().map(|status| status.server).unwrap_or_default()
    }

    /// Nobody is answered any more, and nothing new begins.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.peers.stop();
        if let Some(serving) = &*self.serving.lock() {
            serving.server.stop();
        }
    }

    /// Ends in order.
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

/// Removes what a member of the group had. What share server there was stays: what is in it may be in nobody else's.
fn discard(dir: &Path) -> Result<(), DataError> {
    let server = dir.join("server");
    match std::fs::remove_dir_all(&server) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DataError::Io { verb: "remove", file: server, source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
