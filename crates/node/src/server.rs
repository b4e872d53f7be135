//! The server of a machine: its members of the directory's servers, its share server, and, while
//! its members lead, the connections of all clients.

use crate::balance::memory::Balancer;
use crate::balance::settings::BalanceSettings;
use crate::clock;
use crate::error::MachineError;
use crate::hosted::{HostedServer, LeadChange, group_of};
use crate::receipts::Receipts;
use crate::routes::{Down, HERE, LocalClient};
use crate::scrub::Scrub;
use crate::traffic::Traffic;
use crate::waits::{LONG_MS, LongWaits};
use data_dir::DataError;
use directory::{DelegateError, FoundError, Input, Output};
use ident::{FileId, ServerId};
use lease::SessionId;
use namespace::Attributes;
use net::CredentialStore;
use parking_lot::{Condvar, Mutex, RwLock};
use raft::{
    Event, Group, GroupError, GroupFiles, GroupHost, GroupSettings, Keeping, Member, MemberPlace, Standing,
    Wires, stop,
};
use share_hosts::ShareHost;
use share_hosts::Shares;
use std::collections::BTreeMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use wire::{ExpelError, InviteError, MachineId, RevokeError, ServerAt, Space, ToClient, ToServer, Versions};

/// How often the server checks whether the holders that pending requests wait for have lapsed.
const TICK: Duration = Duration::from_millis(500);

/// The server of a machine.
pub(crate) struct Server {
    /// The groups of this machine, and its place as a member of each.
    host: OnceLock<(GroupHost, MemberPlace, Arc<dyn Wires>)>,
    /// The root server.
    root: OnceLock<Arc<HostedServer>>,
    /// The servers beside the root server, of which this machine's members are open.
    beside: RwLock<BTreeMap<ServerId, Arc<HostedServer>>>,
    share_host: Arc<ShareHost>,
    traffic: Traffic,
    /// The client of this very machine.
    here: OnceLock<Weak<dyn LocalClient>>,
    waiting: Mutex<WaitingAnswers>,
    /// Machines that are to become servers, and their numbers in the group. Only in the leader's
    /// memory: after a change of leader the command asks again.
    chosen: Mutex<BTreeMap<MachineId, u64>>,
    standing: Standings,
    damaged: Damaged,
    scrub: Scrub,
    /// The room that each server has reported. Only in the leader's memory.
    rooms: Mutex<BTreeMap<MachineId, Space>>,
    stopping: AtomicBool,
    /// The addresses at which others reach this machine's members, once they are known.
    listens_at: OnceLock<Vec<String>>,
    /// The start of each machine with unpublished uploads here when they were first seen, by the
    /// session of the uploads.
    uploads_of: Mutex<BTreeMap<(MachineId, SessionId), u64>>,
    /// Whether this server raises the cluster's version when it can.
    raises: bool,
    balance: BalanceSettings,
    balancer: Mutex<Balancer>,
    /// An older state is accepted, whatever it has forgotten.
    accepts_older: bool,
    credentials: Arc<CredentialStore>,
    /// The machines that are known to have the latest authority's key, and the authority's number.
    holders: Mutex<(Vec<MachineId>, u64)>,
    /// Whether there is a newer authority than machines have heard of, and who waits for that.
    renewed: (Mutex<bool>, Condvar),
    dir: PathBuf,
}

/// Receives the standing of the group, on the group's thread. It must not block.
pub(crate) type Standings = Box<dyn Fn(&Standing) + Send + Sync>;

/// Receives the reason why this server can serve no more, on any thread. It must not block.
pub(crate) type Damaged = Box<dyn Fn(String) + Send + Sync>;

/// Commands of people that wait for results of the directory.
#[derive(Default)]
pub(crate) struct WaitingAnswers {
    pub invited: BTreeMap<[u8; 32], SyncSender<Result<(), InviteError>>>,
    pub revoked: BTreeMap<[u8; 32], SyncSender<Result<(), RevokeError>>>,
    pub expelled: BTreeMap<MachineId, SyncSender<Result<(), ExpelError>>>,
    pub authorized: BTreeMap<u64, SyncSender<bool>>,
    pub delegated: BTreeMap<FileId, SyncSender<Result<(), DelegateError>>>,
    pub founded: BTreeMap<u64, SyncSender<Result<ServerId, FoundError>>>,
}

impl Server {
    /// Makes the server of the machine in `dir`. [`Server::serve`] adds its group.
    pub(crate) fn new(
        dir: &Path,
        share_host: Arc<ShareHost>,
        (raises, balance): (bool, BalanceSettings),
        (accepts_older, credentials): (bool, Arc<CredentialStore>),
        standing: Standings,
        damaged: Damaged,
    ) -> Arc<Server> {
        Arc::new(Server {
            host: OnceLock::new(),
            root: OnceLock::new(),
            beside: RwLock::default(),
            share_host,
            traffic: Traffic::default(),
            here: OnceLock::new(),
            waiting: Mutex::default(),
            chosen: Mutex::default(),
            standing,
            damaged,
            scrub: Scrub::of(dir),
            rooms: Mutex::default(),
            stopping: AtomicBool::new(false),
            listens_at: OnceLock::new(),
            uploads_of: Mutex::default(),
            raises,
            balance,
            balancer: Mutex::default(),
            accepts_older,
            credentials,
            holders: Mutex::default(),
            renewed: (Mutex::new(false), Condvar::new()),
            dir: dir.to_path_buf(),
        })
    }

    /// Opens this machine's members of all servers that the root server's state names. Called once,
    /// before any thread is started.
    pub(crate) fn serve(
        self: &Arc<Self>,
        here: Weak<dyn LocalClient>,
        settings: GroupSettings,
        files: GroupFiles,
        place: MemberPlace,
        wires: Arc<dyn Wires>,
    ) -> Result<(), MachineError> {
        let _ = self.here.set(here);
        let dir = files.dir.clone();
        os::private::make_dir(&dir).map_err(|source| DataError::Io {
            verb: "make",
            file: dir.clone(),
            source,
        })?;
        let failed = |source| MachineError::Group { dir: dir.clone(), source };
        let host = GroupHost::open(files, settings).map_err(failed)?;
        let _ = self.host.set((host, place.clone(), wires));
        let root = self.open(ServerId::ROOT, place.founds).map_err(failed)?;
        let _ = self.root.set(root.clone());
        root.group().begin();
        self.look(&root);
        self.open_beside().map_err(failed)
    }

    /// Opens this machine's member of the server `id`, which may found the server's group.
    fn open(self: &Arc<Self>, id: ServerId, founds: bool) -> Result<Arc<HostedServer>, GroupError> {
        let server = Arc::downgrade(self);
        let deliver = Box::new(move |event| {
            if let Some(server) = server.upgrade() {
                server.deliver(id, event);
            }
        });
        let (host, place, wires) = self.place();
        let own = self.root.get().and_then(|root| {
            let members = root.group().standing().members;
            members.into_iter().find(|member| member.id == place.member)
        });
        let host_here = own.map_or_else(|| place.host.clone(), |own| own.host);
        let (place, wires) = (MemberPlace { founds, host: host_here, ..place.clone() }, wires.clone());
        let group = match self.root.get() {
            Some(root) => {
                let registry = root.group().query(|directory, store| directory.registry(0, store));
                let first = (registry, os::utc_secs());
                host.group_beside((group_of(id), id), first, place, wires, deliver)?
            }
            None => host.group(group_of(id), root_attributes(), place, wires, deliver)?,
        };
        let receipts = match self.root.get() {
            Some(root) => root.receipts().of_another(),
            None => Receipts::new(self.accepts_older),
        };
        Ok(Arc::new(HostedServer::new(id, group, receipts)))
    }

    /// Opens this machine's members of the servers that the root server's state names, and that
    /// are not open yet. Every machine that serves is a member of each.
    pub(crate) fn open_beside(self: &Arc<Self>) -> Result<(), GroupError> {
        let known = self.group().query(|directory, store| directory.servers(store));
        for (id, founder) in known {
            if self.beside.read().contains_key(&id) {
                continue;
            }
            let hosted = self.open(id, founder == self.group().member())?;
            self.beside.write().insert(id, hosted.clone());
            hosted.group().begin();
            if let Some(addresses) = self.listens_at.get() {
                hosted.group().listens_at(addresses.clone());
            }
            self.look(&hosted);
        }
        Ok(())
    }

    /// Sets the addresses at which others reach this machine's members.
    pub(crate) fn listens_at(&self, addresses: Vec<String>) {
        // A member that is opened meanwhile finds them.
        let _ = self.listens_at.set(addresses.clone());
        self.each(|hosted| hosted.group().listens_at(addresses.clone()));
    }

    /// Acts on a change of the leader or of the members of a server.
    fn look(&self, hosted: &HostedServer) {
        let standing = hosted.group().standing();
        let change = hosted.look((standing.leads, servers(&standing)));
        if change == LeadChange::Begins {
            self.measure_at_first(hosted);
        }
        if !hosted.is_root() {
            return;
        }
        // A chosen machine stays chosen until it is a member: a machine that is neither gives up
        // the data of its server.
        let is_member = |member: u64| standing.members.iter().any(|known| known.id == member);
        self.chosen.lock().retain(|_, member| !is_member(*member));
        match change {
            LeadChange::Follows => self.chosen.lock().clear(),
            LeadChange::Begins => _ = self.renewed.1.notify_all(),
            LeadChange::GoesOn => {}
        }
        (self.standing)(&standing);
    }

    /// Returns all servers, as clients know them.
    pub(crate) fn servers(&self) -> Vec<ServerAt> {
        self.root().members()
    }

    /// The machine's data directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The certificates and the key that this machine shows others.
    pub(crate) fn credentials(&self) -> &Arc<CredentialStore> {
        &self.credentials
    }

    pub(crate) fn holders(&self) -> &Mutex<(Vec<MachineId>, u64)> {
        &self.holders
    }

    pub(crate) fn rooms(&self) -> &Mutex<BTreeMap<MachineId, Space>> {
        &self.rooms
    }

    pub(crate) fn chosen(&self) -> &Mutex<BTreeMap<MachineId, u64>> {
        &self.chosen
    }

    /// The root server's group.
    pub(crate) fn group(&self) -> &Group {
        self.root().group()
    }

    /// The root server.
    pub(crate) fn root(&self) -> &Arc<HostedServer> {
        #[expect(clippy::expect_used, reason = "set before any thread that can come here is started")]
        self.root.get().expect("the root server is open")
    }

    /// The server `id`, if this machine's member of it is open.
    pub(crate) fn hosted(&self, id: ServerId) -> Option<Arc<HostedServer>> {
        match id {
            ServerId::ROOT => self.root.get().cloned(),
            _ => self.beside.read().get(&id).cloned(),
        }
    }

    /// All servers of which this machine's members are open, the root server first.
    pub(crate) fn all_hosted(&self) -> Vec<Arc<HostedServer>> {
        self.root.get().into_iter().chain(self.beside.read().values()).cloned().collect()
    }

    /// Whether there is no server beside the root server, as far as this machine knows.
    pub(crate) fn is_one(&self) -> bool {
        self.beside.read().is_empty()
            && self.group().query(|directory, store| directory.servers(store)).is_empty()
    }

    /// Whether a member of this machine leads any server.
    pub(crate) fn leads_any(&self) -> bool {
        self.all_hosted().iter().any(|hosted| hosted.group().leads())
    }

    fn each(&self, act: impl Fn(&HostedServer)) {
        self.all_hosted().iter().for_each(|hosted| act(hosted));
    }

    fn place(&self) -> &(GroupHost, MemberPlace, Arc<dyn Wires>) {
        #[expect(clippy::expect_used, reason = "set before any thread that can come here is started")]
        self.host.get().expect("the groups' host is open")
    }

    /// The groups of this machine, and their thread.
    pub(crate) fn host(&self) -> &GroupHost {
        &self.place().0
    }

    /// Ends the groups in order, and then the groups' thread with all connections on it.
    pub(crate) fn end(&self) {
        self.each(|hosted| hosted.group().shutdown());
        self.host().end();
    }

    /// Ends the connections of a machine.
    pub(crate) fn disconnect(&self, machine: MachineId) {
        self.each(|hosted| hosted.routes().lock().disconnect(machine));
    }

    pub(crate) fn share_host(&self) -> &Arc<ShareHost> {
        &self.share_host
    }

    pub(crate) fn shares(&self) -> &Shares {
        self.share_host.shares()
    }

    /// The scrub of this server.
    pub(crate) fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    /// Sleeps for at most this long, or until the server stops.
    pub(crate) fn sleep(&self, at_most: Duration) {
        let begun = Instant::now();
        while !self.is_stopping() && begun.elapsed() < at_most {
            std::thread::sleep(TICK);
        }
    }

    /// Scrubs now and then, until the server stops.
    pub(crate) fn run_scrub(&self) {
        self.scrub.run(self, &self.dir);
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    pub(crate) fn waiting(&self) -> &Mutex<WaitingAnswers> {
        &self.waiting
    }

    /// Stops the server. Its threads end when they next look.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.share_host.stop();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The versions that this program knows.
    pub(crate) fn knows(&self) -> Versions {
        self.group().knows()
    }

    /// Whether it raises the cluster's version when it can.
    pub(crate) fn raises(&self) -> bool {
        self.raises
    }

    /// How it balances loads.
    pub(crate) fn balance_settings(&self) -> &BalanceSettings {
        &self.balance
    }

    pub(crate) fn balancer(&self) -> &Mutex<Balancer> {
        &self.balancer
    }

    /// Takes a message of a session. Never blocks.
    pub(crate) fn hear(&self, hosted: &HostedServer, session: SessionId, message: ToServer) {
        self.traffic.hear();
        hosted.group().propose(Input::Message { session, message });
    }

    /// Answers a request of a session that changes no state.
    pub(crate) fn answer(
        &self,
        hosted: &HostedServer,
        session: SessionId,
        message: &ToServer,
    ) -> Option<ToClient> {
        self.traffic.hear();
        let answer = hosted.group().answer(session, message)?;
        self.traffic.tell(&answer);
        Some(answer)
    }

    /// Handles an event of the server `id`, on the groups' thread.
    fn deliver(&self, id: ServerId, event: Event) {
        match (event, self.hosted(id)) {
            (Event::Outputs(outputs), Some(hosted)) => self.carry_out(&hosted, outputs),
            (Event::Applied(outputs), Some(hosted)) => self.follow(&hosted, outputs),
            (Event::Standing, Some(hosted)) => self.look(&hosted),
            // A lone server has done before what it replays at its start. The rest it receives
            // again when it leads.
            (Event::Outputs(_) | Event::Applied(_) | Event::Standing, None) => {}
            (Event::Replaced, _) => self.share_host.compare(),
            (Event::Ended(why), _) if why.is_damage() => (self.damaged)(why.to_string()),
            (Event::Ended(why), _) => stop(&why),
        }
    }

    /// Carries out the outputs of another leader's entry that concern this replica: each has shares
    /// of its own.
    fn follow(&self, hosted: &HostedServer, outputs: Vec<Output>) {
        let mut opened = None;
        for output in outputs {
            match output {
                Output::Shares(work) => self.share_host.work(hosted.id(), work),
                Output::Opened { machine, session, .. } => opened = Some((session, machine)),
                Output::Expelled { machine, result: Ok(()) } => self.is_expelled(machine),
                Output::Authorized { done: true, .. } => self.is_renewed(),
                Output::Delegated { region, result } => self.is_delegated(&region, result),
                Output::Send { session, message: ToClient::Opened { .. } } => {
                    if let Some((_, machine)) = opened.filter(|(opened, _)| *opened == session) {
                        self.begins(hosted, machine, session);
                    }
                }
                _ => {}
            }
        }
    }

    /// A session of `machine` has begun at a server. With one server, uploads that earlier sessions
    /// have not published are of no use any more.
    fn begins(&self, hosted: &HostedServer, machine: MachineId, session: SessionId) {
        if hosted.is_root() {
            self.share_host.begin(machine, session, self.is_one());
        }
    }

    /// Gives another server of the directory a message. Never blocks.
    fn pass_on(&self, to: ServerId, input: Input) {
        if let Some(hosted) = self.hosted(to) {
            hosted.group().pass_on(input);
        }
    }

    /// Tells the balance, and the command that waits for it, what became of a hand-over.
    fn is_delegated(&self, region: &FileId, result: Result<(), DelegateError>) {
        self.hears_move(region, result);
        let told = self.waiting.lock().delegated.remove(region);
        told.map(|tell| tell.try_send(result));
    }

    /// A machine was expelled at the root server. With several, a session at another server may
    /// publish uploads until that has heard.
    fn is_expelled(&self, machine: MachineId) {
        if self.is_one() {
            self.share_host.expelled(machine);
        }
    }

    fn carry_out(&self, hosted: &HostedServer, outputs: Vec<Output>) {
        let mut here = Vec::new();
        // The client here calls over the network once there are several servers.
        let client = self.here.get().and_then(Weak::upgrade).filter(|client| !client.is_remote());
        let mut its_session = client.as_ref().and_then(|client| client.session(hosted.id()));
        let (mut opened, mut raised) = (None, None);
        let mut routes = hosted.routes().lock();
        for output in outputs {
            match output {
                Output::Opened { machine, session, connection, .. } => {
                    opened = Some((session, machine));
                    if connection == HERE {
                        its_session = Some(session);
                        here.push(Down::Opened(session));
                    } else {
                        routes.open(session, connection);
                    }
                }
                Output::Send { session, message } => {
                    self.traffic.tell(&message);
                    let new = matches!(message, ToClient::Opened { .. });
                    if let Some((_, machine)) = opened.filter(|(opened, _)| new && *opened == session) {
                        self.begins(hosted, machine, session);
                    }
                    if its_session == Some(session) {
                        here.push(Down::Message(message));
                    } else {
                        hosted.receipts().note(session, &message);
                        routes.send(session, message);
                    }
                }
                Output::Refused { connection: HERE, why } => here.push(Down::Refused(why.to_string())),
                Output::Refused { connection, why } => {
                    routes.answer(connection, Down::Refused(why.to_string()));
                }
                Output::Enrolled { connection, result: Ok((machine, _)) } => {
                    routes.answer(connection, Down::Enrolled(machine));
                }
                Output::Enrolled { connection, result: Err(why) } => {
                    routes.answer(connection, Down::Refused(why.to_string()));
                }
                // The asker may not wait any more.
                Output::Invited { token, result } => {
                    let told = self.waiting.lock().invited.remove(&token);
                    told.map(|tell| tell.try_send(result));
                }
                Output::Revoked { token, result } => {
                    let told = self.waiting.lock().revoked.remove(&token);
                    told.map(|tell| tell.try_send(result));
                }
                Output::Expelled { machine, result } => {
                    if result.is_ok() {
                        self.is_expelled(machine);
                    }
                    let told = self.waiting.lock().expelled.remove(&machine);
                    told.map(|tell| tell.try_send(result));
                }
                Output::Shares(work) => self.share_host.work(hosted.id(), work),
                Output::Again => hosted.group().propose(Input::Tick),
                Output::Sync => {}
                Output::Delegated { region, result } => self.is_delegated(&region, result),
                Output::Founded { number, result } => {
                    let told = self.waiting.lock().founded.remove(&number);
                    told.map(|tell| tell.try_send(result));
                }
                Output::HandOver { to, message } => {
                    self.pass_on(to, Input::HandOver { from: hosted.id(), message });
                }
                Output::Joint { to, message } => {
                    self.pass_on(to, Input::Joint { from: hosted.id(), message });
                }
                Output::PathLease { to, message } => {
                    self.pass_on(to, Input::PathLease { from: hosted.id(), message });
                }
                Output::Raised { version } => raised = Some(version),
                Output::Authorized { number, done } => {
                    let told = self.waiting.lock().authorized.remove(&number);
                    told.map(|tell| tell.try_send(done));
                    self.is_renewed();
                }
            }
        }
        if let Some(version) = raised {
            // The answers to their next greetings inform the machines of the version by which they
            // decide.
            tracing::info!(%version, "the cluster's version is raised");
            routes.hang_up();
        }
        drop(routes);
        let Some(client) = client else { return };
        if !here.is_empty() {
            client.deliver(hosted.id(), here);
        }
        if raised.is_some() {
            client.open_again(hosted.id());
        }
    }

    /// Tends time, space and members until the machine stops.
    pub(crate) fn tick(self: &Arc<Self>) {
        let mut said = BTreeMap::<ServerId, LongWaits>::new();
        while !self.is_stopping() {
            self.tend_certificates();
            if self.waits_for_renewal() {
                self.tend_certificates();
                // The answers to their next greetings give the machines certificates.
                self.root().routes().lock().hang_up();
            }
            if let Err(error) = self.open_beside() {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    error,
                    "this machine's member of a server cannot be opened; it is tried again"
                );
            }
            for hosted in self.all_hosted().iter().filter(|hosted| hosted.group().leads()) {
                hosted.give_receipts();
                self.measure_space(hosted);
                if hosted.is_root() {
                    self.tend_members();
                    self.tend_version();
                } else {
                    self.follow_the_root(hosted);
                }
                if hosted.group().query(|directory, _| directory.anybody_waits()) {
                    hosted.group().propose(Input::Tick);
                    self.say_who_waits(hosted, said.entry(hosted.id()).or_default());
                }
            }
        }
    }

    /// Notes that there is another authority. Never blocks.
    fn is_renewed(&self) {
        *self.renewed.0.lock() = true;
        self.renewed.1.notify_all();
    }

    /// Waits for one tick at most. Returns whether there is another authority.
    fn waits_for_renewal(&self) -> bool {
        let mut renewed = self.renewed.0.lock();
        if !*renewed {
            self.renewed.1.wait_for(&mut renewed, TICK);
        }
        mem::take(&mut *renewed)
    }

    /// Names in the log the machines that requests wait for. The asker does not learn them
    /// (BlackBox §3.3).
    fn say_who_waits(&self, hosted: &HostedServer, said: &mut LongWaits) {
        let now = hosted.group().now();
        let waits = hosted.group().query(|directory, store| directory.waits(now, store, LONG_MS));
        for wait in said.due(waits, |wait| (wait.arrival, wait.for_ms)) {
            let seconds = |ms: u64| ms as f64 / 1e3;
            let unanswered = wait.unanswered.iter();
            let unanswered = unanswered.map(|(name, ms)| format!("{name} for {:.1} s", seconds(*ms)));
            tracing::warn!(
                machine = wait.by.as_deref().unwrap_or("the server itself"),
                operation = wait.operation,
                path = wait.path,
                seconds = seconds(wait.for_ms),
                unanswered = unanswered.collect::<Vec<_>>().join(", "),
                "a request waits; unanswered: the holders that were recalled and have not released"
            );
        }
    }

    /// Reports the free space of a new leader's own disk before anything else. The room on other
    /// disks comes later.
    fn measure_at_first(&self, hosted: &HostedServer) {
        if let Ok(here) = share_hosts::measure(&self.dir) {
            let hosts = self.share_host.peers().hosts().now();
            let space = share_hosts::cluster(&hosts, &self.rooms.lock(), here);
            hosted.group().propose(Input::Space(self.part_of(space)));
        }
    }

    /// Reports free space to a server, when it has changed enough.
    fn measure_space(&self, hosted: &HostedServer) {
        let Ok(here) = share_hosts::measure(&self.dir) else { return };
        let used_up = hosted.group().query(|directory, _| directory.used_up());
        let space = self.part_of(self.room(here));
        if hosted.measured().lock().is_due(Instant::now(), space.free + space.lends, used_up) {
            hosted.group().propose(Input::Space(space));
        }
    }

    /// The part of the space that one server may grant: all servers have the same disks.
    fn part_of(&self, space: Space) -> Space {
        let servers = self.beside.read().len() as u64 + 1;
        let free = space.free / servers;
        Space { free, lends: space.lends / servers, elsewhere: space.free - free, ..space }
    }

    pub(crate) fn uploads_of(&self) -> &Mutex<BTreeMap<(MachineId, SessionId), u64>> {
        &self.uploads_of
    }
}

/// Returns the servers of a group, as clients know them. A machine that has lost its member has a
/// later one.
pub(crate) fn servers(standing: &Standing) -> Vec<ServerAt> {
    let latest: BTreeMap<u64, &Member> =
        standing.members.iter().map(|member| (member.host.machine, member)).collect();
    let known = latest.values().filter_map(|member| match member.host.keeping {
        Keeping::Weighs(weight) => Some(u64::from(weight)),
        _ => None,
    });
    let (sum, count) = known.fold((0, 0), |(sum, count), weight| (sum + weight, count + 1));
    let average = sum.checked_div(count).map_or(1, |average| average.max(1) as u32);
    let told = latest.into_values().map(|member| ServerAt {
        machine: MachineId(member.host.machine),
        addresses: member.host.addresses.clone(),
        votes: member.votes,
        weight: match member.host.keeping {
            Keeping::Keeps => average,
            Keeping::Weighs(weight) => weight.max(1),
            Keeping::Away | Keeping::Drains => 0,
        },
    });
    told.collect()
}

/// The root of a new cluster. Everybody may enter, and the user who made the cluster may write.
fn root_attributes() -> Attributes {
    let wall = clock::now().wall;
    Attributes {
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
